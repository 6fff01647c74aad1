package phases

import (
	"context"
	"net"
	"slices"

	"airlift/installer/config"
	"airlift/installer/desired"
	"airlift/installer/endpoint"
	"airlift/installer/endpoint/service"
	"airlift/installer/host/ledger"
	"airlift/installer/node"
	"airlift/installer/pki"
	"airlift/installer/workflow"
	"airlift/internal/fault"
)

// Endpoint is the step endpoint: the service through which this node reaches the API servers, and which gives the
// virtual address to a healthy control plane. Most clusters have none.
type Endpoint struct {
	*node.Machine
	node *Node
	// ControlPlanes are API servers that this run knows, "host:port".
	ControlPlanes func() []string
}

// NewEndpoint returns the Endpoint of a run.
func NewEndpoint(n *Node, controlPlanes func() []string) Endpoint {
	return Endpoint{n.Machine, n, controlPlanes}
}

// Desired returns the service's settings and unit, nothing if this node needs no service.
func (e Endpoint) Desired(ctx context.Context) (l desired.List, err error) {
	if !e.node.Config.Endpoint.Used() {
		e.Console.Note("this cluster has neither a virtual address nor a balancer: nothing to do")
		return l, nil
	}
	servers, err := resolve(ctx, e.ControlPlanes())
	if err != nil {
		return l, err
	}
	return EndpointFiles(e.node.Config, e.node.Plan.Role.Kind == controlPlaneKind, servers)
}

// EndpointFiles returns the service's settings and unit, nothing if a node with the configuration c needs no service.
// servers are API servers that are known, "address:port".
func EndpointFiles(c *config.Config, controlPlane bool, servers []string) (l desired.List, err error) {
	s, err := endpoint.For(c, controlPlane, servers...)
	if err != nil || s == nil {
		return l, err
	}
	l.Files, err = s.Files()
	return l, err
}

// Apply starts the service, which has an own copy of the installer. It restarts a running one if its files changed.
func (e Endpoint) Apply(ctx context.Context, l desired.List) error {
	if len(l.Files) == 0 {
		return nil
	}
	if err := e.node.needCommand(ctx); err != nil {
		return err
	}
	return StartEndpoint(ctx, e.Machine, l)
}

// StartEndpoint writes the service's files, and starts the service with them. The host has a copy of the installer.
func StartEndpoint(ctx context.Context, m *node.Machine, l desired.List) error {
	return startService(ctx, m, endpoint.Unit, l.Files)
}

// startService writes the files of a service of the installer, and starts the service with them, also if a run was killed
// between both.
func startService(ctx context.Context, m *node.Machine, unit string, files []pki.File) error {
	before := m.Changes
	if err := m.Write(files...); err != nil {
		return err
	}
	var paths []string
	for _, f := range files {
		paths = append(paths, f.Path)
	}
	stale, err := m.Host.Systemd().StartedBefore(ctx, unit, paths...)
	if err != nil {
		return err
	}
	changed := stale || m.Changes != before
	if err := m.Host.Systemd().Enable(ctx, unit); err != nil {
		return err
	}
	if changed {
		return m.Host.Systemd().Restart(ctx, unit)
	}
	return m.Host.Systemd().Start(ctx, unit)
}

// EndpointPaths are the files that StopEndpoint removes. The last one is what a repeated run looks for.
var EndpointPaths = []string{endpoint.StateFile, endpoint.SettingsPath, endpoint.UnitPath}

// StopEndpoint stops the service, and removes its files. The copy of the installer stays: other units may run it.
func StopEndpoint(ctx context.Context, m *node.Machine) error {
	if !m.Exists(endpoint.UnitPath) && !m.Exists(endpoint.SettingsPath) {
		return nil
	}
	GiveAddressAway(ctx, m.Console)
	return stopService(ctx, m, endpoint.Unit, EndpointPaths...)
}

// stopService stops a service of the installer, and removes its files. The last one is what a repeated run looks for.
func stopService(ctx context.Context, m *node.Machine, unit string, files ...string) error {
	if err := m.Host.Systemd().DisableNow(ctx, unit); err != nil {
		return err
	}
	if err := m.Host.Records().Forget(ledger.Unit, unit); err != nil {
		return err
	}
	for _, file := range files {
		if err := m.Host.Remove(file); err != nil {
			return err
		}
	}
	m.Changed(true)
	return m.Host.Systemd().Reread(ctx, unit)
}

// GiveAddressAway gives the virtual address to another control plane, before the API server of this host ends. Then no
// client waits for it. Without another control plane that is ready, the address stays until then.
func GiveAddressAway(ctx context.Context, c *workflow.Console) {
	if err := service.Handover(ctx); err != nil && ctx.Err() == nil {
		c.Warn("the virtual address moves only when this API server has ended: %v", err)
	}
}

// RestartEndpoint makes the endpoint's service of this host, if it has one, run a new copy of the installer.
func RestartEndpoint(ctx context.Context, m *node.Machine) error {
	if !m.Exists(endpoint.UnitPath) {
		return nil
	}
	GiveAddressAway(ctx, m.Console)
	return m.Host.Systemd().Restart(ctx, endpoint.Unit)
}

// resolve replaces names by their addresses, sorted: the service must start without a name server.
func resolve(ctx context.Context, servers []string) (addresses []string, err error) {
	for _, server := range servers {
		name, port, err := net.SplitHostPort(server)
		if err != nil {
			return nil, err
		}
		found, err := net.DefaultResolver.LookupNetIP(ctx, "ip", name)
		if err != nil {
			return nil, fault.New(fault.Preflight, "finding the addresses of the API server %s for the balancer: %w", server, err).Hint("add the name to /etc/hosts, or join with an address")
		}
		for _, a := range found {
			addresses = append(addresses, net.JoinHostPort(a.Unmap().String(), port))
		}
	}
	slices.Sort(addresses)
	return slices.Compact(addresses), nil
}
