package installer

import (
	"context"
	"slices"

	"airlift/installer/config"
	"airlift/installer/host"
)

// A Join makes this host a node of an existing cluster.
type Join struct {
	*nodeJoin
	steps []Step
	// dryEtcd is what the step etcd-join does in a dry run. Only control planes
	// have that step.
	dryEtcd func(context.Context) error
}

// NewJoin returns a Join that runs the plan on a host.
func NewJoin(p *Plan, h *host.Host, c *Console) *Join { return newJoin(p, newMachine(h, c)) }

func newJoin(p *Plan, m *machine) *Join {
	if p.role.kind == aWorker {
		w := newWorkerJoin(p, m)
		return &Join{nodeJoin: w.nodeJoin, steps: workerSteps(w)}
	}
	c := newControlPlaneJoin(p, m)
	return &Join{nodeJoin: c.nodeJoin, steps: controlPlaneSteps(c), dryEtcd: c.dryEtcd}
}

// JoinPhases returns the steps of join, for the names of its phases. A control
// plane has all of them, a worker only some.
func JoinPhases(controlPlane bool) []Step {
	p := &Plan{config: &config.Config{ControlPlane: controlPlane}}
	p.role = joiningRole(p.config)
	return newJoin(p, nil).steps
}

// workerSteps returns the steps of a worker's join in order.
func workerSteps(w *workerJoin) []Step {
	return []Step{
		{Name: "preflight", Doc: "run the preflight checks", Run: w.preflight},
		{Name: "discovery", Doc: "discover the cluster and verify its CA", Run: w.discovery, Needed: true},
		{Name: "unpack", Doc: "install the binaries from the bundle", Run: w.unpack, Needed: true},
		{Name: "files", Doc: "write the site's own files", Run: w.site.write, Empty: len(w.plan.siteFiles()) == 0},
		{Name: "runtime", Doc: "prepare the kernel and start containerd", Run: w.withCluster(w.prepareRuntime), Needed: true},
		{Name: "images", Doc: "import the images a worker needs", Run: w.images},
		{Name: "units", Doc: "start the site's own systemd units", Run: w.site.startUnits, Empty: len(w.plan.siteUnits()) == 0},
		{Name: "kubelet-start", Doc: "start the kubelet", Run: w.withCluster(w.startKubelet)},
		{Name: "kubelet-wait-bootstrap", Doc: "wait for the kubelet's certificate and its Node object", Run: w.withCluster(w.waitBootstrap)},
		{Name: "pod-network", Doc: "connect to the pod network", Run: w.withCluster(w.podNetwork)},
		{Name: "wait-node", Doc: "wait until the node is Ready",
			Run: w.withCluster(w.waitJoined("This host is now a node of the cluster. To list the nodes, run on a control plane:\n\n    kubectl get nodes\n"))},
	}
}

// controlPlaneSteps returns the steps of a control plane's join in order.
//
// kubeadm has moved the phase that joins etcd. Up to v1.32 it is
// control-plane-join/etcd. Later it is etcd-join, while the kubelet requests
// its certificate. Airlift always joins etcd at the later position, and accepts
// both names to run and to skip it.
func controlPlaneSteps(c *controlPlaneJoin) []Step {
	return []Step{
		{Name: "preflight", Doc: "run the preflight checks", Run: c.preflight},
		{Name: "discovery", Doc: "discover the cluster and verify its CA", Run: c.discovery, Needed: true},
		{Name: "unpack", Doc: "install the binaries from the bundle", Run: c.unpack, Needed: true},
		{Name: "files", Doc: "write the site's own files", Run: c.site.write, Empty: len(c.plan.siteFiles()) == 0},
		{Name: "runtime", Doc: "prepare the kernel and start containerd", Run: c.withCluster(c.prepareRuntime), Needed: true},
		{Name: "control-plane-prepare", Doc: "prepare the control plane", Steps: []Step{
			{Name: "download-certs", Doc: "download the certificates that all control planes share", Run: c.withCluster(c.downloadCerts)},
			{Name: "certs", Doc: "create this node's certificates", Run: c.withCluster(c.certs)},
			{Name: "kubeconfig", Doc: "create the kubeconfig files", Run: c.withCluster(c.local.kubeconfig(config.KubernetesDir, "admin", "controller-manager", "scheduler"))},
			{Name: "control-plane", Doc: "write the control plane's static pod manifests", Run: c.withCluster(c.local.staticPods())},
		}},
		{Name: "check-etcd", Doc: "check that the cluster's etcd is healthy", Run: c.withCluster(c.checkEtcd)},
		{Name: "images", Doc: "import the control plane's images", Run: c.images},
		{Name: "units", Doc: "start the site's own systemd units", Run: c.site.startUnits, Empty: len(c.plan.siteUnits()) == 0},
		{Name: "kubelet-start", Doc: "start the kubelet", Run: c.withCluster(c.startKubelet)},
		{Name: "etcd-join", Doc: "join etcd", Run: c.withCluster(c.joinEtcd)},
		{Name: "kubelet-wait-bootstrap", Doc: "wait for the kubelet's certificate and its Node object", Run: c.withCluster(c.waitBootstrap)},
		{Name: "control-plane-join", Doc: "make the node a control plane", Steps: []Step{
			{Name: "etcd", Doc: "join etcd, if the phase etcd-join did not", Run: c.withCluster(c.joinEtcd)},
			{Name: "update-status", Doc: "does nothing: Kubernetes v1.22 removed the ClusterStatus", Run: c.updateStatus},
			{Name: "mark-control-plane", Doc: "label and taint this node", Run: c.withCluster(c.markControlPlane)},
		}},
		{Name: "wait-control-plane", Doc: "wait for a healthy control plane", Run: c.withCluster(c.waitControlPlane)},
		{Name: "pod-network", Doc: "connect to the pod network", Run: c.withCluster(c.podNetwork)},
		{Name: "wait-node", Doc: "wait until the node is Ready",
			Run: c.withCluster(c.waitJoined("This host is now a control plane of the cluster. Use it as root:\n\n    export KUBECONFIG=" + adminConf + "\n    kubectl get nodes\n"))},
	}
}

// Run runs all steps except the skipped ones. A worker accepts the names of
// control plane phases too, as kubeadm does.
func (j *Join) Run(ctx context.Context) error {
	all := JoinPhases(true)
	skip := slices.DeleteFunc(slices.Clone(j.plan.config.SkipPhases), func(name string) bool {
		_, here := find(j.steps, name)
		_, known := find(all, name)
		return known && !here
	})
	return Run(ctx, j.console, j.steps, skip)
}

// RunPhase waits for the check of the bundle file and runs one step alone.
func (j *Join) RunPhase(ctx context.Context, name string) error {
	if err := j.plan.bundle.checked(ctx, j.console); err != nil {
		return err
	}
	if err := UnfinishedRestore(j.existing); err != nil {
		return err
	}
	return RunPhase(ctx, j.console, j.steps, name)
}

// Close stops everything that runs in the background.
func (j *Join) Close() {
	j.turn.end()
	j.content.close()
	j.node.close()
}
