package endpointchange

import (
	"context"
	"net/netip"
	"slices"
	"strings"

	"airlift/installer/cluster"
	"airlift/installer/config"
	"airlift/installer/node"
	"airlift/internal/fault"
)

// A run has the data that the parts of a Change share, and computes what the change is.
type run struct {
	options      Options
	controlPlane bool            // this node is one
	client       *cluster.Client // on a control plane, of its own API server
	config       *config.Config  // this node's, with the new endpoint
	stored       config.Cluster  // as the cluster has it now
	warnings     []string        // about fields of the stored configuration that are not kept
	turn         *node.Turn
	nodes        []cluster.NodeState // nil on a worker, which may not list them
	// late is set if another run has to finish the change on this control plane: it serves the new endpoint, but cannot use
	// it before the others serve it too; or it still serves one that was undone, because others may use it.
	late bool
}

// withPending returns the configuration of a cluster with what an interrupted run was about to store.
func withPending(c config.Cluster) config.Cluster {
	if change := c.Endpoint.Change; change != nil && change.Pending != nil {
		c.ControlPlaneEndpoint, c.APIServer.CertSANs = change.Pending.ControlPlaneEndpoint, change.Pending.CertSANs
	}
	return c
}

// plan computes the endpoint that the options add to the cluster's.
func (r *run) plan(ctx context.Context) error {
	now := r.stored.Endpoint
	want := config.Endpoint{VIPs: canonical(r.options.VIPs), Balancer: r.options.Balancer || now.Balancer, Change: now.Change}
	switch {
	case len(want.VIPs) == 0:
		want.VIPs = now.VIPs
	case !slices.Equal(now.VIPs, want.VIPs) && len(now.VIPs) > 0:
		return fault.New(fault.Usage, "the cluster has the virtual address %s already", strings.Join(now.VIPs, ", ")).
			Hint("keep it; or, if './install endpoint apply' added it, remove it first: ./install endpoint undo")
	}
	if !want.Used() && r.options.ControlPlaneEndpoint == "" {
		return fault.New(fault.Usage, "no endpoint was given").Hint("for a free address in the subnet of the control planes: ./install endpoint apply --control-plane-vip ADDRESS --control-plane-balancer")
	}
	for _, n := range r.nodes {
		for _, vip := range want.VIPs {
			if slices.Contains(n.Addresses, vip) {
				return fault.New(fault.Usage, "%s is the address of node %s", vip, n.Name).Hint("choose a free address in the subnet of the control planes")
			}
		}
	}
	if r.options.ControlPlaneEndpoint != "" {
		r.config.ControlPlaneEndpoint = r.options.ControlPlaneEndpoint
	}
	r.config.Endpoint = want
	if err := r.config.CompleteEndpoint(); err != nil {
		return err
	}
	if r.equal(now, want) {
		if now.Change == nil {
			r.keep(r.config.ServerURL(), false)
		}
		return nil
	}
	if err := r.checkFollowed(); err != nil {
		return err
	}
	before, err := r.present(ctx)
	if err != nil {
		return err
	}
	r.config.Endpoint.Change = &config.EndpointChange{Number: r.number() + 1, Server: r.config.ServerURL(), Before: before}
	return nil
}

// keep makes the present endpoint, which was never changed, what this node is to have. left is set if the cluster has none,
// and this node has.
func (r *run) keep(server string, left bool) {
	e := r.stored.Endpoint
	r.config.Endpoint.Change = &config.EndpointChange{Undone: left, Server: server, Before: config.FormerEndpoint{
		VIPs: e.VIPs, Balancer: e.Balancer, ControlPlaneEndpoint: r.stored.ControlPlaneEndpoint, CertSANs: r.stored.APIServer.CertSANs, Server: server,
	}}
}

