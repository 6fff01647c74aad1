package join

import (
	"context"
	"slices"
	"strings"

	kubeproxyv1 "k8s.io/kube-proxy/config/v1alpha1"

	"airlift/installer/cluster"
	"airlift/installer/cluster/discovery"
	"airlift/installer/config"
	"airlift/installer/desired"
	"airlift/installer/host"
	"airlift/installer/node"
	"airlift/installer/phases"
	"airlift/internal/fault"
)

// A joinedCluster is the cluster that join found and trusts. The first step that
// needs it finds it: preflight or discovery in a complete run, any other step if
// a phase runs alone.
type joinedCluster struct {
	found     *discovery.Cluster
	version   string                              // Kubernetes version of the control plane
	kubelet   []byte                              // the cluster's KubeletConfiguration
	kubeProxy *kubeproxyv1.KubeProxyConfiguration // nil if the cluster has no kube-proxy
}

// nodeJoin is the part of join that workers and control planes share.
type nodeJoin struct {
	*node.Machine
	node        *phases.Node
	content     *phases.Content
	api         *phases.API
	site        phases.SiteFiles
	runtimeStep phases.RuntimeStep
	endpoint    phases.Endpoint
	registry    phases.Registry
	kubelet     phases.Kubelet
	role        joinRole

	cluster       *joinedCluster // nil until it is found
	kubeletPassed bool           // checkKubelet found no problem
	turn          *node.Turn     // of the new control plane; nil on a worker
}

// A joinRole has the work in which workers and control planes differ, apart from their steps.
type joinRole interface {
	// findCluster finds the cluster and fetches its configuration.
	findCluster(context.Context) (*discovery.Cluster, *cluster.FetchedConfig, error)
	// useCluster merges the cluster's configuration into the node's. It fails
	// if the node does not fit the cluster.
	useCluster(*discovery.Cluster, config.Cluster) error
	// clientKubeconfig returns the kubeconfig of the API client, "" if it does
	// not exist yet.
	clientKubeconfig() string
	// bootstrapServer returns the URL at which the kubelet requests its
	// certificate, "" for the address at which the cluster was found.
	bootstrapServer() string
	// keepsCA reports whether a CA file that exists is not replaced.
	keepsCA() bool
}

func newNodeJoin(p *phases.Plan, m *node.Machine) *nodeJoin {
	content := phases.NewContent(phases.NewNode(p, m))
	j := &nodeJoin{
		Machine: m, node: content.Node, content: content, api: phases.NewAPI(content),
		site: phases.NewSiteFiles(content), runtimeStep: phases.NewRuntimeStep(content), kubelet: phases.NewKubelet(content),
	}
	known := func() []string { return []string{strings.TrimPrefix(j.cluster.found.Server, "https://")} }
	j.endpoint, j.registry = phases.NewEndpoint(j.node, known), phases.NewRegistry(j.api, known)
	return j
}

// discovery finds the cluster and fetches its configuration, before anything on
// this host changes.
func (j *nodeJoin) discovery(ctx context.Context) error {
	if err := j.needCluster(ctx); err != nil {
		return err
	}
	if !j.node.Observed.IsNode {
		if err := j.checkNodeName(ctx); err != nil {
			return err
		}
	}
	if err := j.attach(ctx); err != nil {
		return err
	}
	j.Console.Note("cluster %s at %s, Kubernetes %s", j.node.Config.ClusterName, j.cluster.found.Server, j.cluster.version)
	return nil
}

// find finds the cluster, unless an earlier step has.
func (j *nodeJoin) find(ctx context.Context) error {
	if err := j.needCluster(ctx); err != nil {
		return err
	}
	return j.needClient()
}

// known finds the cluster, unless an earlier step has, before it computes what a step makes true.
func (j *nodeJoin) known(compute phases.Desired) phases.Desired {
	return func(ctx context.Context) (desired.List, error) {
		if err := j.find(ctx); err != nil {
			return desired.List{}, err
		}
		return compute(ctx)
	}
}

// needCluster finds the cluster, once, and merges its configuration into this
// node's.
func (j *nodeJoin) needCluster(ctx context.Context) error {
	if j.cluster != nil {
		return nil
	}
	found, fetched, err := j.role.findCluster(ctx)
	if err != nil {
		return err
	}
	for _, w := range slices.Concat(found.Warnings, fetched.Warnings) {
		j.Console.Warn("%s", w)
	}
	if change := fetched.Cluster.Endpoint.Change; change != nil && !change.Published && !j.Exists(node.KubeletConf) {
		return fault.New(fault.Preflight, "the cluster's endpoint is being changed to %s, and not all control planes serve it yet", change.Server).
			Hint("finish the change, on each control plane: ./install endpoint node; then join again")
	}
	if err := j.role.useCluster(found, fetched.Cluster); err != nil {
		return err
	}
	named, err := j.node.Plan.NameImages(j.node.Config)
	if err != nil {
		return err
	}
	j.node.Config = named
	j.cluster = &joinedCluster{found: found, version: fetched.Cluster.KubernetesVersion, kubelet: fetched.Kubelet, kubeProxy: fetched.KubeProxy}
	return nil
}

// discoverCluster finds the cluster with the user's token or discovery file.
func (j *nodeJoin) discoverCluster(ctx context.Context) (*discovery.Cluster, *cluster.FetchedConfig, error) {
	found, err := discovery.Find(ctx, j.node.Config.Discovery, j.Report)
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

// needClient loads an API client as soon as its kubeconfig exists. It uses the
// address at which the cluster was found, because the API server of a new
// control plane starts last.
func (j *nodeJoin) needClient() (err error) {
	if kubeconfig := j.role.clientKubeconfig(); j.api.Client == nil && kubeconfig != "" {
		j.api.Client, err = node.LoadClient(j.Host, kubeconfig, j.cluster.found.Server, j.node.Config.Timeouts.KubernetesAPICall)
	}
	return err
}

// checkNodeName fails if another node in the cluster has this node's name.
func (j *nodeJoin) checkNodeName(ctx context.Context) error {
	if j.Exists(node.KubeletConf) {
		return nil
	}
	client, err := cluster.New(j.cluster.found.Kubeconfig, "")
	if err != nil {
		return err
	}
	return client.NodeObjects().CheckNodeNameFree(ctx, j.node.Config.NodeRegistration.Name)
}

// OwnKubeconfig returns the path of the kubeconfig with which this host reaches
// its cluster: admin.conf, else kubelet.conf, else "". Phases that run alone
// use it.
func OwnKubeconfig(h *host.Host) string {
	for _, file := range []string{node.AdminConf, node.KubeletConf} {
		if node.FileExists(h, file) {
			return file
		}
	}
	return ""
}
