package diagnosis

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	_ "airlift/scripts/fixtures/seed"
)

// A model is a cluster with faults: observe returns what a test of it sees. It knows nothing of the rules.
type model struct {
	nodes []string
	// lost are directions in which a layer loses packets: "host", "host-large", "tunnel", "large".
	lost map[string]map[pair]bool
	off  map[string]string // "node", "forwarding", "proxy", "flannel", "start", "registry", "policy", "dns", "api": by node, with the detail
}

func (m *model) lose(layer, from, to string) {
	if m.lost[layer] == nil {
		m.lost[layer] = map[pair]bool{}
	}
	m.lost[layer][pair{from, to}] = true
}

func newModel(nodes ...string) *model {
	return &model{nodes: nodes, lost: map[string]map[pair]bool{}, off: map[string]string{}}
}

// delivers reports whether a packet arrives.
func (m *model) delivers(layer, from, to string) bool {
	if from == to {
		return true
	}
	if m.lost["host"][pair{from, to}] {
		return false
	}
	switch layer {
	case "host":
		return true
	case "host-large":
		return !m.lost["host-large"][pair{from, to}]
	}
	for _, n := range []string{from, to} {
		if m.off["forwarding "+n] != "" {
			return false
		}
	}
	if m.lost["tunnel"][pair{from, to}] || m.lost["route"][pair{from, to}] {
		return false
	}
	return layer != "large" || !m.lost["large"][pair{from, to}] && !m.lost["host-large"][pair{from, to}]
}

// talks reports whether a request and its answer arrive.
func (m *model) talks(layer, from, to string) bool {
	return m.delivers(layer, from, to) && m.delivers(layer, to, from)
}