// checkFollowed fails if nodes do not follow the last change: they may use what the next one takes away, and only the last
// one says what they had before.
func (r *run) checkFollowed() error {
	var left []string
	for _, n := range r.nodes {
		if r.stored.Endpoint.Change != nil && !r.follows(n) {
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
func (r *run) equal(now, want config.Endpoint) bool {
	return slices.Equal(now.VIPs, want.VIPs) && now.Balancer == want.Balancer &&
		r.stored.ControlPlaneEndpoint == r.config.ControlPlaneEndpoint && !r.undoes()
}

// undoes reports whether the last change of the cluster undid one.
func (r *run) undoes() bool {
	last := r.config.Endpoint.Change
	return last != nil && last.Undone
}

// number is the number of the last change.
func (r *run) number() int {
	if r.stored.Endpoint.Change == nil {
		return 0
	}
	return r.stored.Endpoint.Change.Number
}

// present is how the cluster is reached now.
func (r *run) present(ctx context.Context) (config.FormerEndpoint, error) {
	server, err := r.client.ClusterInfoServer(ctx)
	if server == "" {
		now := *r.config
		now.Cluster = r.stored
		server = now.ServerURL()
	}
	e := r.stored.Endpoint
	if e.Change != nil { // cluster-info may not have it yet
		server = e.Change.Server
	}
	return config.FormerEndpoint{
		VIPs: e.VIPs, Balancer: e.Balancer, ControlPlaneEndpoint: r.stored.ControlPlaneEndpoint, CertSANs: r.stored.APIServer.CertSANs, Server: server,
	}, err
}

// planUndo computes the endpoint before the last change.
func (r *run) planUndo() error {
	last := r.stored.Endpoint.Change
	switch {
	case last == nil:
		return fault.New(fault.Preflight, "the endpoint of this cluster was not changed").Hint("to see how the API is reached: ./install endpoint status")
	case last.Undone: // a repeated run finishes it
		return nil
	}
	planes := 0
	for _, n := range r.nodes {
		if n.Role == cluster.ControlPlaneRole {
			planes++
		}
	}
	if planes > 1 && last.Before.ControlPlaneEndpoint == "" {
		return fault.New(fault.Preflight, "without an endpoint, the cluster can have only one control plane, and it has %d", planes).
			Hint("remove the others first: ./install node remove NAME")
	}
	now, server := r.stored, last.Before.Server
	if last.Before.ControlPlaneEndpoint == "" { // the control plane of that time may have been removed
		server = r.config.LocalURL()
	}
	added := r.config.EndpointNames()
	r.config.APIServer.CertSANs = slices.DeleteFunc(slices.Clone(now.APIServer.CertSANs), func(name string) bool {
		return slices.Contains(added, name) && !slices.Contains(last.Before.CertSANs, name)
	})
	r.config.ControlPlaneEndpoint = last.Before.ControlPlaneEndpoint
	r.config.Endpoint = config.Endpoint{
		VIPs: last.Before.VIPs, Balancer: last.Before.Balancer,
		Change: &config.EndpointChange{Number: last.Number + 1, Undone: true, Server: server, Before: config.FormerEndpoint{
			VIPs: now.Endpoint.VIPs, Balancer: now.Endpoint.Balancer, ControlPlaneEndpoint: now.ControlPlaneEndpoint, CertSANs: now.APIServer.CertSANs, Server: last.Server,
		}},
	}
	return nil
}

// follows reports whether a node has recorded that it has nothing left to do.
func (r *run) follows(n cluster.NodeState) bool {
	return n.EndpointChange == r.config.Endpoint.Change.Number && !n.OnlyServes
}

// serves reports whether a node has recorded that it serves the new endpoint, or uses the former one again.
func (r *run) serves(n cluster.NodeState) bool {
	return n.EndpointChange == r.config.Endpoint.Change.Number
}

// behind returns the names of the nodes, control planes first, that do not pass the test. It reads the nodes again.
func (r *run) behind(ctx context.Context, passes func(cluster.NodeState) bool) (planes, workers []string, err error) {
	if r.nodes, err = r.client.Nodes(ctx); err != nil {
		return nil, nil, err
	}
	for _, n := range r.nodes {
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
func (r *run) newAddress() bool {
	last := r.stored.Endpoint.Change
	undone := last != nil && last.Undone && slices.Equal(last.Before.VIPs, r.config.Endpoint.VIPs)
	return len(r.stored.Endpoint.VIPs) == 0 && !undone
}

// names are the names at which clients reach the API server through the endpoint.
func (r *run) names() []string {
	names := r.config.EndpointNames()
	if host, _, err := config.SplitEndpoint(r.config.ControlPlaneEndpoint, config.DefaultBindPort); err == nil {
		names = append(names, host)
	}
	return names
}

// leadsToServing reports whether the endpoint leads only to control planes that serve it, and so have its names in their
// certificates: a virtual address does. The balancer and a load balancer also lead to the others.
func (r *run) leadsToServing() bool {
	host, _, err := config.SplitEndpoint(r.config.ControlPlaneEndpoint, config.DefaultBindPort)
	return err == nil && !r.config.Endpoint.Balancer && slices.Contains(r.config.Endpoint.VIPs, host)
}

// kubeletServer is the URL at which the kubelet of this node reaches the API.
func (r *run) kubeletServer() string { return r.config.KubeletURL(r.controlPlane) }

// formerNames are the names of the endpoint that was undone.
func (r *run) formerNames() []string {
	former := *r.config
	before := r.config.Endpoint.Change.Before
	former.Endpoint = config.Endpoint{VIPs: before.VIPs, Balancer: before.Balancer}
	names := former.EndpointNames()
	if host, _, err := config.SplitEndpoint(before.ControlPlaneEndpoint, config.DefaultBindPort); err == nil {
		names = append(names, host)
	}
	return slices.DeleteFunc(names, func(name string) bool { return name == r.config.LocalAPIEndpoint.AdvertiseAddress })
}

// pending is the change with what kubeadm-config is to have.
func (r *run) pending() config.EndpointChange {
	change := *r.config.Endpoint.Change
	change.Pending = &config.PendingEndpoint{ControlPlaneEndpoint: r.config.ControlPlaneEndpoint, CertSANs: r.config.APIServer.CertSANs}
	return change
}

// formerAddonServer is addonServer before the change.
func (r *run) formerAddonServer() string {
	before := r.config.Endpoint.Change.Before
	if before.Balancer {
		former := *r.config
		former.Endpoint = config.Endpoint{Balancer: true}
		return former.NodeURL()
	}
	return before.Server
}

// addonServer is the URL at which the add-ons of each node reach the API.
func (r *run) addonServer() string {
	if r.config.Endpoint.Balancer {
		return r.config.NodeURL()
	}
	return r.config.Endpoint.Change.Server
}

// formerServers are the URLs that the add-ons may use before the change.
func (r *run) formerServers() (list []string) {
	before := r.config.Endpoint.Change.Before
	former := *r.config
	former.Endpoint = config.Endpoint{Balancer: true}
	list = []string{before.Server, former.NodeURL()}
	for _, n := range r.nodes {
		if n.Role != cluster.ControlPlaneRole {
			continue
		}
		for _, address := range n.Addresses {
			list = append(list, (&config.Config{LocalAPIEndpoint: config.APIEndpoint{AdvertiseAddress: address, BindPort: r.config.LocalAPIEndpoint.BindPort}}).LocalURL())
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
