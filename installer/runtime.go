package installer

import (
	"context"
	"net/netip"

	kubeproxyv1 "k8s.io/kube-proxy/config/v1alpha1"

	"airlift/fault"
	"airlift/images/store"
	"airlift/installer/config"
	"airlift/installer/host"
	"airlift/installer/pki"
	"airlift/installer/render"
	"airlift/installer/timeline"
)

// containerdDir is the root directory of Airlift's containerd.
const containerdDir = "/var/lib/containerd"

// runtimeStep is the step runtime: it prepares the kernel and starts containerd.
type runtimeStep struct {
	*content
}

// run runs the parts of the step. proxy is the configuration of kube-proxy on
// this node, nil if there is none. joins reports whether the kubelet gets its
// kubeconfig by TLS bootstrap.
func (r runtimeStep) run(ctx context.Context, proxy *kubeproxyv1.KubeProxyConfiguration, joins bool) error {
	for _, part := range []Step{
		{Name: "directories", Run: func(context.Context) error { return r.prepareDirectories(joins) }},
		{Name: "kernel", Run: func(ctx context.Context) error { return r.prepareKernel(ctx, proxy) }},
		{Name: "routes", Run: r.prepareRoutes},
		{Name: "containerd", Run: r.startContainerd},
	} {
		if err := part.run(ctx, "", r.console, nil); err != nil {
			return err
		}
	}
	r.runtimeStarted()
	return nil
}

// prepareDirectories creates the directories that containerd, the kubelet and
// kube-proxy would otherwise create. So the ledger has them, and reset can
// remove them.
func (r runtimeStep) prepareDirectories(joins bool) error {
	if err := r.claim(r.claims()...); err != nil {
		return err
	}
	if err := r.host.ClaimNetwork(r.config); err != nil {
		return err
	}
	directories := []string{config.CNIConfDir, "/lib/modules"}
	if !r.keepsRuntime {
		directories = append(directories, "/opt/containerd/bin", "/opt/containerd/lib")
	}
	// A kubelet without this directory only has no flex volumes. On a control plane that needs it,
	// preflight has checked it.
	if !r.host.ReadOnly(render.DefaultFlexVolumeDir) {
		directories = append(directories, render.DefaultFlexVolumeDir)
	}
	for _, f := range directories {
		if err := r.host.MkdirAll(f, 0o755); err != nil {
			return err
		}
	}
	if joins {
		// The kubelet writes this file after its TLS bootstrap.
		if err := r.host.ClaimFile(kubeletConf); err != nil {
			return err
		}
	}
	if r.config.CNI == "flannel" {
		// Flannel's pod writes this file if it runs before the step
		// pod-network.
		return r.host.ClaimFile(render.CNIConflistPath)
	}
	return nil
}

func (r runtimeStep) prepareKernel(ctx context.Context, proxy *kubeproxyv1.KubeProxyConfiguration) error {
	warnings, err := r.host.LoadModules(ctx, kernelModules(proxy)...)
	if err != nil {
		return err
	}
	ipv4, ipv6 := families(r.config)
	more, err := r.host.SetSysctls(ctx, host.NodeSysctls(ipv6, ipv4))
	if err != nil {
		return err
	}
	for _, w := range append(warnings, more...) {
		r.console.Warn("%s", w)
	}
	shared, err := r.host.MakeRootShared(ctx)
	r.changed(shared)
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
func (r runtimeStep) prepareRoutes(ctx context.Context) error {
	if r.config.Facts.DefaultRoute {
		return nil
	}
	if err := r.host.InstallStub(ctx, r.plan.bundle.file.Installer().SHA256); err != nil {
		return err
	}
	return r.host.EnsureServiceRoute(ctx, r.config.Networking.ServiceSubnet.Prefixes(), r.config.Facts.Interface)
}

// writeContainerd writes containerd's configuration and unit.
func (r runtimeStep) writeContainerd() error {
	settings, err := render.ContainerdConfig(r.config)
	if err != nil {
		return err
	}
	return r.write(
		pki.File{Path: render.ContainerdConfigPath, Data: settings, Mode: 0o644},
		pki.File{Path: render.ContainerdUnitPath, Data: []byte(render.ContainerdUnit), Mode: 0o644},
		pki.File{Path: render.CrictlConfigPath, Data: render.CrictlConfig(r.config), Mode: 0o644},
	)
}

// writeRegistries writes containerd's configuration of registries.
func (r runtimeStep) writeRegistries() error {
	for _, registry := range r.config.Registries {
		dirs := render.RegistryDirs(registry.Host)
		dir := dirs[len(dirs)-1]
		for _, d := range dirs {
			if fileExists(r.existing, d) {
				dir = d // the one that containerd would use
				break
			}
		}
		if err := r.write(render.RegistryFiles(registry, dir)...); err != nil {
			return err
		}
	}
	return nil
}

// writeFiles writes what a dry run shows of the step.
func (r runtimeStep) writeFiles() error {
	if err := r.writeContainerd(); err != nil {
		return err
	}
	return r.writeRegistries()
}

func (r runtimeStep) startContainerd(ctx context.Context) error {
	if r.keepsRuntime {
		return nil
	}
	// containerd reads these files at each pull: it need not be restarted.
	if err := r.writeRegistries(); err != nil {
		return err
	}
	before := r.changes
	if err := r.writeContainerd(); err != nil {
		return err
	}
	start := r.host.EnableNow
	stale, err := r.runtimeStale(ctx)
	if err != nil {
		return err
	}
	if r.changes != before || stale {
		if err := r.host.Enable(ctx, "containerd.service", true); err != nil {
			return err
		}
		start = r.host.Restart // starts it, or makes a running one read the new files
	}
	if err := start(ctx, "containerd.service"); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, runtimeTimeout)
	defer cancel()
	defer timeline.Wait(ctx, "containerd to answer").End()
	r.containerd, err = store.Connect(ctx, config.ContainerdSocket)
	if err != nil {
		return fault.Wrap(err, fault.Failure, "see containerd's log: journalctl -u containerd -e")
	}
	return nil
}
