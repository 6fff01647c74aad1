package installer

import (
	"context"
	"slices"

	kubeproxyv1 "k8s.io/kube-proxy/config/v1alpha1"

	"airlift/installer/cluster"
	"airlift/installer/host"
)

// A joinedCluster is the cluster that join found and trusts. Any step may be the
// first that needs it: discovery in a whole run, any other when a phase runs alone.
type joinedCluster struct {
	found     *cluster.Found
	version   string                              // of its Kubernetes
	kubelet   []byte                              // its KubeletConfiguration
	kubeProxy *kubeproxyv1.KubeProxyConfiguration // nil where it has no kube-proxy
}

// discovery learns whom to trust, and from them what the cluster is like,
// before anything on this host changes.
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

// withCluster finds the cluster before a step that no earlier one has found it
// for.
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

// needCluster finds the cluster, once, and adds its configuration to this node's.
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
		// What kubeadm's ConfigMap leaves out, as init has filled it; the
		// pod network's range is not a default there.
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

// findCluster returns the cluster that this host is already a control plane of, or
// else the one that the user named.
func (j *Join) findCluster(ctx context.Context) (*cluster.Found, *cluster.FetchedConfig, error) {
	if j.controlPlane != nil {
		found, fetched, err := j.controlPlane.knownCluster(ctx)
		if found != nil || err != nil {
			return found, fetched, err
		}
	}
	return j.discoverCluster(ctx)
}

// discoverCluster goes by the token or the file that the user gave.
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

// needClient gives a control plane the administrator's client as soon as there
// is one. It goes by the address that the cluster was found at: this host's own
// API server is the last to come. A worker's is its kubelet's.
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

// checkNodeName fails when somebody else in the cluster goes by this node's
// name.
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

// OwnKubeconfig is the kubeconfig with which this host reaches the cluster that
// it is a node of, the administrator's before the kubelet's, or "". A phase
// that is run alone goes by it.
func OwnKubeconfig(h *host.Host) string {
	for _, file := range []string{adminConf, kubeletConf} {
		if fileExists(h, file) {
			return file
		}
	}
	return ""
}