// observe returns what a test sees: the first two nodes have DNS pods, the first one is a control plane.
func (m *model) observe() (all []Observation) {
	add := func(kind Kind, from, place, to, via string, ok bool, detail string) {
		o := Observation{Kind: kind, From: from, Place: place, To: to, Via: via, OK: ok}
		if !ok {
			o.Detail = detail
		}
		all = append(all, o)
	}
	up := func(n string) bool { return m.off["node "+n] == "" }
	answers := func(n string) bool { return up(n) || strings.Contains(m.off["node "+n], "cni") } // its host
	dns := m.nodes[:2]
	if m.off["dns all"] != "" {
		dns = nil
	}
	add(DNSPods, "", "", "", "", len(dns) > 0, "no endpoint")
	for _, a := range m.nodes {
		add(NodeReady, a, "", "", "", up(a), m.off["node "+a])
		add(Component, a, "", "", "kube-flannel-ds", m.off["flannel "+a] == "", m.off["flannel "+a])
		if !up(a) {
			if slices.Contains(dns, a) { // its pod is still an endpoint of the Service
				add(DNSPod, "", "", a, "", false, "its node is not Ready")
			}
			continue
		}
		starts := m.off["start "+a] == ""
		add(PodRuns, a, "", "", "", starts, m.off["start "+a])
		add(ProbeRuns, a, FromHost, "", "", true, "")
		add(Forwarding, a, FromHost, "", "net.ipv4.ip_forward", m.off["forwarding "+a] == "", "it is 0")
		add(ProxyHealth, a, FromHost, "", "", m.off["proxy "+a] == "", "connection refused")
		served := m.off["proxy "+a] == ""
		for _, b := range m.nodes {
			if a != b {
				add(HostReach, a, FromHost, b, "IPv4", m.talks("host", a, b) && answers(b), "no answer")
				if m.talks("host", a, b) && answers(b) {
					add(HostLarge, a, FromHost, b, "IPv4", m.talks("host-large", a, b), "packets of 1500 bytes get no answer, the largest that does has 1400")
				}
				if m.lost["route"][pair{a, b}] {
					add(Route, a, "", b, "", false, "there is no route")
				}
			}
			if !up(b) || m.off["start "+b] != "" {
				continue
			}
			add(HostPod, a, FromHost, b, "UDP over IPv4", m.talks("pod", a, b), "no answer")
			add(NodePort, a, FromHost, b, "", m.off["proxy "+b] == "" && m.talks("pod", a, b), "no answer")
			if !starts {
				continue
			}
			reach := m.talks("pod", a, b)
			add(PodReach, a, FromPod, b, "UDP over IPv4", reach, "no answer")
			add(PodReach, a, FromPod, b, "TCP over IPv4", reach, "no answer")
			add(PodHeard, a, "", b, "", m.delivers("pod", a, b), "no packet arrived")
			if reach {
				add(PodLarge, a, FromPod, b, "IPv4", m.talks("large", a, b), "packets of 1450 bytes get no answer")
				add(PodBulk, a, FromPod, b, "IPv4", m.talks("large", a, b), "a transfer stopped")
			}
		}
		add(API, a, FromHost, m.nodes[0], "10.0.0.1:6443", m.off["api "+m.nodes[0]] == "" && m.talks("host", a, m.nodes[0]), "no answer")
		add(Registry, a, FromHost, m.nodes[0], "", m.off["registry "+m.nodes[0]] == "" && m.talks("host", a, m.nodes[0]), "connection refused")
		add(Pull, a, "", "", "", m.off["registry "+m.nodes[0]] == "" && m.talks("host-large", a, m.nodes[0]), "ErrImagePull")
		reached := !slices.ContainsFunc(m.nodes, func(b string) bool { return up(b) && m.off["start "+b] == "" && !m.talks("pod", a, b) })
		if i := slices.IndexFunc(m.nodes, up); i >= 0 { // it has the address of a Service
			b := m.nodes[i]
			switch {
			case m.off["address outside"] != "":
				add(AddressHeard, a, FromHost, b, "10.0.0.200", false, "a host with the hardware address 02:00:00:00:00:01, "+NoNode+", answers")
			case m.off["address silent"] != "" && a != b:
				add(AddressHeard, a, FromHost, b, "10.0.0.200", false, "no answer")
			default:
				add(AddressHeard, a, FromHost, b, "10.0.0.200", m.talks("host", a, b), "no answer")
			}
			add(AddressReach, a, FromHost, "", "10.0.0.200", served && reached, "no answer")
		}
		if !starts {
			continue
		}
		add(LocalProxy, a, FromPod, "", "TCP to 10.96.0.20", served, "no answer")
		add(Service, a, FromPod, "", "TCP to 10.96.0.21", served && reached, "no answer")
		answer := true
		for _, d := range dns {
			ok := m.talks("pod", a, d) && m.off["dns "+d] == "" && up(d)
			answer = answer && ok
			if up(d) {
				add(DNSPod, a, FromPod, d, "UDP to 10.244.0.2", ok, "no answer")
			}
		}
		if len(dns) > 0 {
			add(DNSService, a, FromPod, "", "UDP to 10.96.0.10", answer && served, "no answer")
		}
		add(Resolver, a, FromPod, "", "kubernetes.default", answer && served && len(dns) > 0, "no answer")
		add(API, a, FromPod, "", KubernetesService, served && m.off["api "+m.nodes[0]] == "" && m.talks("host", a, m.nodes[0]) && m.off["forwarding "+a] == "", "no answer")
	}
	return all
}

var facts = Facts{Nodes: []string{"cp1", "w1", "w2"}, Planes: []string{"cp1"}, Tunnel: "UDP 8472 (vxlan)", Network: "kube-flannel app=flannel"}

