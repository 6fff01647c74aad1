package installer

import (
	"cmp"
	"context"
	"path"
	"slices"

	"airlift/installer/cluster"
	"airlift/installer/config"
	"airlift/installer/host"
	"airlift/installer/pki"
	"airlift/installer/preflight"
)

// A Join makes this host a node of an existing cluster.
type Join struct {
	*api
	runtimeStep  runtimeStep
	kubelet      kubelet
	controlPlane *controlPlaneJoin // nil on a worker

	cluster       *joinedCluster // nil until it is found
	kubeletPassed bool           // checkKubelet found no problem
}

// NewJoin returns a Join that runs the plan on a host.
func NewJoin(p *Plan, h *host.Host, c *Console) *Join { return newJoin(p, newMachine(h, c)) }

func newJoin(p *Plan, m *machine) *Join {
	content := &content{node: newNode(p, m)}
	j := &Join{
		api: &api{content: content}, runtimeStep: runtimeStep{content},
		kubelet: kubelet{content: content, worker: !p.controlPlane},
	}
	if p.controlPlane {
		j.controlPlane = &controlPlaneJoin{Join: j, local: &controlPlane{node: content.node}}
		j.controlPlane.local.hold = j.controlPlane.holdsStaticPod
	}
	return j
}

// JoinPhases returns the steps of join, for the names of its phases. A control
// plane has all of them, a worker only some.
func JoinPhases(controlPlane bool) []Step {
	return newJoin(&Plan{config: new(config.Config), controlPlane: controlPlane}, nil).Steps()
}

// Steps returns the steps of join in order.
//
// kubeadm has moved the phase that joins etcd. Up to v1.32 it is
// control-plane-join/etcd. Later it is etcd-join, while the kubelet requests
// its certificate. Airlift always joins etcd at the later position, and accepts
// both names to run and to skip it.
func (j *Join) Steps() []Step {
	control := func(list func(c *controlPlaneJoin) Step) []Step {
		if j.controlPlane == nil {
			return nil
		}
		return []Step{list(j.controlPlane)}
	}
	// The cluster's DaemonSets create pods for this node as soon as it is
	// registered. Without the images, the kubelet would try to pull them, and
	// wait up to minutes before the next attempt.
	images, doc := []string{"pause", "kube-proxy", "flannel"}, "import the images a worker needs"
	if j.controlPlane != nil {
		images, doc = append(append(images, "etcd"), controlPlaneComponents...), "import the control plane's images"
	}
	return slices.Concat(
		[]Step{
			{Name: "preflight", Doc: "check this host", Run: j.preflight},
			{Name: "discovery", Doc: "find the cluster and check that it is the right one", Run: j.discovery, Needed: true},
			{Name: "unpack", Doc: "install the binaries from the bundle", Run: j.unpack, Needed: true},
			{Name: "runtime", Doc: "prepare the kernel and start containerd", Run: j.withCluster(j.prepareRuntime), Needed: true},
		},
		control(func(c *controlPlaneJoin) Step {
			return Step{Name: "control-plane-prepare", Doc: "prepare the control plane", Steps: []Step{
				{Name: "download-certs", Doc: "download the certificates that all control planes share", Run: j.withCluster(c.downloadCerts)},
				{Name: "certs", Doc: "make this node's certificates", Run: j.withCluster(c.certs)},
				{Name: "kubeconfig", Doc: "make the kubeconfig files", Run: j.withCluster(c.local.kubeconfig(config.KubernetesDir, "admin", "controller-manager", "scheduler"))},
				{Name: "control-plane", Doc: "write the control plane's static pods", Run: j.withCluster(c.local.staticPods())},
			}}
		}),
		control(func(c *controlPlaneJoin) Step {
			return Step{Name: "check-etcd", Doc: "check that the cluster's etcd is healthy", Run: j.withCluster(c.checkEtcd)}
		}),
		[]Step{
			{Name: "images", Doc: doc, Run: func(ctx context.Context) error { return j.waitImages(ctx, images...) }},
			{Name: "kubelet-start", Doc: "start the kubelet", Run: j.withCluster(j.startKubelet)},
		},
		control(func(c *controlPlaneJoin) Step {
			return Step{Name: "etcd-join", Doc: "join etcd", Run: j.withCluster(c.joinEtcd)}
		}),
		[]Step{
			{Name: "kubelet-wait-bootstrap", Doc: "wait for the kubelet's certificate and its node", Run: j.withCluster(j.waitBootstrap)},
		},
		control(func(c *controlPlaneJoin) Step {
			return Step{Name: "control-plane-join", Doc: "make the node a control plane", Steps: []Step{
				{Name: "etcd", Doc: "join etcd, unless etcd-join has", Run: j.withCluster(c.joinEtcd)},
				{Name: "update-status", Doc: "nothing since v1.22, where the ClusterStatus is no more", Run: c.updateStatus},
				{Name: "mark-control-plane", Doc: "label and taint this node", Run: j.withCluster(c.markControlPlane)},
			}}
		}),
		control(func(c *controlPlaneJoin) Step {
			return Step{Name: "wait-control-plane", Doc: "wait for a healthy control plane", Run: j.withCluster(c.waitAPI)}
		}),
		[]Step{
			{Name: "pod-network", Doc: "connect to the pod network", Run: j.withCluster(j.podNetwork)},
			{Name: "wait-node", Doc: "wait until the node is Ready", Run: j.withCluster(j.waitJoined)},
		},
	)
}

