// Package join makes a host a worker or another control plane of an existing cluster.
package join

import (
	"context"
	"slices"

	"airlift/installer/config"
	"airlift/installer/host"
	"airlift/installer/node"
	"airlift/installer/phases"
	"airlift/installer/preflight"
	"airlift/installer/workflow"
)

// A Join makes this host a node of an existing cluster.
type Join struct {
	*node.Machine
	node     *phases.Node
	content  *phases.Content
	nodeJoin *nodeJoin
	steps    []workflow.Step
}

// New returns a Join that runs the plan on a host.
func New(p *phases.Plan, h *host.Host, c *workflow.Console) *Join {
	return newJoin(p, node.NewMachine(h, c))
}

func newJoin(p *phases.Plan, m *node.Machine) *Join {
	if p.Role.Kind == phases.WorkerKind {
		w := newWorkerJoin(p, m)
		return &Join{Machine: m, node: w.node, content: w.nodeJoin.content, nodeJoin: w.nodeJoin, steps: workerSteps(w)}
	}
	c := newControlPlaneJoin(p, m)
	return &Join{Machine: m, node: c.node, content: c.content, nodeJoin: c.nodeJoin, steps: controlPlaneSteps(c)}
}

// Phases returns the steps of join, for the names of its phases. A control
// plane has all of them, a worker only some.
func Phases(controlPlane bool) []workflow.Step {
	p := &phases.Plan{Config: &config.Config{ControlPlane: controlPlane}}
	p.Role = phases.JoiningRole(p.Config)
	return newJoin(p, nil).steps
}

// workerSteps returns the steps of a worker's join in order.
func workerSteps(w *workerJoin) []workflow.Step {
	return []workflow.Step{
		w.nodeJoin.packages(),
		{Name: "preflight", Doc: "run the preflight checks", Run: w.nodeJoin.preflight, Reads: true},
		{Name: "discovery", Doc: "discover the cluster and verify its CA", Run: w.nodeJoin.discovery, Reads: true, Needed: true},
		{Name: "unpack", Doc: "install the binaries from the bundle", Prepare: w.nodeJoin.ready, Desired: w.nodeJoin.content.Desired, Apply: w.nodeJoin.content.Unpack, Needed: true},
		{Name: "files", Doc: "write the site's own files", Desired: w.nodeJoin.site.Desired, Apply: w.nodeJoin.site.WriteEarly, Empty: len(w.node.Plan.SiteFiles()) == 0},
		{Name: "runtime", Doc: "prepare the kernel and start containerd", Desired: w.nodeJoin.known(w.nodeJoin.runtimeStep.Desired), Apply: w.nodeJoin.prepareRuntime, Needed: true},
		{Name: "images", Doc: "import the images a worker needs", Run: w.nodeJoin.images},
		{Name: "units", Doc: "start the site's own systemd units", Run: w.nodeJoin.site.StartUnits, Empty: len(w.node.Plan.SiteUnits()) == 0},
		{Name: "endpoint", Doc: "start the balancer and the virtual address", Desired: w.nodeJoin.known(w.nodeJoin.endpoint.Desired), Apply: w.nodeJoin.endpoint.Apply},
		{Name: "kubelet-start", Doc: "start the kubelet", Prepare: w.nodeJoin.checkBeforeKubelet, Desired: w.nodeJoin.known(w.nodeJoin.kubeletFiles), Apply: w.startKubelet},
		{Name: "kubelet-wait-bootstrap", Doc: "wait for the kubelet's certificate and its Node object", Prepare: w.nodeJoin.find, Run: w.nodeJoin.waitBootstrap},
		w.nodeJoin.registry.Step(false, w.nodeJoin.find, w.nodeJoin.known),
		{Name: "pod-network", Doc: "connect to the pod network", Prepare: w.nodeJoin.find, Run: w.nodeJoin.api.PodNetwork},
		{Name: "wait-node", Doc: "wait until the node is Ready",
			Prepare: w.nodeJoin.find, Run: w.nodeJoin.waitJoined("This host is now a node of the cluster. To list the nodes, run on a control plane:\n\n    kubectl get nodes\n\nThe state of this node: airlift status\n")},
	}
}

