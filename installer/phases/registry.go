package phases

import (
	"context"
	"net/netip"
	"path"
	"slices"
	"strings"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"airlift/bundle"
	"airlift/installer/cluster"
	"airlift/installer/config"
	"airlift/installer/desired"
	"airlift/installer/node"
	"airlift/installer/pki"
	"airlift/installer/registry"
	"airlift/installer/registry/hosts"
	"airlift/installer/registry/service"
	"airlift/installer/registry/store"
	"airlift/installer/render"
	"airlift/installer/workflow"
)

// Registry is the step registry: a control plane keeps this file and serves it, and containerd of each node asks the control
// planes for images. Most clusters have none.
type Registry struct {
	*node.Machine
	node *Node
	api  *API
	// known are API servers that this run knows, "host:port".
	known func() []string
}

// NewRegistry returns the Registry of a run.
func NewRegistry(a *API, known func() []string) Registry {
	return Registry{a.Machine, a.Node, a, known}
}

// Step returns the step of a node, which serves if it is a control plane. prepare connects to the cluster. learn returns a
// function that learns about the cluster before it computes a list.
func (r Registry) Step(serves bool, prepare func(context.Context) error, learn func(Desired) Desired) workflow.Step {
	s := workflow.Step{Name: "registry", Doc: "use the embedded registry"}
	if serves {
		s.Doc = "start the embedded registry"
		s.Steps = append(s.Steps, workflow.Step{Name: "server", Doc: "keep this file, and serve it to the nodes", Prepare: prepare, Desired: learn(r.server), Apply: r.serve})
	}
	s.Steps = append(s.Steps, workflow.Step{Name: "node", Doc: "let containerd ask the control planes for images", Prepare: prepare, Desired: learn(r.client), Apply: r.use})
	return s
}

// server returns the files of the service, and what it needs in the cluster; nothing if the cluster has no embedded registry.
func (r Registry) server(context.Context) (l desired.List, err error) {
	if !r.used() {
		return l, nil
	}
	c := *r.node.Config
	c.Registry.Keep(registry.Describe(r.node.Plan.Bundle.File, r.node.Plan.Bundle.Manifest))
	return RegistryServer(&c)
}

func (r Registry) used() bool {
	if !r.node.Config.Registry.Used {
		r.Console.Note("this cluster has no embedded registry: nothing to do")
	}
	return r.node.Config.Registry.Used
}

// RegistryServer returns what a control plane with the configuration c needs to serve files, on this host and in the
// cluster.
func RegistryServer(c *config.Config) (l desired.List, err error) {
	if l.Files, err = registry.For(c).Files(); err != nil {
		return l, err
	}
	l.Objects, err = render.UploadRegistry(c)
	l.Objects = append(l.Objects, render.RegistryServer(c.NodeRegistration.Name))
	return l, err
}

// serve keeps the file, and starts the service.
func (r Registry) serve(ctx context.Context, l desired.List) error {
	if len(l.Files) == 0 {
		return nil
	}
	b := r.node.Plan.Bundle
	if err := KeepFile(ctx, r.Machine, registry.For(r.node.Config), b.File); err != nil {
		return err
	}
	return ServeRegistry(ctx, r.Machine, r.api.Client, l, registry.Describe(b.File, b.Manifest))
}

// KeepThin keeps the file of a joining control plane before the file is unpacked, if it is thin. So the other control planes send
// it once.
func (r Registry) KeepThin(ctx context.Context) error {
	b := r.node.Plan.Bundle
	if !b.Thin() || !r.node.Config.Registry.Used || r.node.Plan.Skips("registry") || r.node.Plan.OnePhase {
		return nil
	}
	settings := registry.For(r.node.Config)
	if err := KeepFile(ctx, r.Machine, settings, b.File); err != nil {
		return err
	}
	kept, err := store.New(r.Host.Path(settings.Directory)).Open(b.File.ID(), func(error) {})
	if err != nil {
		return err
	}
	b.ReadFrom(kept)
	return nil
}

// KeepFile copies a file to the files that this control plane serves, unless it is there.
func KeepFile(ctx context.Context, m *node.Machine, s *registry.Settings, f *bundle.File) error {
	if err := s.Prepare(m.Host); err != nil {
		return err
	}
	var moved, total atomic.Int64
	total.Store(int64(f.Trailer().FileSize()))
	stop := m.Console.Bytes("keeping this file", &moved, &total)
	kept, err := store.New(m.Host.Path(s.Directory)).Keep(ctx, f, moved.Store)
	stop()
	m.Changed(kept)
	if err != nil || !kept {
		return err
	}
	if err := service.Refresh(ctx); err != nil { // the service notices the file itself, some seconds later
		m.Console.Warn("%s", err)
	}
	return nil
}

