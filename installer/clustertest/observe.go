package clustertest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"airlift/installer/clustertest/diagnosis"
	"airlift/installer/clustertest/probe"
	"airlift/installer/config"
)

const registryPort = config.RegistryPort

// observe reads what the pods reported, and what the API server knows about them.
func (t *Test) observe(ctx context.Context) error {
	for _, n := range t.site.tested {
		o := diagnosis.Observation{Kind: diagnosis.PodRuns, From: n.Name, OK: t.servers[n.Name] != nil, Detail: t.failed[n.Name]}
		t.seen = append(t.seen, o)
	}
	if err := t.notePolicies(ctx); err != nil {
		return err
	}
	if err := t.observePulls(ctx); err != nil {
		return err
	}
	if err := t.observeVolume(ctx); err != nil {
		return err
	}
	t.seen = append(t.seen, assemble(t.reports, t.readHeard(ctx), t.note)...)
	t.noteAddresses()
	for _, r := range t.reports {
		if r.Tunnel != "" {
			t.tunnel = r.Tunnel
		}
	}
	return ctx.Err()
}

// notePolicies notes NetworkPolicies that are not of the test. Some sites have a controller that writes one to each new namespace.
func (t *Test) notePolicies(ctx context.Context) error {
	list, err := repeat(ctx, func() (*networkingv1.NetworkPolicyList, error) {
		return t.Client.API.NetworkingV1().NetworkPolicies(Namespace).List(ctx, metav1.ListOptions{})
	})
	if err != nil {
		return fmt.Errorf("listing NetworkPolicies: %w", err)
	}
	var others []string
	for _, p := range list.Items {
		if p.Name != policyName {
			others = append(others, p.Name)
		}
	}
	if len(others) > 0 {
		t.note("something wrote NetworkPolicies to the namespace %s (%s): what they close fails in this test; exempt the namespace from them", Namespace, strings.Join(others, ", "))
	}
	return nil
}

// readHeard reads from which nodes each server received packets. A server whose log cannot be read is not in it.
func (t *Test) readHeard(ctx context.Context) map[string][]string {
	ctx, cancel := context.WithTimeout(ctx, logTime)
	defer cancel()
	heard, failed := map[string][]string{}, map[string]error{}
	var mu sync.Mutex
	var reading sync.WaitGroup
	for node, pod := range t.servers {
		reading.Go(func() {
			var list []string
			log, err := t.log(ctx, pod.Name)
			if err == nil {
				list, err = probe.ReadHeard(log, t.site.names)
				_ = log.Close()
			}
			mu.Lock()
			defer mu.Unlock()
			if heard[node] = list; err != nil {
				failed[node] = err
			}
		})
	}
	reading.Wait()
	for _, node := range sorted(failed) {
		delete(heard, node)
		t.note("what the server on %s received is not known: %v", node, failed[node])
	}
	return heard
}

func (t *Test) observePulls(ctx context.Context) error {
	if t.site.registry == nil {
		return nil
	}
	states, err := t.ended(ctx, rolePull, len(t.site.tested), 0, 0)
	if err != nil {
		return err
	}
	for _, n := range t.site.tested {
		if name := image(&n); !t.serves(name) {
			t.note("%s: no image is pulled: the embedded registry does not serve %s", n.Name, name)
			continue
		}
		s := states[podName(rolePull, n.Name)]
		t.seen = append(t.seen, diagnosis.Observation{Kind: diagnosis.Pull, From: n.Name, OK: s.succeeded, Detail: s.why})
	}
	return nil
}

// serves reports whether the embedded registry has images of the registry in a name.
func (t *Test) serves(image string) bool {
	host, _, _ := strings.Cut(image, "/")
	return slices.ContainsFunc(t.site.registry.Bundles, func(b config.KeptBundle) bool { return slices.Contains(b.Registries, host) })
}

func (t *Test) observeVolume(ctx context.Context) error {
	if t.site.class == nil || len(t.site.tested) == 0 {
		return nil
	}
	states, err := t.ended(ctx, roleVolume, 1, volumeTime, volumeTime)
	if err != nil {
		return err
	}
	r, err := t.report(ctx, roleVolume, states[roleVolume], probe.Report{Nonce: t.nonce})
	o := diagnosis.Observation{Kind: diagnosis.Volume, Via: t.site.class.Name, OK: err == nil}
	switch {
	case err != nil:
		o.Detail = err.Error()
	case len(r.Observations) != 1 || !r.Observations[0].OK:
		o.OK, o.Detail = false, "a file could not be written"
		if len(r.Observations) > 0 {
			o.Detail = r.Observations[0].Detail
		}
	}
	t.seen = append(t.seen, o)
	return nil
}