// controlPlaneSteps returns the steps of a control plane's join in order.
//
// kubeadm has moved the phase that joins etcd. Up to v1.32 it is
// control-plane-join/etcd. Later it is etcd-join, while the kubelet requests
// its certificate. Airlift always joins etcd at the later position, and accepts
// both names to run and to skip it.
func controlPlaneSteps(c *controlPlaneJoin) []workflow.Step {
	return []workflow.Step{
		c.nodeJoin.packages(),
		{Name: "preflight", Doc: "run the preflight checks", Run: c.preflight, Reads: true},
		{Name: "discovery", Doc: "discover the cluster and verify its CA", Run: c.nodeJoin.discovery, Reads: true, Needed: true},
		{Name: "unpack", Doc: "install the binaries from the bundle", Prepare: c.nodeJoin.ready, Desired: c.content.Desired, Apply: c.unpack, Needed: true},
		{Name: "files", Doc: "write the site's own files", Desired: c.nodeJoin.site.Desired, Apply: c.nodeJoin.site.WriteEarly, Empty: len(c.node.Plan.SiteFiles()) == 0},
		{Name: "runtime", Doc: "prepare the kernel and start containerd", Desired: c.nodeJoin.known(c.nodeJoin.runtimeStep.Desired), Apply: c.nodeJoin.prepareRuntime, Needed: true},
		{Name: "control-plane-prepare", Doc: "prepare the control plane", Steps: []workflow.Step{
			{Name: "download-certs", Doc: "download the certificates that all control planes share", Desired: c.nodeJoin.known(c.certs.download), Apply: c.node.Apply},
			{Name: "certs", Doc: "create this node's certificates", Desired: c.nodeJoin.known(c.certs.createOwn), Apply: c.node.Apply},
			{Name: "kubeconfig", Doc: "create the kubeconfig files", Desired: c.nodeJoin.known(c.local.Kubeconfig(config.KubernetesDir, "admin", "controller-manager", "scheduler")), Apply: c.node.Apply},
			{Name: "control-plane", Doc: "write the control plane's static pod manifests", Desired: c.nodeJoin.known(c.staticPods), Apply: c.local.ApplyStaticPods},
		}},
		{Name: "check-etcd", Doc: "check that the cluster's etcd is healthy", Prepare: c.nodeJoin.find, Run: c.etcd.check},
		{Name: "images", Doc: "import the control plane's images", Run: c.nodeJoin.images},
		{Name: "units", Doc: "start the site's own systemd units", Run: c.nodeJoin.site.StartUnits, Empty: len(c.node.Plan.SiteUnits()) == 0},
		{Name: "endpoint", Doc: "start the balancer and the virtual address", Desired: c.nodeJoin.known(c.nodeJoin.endpoint.Desired), Apply: c.nodeJoin.endpoint.Apply},
		{Name: "kubelet-start", Doc: "start the kubelet", Prepare: c.nodeJoin.checkBeforeKubelet, Desired: c.nodeJoin.known(c.nodeJoin.kubeletFiles), Apply: c.startKubelet},
		{Name: "etcd-join", Doc: "join etcd", Prepare: c.etcd.announced, Desired: c.nodeJoin.known(c.etcd.desired), Apply: c.etcd.join},
		{Name: "kubelet-wait-bootstrap", Doc: "wait for the kubelet's certificate and its Node object", Prepare: c.nodeJoin.find, Run: c.waitBootstrap},
		{Name: "control-plane-join", Doc: "make the node a control plane", Steps: []workflow.Step{
			{Name: "etcd", Doc: "join etcd, if the phase etcd-join did not", Run: c.etcd.joinLate},
			{Name: "update-status", Doc: "does nothing: Kubernetes v1.22 removed the ClusterStatus", Run: c.updateStatus},
			{Name: "mark-control-plane", Doc: "label and taint this node", Prepare: c.nodeJoin.find, Run: c.api.MarkControlPlane},
			{Name: "serving", Doc: "approve the serving certificates of kubelets, if the cluster signs them", Prepare: c.nodeJoin.find, Desired: c.nodeJoin.known(c.node.ServingFiles), Apply: c.node.StartServing},
		}},
		{Name: "wait-control-plane", Doc: "wait for a healthy control plane", Prepare: c.nodeJoin.find, Run: c.waitControlPlane},
		c.nodeJoin.registry.Step(true, c.nodeJoin.find, c.nodeJoin.known),
		{Name: "pod-network", Doc: "connect to the pod network", Prepare: c.nodeJoin.find, Run: c.api.PodNetwork},
		{Name: "wait-node", Doc: "wait until the node is Ready",
			Prepare: c.nodeJoin.find, Run: c.nodeJoin.waitJoined("This host is now a control plane of the cluster. Use it as root:\n\n    export KUBECONFIG=" + node.AdminConf + "\n    kubectl get nodes\n    airlift status\n")},
	}
}

// Run runs all steps except the skipped ones. A worker accepts the names of
// control plane phases too, as kubeadm does.
func (j *Join) Run(ctx context.Context) error {
	all := Phases(true)
	skip := slices.DeleteFunc(slices.Clone(j.node.Plan.Config.SkipPhases), func(name string) bool {
		_, here := workflow.Find(j.steps, name)
		_, known := workflow.Find(all, name)
		return known && !here
	})
	return workflow.Run(ctx, j.Console, j.steps, skip)
}

// Preflight reports everything that prevents this host from joining. It changes nothing.
func (j *Join) Preflight(ctx context.Context) (preflight.Report, error) {
	return j.nodeJoin.findProblems(ctx)
}

// RunPhase waits for the check of the bundle file and runs one step alone.
func (j *Join) RunPhase(ctx context.Context, name string) error {
	if err := j.node.Plan.Bundle.Checked(ctx, j.Console); err != nil {
		return err
	}
	if err := node.UnfinishedRestore(j.Existing); err != nil {
		return err
	}
	return workflow.RunPhase(ctx, j.Console, j.steps, name)
}

// Close stops everything that runs in the background.
func (j *Join) Close() {
	j.nodeJoin.turn.End()
	j.content.Close()
	j.node.Close()
}
