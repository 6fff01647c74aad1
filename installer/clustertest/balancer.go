package clustertest

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"airlift/installer/clustertest/diagnosis"
	"airlift/installer/clustertest/probe"
	"airlift/installer/loadbalancer"
	"airlift/installer/loadbalancer/agent"
)

// addressTime is how long a Service waits for its addresses: longer than another node needs to decide after the deciding node was lost.
const addressTime = 20 * time.Second

// readBalancer reads whether the add-on load-balancer can give the Service of the test an address.
func (t *Test) readBalancer(ctx context.Context) error {
	state, err := agent.ReadState(ctx, t.Client.API)
	switch {
	case err != nil || state == nil:
		return err
	case state.Damaged != nil:
		t.seen = append(t.seen, diagnosis.Observation{Kind: diagnosis.AddressGiven, Via: diagnosis.AddressTable, Detail: state.Damaged.Error()})
	case state.Refused != nil:
		t.seen = append(t.seen, diagnosis.Observation{Kind: diagnosis.AddressGiven, Via: diagnosis.AddressPools, Detail: "the ConfigMap load-balancer/pools is refused: " + state.Refused.Error()})
	case len(state.Pools[loadbalancer.DefaultPool]) == 0:
		t.note("the load balancer is not tested: it has no pool %q", loadbalancer.DefaultPool)
	case len(t.site.tested) > 0 && t.leaveFull(state):
		t.site.balancer = state
	}
	return nil
}

// leaveFull takes the families of which all addresses are in use out of the default pool, and reports whether one is left: a pool with as many
// addresses as a site needs is no fault.
func (t *Test) leaveFull(state *agent.State) (left bool) {
	const pool = loadbalancer.DefaultPool
	used := map[netip.Addr]string{}
	for _, s := range state.Services {
		for _, a := range s.Addresses {
			used[a] = s.Name
		}
	}
	for family, bits := range map[string]int{"IPv4": 32, "IPv6": 128} {
		if !state.Pools.Has(pool, bits) {
			continue
		}
		if _, free := state.Pools.Free(pool, bits, used); free {
			left = true
			continue
		}
		t.note("the load balancer is not tested with %s: the pool %q has no free address", family, pool)
		state.Pools[pool] = slices.DeleteFunc(state.Pools[pool], func(r loadbalancer.Range) bool { return r.First.BitLen() == bits })
	}
	return left
}

// awaitAddresses waits until the Service has an address of each family that it and the pool have, and a node announces each.
func (t *Test) awaitAddresses(ctx context.Context) error {
	if t.site.balancer == nil {
		return nil
	}
	first, end := "", time.Now().Add(addressTime)
	for {
		state, err := repeat(ctx, func() (*agent.State, error) { return agent.ReadState(ctx, t.Client.API) })
		if err != nil {
			return err
		}
		if state == nil {
			state = &agent.State{} // it was removed meanwhile
		}
		first = cmp.Or(first, state.Renewal)
		seen, addresses, ok := t.addressesGiven(state, state.Renewal != first)
		if ok && len(seen) == 0 {
			t.note("the load balancer is not tested: the pool %q has no address of an IP family of the cluster", loadbalancer.DefaultPool)
		}
		if ok || time.Now().After(end) {
			t.seen, t.balanced, t.site.balancer = append(t.seen, seen...), addresses, state
			return nil
		}
		if err := pause(ctx, poll); err != nil {
			return err
		}
	}
}

// addressesGiven returns what is known of the addresses of the Service. decides is whether a node renews the Lease of the assignments.
func (t *Test) addressesGiven(state *agent.State, decides bool) (seen []diagnosis.Observation, list []Address, ok bool) {
	var service agent.ServiceState
	for _, s := range state.Services {
		if s.Name == Namespace+"/"+balancedName {
			service = s
		}
	}
	ok = true
	for _, cluster := range t.addresses[balancedName] {
		bits := 32
		if probe.FamilyOf(cluster) == "IPv6" {
			bits = 128
		}
		if !t.site.balancer.Pools.Has(loadbalancer.DefaultPool, bits) {
			continue
		}
		i := slices.IndexFunc(service.Addresses, func(a netip.Addr) bool { return a.BitLen() == bits })
		o := diagnosis.Observation{Kind: diagnosis.AddressGiven, Via: probe.FamilyOf(cluster), OK: i >= 0}
		switch {
		case o.OK:
		case state.Damaged != nil:
			o.Via, o.Detail = diagnosis.AddressTable, state.Damaged.Error()
		case state.Refused != nil:
			o.Via, o.Detail = diagnosis.AddressPools, "the ConfigMap load-balancer/pools is refused: "+state.Refused.Error()
		case !decides:
			o.Via, o.Detail = diagnosis.AddressDecider, "no node decides: no pod of the add-on renews the Lease load-balancer/assignments"
		default:
			o.Via, o.Detail = diagnosis.AddressPool, cmp.Or(service.Problem, fmt.Sprintf("none was given within %s", addressTime))
		}
		seen = append(seen, o)
		if !o.OK {
			ok = false
			continue
		}
		a := service.Addresses[i]
		node := state.Table.Where(a)
		n := diagnosis.Observation{Kind: diagnosis.AddressNode, To: node, Via: a.String(), OK: node != "" && slices.Contains(t.site.names, node)}
		if !n.OK {
			ok, n.To, n.Detail = false, "", "no node that is Ready has a subnet with it, or none runs the add-on"
		}
		seen = append(seen, n)
		if n.OK {
			list = append(list, Address{a.String(), node})
		}
	}
	return seen, list, ok
}

// addressChecks adds what a host asks about the addresses of the Service: who answers on its network, and the Service. Its kube-proxy serves the
// address on the host itself, so a connection shows nothing of the network.
func (t *Test) addressChecks(p *probe.Plan) {
	for _, b := range t.balanced {
		a := netip.MustParseAddr(b.Address)
		if slices.ContainsFunc(t.site.balancer.Subnets[p.Node], func(s netip.Prefix) bool { return s.Contains(a) }) {
			p.Checks = append(p.Checks, probe.Check{Kind: diagnosis.AddressHeard, To: b.Node, Via: b.Address, How: "holders", Address: b.Address})
		}
		if len(t.servers) > 0 && t.hasProxy(p.Node) {
			p.Checks = append(p.Checks, probe.Check{Kind: diagnosis.AddressReach, Via: b.Address, How: "echo-tcp", Address: net.JoinHostPort(b.Address, strconv.Itoa(probe.OpenPort))})
		}
	}
}

// noteAddresses notes which node answers for which address, and what a node cannot see.
func (t *Test) noteAddresses() {
	for _, b := range t.balanced {
		askers, heard := 0, 0
		for _, o := range t.seen {
			if o.Kind == diagnosis.AddressHeard && o.Via == b.Address && o.From != b.Node {
				askers++
				if o.OK {
					heard++
				}
			}
		}
		t.note("%s answers for %s, an address of a Service: %d of %d other nodes in its network heard that; clients outside of the cluster were not tested", b.Node, b.Address, heard, askers)
	}
}
