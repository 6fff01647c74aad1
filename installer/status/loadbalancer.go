package status

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"airlift/installer/loadbalancer/agent"
)

// Names of warnings about the add-on load-balancer.
const (
	PoolsRefused       = "pools-refused"
	AssignmentsDamaged = "assignments-damaged"
	NoServiceAddress   = "service-without-address"
	AddressInUse       = "address-in-use"
	StrictARP          = "strict-arp"
)

// patience is how old a Service without an address is, if that is a warning.
const patience = 2 * time.Minute

// maxServices limits the Services that a warning names.
const maxServices = 3

// readLoadBalancer reads what keeps Services from their addresses.
func (r *Reader) readLoadBalancer(ctx context.Context) (found result, err error) {
	client, err := r.admin()
	if errors.As(err, new(notHere)) {
		return found, nil
	}
	if err != nil {
		return found, err
	}
	state, err := agent.ReadState(ctx, client.API)
	if err != nil || state == nil {
		return found, err
	}
	found.warnOfAddresses(state, time.Now())
	if len(state.Table.Entries) == 0 {
		return found, nil
	}
	proxy, err := client.ProxyConfig(ctx)
	if err == nil && proxy != nil && proxy.Mode == "ipvs" && !proxy.IPVS.StrictARP {
		found.warn("set ipvs.strictARP: true: kubectl -n kube-system edit configmap kube-proxy; then: kubectl -n kube-system rollout restart daemonset kube-proxy",
			"kube-proxy runs in the mode ipvs without strictARP: all nodes answer for the addresses of Services").Name = StrictARP
	}
	return found, err
}

// warnOfAddresses adds what the state of the load balancer shows.
func (r *result) warnOfAddresses(state *agent.State, now time.Time) {
	if state.Refused != nil {
		r.warn("kubectl edit configmap pools -n load-balancer", "the pools of the load balancer are refused, so no Service gets an address, and the others keep theirs: %s", oneLine(state.Refused)).Name = PoolsRefused
	}
	if state.Damaged != nil {
		r.warn("kubectl delete lease assignments -n load-balancer", "no node decides which node answers for which address of a Service: %s", oneLine(state.Damaged)).Name = AssignmentsDamaged
		return
	}
	var without []string
	first := ""
	for _, s := range state.Services {
		if len(s.Addresses) > 0 || now.Sub(s.Created) < patience || state.Pools == nil {
			continue
		}
		if first == "" {
			first = s.Name
		}
		why := s.Problem
		if why == "" {
			why = "no node has decided"
		}
		without = append(without, fmt.Sprintf("%s (%s)", s.Name, why))
	}
	if len(without) > 0 {
		more := ""
		if len(without) > maxServices {
			more = fmt.Sprintf(" and %d more", len(without)-maxServices)
		}
		namespace, name, _ := strings.Cut(first, "/")
		r.warn("kubectl describe service "+name+" -n "+namespace+"; kubectl get pods -n load-balancer -o wide",
			"Services of type LoadBalancer have no address: %s%s", strings.Join(without[:min(len(without), maxServices)], ", "), more).Name = NoServiceAddress
	}
	for _, e := range state.Table.Entries {
		if mac := state.Conflicts[e.Address]; mac != "" {
			r.warn(FindHosts(mac), "another host, with the hardware address %s, has %s, the address of Service %s", mac, e.Address, e.Service).Name = AddressInUse
		}
	}
}
