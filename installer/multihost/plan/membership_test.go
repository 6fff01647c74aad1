package plan_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"airlift/installer/multihost/facts"
	"airlift/installer/multihost/plan"
	"airlift/installer/multihost/spec"
	"airlift/internal/fault"
)

// A machine at the address of a Node that leaves is reset only if it is that node, or was it until a removal was interrupted.
func TestIsHostOf(t *testing.T) {
	for name, c := range map[string]struct {
		facts facts.Facts
		want  bool
	}{
		"the node":                           {facts.Facts{Hostname: "other", Node: &facts.Node{Name: "w1"}}, true},
		"another node":                       {facts.Facts{Hostname: "w1", Node: &facts.Node{Name: "w2"}}, false},
		"the node after its reset":           {facts.Facts{Hostname: "w1"}, true},
		"in the middle of its reset":         {facts.Facts{Hostname: "w1", Unfinished: "reset"}, true},
		"another machine":                    {facts.Facts{Hostname: "w2"}, false},
		"a new cluster begins there":         {facts.Facts{Hostname: "w1", Unfinished: "init"}, false},
		"it joins another cluster":           {facts.Facts{Hostname: "w1", Unfinished: "join"}, false},
		"files of another tool":              {facts.Facts{Hostname: "w1", Leftovers: []string{"/etc/rancher"}}, false},
		"files of another tool, and a reset": {facts.Facts{Hostname: "w1", Leftovers: []string{"/etc/rancher"}, Unfinished: "reset"}, false},
		"its reset was interrupted":          {facts.Facts{Hostname: "other", Was: &facts.Node{Name: "w1"}, Unfinished: "reset"}, true},
		"another reset was interrupted":      {facts.Facts{Hostname: "w1", Was: &facts.Node{Name: "w2"}, Unfinished: "reset"}, false},
	} {
		if got := plan.IsHostOf(&c.facts, "w1"); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// joined is a site whose nodes have addresses, as the API reports them.
func joined(endpoint string, addresses ...string) plan.Input {
	in := site(newVersion)
	c := view(in)
	c.ControlPlaneEndpoint, c.EndpointAddresses = endpoint, addresses
	in.Spec.Endpoint.Address = endpoint
	for i := range c.Nodes {
		c.Nodes[i].Addresses = []string{fmt.Sprint("10.0.0.", i)}
	}
	in.Remove = true
	return in
}

// A plan refuses a removal that cannot end well, before anything is drained: the error names the host, and the hint the way.
func TestRefusedRemovals(t *testing.T) {
	for _, c := range []struct {
		name       string
		endpoint   string
		addresses  []string
		edit       func(*plan.Input)
		host       string
		what, hint string
	}{
		{"the control plane at the endpoint", "10.0.0.0:6443", []string{"10.0.0.0"}, func(in *plan.Input) { leave(*in, "cp0") },
			"cp0", "the endpoint of the cluster, 10.0.0.0:6443, is its address", "write another endpoint to cluster.yaml"},
		{"the endpoint is a name that leads to it", "api.site:6443", []string{"10.0.0.0"}, func(in *plan.Input) { leave(*in, "cp0") },
			"cp0", "the endpoint of the cluster, api.site:6443, is its address", "./install endpoint apply"},
		{"its kubelet is stopped, and its API server serves", "10.0.0.0:6443", []string{"10.0.0.0"}, func(in *plan.Input) { leave(*in, "cp0"); view(*in).Nodes[0].Ready = false },
			"cp0", "the endpoint of the cluster", "cluster.yaml"},
		{"the new endpoint leads to it", "10.9.9.9:6443", []string{"10.9.9.9"}, func(in *plan.Input) { leave(*in, "cp0"); in.Spec.Endpoint.Address = "10.0.0.0" },
			"cp0", "cluster.yaml has its address as the endpoint, 10.0.0.0", "write another endpoint"},
		{"the endpoint in the file is its name", "10.9.9.9:6443", []string{"10.9.9.9"}, func(in *plan.Input) { leave(*in, "cp0"); in.Spec.Endpoint.Address = "cp0:6443" },
			"cp0", "cluster.yaml has its address as the endpoint, cp0:6443", "write another endpoint"},
		{"a name that nobody resolves", "api.site:6443", nil, func(in *plan.Input) {
			leave(*in, "cp0")
			fact(*in, "cp1").Unknown = map[string]string{"cluster.endpointAddresses": "no such host"}
		}, "cp0", "it is not known whether the endpoint of the cluster, api.site:6443, leads to it", "getent hosts api.site"},
		{"the API server of a worker", "10.9.9.9:6443", []string{"10.9.9.9"}, func(in *plan.Input) { leave(*in, "cp0"); fact(*in, "w1").Node.APIServer = "https://10.0.0.0:6443" },
			"w1", "would not reach the API any more without cp0, which leaves", "./install endpoint node"},
		{"kube-proxy uses the former endpoint", "10.9.9.9:6443", []string{"10.9.9.9"}, func(in *plan.Input) {
			leave(*in, "cp0")
			view(*in).EndpointWaits, view(*in).FormerEndpoint = true, "10.0.0.0:6443"
			view(*in).Nodes[4].EndpointBehind = true
			in.Skip = []string{"w1"}
		}, "cp0", "kube-proxy, flannel or nodes still use 10.0.0.0:6443, its address", "run ./install cluster apply --remove without --skip first"},
		{"a worker without a ledger", "10.9.9.9:6443", []string{"10.9.9.9"}, func(in *plan.Input) { leave(*in, "w1"); fact(*in, "w1").Node.Airlift = false },
			"w1", "is a node that Airlift did not install", "./install adopt"},
		{"all control planes are replaced", "10.9.9.9:6443", nil, func(in *plan.Input) {
			for _, h := range in.Spec.Hosts {
				fact(*in, h.Name).Node, fact(*in, h.Name).Cluster = nil, nil
			}
		}, "", "--remove has nothing from which it could remove nodes", "keep one in cluster.yaml"},
		{"a host under another name", "10.9.9.9:6443", nil, func(in *plan.Input) { in.Spec.Hosts[4].Name = "new"; in.Answers["new"] = in.Answers["w1"] },
			"new", "is the node w1 of this cluster, under another name", "write name: w1"},
	} {
		in := joined(c.endpoint, c.addresses...)
		c.edit(&in)
		p, problems := plan.Make(in)
		if p != nil || len(problems) != 1 || problems[0].Host != c.host || !strings.Contains(problems[0].What, c.what) || !strings.Contains(problems[0].Hint, c.hint) {
			t.Errorf("%s: %+v", c.name, problems)
		}
		for _, one := range problems {
			if c.name == "a host under another name" && strings.Contains(one.Hint, "reset") {
				t.Errorf("%s: the hint removes a node that lives: %s", c.name, one.Hint)
			}
		}
	}
}

// Removals next to those that are refused: another control plane than the one at the endpoint, one with the virtual address, and one
// that is lost, which serves nobody any more.
func TestAllowedRemovals(t *testing.T) {
	for name, c := range map[string]struct {
		edit func(*plan.Input)
		note string
	}{
		"another one": {func(in *plan.Input) { leave(*in, "cp2") }, ""},
		"the virtual address": {func(in *plan.Input) {
			leave(*in, "cp0")
			view(*in).Nodes[0].Addresses = []string{"10.0.0.0", "10.0.0.1"}
			view(*in).VIP = []string{"10.0.0.1"}
			in.Spec.Endpoint = vip("10.0.0.1")
		}, ""},
		"one that is lost": {func(in *plan.Input) {
			leave(*in, "cp1")
			delete(in.Answers, "cp1")
			c := fact(*in, "cp0").Cluster
			c.Nodes[1].Ready, c.EtcdMembers[1].Healthy = false, false
		}, "cp1 has the address of the endpoint, 10.0.0.1:6443: until another host has it, "},
		"one that is lost, and joins again": {func(in *plan.Input) {
			fact(*in, "cp1").Node, fact(*in, "cp1").Cluster = nil, nil
			c := fact(*in, "cp0").Cluster
			c.Nodes[1].Ready, c.EtcdMembers[1].Healthy = false, false
		}, "cp1 has the address of the endpoint, 10.0.0.1:6443: until it has joined again, "},
	} {
		in := joined("10.0.0.1:6443", "10.0.0.1")
		c.edit(&in)
		p, problems := plan.Make(in)
		if len(problems) > 0 || len(p.Stages) == 0 || !strings.HasPrefix(p.Stages[0].Name, "remove ") {
			t.Errorf("%s: %+v %+v", name, p, problems)
			continue
		}
		if notes := strings.Join(p.Notes, "\n"); !strings.Contains(notes, c.note) {
			t.Errorf("%s: %q", name, notes)
		}
	}
}

// The plan shows that the node of another tool is removed, and its action has what reset needs for that.
func TestAdoptedNodeLeaves(t *testing.T) {
	in := joined("10.9.9.9:6443", "10.9.9.9")
	fact(in, "w1").Node.Adopted = true
	leave(in, "w1")
	p, problems := plan.Make(in)
	if len(problems) > 0 || len(p.Stages) != 1 || !p.Stages[0].Actions[0].Adopted {
		t.Fatalf("%+v %+v", p, problems)
	}
	if text := p.Text(0, false); !strings.Contains(strings.Join(strings.Fields(text), " "), "removed, too (reset --remove-node)") {
		t.Error(text)
	}
}

// A machine at the address of a Node is reset only if it is that node of this cluster, with its role.
func TestOtherMachineAtTheAddressOfALeaver(t *testing.T) {
	for name, edit := range map[string]func(*facts.Facts){
		"another CA":      func(f *facts.Facts) { f.Node.CASHA256 = "sha256:bb" },
		"another role":    func(f *facts.Facts) { f.Node.Role = spec.Worker },
		"another cluster": func(f *facts.Facts) { f.Cluster, f.Node.ClusterName = nil, "plant" },
		"a reset of another CA": func(f *facts.Facts) {
			f.Was, f.Node, f.Unfinished = &facts.Node{Name: "cp2", Role: spec.ControlPlane, CASHA256: "sha256:bb"}, nil, "reset"
		},
	} {
		in := joined("10.9.9.9:6443", "10.9.9.9")
		edit(fact(in, "cp2"))
		leave(in, "cp2")
		p, problems := plan.Make(in)
		if len(problems) > 0 || len(p.Stages) != 1 || p.Stages[0].Actions[0].Verb != plan.RemoveOff {
			t.Errorf("%s: %+v %+v", name, p, problems)
		}
	}
}

// A control plane whose member was removed from etcd does not come back by itself, and is not fine.
func TestControlPlaneWithoutAMember(t *testing.T) {
	in := joined("10.9.9.9:6443", "10.9.9.9")
	for _, name := range []string{"cp0", "cp1", "cp2"} {
		fact(in, name).Node.Etcd = true
	}
	if _, problems := plan.Make(in); len(problems) > 0 {
		t.Fatalf("%+v", problems)
	}
	fact(in, "cp2").Cluster, fact(in, "cp2").Unknown = nil, map[string]string{"cluster": "connection refused"}
	c := view(in)
	c.EtcdMembers = slices.Delete(c.EtcdMembers, 2, 3)
	p, problems := plan.Make(in)
	if p != nil || len(problems) != 1 || problems[0].Host != "cp2" || !strings.Contains(problems[0].Hint, "./install cluster apply --remove") {
		t.Errorf("%+v %+v", p, problems)
	}
	leave(in, "cp2") // as the hint says
	if p, problems := plan.Make(in); len(problems) > 0 || len(p.Stages) != 1 || p.Stages[0].Actions[0].Verb != plan.Remove {
		t.Errorf("%+v %+v", p, problems)
	}
}

func vip(address string) spec.Endpoint {
	return spec.Endpoint{VIP: []netip.Addr{netip.MustParseAddr(address)}}
}

// The plan names the pods that a removal deletes for good, and a new one makes a saved plan invalid.
func TestRemovalNamesThePodsThatItDeletes(t *testing.T) {
	in := joined("10.9.9.9:6443", "10.9.9.9")
	leave(in, "w1")
	view(in).BarePods = map[string][]string{"w0": {"a/stays"}, "w1": {"shop/b", "shop/a"}}
	saved, problems := plan.Make(in)
	const want = "deletes pods that nothing creates again: shop/a, shop/b"
	var out strings.Builder
	out.WriteString(saved.Text(0, false))
	text := strings.Join(strings.Fields(out.String()), " ")
	if len(problems) > 0 || !strings.Contains(text, "is not in cluster.yaml; its host is 10.0.0.4: "+want) || strings.Contains(text, "a/stays") {
		t.Fatalf("%v\n%s", problems, text)
	}
	view(in).BarePods["w1"] = []string{"shop/a", "shop/b", "shop/c"}
	if fresh, _ := plan.Make(in); plan.Same(saved, fresh) == nil {
		t.Error("the saved plan is valid, and would delete another pod")
	}
	fact(in, "cp0").Unknown = map[string]string{"cluster.barePods": "forbidden"}
	fact(in, "cp1").Unknown, fact(in, "cp2").Unknown = fact(in, "cp0").Unknown, fact(in, "cp0").Unknown
	if _, problems := plan.Make(in); len(problems) == 0 {
		t.Error("pods that are not known are deleted")
	}
}

// An edited nodeIP of a node is held, with the way to change it. Generated.
func TestNodeIPThatWasEdited(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		address := rapid.SampledFrom([]string{"10.0.0.5", "10.0.0.6", "fd00::5", "fd00::6"})
		in := site(newVersion)
		is := rapid.SliceOfNDistinct(address, 0, 2, rapid.ID[string]).Draw(t, "of the node")
		wants := rapid.SliceOfNDistinct(address, 0, 2, rapid.ID[string]).Draw(t, "of the file")
		view(in).Nodes[5].Addresses = is
		fact(in, "w2").Addresses = nil
		for _, a := range wants {
			in.Spec.Hosts[5].NodeIP = append(in.Spec.Hosts[5].NodeIP, netip.MustParseAddr(a))
		}
		p, problems := plan.Make(in)
		differs := len(is) > 0 && len(wants) > 0 && !slices.Equal(slices.Sorted(slices.Values(is)), slices.Sorted(slices.Values(wants)))
		held := slices.ContainsFunc(p.Rest, func(r plan.Rest) bool {
			return r.Outcome == fault.Held.Word() && strings.Contains(r.What, "the node w2 has the address "+is[0]) && strings.Contains(r.Hint, "apply --remove")
		})
		if len(problems) > 0 || held != differs || (p.Outcome() != nil) != differs {
			t.Fatalf("%q, and the file has %q: held %t, %v", is, wants, held, problems)
		}
	})
}

