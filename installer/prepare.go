package installer

import (
	"context"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"airlift/bundle"
	"airlift/fault"
	"airlift/images/store"
	"airlift/installer/config"
	"airlift/installer/host"
	"airlift/installer/patches"
	"airlift/installer/pki"
	"airlift/installer/preflight"
	"airlift/installer/render"
	"airlift/installer/timeline"
)

// The steps that init and join share: they turn a bare host into one that can
// run containers, with the bundle's images in it.

// containerdDir is the root of the bundle's containerd.
const containerdDir = "/var/lib/containerd"

// runtimeTimeout bounds the wait for a containerd that was just started; a
// slow disk takes it some seconds to open its database.
const runtimeTimeout = 60 * time.Second

// imageTimeout bounds the wait for the images. A USB 2 stick reads a bundle
// in a few seconds; a slow disk writes its 0.5 to 1 GB in a few minutes.
const imageTimeout = 30 * time.Minute

func (n *Node) preflight(ctx context.Context) error {
	report, err := n.Preflight(ctx)
	n.sayWarnings(report)
	return err
}

// checkKubelet looks at the kubelet's settings on a host that joins, when the
// cluster's are known: preflight came before.
func (n *Node) checkKubelet(ctx context.Context) error {
	if n.role == preflight.Init || n.kubelet == nil || n.kubeletFit {
		return nil
	}
	settings, err := n.plannedKubelet()
	if err != nil {
		return err
	}
	report, err := preflight.Kubelet(ctx, n.target(settings), n.Config.NodeRegistration.IgnorePreflightErrors)
	n.sayWarnings(report)
	n.kubeletFit = err == nil
	return err
}

func (n *Node) sayWarnings(report preflight.Report) {
	for _, w := range report.Warnings {
		if w.Minor && n.Console.Verbosity == 0 {
			continue
		}
		n.Console.Warn("%s: %s", w.Name, w.Message)
	}
}

// Preflight looks for everything that would keep this host from becoming what
// it is to become. It changes nothing.
func (n *Node) Preflight(ctx context.Context) (preflight.Report, error) {
	if err := n.look(ctx); err != nil {
		return preflight.Report{}, err
	}
	kubelet, err := n.plannedKubelet()
	if err != nil {
		return preflight.Report{}, err
	}
	target := n.target(kubelet)
	if target.Disk, err = n.diskSpace(ctx); err != nil {
		return preflight.Report{}, err
	}
	report, err := preflight.Run(ctx, target, n.Config.NodeRegistration.IgnorePreflightErrors)
	return n.addFileCheck(ctx, report, err)
}

// target is what preflight has to know. kubelet is the kubelet's configuration
// as it will be written, nil if not known yet.
func (n *Node) target(kubelet []byte) preflight.Target {
	return preflight.Target{
		Config: n.Config, Role: n.role, Rerun: n.rerun, Root: n.Host.Path("/"),
		Binaries: n.binaries(), Runtime: n.unfit, RuntimeInUse: n.foreign, RuntimeVersion: n.runtimeVersion, Pods: n.pods,
		MissingImages: n.missingImages(), Kubelet: kubelet,
	}
}

// plannedKubelet is the kubelet's configuration as far as it is known: a
// worker learns the cluster's only when it has found it.
func (n *Node) plannedKubelet() ([]byte, error) {
	cluster := n.kubelet
	if n.role == preflight.Init {
		var err error
		if cluster, err = render.KubeletConfig(n.Config); err != nil {
			return nil, err
		}
	}
	if cluster == nil {
		return nil, nil
	}
	settings, err := render.NodeKubeletConfig(n.Config, cluster)
	if err != nil {
		return nil, err
	}
	settings, _, err = n.patches.Apply(patches.KubeletConfiguration, settings)
	return settings, err
}

