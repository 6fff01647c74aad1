package endpointchange

import (
	"context"
	"net/netip"
	"slices"
	"strings"

	"airlift/installer/cluster"
	"airlift/installer/config"
	"airlift/internal/fault"
)

// withPending returns the configuration of a cluster with what an interrupted run was about to store.
func withPending(c config.Cluster) config.Cluster {
	if change := c.Endpoint.Change; change != nil && change.Pending != nil {
		c.ControlPlaneEndpoint, c.APIServer.CertSANs = change.Pending.ControlPlaneEndpoint, change.Pending.CertSANs
	}
	return c
}

// plan computes the endpoint that the options add to the cluster's.
func (c *Change) plan(ctx context.Context) error {
	now := c.stored.Endpoint
	want := config.Endpoint{VIPs: canonical(c.options.VIPs), Balancer: c.options.Balancer || now.Balancer, Change: now.Change}
	switch {
	case len(want.VIPs) == 0:
		want.VIPs = now.VIPs
	case !slices.Equal(now.VIPs, want.VIPs) && len(now.VIPs) > 0:
		return fault.New(fault.Usage, "the cluster has the virtual address %s already", strings.Join(now.VIPs, ", ")).
			Hint("keep it; or, if './install endpoint apply' added it, remove it first: ./install endpoint undo")
	}
	if !want.Used() && c.options.ControlPlaneEndpoint == "" {
		return fault.New(fault.Usage, "no endpoint was given").Hint("for a free address in the subnet of the control planes: ./install endpoint apply --control-plane-vip ADDRESS --control-plane-balancer")
	}
	for _, n := range c.nodes {
		for _, vip := range want.VIPs {
			if slices.Contains(n.Addresses, vip) {
				return fault.New(fault.Usage, "%s is the address of node %s", vip, n.Name).Hint("choose a free address in the subnet of the control planes")
			}
		}
	}
	if c.options.ControlPlaneEndpoint != "" {
		c.config.ControlPlaneEndpoint = c.options.ControlPlaneEndpoint
	}
	c.config.Endpoint = want
	if err := c.config.CompleteEndpoint(); err != nil {
		return err
	}
	if c.equal(now, want) {
		if now.Change == nil {
			c.keep(c.config.ServerURL(), false)
		}
		return nil
	}
	if err := c.checkFollowed(); err != nil {
		return err
	}
	before, err := c.present(ctx)
	if err != nil {
		return err
	}
	c.config.Endpoint.Change = &config.EndpointChange{Number: c.number() + 1, Server: c.config.ServerURL(), Before: before}
	return nil
}

// keep makes the present endpoint, which was never changed, what this node is to have. left is set if the cluster has none,
// and this node has.
func (c *Change) keep(server string, left bool) {
	e := c.stored.Endpoint
	c.config.Endpoint.Change = &config.EndpointChange{Undone: left, Server: server, Before: config.FormerEndpoint{
		VIPs: e.VIPs, Balancer: e.Balancer, ControlPlaneEndpoint: c.stored.ControlPlaneEndpoint, CertSANs: c.stored.APIServer.CertSANs, Server: server,
	}}
}

// checkFollowed fails if nodes do not follow the last change: they may use what the next one takes away, and only the last
// one has what they had before.
func (c *Change) checkFollowed() error {
	var left []string
	for _, n := range c.nodes {
		if c.stored.Endpoint.Change != nil && !c.follows(n) {
			left = append(left, n.Name)
		}
	}
	if len(left) == 0 {
		return nil
	}
	return fault.New(fault.Preflight, "the last change of the endpoint is not finished on: %s", strings.Join(left, ", ")).
		Hint("run there, and then here again: ./install endpoint node; a node that is lost: ./install node remove NAME; or go back first: ./install endpoint undo")
}

