package phases

import (
	"context"
	"net/netip"

	kubeproxyv1 "k8s.io/kube-proxy/config/v1alpha1"

	"airlift/fault"
	"airlift/images/store"
	"airlift/installer/config"
	"airlift/installer/host"
	"airlift/installer/node"
	"airlift/installer/pki"
	"airlift/installer/render"
	"airlift/installer/timeline"
	"airlift/installer/workflow"
)

// RuntimeStep is the step runtime: it prepares the kernel and starts containerd.
type RuntimeStep struct {
	*node.Machine
	node    *Node
	content *Content
}

// NewRuntimeStep returns the RuntimeStep of a run.
func NewRuntimeStep(c *Content) RuntimeStep { return RuntimeStep{c.Machine, c.Node, c} }

// Run runs the parts of the step. proxy is the configuration of kube-proxy on
// this node, nil if there is none. joins reports whether the kubelet gets its
// kubeconfig by TLS bootstrap.
func (r RuntimeStep) Run(ctx context.Context, proxy *kubeproxyv1.KubeProxyConfiguration, joins bool) error {
	err := workflow.RunParts(ctx, r.Console, []workflow.Step{
		{Name: "directories", Run: func(context.Context) error { return r.prepareDirectories(joins) }},
		{Name: "kernel", Run: func(ctx context.Context) error { return r.prepareKernel(ctx, proxy) }},
		{Name: "routes", Run: r.prepareRoutes},
		{Name: "containerd", Run: r.startContainerd},
	})
	if err == nil {
		r.content.runtimeStarted()
	}
	return err
}

// prepareDirectories creates the directories that containerd, the kubelet and
// kube-proxy would otherwise create. So the ledger has them, and reset can
// remove them.
func (r RuntimeStep) prepareDirectories(joins bool) error {
	if err := r.node.claim(r.node.claims()...); err != nil {
		return err
	}
	if err := r.Host.Networks().ClaimNetwork(r.node.Config); err != nil {
		return err
	}
	directories := []string{config.CNIConfDir, "/lib/modules"}
	if !r.node.KeepsRuntime {
		directories = append(directories, "/opt/containerd/bin", "/opt/containerd/lib")
	}
	// A kubelet without this directory only has no flex volumes. On a control plane that needs it,
	// preflight has checked it.
	if !r.Host.ReadOnly(render.DefaultFlexVolumeDir) {
		directories = append(directories, render.DefaultFlexVolumeDir)
	}
	for _, f := range directories {
		if err := r.Host.MkdirAll(f, 0o755); err != nil {
			return err
		}
	}
	if joins {
		// The kubelet writes this file after its TLS bootstrap.
		if err := r.Host.Records().ClaimFile(node.KubeletConf); err != nil {
			return err
		}
	}
	if r.node.Config.CNI == "flannel" {
		// Flannel's pod writes this file if it runs before the step
		// pod-network.
		return r.Host.Records().ClaimFile(render.CNIConflistPath)
	}
	return nil
}

func (r RuntimeStep) prepareKernel(ctx context.Context, proxy *kubeproxyv1.KubeProxyConfiguration) error {
	warnings, err := r.Host.Kernel().LoadModules(ctx, kernelModules(proxy)...)
	if err != nil {
		return err
	}
	ipv4, ipv6 := families(r.node.Config)
	more, err := r.Host.Kernel().SetSysctls(ctx, host.NodeSysctls(ipv6, ipv4))
	if err != nil {
		return err
	}
	for _, w := range append(warnings, more...) {
		r.Console.Warn("%s", w)
	}
	shared, err := r.Host.Kernel().MakeRootShared(ctx)
	r.Changed(shared)
	return err
}

// kernelModules returns the kernel modules that a node and its kube-proxy need.
func kernelModules(proxy *kubeproxyv1.KubeProxyConfiguration) []string {
	modules := host.NodeModules()
	if proxy != nil {
		modules = append(modules, host.KubeProxyModules(string(proxy.Mode), proxy.IPVS.Scheduler)...)
	}
	return modules
}

// families reports which address families the pods or this node use.
func families(c *config.Config) (ipv4, ipv6 bool) {
	ipv4, ipv6 = c.Networking.PodSubnet.Families()
	if ip, err := netip.ParseAddr(c.Facts.NodeIP); err == nil {
		ipv4, ipv6 = ipv4 || ip.Is4(), ipv6 || ip.Is6()
	}
	return ipv4, ipv6
}

// prepareRoutes adds a route to the Service addresses on a host without a
// default route. Otherwise the kernel rejects connections of host processes to
// a ClusterIP before kube-proxy's rules apply.
func (r RuntimeStep) prepareRoutes(ctx context.Context) error {
	if r.node.Config.Facts.DefaultRoute {
		return nil
	}
	if err := r.Host.Kernel().InstallStub(ctx, r.node.Plan.Bundle.File.Installer().SHA256); err != nil {
		return err
	}
	return r.Host.Kernel().EnsureServiceRoute(ctx, r.node.Config.Networking.ServiceSubnet.Prefixes(), r.node.Config.Facts.Interface)
}

// writeContainerd writes containerd's configuration and unit.
func (r RuntimeStep) writeContainerd() error {
	settings, err := render.ContainerdConfig(r.node.Config)
	if err != nil {
		return err
	}
	return r.Write(
		pki.File{Path: render.ContainerdConfigPath, Data: settings, Mode: 0o644},
		pki.File{Path: render.ContainerdUnitPath, Data: []byte(render.ContainerdUnit), Mode: 0o644},
		pki.File{Path: render.CrictlConfigPath, Data: render.CrictlConfig(r.node.Config), Mode: 0o644},
	)
}

// writeRegistries writes containerd's configuration of registries.
func (r RuntimeStep) writeRegistries() error {
	for _, registry := range r.node.Config.Registries {
		dirs := render.RegistryDirs(registry.Host)
		dir := dirs[len(dirs)-1]
		for _, d := range dirs {
			if node.FileExists(r.Existing, d) {
				dir = d // the one that containerd would use
				break
			}
		}
		if err := r.Write(render.RegistryFiles(registry, dir)...); err != nil {
			return err
		}
	}
	return nil
}

// WriteFiles writes what a dry run shows of the step.
func (r RuntimeStep) WriteFiles() error {
	if err := r.writeContainerd(); err != nil {
		return err
	}
	return r.writeRegistries()
}

func (r RuntimeStep) startContainerd(ctx context.Context) error {
	if r.node.KeepsRuntime {
		return nil
	}
	// containerd reads these files at each pull: it need not be restarted.
	if err := r.writeRegistries(); err != nil {
		return err
	}
	before := r.Changes
	if err := r.writeContainerd(); err != nil {
		return err
	}
	start := r.Host.Systemd().EnableNow
	stale, err := r.runtimeStale(ctx)
	if err != nil {
		return err
	}
	if r.Changes != before || stale {
		if err := r.Host.Systemd().Enable(ctx, "containerd.service", true); err != nil {
			return err
		}
		start = r.Host.Systemd().Restart // starts it, or makes a running one read the new files
	}
	if err := start(ctx, "containerd.service"); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, node.RuntimeTimeout)
	defer cancel()
	defer timeline.Wait(ctx, "containerd to answer").End()
	r.node.Watch.Containerd, err = store.Connect(ctx, config.ContainerdSocket)
	if err != nil {
		return fault.Wrap(err, fault.Failure, "see containerd's log: journalctl -u containerd -e")
	}
	return nil
}