// assemble returns the observations of probes and servers. What alone is no failure is left out: a route that leads to the pods, a port of
// a host that only other hosts do not reach, a limit of echo requests while pods exchange full packets.
func assemble(reports []*probe.Report, heard map[string][]string, note func(format string, args ...any)) (all []diagnosis.Observation) {
	for _, r := range reports {
		all = append(all, r.Observations...)
	}
	judgeHolders(reports, all)
	type path struct {
		kind     diagnosis.Kind
		from, to string
	}
	succeeded := map[path]bool{}
	for _, o := range all {
		p := path{o.Kind, o.From, o.To}
		is, tried := succeeded[p]
		succeeded[p] = o.OK && (is || !tried)
	}
	works := func(kind diagnosis.Kind, from, to string) (tried, ok bool) {
		ok, tried = succeeded[path{kind, from, to}]
		return tried, ok
	}
	for _, r := range reports {
		for _, to := range r.Routes {
			tried, reached := works(diagnosis.PodReach, r.Node, to.To)
			o := diagnosis.Observation{Kind: diagnosis.Route, From: r.Node, To: to.To, OK: to.Wrong == "" || tried && reached && !to.Detour, Detail: to.Wrong}
			all = append(all, o)
		}
		for _, l := range r.Losses {
			o := diagnosis.Observation{Kind: diagnosis.Steady, From: r.Node, Place: diagnosis.FromPod, To: l.To, Via: l.Via, OK: l.Lost == 0}
			if !o.OK {
				o.Detail = fmt.Sprintf("%d of %d requests: %s", l.Lost, l.Sent, l.Error)
			}
			all = append(all, o)
		}
		for to, nodes := range heard {
			if tried, _ := works(diagnosis.PodReach, r.Node, to); tried && !r.Host {
				o := diagnosis.Observation{Kind: diagnosis.PodHeard, From: r.Node, To: to, OK: slices.Contains(nodes, r.Node)}
				if !o.OK {
					o.Detail = "no packet arrived"
				}
				all = append(all, o)
			}
		}
	}
	enforced, notEnforced := 0, 0
	for _, o := range all {
		if _, reached := works(diagnosis.PodReach, o.From, o.To); o.Kind == diagnosis.Policy && reached {
			if o.OK {
				enforced++
			} else {
				notEnforced++
			}
		}
	}
	if enforced == 0 && notEnforced > 0 {
		note("NetworkPolicies are not enforced: nothing in this cluster does that")
	}
	hostPort := slices.ContainsFunc(all, func(o diagnosis.Observation) bool { return o.Kind == diagnosis.HostPort && o.OK })
	closed := map[string]bool{}
	kept := slices.DeleteFunc(slices.Clone(all), func(o diagnosis.Observation) bool {
		switch o.Kind {
		case diagnosis.HostLarge:
			large, full := works(diagnosis.PodLarge, o.From, o.To)
			back, backFull := works(diagnosis.PodLarge, o.To, o.From)
			return !o.OK && large && full && back && backFull
		case diagnosis.ProxyHealth: // its port may be another one
			_, served := works(diagnosis.LocalProxy, o.From, "")
			return !o.OK && served
		case diagnosis.NodePort, diagnosis.HostPort:
			if o.Kind == diagnosis.HostPort && !hostPort {
				return true
			}
			if _, own := works(o.Kind, o.To, o.To); !o.OK && o.From != o.To && own {
				closed[o.To] = true
				return true
			}
		case diagnosis.Policy:
			_, reached := works(diagnosis.PodReach, o.From, o.To)
			return enforced == 0 || !reached
		}
		return false
	})
	if !hostPort && slices.ContainsFunc(all, func(o diagnosis.Observation) bool { return o.Kind == diagnosis.HostPort }) {
		note("ports of hosts (hostPort) do not lead to pods on any node: the pod network has no portmap")
	}
	for _, node := range sorted(closed) {
		note("%s: ports of Services (NodePort, hostPort) are closed to other hosts, for example by a firewall; on the host itself they work", node)
	}
	return kept
}

// judgeHolders decides, from who answered for an address on the networks of all hosts, whether that was the node of the address, and no other
// host. A node hears no answer of its own.
func judgeHolders(reports []*probe.Report, all []diagnosis.Observation) {
	answers, owner := map[[2]string]probe.Holder{}, map[string]string{}
	for _, r := range reports {
		for _, h := range r.Holders {
			answers[[2]string{r.Node, h.Address}] = h
			owner[h.Own] = r.Node
		}
	}
	for i := range all {
		o := &all[i]
		h, asked := answers[[2]string{o.From, o.Via}]
		if o.Kind != diagnosis.AddressHeard || !o.OK || !asked {
			continue
		}
		var who, others []string
		speaks := o.From == o.To
		for _, mac := range h.MACs {
			switch node := owner[mac]; {
			case node == o.To:
				speaks = true
			case node != "":
				who = append(who, node)
			case answers[[2]string{o.To, o.Via}].Own == "" && len(h.MACs) == 1: // the node of the address did not report its own
				speaks = true
			default:
				others = append(others, mac)
			}
		}
		switch {
		case len(others) > 0:
			o.OK, o.Detail = false, fmt.Sprintf("a host with the hardware address %s, %s, answers", strings.Join(others, " and "), diagnosis.NoNode)
		case len(who) > 0:
			o.OK, o.Detail = false, fmt.Sprintf("%s: %s, and the load balancer gave it to %s", diagnosis.SeveralHosts, strings.Join(who, ", "), o.To)
		case !speaks:
			o.OK, o.Detail = false, "no answer"
		}
	}
}