// equal reports whether the cluster has the new endpoint already: then a repeated run finishes the last change.
func (c *Change) equal(now, want config.Endpoint) bool {
	return slices.Equal(now.VIPs, want.VIPs) && now.Balancer == want.Balancer &&
		c.stored.ControlPlaneEndpoint == c.config.ControlPlaneEndpoint && !c.undoes()
}

// undoes reports whether the last change of the cluster undid one.
func (c *Change) undoes() bool {
	last := c.config.Endpoint.Change
	return last != nil && last.Undone
}

// number is the number of the last change.
func (c *Change) number() int {
	if c.stored.Endpoint.Change == nil {
		return 0
	}
	return c.stored.Endpoint.Change.Number
}

// present is how the cluster is reached now.
func (c *Change) present(ctx context.Context) (config.FormerEndpoint, error) {
	server, err := c.client.ClusterInfoServer(ctx)
	if server == "" {
		now := *c.config
		now.Cluster = c.stored
		server = now.ServerURL()
	}
	e := c.stored.Endpoint
	if e.Change != nil { // cluster-info may not have it yet
		server = e.Change.Server
	}
	return config.FormerEndpoint{
		VIPs: e.VIPs, Balancer: e.Balancer, ControlPlaneEndpoint: c.stored.ControlPlaneEndpoint, CertSANs: c.stored.APIServer.CertSANs, Server: server,
	}, err
}

// planUndo computes the endpoint before the last change.
func (c *Change) planUndo() error {
	last := c.stored.Endpoint.Change
	switch {
	case last == nil:
		return fault.New(fault.Preflight, "the endpoint of this cluster was not changed").Hint("to see how the API is reached: ./install endpoint status")
	case last.Undone: // a repeated run finishes it
		return nil
	}
	planes := 0
	for _, n := range c.nodes {
		if n.Role == cluster.ControlPlaneRole {
			planes++
		}
	}
	if planes > 1 && last.Before.ControlPlaneEndpoint == "" {
		return fault.New(fault.Preflight, "without an endpoint, the cluster can have only one control plane, and it has %d", planes).
			Hint("remove the others first: ./install node remove NAME")
	}
	now, server := c.stored, last.Before.Server
	if last.Before.ControlPlaneEndpoint == "" { // the control plane of that time may have been removed
		server = c.config.LocalURL()
	}
	added := c.config.EndpointNames()
	c.config.APIServer.CertSANs = slices.DeleteFunc(slices.Clone(now.APIServer.CertSANs), func(name string) bool {
		return slices.Contains(added, name) && !slices.Contains(last.Before.CertSANs, name)
	})
	c.config.ControlPlaneEndpoint = last.Before.ControlPlaneEndpoint
	c.config.Endpoint = config.Endpoint{
		VIPs: last.Before.VIPs, Balancer: last.Before.Balancer,
		Change: &config.EndpointChange{Number: last.Number + 1, Undone: true, Server: server, Before: config.FormerEndpoint{
			VIPs: now.Endpoint.VIPs, Balancer: now.Endpoint.Balancer, ControlPlaneEndpoint: now.ControlPlaneEndpoint, CertSANs: now.APIServer.CertSANs, Server: last.Server,
		}},
	}
	return nil
}

// follows reports whether a node has recorded that it has nothing left to do.
func (c *Change) follows(n cluster.NodeState) bool {
	return n.Follows.Endpoint == c.config.Endpoint.Change.Number && !n.Follows.OnlyServes
}

// serves reports whether a node has recorded that it serves the new endpoint, or uses the former one again.
func (c *Change) serves(n cluster.NodeState) bool {
	return n.Follows.Endpoint == c.config.Endpoint.Change.Number
}

// behind returns the names of the nodes, control planes first, that do not pass the test. It reads the nodes again.
func (c *Change) behind(ctx context.Context, passes func(cluster.NodeState) bool) (planes, workers []string, err error) {
	if c.nodes, err = c.client.Nodes(ctx); err != nil {
		return nil, nil, err
	}
	for _, n := range c.nodes {
		switch {
		case passes(n):
		case n.Role == cluster.ControlPlaneRole:
			planes = append(planes, n.Name)
		default:
			workers = append(workers, n.Name)
		}
	}
	return planes, workers, nil
}

