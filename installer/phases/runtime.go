package phases

import (
	"context"
	"net/netip"
	"slices"

	kubeproxyv1 "k8s.io/kube-proxy/config/v1alpha1"

	"airlift/images/store"
	"airlift/installer/config"
	"airlift/installer/desired"
	"airlift/installer/host/kernel"
	"airlift/installer/host/ledger"
	"airlift/installer/host/podnetwork"
	"airlift/installer/node"
	"airlift/installer/pki"
	"airlift/installer/registry/hosts"
	"airlift/installer/render"
	"airlift/installer/timeline"
	"airlift/installer/workflow"
	"airlift/internal/documents"
	"airlift/internal/fault"
)

// RuntimeStep is the step runtime: it prepares the kernel and starts containerd.
type RuntimeStep struct {
	*node.Machine
	node    *Node
	content *Content
}

// NewRuntimeStep returns the RuntimeStep of a run.
func NewRuntimeStep(c *Content) RuntimeStep { return RuntimeStep{c.Machine, c.Node, c} }

// Desired returns the directories that containerd, the kubelet and etcd fill, and containerd's
// configuration and unit.
func (r RuntimeStep) Desired(ctx context.Context) (l desired.List, err error) {
	if err := r.node.Inspect(ctx); err != nil {
		return l, err
	}
	l.Claims = r.node.claims()
	if r.node.Observed.KeepsRuntime {
		return l, nil
	}
	if len(r.node.Config.Registries) > 0 {
		if l.Files, err = hosts.SiteFiles(r.Existing, r.node.Config.Registries); err != nil {
			return l, err
		}
	}
	files, err := ContainerdFiles(r.node.Config)
	l.Files = append(l.Files, files...)
	return l, err
}

// ContainerdFiles returns the configuration and the unit of the bundle's containerd, ContainerdConfigPath first.
func ContainerdFiles(c *config.Config) ([]pki.File, error) {
	settings, err := render.ContainerdConfig(c)
	if err != nil {
		return nil, err
	}
	return []pki.File{
		{Path: render.ContainerdConfigPath, Data: settings, Mode: 0o644},
		{Path: render.ContainerdUnitPath, Data: []byte(render.ContainerdUnit), Mode: 0o644},
		{Path: render.CrictlConfigPath, Data: render.CrictlConfig(c), Mode: 0o644},
	}, nil
}

// Apply runs the parts of the step. proxy is the configuration of kube-proxy on
// this node, nil if there is none, and kubelet the cluster's KubeletConfiguration.
// joins reports whether the kubelet gets its kubeconfig by TLS bootstrap.
func (r RuntimeStep) Apply(ctx context.Context, l desired.List, proxy *kubeproxyv1.KubeProxyConfiguration, kubelet []byte, joins bool) error {
	if err := r.node.Observed.RuntimeErr; err != nil { // a phase that runs alone has not called Ready
		return err
	}
	err := workflow.RunParts(ctx, r.Console, []workflow.Step{
		{Name: "directories", Run: func(context.Context) error { return r.prepareDirectories(l.Claims, joins) }},
		{Name: "kernel", Run: func(ctx context.Context) error { return r.prepareKernel(ctx, proxy, kubelet) }},
		{Name: "routes", Run: r.prepareRoutes},
		{Name: "containerd", Run: func(ctx context.Context) error { return r.startContainerd(ctx, l.Files) }},
	})
	if err == nil {
		r.content.runtimeStarted()
	}
	return err
}