// Run runs all steps except the skipped ones. A worker accepts the names of
// control plane phases too, as kubeadm does.
func (j *Join) Run(ctx context.Context) error {
	steps, all := j.Steps(), JoinPhases(true)
	skip := slices.DeleteFunc(slices.Clone(j.plan.config.SkipPhases), func(name string) bool {
		_, here := find(steps, name)
		_, known := find(all, name)
		return known && !here
	})
	j.allowEarlyStart()
	err := Run(ctx, j.console, steps, skip)
	j.content.close()
	return j.undoEarlyStart(ctx, err)
}

// RunPhase waits for the check of the bundle file and runs one step alone.
func (j *Join) RunPhase(ctx context.Context, name string) error {
	if err := j.plan.bundle.checked(ctx, j.console); err != nil {
		return err
	}
	return RunPhase(ctx, j.console, j.Steps(), name)
}

// Close stops everything that runs in the background.
func (j *Join) Close() {
	j.content.close()
	j.node.close()
}

// Preflight reports everything that prevents this host from joining. It changes
// nothing.
func (j *Join) Preflight(ctx context.Context) (preflight.Report, error) {
	if err := j.inspect(ctx); err != nil {
		return preflight.Report{}, err
	}
	var kubelet []byte
	if j.cluster != nil {
		kubelet = j.cluster.kubelet
	}
	return j.checkHost(ctx, kubelet)
}

// preflight finds the cluster first on a control plane, because the checks
// depend on the cluster's configuration. If that fails, it still reports the
// problems of the host.
func (j *Join) preflight(ctx context.Context) error {
	var lost error
	if j.controlPlane != nil {
		lost = j.needCluster(ctx)
		if ctx.Err() != nil {
			return lost
		}
	}
	report, err := j.Preflight(ctx)
	j.warn(report)
	if err != nil {
		if lost != nil {
			j.console.Warn("%s", lost)
		}
		return err
	}
	return lost
}

// checkKubelet checks the kubelet's configuration, unless it has passed already.
// On a worker, preflight runs before the cluster's KubeletConfiguration is known.
func (j *Join) checkKubelet(ctx context.Context) error {
	if j.cluster == nil || j.cluster.kubelet == nil || j.kubeletPassed {
		return nil
	}
	settings, err := j.kubeletConfig(j.cluster.kubelet)
	if err != nil {
		return err
	}
	report, err := preflight.Kubelet(ctx, j.target(settings), j.config.NodeRegistration.IgnorePreflightErrors)
	j.warn(report)
	j.kubeletPassed = err == nil
	return err
}