// TestFaults: one fault is one finding, which names its nodes, its layer and what to type.
func TestFaults(t *testing.T) {
	for name, c := range map[string]struct {
		break_ func(*model)
		want   string // name of the finding
		nodes  string
		text   []string // in the text and the command
	}{
		"MTU between hosts": {func(m *model) {
			for _, n := range []string{"cp1", "w1"} {
				m.lose("host-large", n, "w2")
				m.lose("host-large", "w2", n)
			}
		}, "mtu-hosts", "w2", []string{"w2 <-> all other nodes", "1400", "MTU"}},
		"MTU to a node whose kubelet is silent": {func(m *model) {
			m.off["node w2"] = "Ready is Unknown: Kubelet stopped posting node status. cni" // its host answers
			for _, n := range []string{"cp1", "w1"} {
				m.lose("host-large", n, "w2")
				m.lose("host-large", "w2", n)
			}
		}, "mtu-hosts", "w2", []string{"1400"}},
		"MTU to a node whose pods are not seen": {func(m *model) {
			m.off["start w2"] = "it did not start in time"
			m.lose("host-large", "cp1", "w2")
			m.lose("host-large", "w1", "w2")
		}, "mtu-hosts", "w2", []string{"1400"}},
		"vxlan to a node": {func(m *model) { m.lose("tunnel", "cp1", "w2"); m.lose("tunnel", "w1", "w2") }, "tunnel", "w2",
			[]string{"all other nodes -> w2: pods cannot reach each other: hosts can, UDP 8472 (vxlan) gets no answer", "nft list ruleset | grep -n 8472"}},
		"vxlan in one direction": {func(m *model) { m.lose("tunnel", "w1", "w2") }, "tunnel", "w1 w2", []string{"w1 -> w2: pods cannot reach each other"}},
		"no DNS pod":             {func(m *model) { m.off["dns all"] = "x" }, "dns-none", "", []string{"scale deployment coredns"}},
		"a DNS pod is dead":      {func(m *model) { m.off["dns w1"] = "x" }, "dns-pod", "w1", []string{"spec.nodeName=w1"}},
		"kube-proxy on a node":   {func(m *model) { m.off["proxy w2"] = "x" }, "kube-proxy", "w2", []string{"10256", "spec.nodeName=w2"}},
		"kube-proxy everywhere": {func(m *model) { m.off["proxy w2"], m.off["proxy w1"], m.off["proxy cp1"] = "x", "x", "x" }, "kube-proxy", "cp1 w1 w2",
			[]string{"all nodes", "rollout restart"}},
		"forwarding off":     {func(m *model) { m.off["forwarding w1"] = "x" }, "forwarding", "w1", []string{"sysctl -w net.ipv4.ip_forward=1"}},
		"no route":           {func(m *model) { m.lose("route", "w1", "w2") }, "route", "w1", []string{"w1 -> w2", "no right route", "delete pod -l app=flannel --field-selector spec.nodeName=w1"}},
		"flannel is dead":    {func(m *model) { m.off["flannel w2"] = "CrashLoopBackOff"; m.lose("tunnel", "w1", "w2") }, "pod-network", "w2", []string{"kube-flannel-ds", "CrashLoopBackOff"}},
		"addresses are used": {func(m *model) { m.off["start w1"] = "FailedCreatePodSandBox: no IP addresses available in range set" }, "address-range-full", "w1", []string{"/var/lib/cni/networks/cbr0"}},
		"no CNI configuration": {func(m *model) {
			m.off["start w1"] = "FailedCreatePodSandBox: cni config load failed: no network config found"
		}, "cni-configuration", "w1", []string{"delete pod -l app=flannel"}},
		"not Ready": {func(m *model) {
			m.off["node w2"] = "Ready is False: container runtime network not ready: cni plugin not initialized"
		}, "node-not-ready", "w2",
			[]string{"cni plugin not initialized", "delete pod -l app=flannel --field-selector spec.nodeName=w2"}},
		"a host is cut off": {func(m *model) {
			for _, n := range []string{"cp1", "w1"} {
				m.lose("host", n, "w2")
				m.lose("host", "w2", n)
			}
		}, "hosts", "w2", []string{"w2 <-> all other nodes", "the hosts do not reach each other"}},
		"API server":         {func(m *model) { m.off["api cp1"] = "x" }, "api-server", "cp1", []string{"any other node", "on cp1: ./install status"}},
		"an address outside": {func(m *model) { m.off["address outside"] = "x" }, "address-taken", "", []string{"10.0.0.200", "02:00:00:00:00:01"}},
		"a silent address":   {func(m *model) { m.off["address silent"] = "x" }, "address-silent", "cp1", []string{"cp1 announces 10.0.0.200", "no answer by ARP or NDP reaches w1, w2"}},
		"registry":           {func(m *model) { m.off["registry cp1"] = "x" }, "registry", "cp1", []string{"systemctl restart airlift-registry"}},
		"MTU of pods":        {func(m *model) { m.lose("large", "w1", "w2") }, "mtu-pods", "w1 w2", []string{"w1 <-> w2"}},
		"nothing started":    {func(m *model) { m.off["start w1"] = "Failed: unknown command \"test\"" }, "command-old", "w1", []string{"older"}},
		"another version": {func(m *model) {
			m.off["start w1"] = "it exited with code 2: error: the argument is not of this version of the command: json: unknown field"
		}, "command-old", "w1", []string{"another version", "./install upgrade plan"}},
	} {
		m := newModel(facts.Nodes...)
		c.break_(m)
		all := m.observe()
		found := Diagnose(facts, all)
		explains(t, all, found)
		if len(found) != 1 {
			t.Errorf("%s: %d findings, want 1:", name, len(found))
			for _, f := range found {
				t.Errorf("  %s: %s (%q)", f.Name, f.Text, f.Evidence)
			}
			continue
		}
		f := found[0]
		if f.Name != c.want || strings.Join(f.Nodes, " ") != c.nodes {
			t.Errorf("%s: %s on %v, want %s on %s: %s", name, f.Name, f.Nodes, c.want, c.nodes, f.Text)
		}
		for _, part := range c.text {
			if !strings.Contains(f.Text+"\n"+f.Fix, part) {
				t.Errorf("%s: %q is not in %q, %q", name, part, f.Text, f.Fix)
			}
		}
	}
	if found := Diagnose(facts, newModel(facts.Nodes...).observe()); len(found) > 0 {
		t.Errorf("a cluster without faults has %v", found)
	}
}