// missingImages are the components that this node needs and the bundle lacks.
func (n *Node) missingImages() []string {
	needed := []string{"pause"}
	if n.role != preflight.Join {
		needed = append(needed, "kube-apiserver", "kube-controller-manager", "kube-scheduler")
		if n.Config.Etcd.External == nil {
			needed = append(needed, "etcd")
		}
	}
	if n.role == preflight.Init && !n.Config.DNS.Disabled {
		needed = append(needed, "coredns")
	}
	if !n.Config.Proxy.Disabled {
		needed = append(needed, "kube-proxy")
	}
	if n.Config.CNI == "flannel" {
		needed = append(needed, "flannel")
	}
	return slices.DeleteFunc(needed, func(component string) bool { return n.brought[component] != "" })
}

// look finds out what is on this host already. The first step that needs to
// know asks; preflight may be skipped.
func (n *Node) look(ctx context.Context) error {
	if n.looked {
		return nil
	}
	if err := n.findEarlierRun(); err != nil {
		return err
	}
	if n.role == preflight.Init {
		if err := n.checkRunning(ctx); err != nil {
			return err
		}
	}
	n.unfit = n.detectRuntime(ctx)
	n.looked = true
	return nil
}

// findEarlierRun finds out whether this host is what it is to become already,
// wholly or in part, and refuses to make one kind of node of the other.
func (n *Node) findEarlierRun() error {
	control := n.exists(adminConf)
	worker := !control && (n.exists(kubeletConf) || n.exists(bootstrapConf))
	is, want := control, "a control plane"
	if n.role == preflight.Join {
		is, want = worker, "a worker"
	}
	if n.Host.Used() && (control || worker) && !is {
		other := "a control plane"
		if worker {
			other = "a worker of a cluster"
		}
		return fault.New(fault.Preflight, "./install reset --force makes it a bare host again; on a control plane that ends its cluster",
			"this host is %s already and cannot become %s", other, want)
	}
	n.rerun = n.Host.Used() && is
	return nil
}

// binaries are the programs that the bundle brings to this host.
func (n *Node) binaries() []host.Binary {
	var list []host.Binary
	for _, e := range n.manifest.Entries {
		if path := binaryPath(e.Name); path != "" && n.wantBinary(e.Name) {
			list = append(list, host.Binary{Path: path, SHA256: e.SHA256})
		}
	}
	return list
}

// unpack starts streaming the bundle. Programs and images arrive in the
// background, in boot order; the steps that need them wait for them.
func (n *Node) unpack(ctx context.Context) error {
	if err := n.fileChecked(ctx); err != nil { // preflight may be skipped
		return err
	}
	if err := n.look(ctx); err != nil {
		return err
	}
	if n.unfit != nil {
		return n.unfit
	}
	if err := n.checkKubelet(ctx); err != nil {
		return err
	}
	needed := []string{"bin/runc", "bin/containerd", "bin/containerd-shim-runc-v2"}
	if n.foreign {
		needed = nil
	} else if err := n.Host.SetOwnsRuntime(); err != nil {
		return err
	}
	if n.Single {
		n.stream(ctx, n.wantBinary, nil)
		return n.payload.finish(ctx)
	}
	n.stream(ctx, n.wantBinary, n.images())
	return n.payload.wait(ctx, needed...)
}

// stream starts reading the bundle in the background.
func (n *Node) stream(ctx context.Context, wantBinary func(string) bool, images []bundle.Image) {
	ctx, n.stop = context.WithCancel(ctx)
	n.payload = newPayload(n.Bundle, n.manifest, n.Host, wantBinary, images)
	n.payload.aliases = n.aliases()
	n.payload.never = n.Config.NodeRegistration.ImagePullPolicy == corev1.PullNever
	n.payload.start(ctx, n.manifest)
}

// arrived waits for entries of the bundle. Where no stream brings them they
// must be on the host already.
func (n *Node) arrived(ctx context.Context, entries ...string) error {
	if n.payload != nil {
		return n.payload.wait(ctx, entries...)
	}
	for _, e := range entries {
		if dest := binaryPath(e); !n.exists(dest) {
			return fault.New(fault.Preflight, "run 'install init phase unpack' first", "%s is not installed", dest)
		}
	}
	return nil
}