func (j *Join) unpack(ctx context.Context) error {
	if err := j.ready(ctx); err != nil {
		return err
	}
	if err := j.checkKubelet(ctx); err != nil {
		return err
	}
	return j.content.unpack(ctx)
}

func (j *Join) prepareRuntime(ctx context.Context) error {
	return j.runtimeStep.run(ctx, j.cluster.kubeProxy, true)
}

// startKubelet starts the kubelet with the credentials for its TLS bootstrap.
func (j *Join) startKubelet(ctx context.Context) error {
	if err := j.endEarlyStart(ctx); err != nil {
		return err
	}
	if j.plan.onePhase {
		if err := j.checkNodeName(ctx); err != nil {
			return err
		}
	}
	if err := j.writeBootstrap(); err != nil {
		return err
	}
	if err := j.checkKubelet(ctx); err != nil {
		return err
	}
	if err := j.kubelet.start(ctx, j.cluster.kubelet); err != nil {
		return err
	}
	if j.plan.onePhase && !j.localBootstrap() { // then the phase includes the wait
		return j.waitBootstrap(ctx)
	}
	return nil
}

// writeBootstrap writes the credentials for the kubelet's TLS bootstrap, unless
// the kubelet already has its own kubeconfig.
func (j *Join) writeBootstrap() error {
	var files []pki.File
	// Kubelets of this cluster look for the CA at the first path.
	places := []string{path.Join(j.config.CertificatesDir, "ca.crt"), j.config.CACertPath}
	for _, ca := range slices.Compact(places) {
		if !j.exists(ca) || j.controlPlane == nil {
			files = append(files, pki.File{Path: ca, Data: j.cluster.found.CA, Mode: 0o644})
		}
	}
	if !j.exists(kubeletConf) {
		kubeconfig := j.cluster.found.Kubeconfig
		if j.localBootstrap() {
			var err error
			if kubeconfig, err = cluster.WithServer(kubeconfig, j.config.LocalURL()); err != nil {
				return err
			}
		}
		files = append(files, pki.File{Path: bootstrapConf, Data: kubeconfig, Mode: 0o600})
	}
	return j.write(files...)
}

// localBootstrap reports whether this host's kubelet uses the API server on
// this host. Then etcd must join before the kubelet can get a certificate.
func (j *Join) localBootstrap() bool {
	return j.controlPlane != nil && j.config.ControlPlaneKubeletLocalMode()
}

// waitBootstrap waits until the kubelet has its client certificate.
func (j *Join) waitBootstrap(ctx context.Context) error {
	server := j.cluster.found.Server
	if j.localBootstrap() {
		server = j.config.LocalURL()
	}
	own, err := cluster.WaitForKubeconfig(ctx, j.host.Path(kubeletConf), server, cmp.Or(j.config.Timeouts.TLSBootstrap, nodeTimeout), j.report)
	if err != nil {
		return err
	}
	if j.exists(bootstrapConf) {
		if err := j.host.Remove(bootstrapConf); err != nil {
			return err
		}
	}
	if j.client == nil { // on a worker
		j.client = own
		j.client.SetTimeout(j.config.Timeouts.KubernetesAPICall)
	}
	if err := j.kubelet.waitHealthy(ctx); err != nil {
		return err
	}
	if err := j.registered(ctx); err != nil {
		return err
	}
	if j.controlPlane == nil {
		return nil
	}
	return j.controlPlane.local.placeHeld()
}

func (j *Join) waitJoined(ctx context.Context) error {
	if err := j.waitNode(ctx); err != nil {
		return err
	}
	switch {
	case j.changes == 0:
		j.console.Summary("This host is already a node of the cluster. Nothing was changed.\n")
	case j.controlPlane == nil:
		j.console.Summary("This host is now a node of the cluster. See it from a control plane:\n\n    kubectl get nodes\n")
	default:
		j.console.Summary("This host is now a control plane of the cluster. Use it as root:\n\n    export KUBECONFIG=" + adminConf + "\n    kubectl get nodes\n")
	}
	return nil
}