// newAddress reports whether no control plane can have the virtual address yet.
func (c *Change) newAddress() bool {
	last := c.stored.Endpoint.Change
	undone := last != nil && last.Undone && slices.Equal(last.Before.VIPs, c.config.Endpoint.VIPs)
	return len(c.stored.Endpoint.VIPs) == 0 && !undone
}

// names are the names at which clients reach the API server through the endpoint.
func (c *Change) names() []string {
	names := c.config.EndpointNames()
	if host, _, err := config.SplitEndpoint(c.config.ControlPlaneEndpoint, config.DefaultBindPort); err == nil {
		names = append(names, host)
	}
	return names
}

// leadsToServing reports whether the endpoint leads only to control planes that serve it, and so have its names in their
// certificates: a virtual address does. The balancer and a load balancer also lead to the others.
func (c *Change) leadsToServing() bool {
	host, _, err := config.SplitEndpoint(c.config.ControlPlaneEndpoint, config.DefaultBindPort)
	return err == nil && !c.config.Endpoint.Balancer && slices.Contains(c.config.Endpoint.VIPs, host)
}

// kubeletServer is the URL at which the kubelet of this node reaches the API.
func (c *Change) kubeletServer() string { return c.config.KubeletURL(c.controlPlane) }

// formerNames are the names of the endpoint that was undone.
func (c *Change) formerNames() []string {
	former := *c.config
	before := c.config.Endpoint.Change.Before
	former.Endpoint = config.Endpoint{VIPs: before.VIPs, Balancer: before.Balancer}
	names := former.EndpointNames()
	if host, _, err := config.SplitEndpoint(before.ControlPlaneEndpoint, config.DefaultBindPort); err == nil {
		names = append(names, host)
	}
	return slices.DeleteFunc(names, func(name string) bool { return name == c.config.LocalAPIEndpoint.AdvertiseAddress })
}

// pending is the change with what kubeadm-config is to have.
func (c *Change) pending() config.EndpointChange {
	change := *c.config.Endpoint.Change
	change.Pending = &config.PendingEndpoint{ControlPlaneEndpoint: c.config.ControlPlaneEndpoint, CertSANs: c.config.APIServer.CertSANs}
	return change
}

// formerAddonServer is addonServer before the change.
func (c *Change) formerAddonServer() string {
	before := c.config.Endpoint.Change.Before
	if before.Balancer {
		former := *c.config
		former.Endpoint = config.Endpoint{Balancer: true}
		return former.NodeURL()
	}
	return before.Server
}

// addonServer is the URL at which the add-ons of each node reach the API.
func (c *Change) addonServer() string {
	if c.config.Endpoint.Balancer {
		return c.config.NodeURL()
	}
	return c.config.Endpoint.Change.Server
}

// formerServers are the URLs that the add-ons may use before the change.
func (c *Change) formerServers() (list []string) {
	before := c.config.Endpoint.Change.Before
	former := *c.config
	former.Endpoint = config.Endpoint{Balancer: true}
	list = []string{before.Server, former.NodeURL()}
	for _, n := range c.nodes {
		if n.Role != cluster.ControlPlaneRole {
			continue
		}
		for _, address := range n.Addresses {
			list = append(list, (&config.Config{LocalAPIEndpoint: config.APIEndpoint{AdvertiseAddress: address, BindPort: c.config.LocalAPIEndpoint.BindPort}}).LocalURL())
		}
	}
	return list
}

// canonical returns addresses as Kubernetes and certificates write them; what is none stays, and validation refuses it.
func canonical(addresses []string) (list []string) {
	for _, text := range addresses {
		if a, err := netip.ParseAddr(text); err == nil {
			text = a.String()
		}
		list = append(list, text)
	}
	return list
}