// prepareDirectories creates the directories that containerd, the kubelet and
// kube-proxy would otherwise create. So the ledger has them, and reset can
// remove them.
func (r RuntimeStep) prepareDirectories(claims []ledger.Claim, joins bool) error {
	if err := r.node.claim(claims...); err != nil {
		return err
	}
	if err := podnetwork.Claim(r.Host, r.node.Config); err != nil {
		return err
	}
	directories := []string{config.CNIConfDir, "/lib/modules"}
	if !r.node.Observed.KeepsRuntime {
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

func (r RuntimeStep) prepareKernel(ctx context.Context, proxy *kubeproxyv1.KubeProxyConfiguration, cluster []byte) error {
	warnings, err := kernel.LoadModules(ctx, r.Host, kernelModules(proxy)...)
	if err != nil {
		return err
	}
	for _, w := range warnings {
		r.Console.Warn("%s", w)
	}
	kubelet, err := r.node.KubeletConfig(cluster)
	if err != nil {
		return err
	}
	if err := r.node.SetSysctls(ctx, kubelet); err != nil {
		return err
	}
	shared, err := kernel.ShareRoot(ctx, r.Host)
	r.Changed(shared)
	return err
}

// SetSysctls sets the kernel parameters that this node needs with a configuration of its kubelet, which may be nil, now and at every boot.
func (n *Node) SetSysctls(ctx context.Context, kubelet []byte) error {
	warnings, err := kernel.SetSysctls(ctx, n.Host, n.sysctls(kubelet))
	for _, w := range warnings {
		n.Console.Warn("%s", w)
	}
	return err
}

// SysctlFile returns the file that SetSysctls writes.
func (n *Node) SysctlFile(kubelet []byte) pki.File {
	path, data := kernel.SysctlFile(n.Existing.Root, n.sysctls(kubelet))
	return pki.File{Path: path, Data: data, Mode: 0o644}
}

// sysctls returns the kernel parameters that this node needs. With protectKernelDefaults, the kubelet refuses to start with other
// values of some. The preflight checks report a configuration that cannot be read.
func (n *Node) sysctls(kubelet []byte) []kernel.Sysctl {
	ipv4, ipv6 := families(n.Config)
	list := kernel.NodeSysctls(ipv6, ipv4)
	if ProtectsKernelDefaults(kubelet) {
		list = append(list, kernel.KubeletSysctls()...)
	}
	return list
}

// ProtectsKernelDefaults reports whether a kubelet with this configuration does not start with other kernel parameters than its own.
func ProtectsKernelDefaults(kubelet []byte) bool {
	var settings struct {
		ProtectKernelDefaults bool `json:"protectKernelDefaults"`
	}
	return kubelet != nil && documents.Unmarshal(kubelet, &settings) == nil && settings.ProtectKernelDefaults
}

// kernelModules returns the kernel modules that a node and its kube-proxy need.
func kernelModules(proxy *kubeproxyv1.KubeProxyConfiguration) []string {
	modules := kernel.NodeModules()
	if proxy != nil {
		modules = append(modules, kernel.KubeProxyModules(string(proxy.Mode), proxy.IPVS.Scheduler)...)
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
	if err := r.node.needCommand(ctx); err != nil {
		return err
	}
	return kernel.EnsureServiceRoute(ctx, r.Host, r.node.Config.Networking.ServiceSubnet.Prefixes(), r.node.Config.Facts.Interface)
}

// startContainerd writes containerd's files and starts it. It restarts a running one if its configuration or
// unit changed. containerd reads the configuration of registries at each pull.
func (r RuntimeStep) startContainerd(ctx context.Context, files []pki.File) error {
	if r.node.Observed.KeepsRuntime {
		return nil
	}
	own := slices.IndexFunc(files, func(f pki.File) bool { return f.Path == render.ContainerdConfigPath })
	if err := r.Write(files[:own]...); err != nil {
		return err
	}
	if err := r.node.CheckContainerd(ctx, r.node.Config.NodeRegistration.IgnorePreflightErrors, files[own]); err != nil {
		return err
	}
	before := r.Changes
	if err := r.Write(files[own:]...); err != nil {
		return err
	}
	start := r.Host.Systemd().EnableNow
	stale, err := r.runtimeStale(ctx)
	if err != nil {
		return err
	}
	if r.Changes != before || stale {
		if err := r.Host.Systemd().Enable(ctx, "containerd.service"); err != nil {
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