// runtime prepares the kernel and starts containerd.
func (n *Node) runtime(ctx context.Context) error {
	for _, part := range []Step{
		{Name: "folders", Run: n.prepareFolders}, {Name: "kernel", Run: n.prepareKernel},
		{Name: "routes", Run: n.prepareRoutes}, {Name: "containerd", Run: n.startContainerd},
	} {
		if err := part.run(ctx, "", n.Console, nil); err != nil {
			return err
		}
	}
	if n.payload != nil {
		n.payload.useRuntime(n.store)
	}
	return nil
}

// claim records what programs are about to fill as Airlift's. A directory that
// holds something already is refused, unless the user has said that its check
// may be ignored: then it is used, and reset leaves it.
func (n *Node) claim(claims ...host.Claim) error {
	for _, c := range claims {
		err := n.Host.Claim(c)
		if err != nil && preflight.Ignored(c.Check(), n.Config.NodeRegistration.IgnorePreflightErrors) {
			err = n.Host.Spare(c)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// claims are all that this node's programs will fill.
func (n *Node) claims() []host.Claim {
	return host.Claims(n.Config, n.role != preflight.Join, !n.foreign)
}

// claimEtcd claims etcd's data directory, where a phase runs alone.
func (n *Node) claimEtcd() error {
	for _, c := range n.claims() {
		if c.Contents == host.EtcdData {
			return n.claim(c)
		}
	}
	return nil
}

// prepareFolders makes those that containerd, the kubelet and kube-proxy's pod
// would make, so that reset knows about them.
func (n *Node) prepareFolders(context.Context) error {
	if err := n.claim(n.claims()...); err != nil {
		return err
	}
	if err := n.Host.ClaimNetwork(n.Config); err != nil {
		return err
	}
	folders := []string{config.CNIConfDir, "/usr/libexec/kubernetes/kubelet-plugins/volume/exec", "/lib/modules"}
	if !n.foreign {
		folders = append(folders, "/opt/containerd/bin", "/opt/containerd/lib")
	}
	for _, f := range folders {
		if err := n.Host.MkdirAll(f, 0o755); err != nil {
			return err
		}
	}
	if n.role != preflight.Init {
		// The kubelet writes it after its TLS bootstrap.
		if err := n.Host.ClaimFile(kubeletConf); err != nil {
			return err
		}
	}
	if n.Config.CNI == "flannel" {
		// Flannel's pod writes it when it is there before the step pod-network.
		return n.Host.ClaimFile(render.CNIConflistPath)
	}
	return nil
}

func (n *Node) prepareKernel(ctx context.Context) error {
	warnings, err := n.Host.LoadModules(ctx, n.kernelModules()...)
	if err != nil {
		return err
	}
	ipv4, ipv6 := families(n.Config.Networking.PodSubnet, n.Config.Facts.NodeIP)
	more, err := n.Host.SetSysctls(ctx, host.NodeSysctls(ipv6, ipv4))
	if err != nil {
		return err
	}
	for _, w := range append(warnings, more...) {
		n.Console.Warn("%s", w)
	}
	shared, err := n.Host.MakeRootShared(ctx)
	n.changed(shared)
	return err
}

// kernelModules are those that this node and its kube-proxy need. A node that
// joins goes by the cluster's kube-proxy.
func (n *Node) kernelModules() []string {
	modules := host.NodeModules()
	proxy := n.kubeProxy
	if n.role == preflight.Init && !n.Config.Proxy.Disabled && !n.skips("addon/kube-proxy") {
		proxy = n.Config.KubeProxy
	}
	if proxy != nil {
		modules = append(modules, host.KubeProxyModules(string(proxy.Mode), proxy.IPVS.Scheduler)...)
	}
	return modules
}

// families says which address families pods or this node use.
func families(ranges ...string) (ipv4, ipv6 bool) {
	for _, r := range ranges {
		ipv6 = ipv6 || strings.Contains(r, ":")
		ipv4 = ipv4 || strings.Contains(r, ".")
	}
	return ipv4, ipv6
}

// prepareRoutes gives host processes a way to Services where no default route
// does: without it the kernel refuses a ClusterIP before kube-proxy's rules
// see the packet.
func (n *Node) prepareRoutes(ctx context.Context) error {
	if n.Config.Facts.DefaultRoute {
		return nil
	}
	if err := n.Host.InstallStub(ctx, n.Bundle.Installer().SHA256); err != nil {
		return err
	}
	return n.Host.EnsureServiceRoute(ctx, n.Config.Networking.ServiceSubnet, n.Config.Facts.Interface)
}

// writeContainerd writes settings and unit.
func (n *Node) writeContainerd() error {
	settings, err := render.ContainerdConfig(n.Config)
	if err != nil {
		return err
	}
	return n.write(
		pki.File{Path: render.ContainerdConfigPath, Data: settings, Mode: 0o644},
		pki.File{Path: render.ContainerdUnitPath, Data: []byte(render.ContainerdUnit), Mode: 0o644},
		pki.File{Path: render.CrictlConfigPath, Data: render.CrictlConfig(n.Config), Mode: 0o644},
	)
}

func (n *Node) startContainerd(ctx context.Context) error {
	if n.foreign {
		return nil
	}
	before := n.changes
	if err := n.writeContainerd(); err != nil {
		return err
	}
	start := n.Host.EnableNow
	if n.changes != before {
		if err := n.Host.Enable(ctx, "containerd.service", true); err != nil {
			return err
		}
		start = n.Host.Restart // starts a stopped one; a running one has to read what changed
	}
	if err := start(ctx, "containerd.service"); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, runtimeTimeout)
	defer cancel()
	defer timeline.Wait(ctx, "containerd to answer").End()
	var err error
	n.store, err = store.Connect(ctx, config.ContainerdSocket)
	if err != nil {
		return fault.Wrap(err, fault.Failure, "journalctl -u containerd says why it does not answer")
	}
	return nil
}

// waitImages waits for images by component name, with a bar where somebody
// is watching.
func (n *Node) waitImages(names ...string) func(context.Context) error {
	return func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, imageTimeout)
		defer cancel()
		if n.payload == nil {
			if err := n.streamImages(ctx); err != nil {
				return err
			}
		}
		stop := n.Console.Bytes("unpacking", &n.payload.moved, &n.payload.total)
		defer stop()
		if err := n.payload.wait(ctx, n.references(names...)...); err != nil {
			return err
		}
		if n.Single {
			if err := n.payload.finish(ctx); err != nil {
				return err
			}
		}
		return n.nameSandboxImage(ctx)
	}
}