// The hint for a node that is too old names what works: the file that it names is not refused, or no file works. Generated.
func TestHintForAnOldNodeWorks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		version := func(minor int) string { return fmt.Sprintf("v1.%d.1", minor) }
		cluster, to := rapid.IntRange(34, 37).Draw(t, "cluster"), 37
		node := rapid.SampledFrom([]int{2, 5}).Draw(t, "node") // cp2 or w2
		has := rapid.IntRange(28, cluster).Draw(t, "its version")
		make := func(to int) []plan.Problem {
			in := site(version(cluster))
			in.Version = version(to)
			name := in.Spec.Hosts[node].Name
			fact(in, name).Node.Version, view(in).Nodes[node].Version = version(has), version(has)
			_, problems := plan.Make(in)
			return slices.DeleteFunc(problems, func(p plan.Problem) bool { return p.Host != name && p.Host != "" })
		}
		for _, p := range make(to) {
			if p.Host == "" {
				continue // the file skips a version
			}
			works := cluster < to && len(make(cluster)) == 0
			if named := strings.Contains(p.Hint, "with the file of "+version(cluster)+": ./install cluster apply"); named != works {
				t.Fatalf("cluster %d, node %d, file %d: the file works: %t, hint %q", cluster, has, to, works, p.Hint)
			}
			if !works && !strings.Contains(p.Hint, "./install node remove "+p.Host) {
				t.Fatal(p.Hint)
			}
		}
	})
}

