package installer

import (
	"context"
	"path"

	"airlift/installer/cluster"
	"airlift/installer/config"
	"airlift/installer/pki"
	"airlift/installer/preflight"
)

// Join lists the steps that make this host a worker of an existing cluster.
func (n *Node) Join() []Step {
	n.role = preflight.Join
	return []Step{
		{Name: "preflight", Doc: "check this host", Run: n.preflight},
		{Name: "discovery", Doc: "find the cluster and check that it is the right one", Run: n.discovery, Needed: true},
		{Name: "unpack", Doc: "install the programs from the bundle", Run: n.unpack, Needed: true},
		{Name: "runtime", Doc: "prepare the kernel and start containerd", Run: n.runtime, Needed: true},
		{Name: "images", Doc: "import the images a worker needs", Run: n.waitImages("pause")},
		{Name: "kubelet-start", Doc: "start the kubelet and get its certificate", Run: n.kubeletJoin},
		{Name: "pod-network", Doc: "connect to the pod network", Run: n.withAPI(n.podNetwork)},
		{Name: "wait-node", Doc: "wait until the node is Ready", Run: n.withAPI(n.waitJoined)},
	}
}

// discovery learns whom to trust, and from them what the cluster is like,
// before anything on this host changes.
func (n *Node) discovery(ctx context.Context) error {
	found, err := cluster.Discover(ctx, n.Config.Discovery, n.report)
	if err != nil {
		return err
	}
	for _, w := range found.Warnings {
		n.Console.Warn("%s", w)
	}
	client, err := cluster.New(found.Kubeconfig, "")
	if err != nil {
		return err
	}
	if !n.rerun {
		if err := client.CheckNodeNameFree(ctx, n.Config.NodeRegistration.Name); err != nil {
			return err
		}
	}
	fetched, err := client.FetchConfig(ctx)
	if err != nil {
		return err
	}
	for _, w := range fetched.Warnings {
		n.Console.Warn("%s", w)
	}
	if err := n.Config.UseCluster(fetched.Cluster); err != nil {
		return err
	}
	n.found, n.kubelet = found, fetched.Kubelet
	n.Console.Note("cluster %s at %s, Kubernetes %s", n.Config.ClusterName, found.Server, fetched.Cluster.KubernetesVersion)
	return nil
}

func (n *Node) kubeletJoin(ctx context.Context) error {
	files := []pki.File{{Path: path.Join(config.CertificatesDir, "ca.crt"), Data: n.found.CA, Mode: 0o644}}
	if !n.exists(kubeletConf) {
		// The kubelet trades this for a certificate of its own.
		files = append(files, pki.File{Path: bootstrapConf, Data: n.found.Kubeconfig, Mode: 0o600})
	}
	if err := n.write(files...); err != nil {
		return err
	}
	if err := n.startKubelet(ctx, n.kubelet, true); err != nil {
		return err
	}
	client, err := cluster.WaitForKubeconfig(ctx, n.Host.Path(kubeletConf), n.found.Server, nodeTimeout, n.report)
	if err != nil {
		return err
	}
	n.client = client
	if n.exists(bootstrapConf) {
		if err := n.Host.Remove(bootstrapConf); err != nil {
			return err
		}
	}
	name := n.Config.NodeRegistration.Name
	if err := n.client.WaitForNode(ctx, name, nodeTimeout, n.report); err != nil {
		return err
	}
	changed, err := n.client.AnnotateCRISocket(ctx, name, n.Config.NodeRegistration.CRISocket)
	n.changed(changed)
	return err
}

func (n *Node) waitJoined(ctx context.Context) error {
	if err := n.waitNode(ctx); err != nil {
		return err
	}
	if n.changes == 0 {
		n.Console.Summary("This host is already a node of the cluster. Nothing was changed.\n")
	} else {
		n.Console.Summary("This host is now a node of the cluster. See it from a control plane:\n\n    kubectl get nodes\n")
	}
	return nil
}