// streamImages imports the images into the container runtime that runs here.
func (n *Node) streamImages(ctx context.Context) error {
	if err := n.look(ctx); err != nil {
		return err
	}
	if n.unfit != nil {
		return n.unfit
	}
	if n.store == nil {
		var err error
		if n.store, err = store.Connect(ctx, config.ContainerdSocket); err != nil {
			return fault.Wrap(err, fault.Failure, "run 'install init phase runtime' first")
		}
	}
	n.stream(ctx, func(string) bool { return false }, n.images())
	n.payload.useRuntime(n.store)
	return nil
}

// writeKubelet writes unit and settings; cluster is the cluster-wide
// KubeletConfiguration.
func (n *Node) writeKubelet(cluster []byte, worker bool) error {
	settings, err := render.NodeKubeletConfig(n.Config, cluster)
	if err != nil {
		return err
	}
	settings, used, err := n.patches.Apply(patches.KubeletConfiguration, settings)
	if err != nil {
		return err
	}
	n.sayPatched("the kubelet's configuration", used)
	flags, err := render.KubeletFlags(n.Config, worker)
	if err != nil {
		return err
	}
	files := []pki.File{
		{Path: config.KubeletConfigFile, Data: settings, Mode: 0o644},
		{Path: config.KubeletFlagsFile, Data: flags, Mode: 0o644},
		{Path: render.KubeletUnitPath, Data: []byte(render.KubeletUnit), Mode: 0o644},
		{Path: render.KubeletDropInPath, Data: []byte(render.KubeletDropIn), Mode: 0o644},
	}
	if instance := render.KubeletInstanceConfig(n.Config); instance != nil {
		files = append(files, pki.File{Path: render.KubeletInstanceConfigPath, Data: instance, Mode: 0o644})
	}
	return n.write(files...)
}