// What a kubelet reports as its address is used only if it is an IP address that nobody else has.
func TestAddressOf(t *testing.T) {
	hosts := []spec.Host{{Name: "cp0", SSH: spec.SSH{Address: "10.0.0.10"}, NodeIP: []netip.Addr{netip.MustParseAddr("10.0.1.10")}}}
	c := &facts.Cluster{VIP: []string{"10.0.0.9"}, Nodes: []facts.ClusterNode{{Name: "w1", Addresses: []string{"10.0.0.21"}}}}
	for _, row := range []struct{ reported, want string }{
		{"10.0.0.31", "10.0.0.31"}, {"fd00::31", "fd00::31"}, {"::ffff:10.0.0.31", "10.0.0.31"}, {"$(touch /x) 10.0.0.31", "10.0.0.31"},
		{"10.0.0.10", ""}, {"::ffff:10.0.0.10", ""}, {"10.0.1.10", ""}, {"10.0.0.9", ""}, {"10.0.0.21", ""}, {"127.0.0.1", ""}, {"::1", ""}, {"0.0.0.0", ""}, {"224.0.0.1", ""}, {"fe80::1", ""}, {"fe80::1%eth0", ""},
		{"fd00::1%$(id)", ""}, {"-oProxyCommand=id", ""}, {"host.example", ""}, {"10.0.0.031", ""}, {"10.0.0.31:22", ""}, {"[fd00::31]", ""}, {"", ""},
	} {
		n := facts.ClusterNode{Name: "w9", Addresses: strings.Split(row.reported, " ")}
		if got := plan.AddressOf(n, c, hosts); got != row.want {
			t.Errorf("%q: %q, want %q", row.reported, got, row.want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(rapid.String(), rapid.StringMatching(`[0-9a-f:.%/$();-]{1,24}`)).Draw(t, "address")
		got := plan.AddressOf(facts.ClusterNode{Name: "w9", Addresses: []string{text}}, c, hosts)
		if _, err := netip.ParseAddr(got); got != "" && (err != nil || strings.Trim(got, "0123456789abcdef.:") != "") {
			t.Fatalf("%q: %q", text, got)
		}
	})
}

// A worker that reports the address of a node that leaves keeps its host from being reset. The plan names that worker.
func TestPlanNamesWhoReportsTheSameAddress(t *testing.T) {
	in := site(newVersion)
	in.Remove = true
	in.Spec.Hosts = slices.DeleteFunc(in.Spec.Hosts, func(h spec.Host) bool { return h.Name == "w1" })
	delete(in.Answers, "w1")
	for i, n := range view(in).Nodes {
		if n.Name == "w0" || n.Name == "w1" {
			view(in).Nodes[i].Addresses = []string{"10.0.0.21"}
		}
	}
	p, problems := plan.Make(in)
	if len(problems) > 0 || len(p.Stages) != 1 || !strings.HasSuffix(p.Stages[0].Actions[0].Why, "because its address is also reported by w0") || p.Stages[0].Actions[0].Verb != plan.RemoveOff {
		t.Errorf("%+v; %+v", problems, p)
	}
}