// explains fails unless the findings explain each failed observation once.
func explains(t interface{ Errorf(string, ...any) }, all []Observation, found []Finding) {
	times := make([]int, len(all))
	for _, f := range found {
		if len(f.claims) == 0 || len(f.claims) != f.Explains || len(f.Evidence) == 0 || f.Fix == "" || f.Layer == "" || f.Name == "" || f.Nodes == nil {
			t.Errorf("a finding is not complete: %+v", f)
		}
		for _, i := range f.claims {
			times[i]++
		}
	}
	for i, o := range all {
		if want := map[bool]int{true: 0, false: 1}[o.OK]; times[i] != want {
			t.Errorf("%+v is explained %d times", o, times[i])
		}
	}
}

// TestAnyObservations: whatever was observed, each failure is explained once, and nothing else is.
func TestAnyObservations(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		node := rapid.SampledFrom([]string{"", "cp1", "w1", "w2", "gone"})
		all := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Observation {
			return Observation{
				Kind: rapid.SampledFrom(Kinds).Draw(t, "kind"), From: node.Draw(t, "from"), To: node.Draw(t, "to"),
				Place: rapid.SampledFrom([]string{"", FromPod, FromHost}).Draw(t, "place"),
				Via:   rapid.SampledFrom([]string{"", "kube-proxy", "kube-flannel-ds", "coredns", "x", SteadyDNS, KubernetesService, "kube-network-policies"}).Draw(t, "via"),
				OK:    rapid.Bool().Draw(t, "ok"), Detail: rapid.SampledFrom([]string{"", "no answer", "cni"}).Draw(t, "detail"),
			}
		}), 0, 60).Draw(t, "observations")
		f := facts
		if rapid.Bool().Draw(t, "unknown network") {
			f.Tunnel, f.Network = "", ""
		}
		found := Diagnose(f, all)
		explains(t, all, found)
		if again := Diagnose(f, slices.Clone(all)); fmt.Sprint(again) != fmt.Sprint(found) {
			t.Errorf("the same observations have other findings: %v, %v", found, again)
		}
	})
}

// TestFewFindings: a few faults in a large cluster are a few findings, not one for each pair.
func TestFewFindings(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var nodes []string
		for i := range rapid.IntRange(3, 12).Draw(t, "nodes") {
			nodes = append(nodes, fmt.Sprintf("n%02d", i))
		}
		m := newModel(nodes...)
		faults := rapid.IntRange(1, 3).Draw(t, "faults")
		for range faults {
			n := rapid.SampledFrom(nodes).Draw(t, "node")
			switch kind := rapid.SampledFrom([]string{"node", "forwarding", "proxy", "start", "flannel", "dns all", "api", "registry", "tunnel", "host", "host-large", "route"}).Draw(t, "fault"); kind {
			case "dns all":
				m.off[kind] = "x"
			case "tunnel", "host", "host-large", "route":
				for _, other := range nodes {
					if other != n {
						m.lose(kind, other, n)
					}
				}
			default:
				m.off[kind+" "+n] = "x"
			}
		}
		all := m.observe()
		found := Diagnose(Facts{Nodes: nodes, Tunnel: facts.Tunnel}, all)
		explains(t, all, found)
		limit := 2*faults - 1 + len(m.lost["route"]) // each node has its own routes
		if len(found) > limit {
			t.Errorf("%d faults have %d findings", faults, len(found))
			for _, f := range found {
				t.Errorf("  %s: %s", f.Name, f.Text)
			}
		}
	})
}