// startKubelet puts the kubelet's unit and settings in place and starts it,
// or restarts it when one of them changed.
func (n *Node) startKubelet(ctx context.Context, cluster []byte, worker bool) error {
	before := n.changes
	if err := n.checkKubelet(ctx); err != nil {
		return err
	}
	if err := n.writeKubelet(cluster, worker); err != nil {
		return err
	}
	if err := n.ownKubeletCertDir(); err != nil {
		return err
	}
	if err := n.Host.MkdirAll(config.ManifestsDir, 0o700); err != nil {
		return err
	}
	if err := n.arrived(ctx, "bin/kubelet"); err != nil {
		return err
	}
	if n.changes == before {
		return n.Host.EnableNow(ctx, "kubelet.service")
	}
	if err := n.Host.Enable(ctx, "kubelet.service", true); err != nil {
		return err
	}
	return n.Host.Restart(ctx, "kubelet.service")
}

// ownKubeletCertDir records the kubelet's --cert-dir where that is elsewhere and
// does not exist yet: the kubelet puts rotated certificates there, which reset
// has to remove.
func (n *Node) ownKubeletCertDir() error {
	dir := n.Config.NodeRegistration.KubeletCertDir()
	if strings.HasPrefix(dir, config.KubeletDir+"/") || n.exists(dir) {
		return nil
	}
	return n.Host.Claim(host.Claim{Path: dir, Contents: "the kubelet's certificates"})
}

// podNetwork writes this node's CNI configuration, from the pod CIDR that the
// controller manager has given it.
func (n *Node) podNetwork(ctx context.Context) error {
	if n.Config.CNI == "none" {
		n.Console.Note("left to you (--cni none): the node becomes Ready when a pod network is installed")
		return nil
	}
	if n.role == preflight.Init {
		if err := n.assignPodCIDR(ctx); err != nil {
			return err
		}
	}
	cidrs, err := n.client.WaitForPodCIDR(ctx, n.Config.NodeRegistration.Name, nodeTimeout, n.report)
	if err != nil {
		return err
	}
	conflist, err := render.CNIConflist(n.Config, cidrs)
	if err != nil {
		return err
	}
	for _, e := range n.manifest.Entries {
		if plugin, ok := strings.CutPrefix(e.Name, bundle.CNIDir); ok && slices.Contains(render.CNIPlugins, plugin) {
			if err := n.arrived(ctx, e.Name); err != nil {
				return err
			}
		}
	}
	return n.write(pki.File{Path: render.CNIConflistPath, Data: conflist, Mode: 0o644})
}

// nodeTimeout bounds waits for this node; the slowest is a first start of all
// system pods on a small machine.
const nodeTimeout = 5 * time.Minute

// waitNode waits for the rest of the bundle and for the node.
func (n *Node) waitNode(ctx context.Context) error {
	if n.payload != nil {
		stop := n.Console.Bytes("unpacking", &n.payload.moved, &n.payload.total)
		err := n.payload.finish(ctx)
		stop()
		if err != nil {
			return err
		}
		n.changes += int(n.payload.changed.Load())
	}
	if n.Config.CNI == "none" {
		return n.client.WaitForNode(ctx, n.Config.NodeRegistration.Name, nodeTimeout, n.report)
	}
	return n.client.WaitForNodeReady(ctx, n.Config.NodeRegistration.Name, nodeTimeout, n.report)
}
