package installer

import (
	"context"
	"slices"

	kubeproxyv1 "k8s.io/kube-proxy/config/v1alpha1"

	"airlift/installer/cluster"
	"airlift/installer/host"
)

// A joinedCluster is the cluster that join found and trusts. The first step that
// needs it finds it: preflight or discovery in a complete run, any other step if
// a phase runs alone.
type joinedCluster struct {
	found     *cluster.Found
	version   string                              // Kubernetes version of the control plane
	kubelet   []byte                              // the cluster's KubeletConfiguration
	kubeProxy *kubeproxyv1.KubeProxyConfiguration // nil if the cluster has no kube-proxy
}

// discovery finds the cluster and fetches its configuration, before anything on
// this host changes.
func (j *Join) discovery(ctx context.Context) error {
	if err := j.needCluster(ctx); err != nil {
		return err
	}
	if !j.rerun {
		if err := j.checkNodeName(ctx); err != nil {
			return err
		}
	}
	j.console.Note("cluster %s at %s, Kubernetes %s", j.config.ClusterName, j.cluster.found.Server, j.cluster.version)
	return nil
}

// withCluster returns a step that finds the cluster first, unless an earlier
// step has.
func (j *Join) withCluster(run func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		if err := j.needCluster(ctx); err != nil {
			return err
		}
		if err := j.needClient(); err != nil {
			return err
		}
		return run(ctx)
	}
}

// needCluster finds the cluster, once, and merges its configuration into this
// node's.
func (j *Join) needCluster(ctx context.Context) error {
	if j.cluster != nil {
		return nil
	}
	found, fetched, err := j.findCluster(ctx)
	if err != nil {
		return err
	}
	for _, w := range slices.Concat(found.Warnings, fetched.Warnings) {
		j.console.Warn("%s", w)
	}
	if j.controlPlane != nil {
		if err := j.controlPlane.checkVersion(fetched.Cluster.KubernetesVersion); err != nil {
			return err
		}
	}
	merged := *j.config
	if err := merged.UseCluster(fetched.Cluster); err != nil {
		return err
	}
	if j.controlPlane != nil {
		// The ConfigMap omits defaults: set them as init does. An empty pod
		// subnet is no default there, so it stays empty.
		pods := merged.Networking.PodSubnet
		merged.CompleteInit()
		merged.Networking.PodSubnet = pods
	}
	j.config = &merged
	if j.controlPlane != nil {
		if err := j.controlPlane.checkReady(found); err != nil {
			return err
		}
	}
	named, err := j.plan.nameImages(j.config)
	if err != nil {
		return err
	}
	j.config = named
	j.cluster = &joinedCluster{found: found, version: fetched.Cluster.KubernetesVersion, kubelet: fetched.Kubelet, kubeProxy: fetched.KubeProxy}
	return nil
}

// findCluster returns the cluster of which this host is a control plane
// already, or else the cluster that the user named.
func (j *Join) findCluster(ctx context.Context) (*cluster.Found, *cluster.FetchedConfig, error) {
	if j.controlPlane != nil {
		found, fetched, err := j.controlPlane.knownCluster(ctx)
		if found != nil || err != nil {
			return found, fetched, err
		}
	}
	return j.discoverCluster(ctx)
}

// discoverCluster finds the cluster with the user's token or discovery file.
func (j *Join) discoverCluster(ctx context.Context) (*cluster.Found, *cluster.FetchedConfig, error) {
	found, err := cluster.Discover(ctx, j.config.Discovery, j.report)
	if err != nil {
		return nil, nil, err
	}
	client, err := cluster.New(found.Kubeconfig, "")
	if err != nil {
		return nil, nil, err
	}
	fetched, err := client.FetchConfig(ctx)
	return found, fetched, err
}

// needClient loads an API client as soon as its kubeconfig exists: admin.conf
// on a control plane, kubelet.conf on a worker. It uses the address at which
// the cluster was found, because this host's own API server starts last.
func (j *Join) needClient() (err error) {
	switch {
	case j.client != nil:
	case j.controlPlane != nil && j.exists(adminConf):
		j.client, err = loadClient(j.host, adminConf, j.cluster.found.Server, j.config.Timeouts.KubernetesAPICall)
	case j.controlPlane == nil && j.exists(kubeletConf) && !j.exists(bootstrapConf):
		j.client, err = loadClient(j.host, kubeletConf, j.cluster.found.Server, j.config.Timeouts.KubernetesAPICall)
	}
	return err
}

// checkNodeName fails if another node in the cluster has this node's name.
func (j *Join) checkNodeName(ctx context.Context) error {
	if j.exists(kubeletConf) {
		return nil
	}
	client, err := cluster.New(j.cluster.found.Kubeconfig, "")
	if err != nil {
		return err
	}
	return client.CheckNodeNameFree(ctx, j.config.NodeRegistration.Name)
}

// OwnKubeconfig returns the path of the kubeconfig with which this host reaches
// its cluster: admin.conf, else kubelet.conf, else "". Phases that run alone
// use it.
func OwnKubeconfig(h *host.Host) string {
	for _, file := range []string{adminConf, kubeletConf} {
		if fileExists(h, file) {
			return file
		}
	}
	return ""
}