// ServeRegistry starts the service of this control plane, which keeps a file, and adds the file to the cluster's list.
func ServeRegistry(ctx context.Context, m *node.Machine, client *cluster.Client, l desired.List, kept config.KeptBundle) error {
	others := slices.DeleteFunc(slices.Clone(l.Objects), isRegistryMap)
	if err := m.Applied(client.Apply(ctx, others...)); err != nil {
		return err
	}
	if err := m.Host.InstallSelf(ctx); err != nil {
		return err
	}
	if err := startService(ctx, m, registry.Unit, l.Files); err != nil {
		return err
	}
	changed, err := client.EditRegistry(ctx, func(e *config.EmbeddedRegistry) {
		e.Used = true
		e.Keep(kept)
	})
	m.Changed(changed)
	return err
}

// isRegistryMap reports whether an object is the ConfigMap, which other control planes change too.
func isRegistryMap(o runtime.Object) bool {
	m, ok := o.(*corev1.ConfigMap)
	return ok && m.Name == config.RegistryConfigMap
}

// StopRegistry stops the service of a control plane, and removes the files that it keeps. The copy of the installer stays: other
// units may run it.
func StopRegistry(ctx context.Context, m *node.Machine) error {
	if !m.Exists(registry.UnitPath) && !m.Exists(registry.SettingsPath) && !m.Exists(registry.Directory) {
		return nil
	}
	if err := stopService(ctx, m, registry.Unit, registry.SettingsPath, registry.UnitPath); err != nil {
		return err
	}
	return m.Host.RemoveTree(registry.Directory)
}

// client returns the configuration of this node's containerd, and the timer that keeps it current.
func (r Registry) client(ctx context.Context) (l desired.List, err error) {
	if !r.used() {
		return l, nil
	}
	l.Files = hosts.Timer.Files()
	c := *r.node.Config
	if r.node.Plan.Role.Kind == controlPlaneKind { // its own file is in the list by now
		c.Registry.Keep(registry.Describe(r.node.Plan.Bundle.File, r.node.Plan.Bundle.Manifest))
	}
	if r.node.Observed.KeepsRuntime {
		r.Console.Warn("%s", ExistingRuntime)
		return l, nil
	}
	servers, err := r.servers(ctx)
	if err != nil {
		return l, err
	}
	n := hosts.Node{Name: c.NodeRegistration.Name, ControlPlanes: servers, CA: path.Join(c.CertificatesDir, "ca.crt"), Client: pki.KubeletCertFile(&c)}
	change, err := n.Change(r.Existing, c.Registry.Registries())
	for _, name := range change.Left {
		r.Console.Warn("%s", LeftAlone(name))
	}
	l.Files = append(l.Files, change.Write...)
	return l, err
}

// ExistingRuntime is why a node's containerd does not use the embedded registry.
const ExistingRuntime = "the containerd of this host existed before Airlift, which does not change its configuration: it does not use the embedded registry"

// LeftAlone is the warning about a file or directory that Airlift does not manage.
func LeftAlone(name string) string {
	return name + " is not managed by Airlift and stays as it is: containerd asks no control plane for the images of this registry"
}

// servers returns the addresses of the registries of the control planes.
func (r Registry) servers(ctx context.Context) (list []netip.AddrPort, err error) {
	known, err := resolve(ctx, r.known())
	if err != nil {
		return nil, err
	}
	if r.api.Client != nil {
		if list, err = r.api.Client.APIServers(ctx); err != nil {
			return nil, err
		}
		known = nil
	}
	if r.node.Plan.Role.Kind == controlPlaneKind { // its API server may not have registered yet
		known = append(known, strings.TrimPrefix(r.node.Config.LocalURL(), "https://"))
	}
	for _, text := range known {
		a, err := netip.ParseAddrPort(text)
		if err != nil {
			return nil, err
		}
		list = append(list, a)
	}
	return RegistryAddresses(list), nil
}

// RegistryAddresses returns where the control planes with these API servers serve their files.
func RegistryAddresses(apiServers []netip.AddrPort) (list []netip.AddrPort) {
	for _, a := range apiServers {
		list = append(list, netip.AddrPortFrom(a.Addr(), config.RegistryPort))
	}
	slices.SortFunc(list, netip.AddrPort.Compare)
	return slices.Compact(list)
}

// use writes containerd's configuration, which it reads at each pull, when the kubelet has its certificate, and starts the
// timer.
func (r Registry) use(ctx context.Context, l desired.List) error {
	if len(l.Files) == 0 {
		return nil
	}
	if err := r.api.Client.NodeObjects().UsesRegistry(ctx, r.node.Config.NodeRegistration.Name); err != nil { // before, so that disable waits for this node
		return err
	}
	units := len(hosts.Timer.Files())
	if files := l.Files[units:]; len(files) > 0 {
		c := r.node.Config
		if err := (hosts.Node{CA: path.Join(c.CertificatesDir, "ca.crt"), Client: pki.KubeletCertFile(c)}).Check(r.Host); err != nil {
			return err
		}
		if err := r.Write(files...); err != nil {
			return err
		}
	}
	changed, err := r.Host.EnsureTimer(ctx, hosts.Timer)
	r.Changed(changed)
	return err
}
