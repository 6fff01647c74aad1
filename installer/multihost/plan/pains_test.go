package plan_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"

	"airlift/installer/multihost/facts"
	"airlift/installer/multihost/plan"
	"airlift/installer/multihost/spec"
	"airlift/internal/fault"
)

var noon = time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)

// site returns three control planes, cp0 to cp2, and three workers, w0 to w2, whose cluster has a version; "": bare hosts.
func site(version string) plan.Input {
	in := plan.Input{Version: newVersion, Bundle: "b1", Arch: "amd64", Answers: map[string]plan.Answer{},
		Spec: &spec.Cluster{Name: "site", Digest: "d", Endpoint: spec.Endpoint{Address: "api.site"}, EmbeddedRegistry: true, Roll: spec.Roll{Drain: true},
			Groups: []spec.Group{{Name: spec.ControlPlane}, {Name: spec.Worker}}}}
	c := &facts.Cluster{Name: "site", Version: version, ControlPlaneEndpoint: "api.site:6443", EmbeddedRegistry: true, Bundles: []string{"b1"}}
	for i := range 6 {
		name, role := fmt.Sprint("cp", i), spec.ControlPlane
		if i > 2 {
			name, role = fmt.Sprint("w", i-3), spec.Worker
		}
		in.Spec.Hosts = append(in.Spec.Hosts, spec.Host{Name: name, Role: role, Group: role})
		f := &facts.Facts{Hostname: name, MachineID: "id" + name, MACs: []string{"mac" + name}, Time: noon, Arch: "amd64", Addresses: []string{fmt.Sprint("10.0.0.", i)}}
		in.Answers[name] = plan.Answer{Facts: f, At: noon}
		if version == "" {
			continue
		}
		f.Node = &facts.Node{Name: name, Role: role, Airlift: true, CASHA256: "sha256:aa", Version: version}
		c.Nodes = append(c.Nodes, facts.ClusterNode{Name: name, ControlPlane: i < 3, Ready: true, Version: version})
		if i < 3 {
			f.Cluster = c
			c.EtcdMembers = append(c.EtcdMembers, facts.EtcdMember{Name: name, Healthy: true})
		}
	}
	return in
}

func fact(in plan.Input, name string) *facts.Facts { return in.Answers[name].Facts }

// view is what every API server of the site returns.
func view(in plan.Input) *facts.Cluster { return fact(in, "cp1").Cluster }

// apiDown makes the API of a control plane stop.
func apiDown(in plan.Input, name string) {
	fact(in, name).Cluster = nil
	fact(in, name).Unknown = map[string]string{"cluster": "connection refused"}
	for _, f := range in.Answers {
		if f.Facts.Cluster == nil {
			continue
		}
		for i := range f.Facts.Cluster.Nodes {
			if f.Facts.Cluster.Nodes[i].Name == name {
				f.Facts.Cluster.Nodes[i].Ready, f.Facts.Cluster.EtcdMembers[i].Healthy = false, false
			}
		}
	}
}

// leave takes a host out of the file.
func leave(in plan.Input, name string) {
	in.Spec.Hosts = slices.DeleteFunc(in.Spec.Hosts, func(h spec.Host) bool { return h.Name == name })
}

// lines are the stages as text: "name: host verb (effect), …".
func lines(p *plan.Plan) (list []string) {
	for _, st := range p.Stages {
		var actions []string
		for _, a := range st.Actions {
			actions = append(actions, fmt.Sprintf("%s %s (%s)", a.Host, a.Verb, a.Effect))
		}
		list = append(list, st.Name+": "+strings.Join(actions, ", "))
	}
	return list
}

func TestProblems(t *testing.T) {
	for _, c := range []struct {
		name    string
		version string // of the cluster; "": bare
		edit    func(*plan.Input)
		host    string
		what    string
		hint    string
	}{
		{"pain 7: unknown is not absent", "", func(in *plan.Input) {
			fact(*in, "w1").Unknown = map[string]string{"node": "unexpected end of JSON"}
		}, "w1", `its state is unknown: reading "node" failed`, "--skip w1"},
		{"pain 20: a host that is off", newVersion, func(in *plan.Input) { in.Answers["w1"] = plan.Answer{Err: errors.New("no route to host")} }, "w1", "cannot be used", "--skip w1"},
		{"pain 21: no new CA for a worker of a cluster", "", func(in *plan.Input) {
			fact(*in, "w0").Node = &facts.Node{Name: "w0", Role: spec.Worker, Airlift: true, CASHA256: "sha256:aa", Version: newVersion}
		}, "w0", "is a node of a cluster whose control planes", "./install reset"},
		{"pain 21: no new CA while the API is down", newVersion, func(in *plan.Input) { apiDown(*in, "cp0"); apiDown(*in, "cp1"); apiDown(*in, "cp2") }, "cp2", "its API server does not answer", "./install status"},
		{"pain 21: no new CA past a skipped control plane", "", func(in *plan.Input) { in.Skip = []string{"cp2"} }, "cp2", "cannot be skipped", "cluster.yaml"},
		{"pain 21: an init outside of the cluster", newVersion, func(in *plan.Input) { fact(*in, "cp2").Node, fact(*in, "cp2").Unfinished = nil, "init" }, "cp2", `did not finish the command "init"`, "./install reset"},
		{"pain 27: machine-id", "", func(in *plan.Input) { fact(*in, "w1").MachineID = "idw0" }, "w1", "has the same machine-id idw0 as host w0", "systemd-machine-id-setup"},
		{"pain 27: MAC address", "", func(in *plan.Input) { fact(*in, "w1").MACs = []string{"x", "MACW0"} }, "w1", "has the same MAC address MACW0 as host w0", "own MAC address"},
		{"pain 27: hostname", "", func(in *plan.Input) { fact(*in, "w1").Hostname = "W0" }, "w1", "has the same hostname W0 as host w0", "hostnamectl set-hostname w1"},
		{"pain 27: an address given twice", "", func(in *plan.Input) { in.Answers["w1"] = in.Answers["w0"] }, "w1", "has the same machine-id idw0, MAC address macw0, hostname w0 as host w0", "correct ssh.address"},
		{"pain 28: another address", newVersion, func(in *plan.Input) { in.Spec.Hosts[3].NodeIP = []netip.Addr{netip.MustParseAddr("10.9.9.9")} }, "w0", "has no address 10.9.9.9", "nodeIP"},
		{"a clock two hours ahead", "", func(in *plan.Input) { fact(*in, "w1").Time = noon.Add(2 * time.Hour) }, "w1", "its clock is 2h0m0s ahead of the clock of", "timedatectl"},
		{"two clocks 40 s apart", "", func(in *plan.Input) {
			fact(*in, "w1").Time, fact(*in, "w2").Time = noon.Add(20*time.Second), noon.Add(-20*time.Second)
		}, "w1", "its clock is 40s ahead of the clock of w2", "timedatectl"},
		{"architecture", "", func(in *plan.Input) { fact(*in, "w1").Arch = "arm64" }, "w1", "its processor is arm64, and this file is for amd64", "bundle build --arch arm64"},
		{"a host of another cluster", newVersion, func(in *plan.Input) { fact(*in, "w1").Node.CASHA256 = "sha256:bb" }, "w1", "is a node of another cluster than cp0", "./install reset"},
		{"the cluster.yaml of another cluster", newVersion, func(in *plan.Input) { in.Spec.Name = "plant" }, "", "cluster.yaml is for the cluster plant, and these hosts are the cluster site", "name: site"},
		{"a node of another tool", newVersion, func(in *plan.Input) { fact(*in, "w1").Node.Airlift = false }, "w1", "is a node that Airlift did not install", "adopt"},
		{"a seed that runs", newVersion, func(in *plan.Input) { fact(*in, "cp1").Seed = "site" }, "cp1", "runs the seed of cluster site", "./install seed end"},
		{"leftovers", "", func(in *plan.Input) { fact(*in, "w1").Leftovers = []string{"/etc/kubernetes/kubelet.conf"} }, "w1", "has files of another installation", "kubeadm reset"},
		{"pain 25: another name", newVersion, func(in *plan.Input) { fact(*in, "w1").Node.Name = "worker1" }, "w1", "is the node worker1 already", "name: worker1"},
		{"another role", newVersion, func(in *plan.Input) { in.Spec.Hosts[3].Role = spec.ControlPlane }, "w0", "is a worker, and cluster.yaml has control-plane", "role: worker"},
		{"a deleted Node", newVersion, func(in *plan.Input) { view(*in).Nodes = view(*in).Nodes[:5] }, "w2", "the cluster has no Node w2", "./install reset"},
		{"pain 29: an erased host", newVersion, func(in *plan.Input) { apiDown(*in, "cp2"); fact(*in, "cp2").Node = nil }, "cp2", "the cluster still has its former Node", "--remove"},
		{"the address of another machine", newVersion, func(in *plan.Input) { fact(*in, "w2").Node = nil }, "w2", "is no node, and the cluster has a Ready Node w2", "ssh.address"},
		{"a downgrade", "v1.38.0", func(*plan.Input) {}, "", "this file has v1.37.1, and the cluster is v1.38.0", "./install upgrade undo"},
		{"skipped minor versions", "v1.34.2", func(*plan.Input) {}, "", "this file has v1.37.1, and the cluster is v1.34.2", "in this order: v1.35, v1.36"},
		{"a kubelet that is too old", oldVersion, func(in *plan.Input) { view(*in).Nodes[4].Version, fact(*in, "w1").Node.Version = "v1.33.9", "v1.33.9" }, "w1", "its kubelet is v1.33.9", "with the file of v1.36.3"},
		{"a kubelet that is newer", newVersion, func(in *plan.Input) { view(*in).Nodes[4].Version = "v1.37.2" }, "w1", "it has v1.37.2", "upgrade undo"},
		{"the endpoint loses its balancer", newVersion, func(in *plan.Input) {
			in.Spec.Endpoint, view(*in).Balancer, view(*in).VIP = spec.Endpoint{VIP: []netip.Addr{netip.MustParseAddr("10.0.0.100")}}, true, []string{"10.0.0.100"}
		}, "", "cluster.yaml has another endpoint, and the cluster has balancer: true", "endpoint undo"},
		{"another virtual address", newVersion, func(in *plan.Input) {
			in.Spec.Endpoint, view(*in).VIP = spec.Endpoint{VIP: []netip.Addr{netip.MustParseAddr("10.0.0.101")}}, []string{"10.0.0.100"}
		}, "", "cluster.yaml has another endpoint, and the cluster has vip: 10.0.0.100", "endpoint undo"},
		{"an address instead of a virtual one", newVersion, func(in *plan.Input) { view(*in).VIP = []string{"10.0.0.100"} }, "", "the cluster has vip: 10.0.0.100", "endpoint undo"},
		{"pain 23: no endpoint any more", newVersion, func(in *plan.Input) { in.Spec.Endpoint = spec.Endpoint{} }, "", "the cluster has address: api.site:6443", "endpoint undo"},
		{"pain 23: no registry any more", newVersion, func(in *plan.Input) { in.Spec.EmbeddedRegistry = false }, "", "embeddedRegistry: false", "registry disable"},
		{"another unfinished upgrade", newVersion, func(in *plan.Input) {
			f := fact(*in, "w1")
			f.Unfinished, f.Runs = "upgrade node", []facts.Run{{Command: "upgrade node", Version: "v1.37.0"}}
		}, "w1", `did not finish the command "upgrade node" of v1.37.0`, "file of v1.37.0"},
		{"an unfinished undo", newVersion, func(in *plan.Input) { fact(*in, "w1").Unfinished = "upgrade undo" }, "w1", `did not finish the command "upgrade undo"`, "./install upgrade undo"},
		{"pain 16: no restart next to one that is down", oldVersion, func(in *plan.Input) { apiDown(*in, "cp2") }, "cp2", "is down, and another control plane, cp0, would have to restart", "--skip cp2"},
		{"quorum during an upgrade", oldVersion, func(in *plan.Input) { apiDown(*in, "cp2"); in.Skip = []string{"cp2"} }, "cp2", "etcd would lose its quorum", "--remove"},
		{"a control plane that stays old", oldVersion, func(in *plan.Input) { in.Skip = []string{"cp2"} }, "cp2", "is a control plane with v1.36.3 that this run would leave alone", "--skip"},
		{"pain 29: removal without quorum", newVersion, func(in *plan.Input) { apiDown(*in, "cp2"); leave(*in, "cp1"); in.Remove = true }, "cp1", "etcd would have no quorum", "./install status"},
		{"pain 38: the last control plane", newVersion, func(in *plan.Input) {
			leave(*in, "cp0")
			leave(*in, "cp1")
			fact(*in, "cp2").Unfinished = "join"
			in.Remove = true
		}, "", "would leave no control plane", "keep a control plane"},
		{"a value that a running cluster cannot change", newVersion, func(in *plan.Input) {
			documented(in, facts.Change{Refused: []facts.Refusal{{Field: "standard input:9: ClusterConfiguration.networking.podSubnet", From: "10.1.0.0/16", To: "10.2.0.0/16", Reason: "each node has a part of it", Needed: "a new cluster"}}})
		}, "", `ClusterConfiguration.networking.podSubnet is "10.2.0.0/16" in kubeadm's documents, and the cluster has "10.1.0.0/16"`, "needed: a new cluster"},
		{"a configuration that a check refuses", newVersion, func(in *plan.Input) {
			documented(in, facts.Change{Nodes: changedNodes("cp0"), Errors: []facts.Finding{{Name: "EditedFiles", Message: "these files were edited", Fix: "./install reconfigure --restore --plan"}}})
		}, "cp0", "EditedFiles: these files were edited", "on that host: ./install reconfigure --restore --plan"},
		{"a host that does not report what changes", newVersion, func(in *plan.Input) {
			documented(in, facts.Change{})
			in.Changes["cp0"] = plan.ChangeAnswer{Err: fault.New(fault.Preflight, "another configuration was not finished").Hint("./install reconfigure undo")}
		}, "cp0", "it is unknown what the configuration changes", "./install reconfigure undo"},
		{"an unfinished undo of a configuration", newVersion, func(in *plan.Input) { fact(*in, "w1").Unfinished = "reconfigure undo" }, "w1", `did not finish the command "reconfigure undo"`, "./install reconfigure undo"},
		{"no restart for a configuration next to a control plane that is down", newVersion, func(in *plan.Input) {
			apiDown(*in, "cp2")
			documented(in, facts.Change{Nodes: changedNodes("cp0", "cp1", "cp2")})
		}, "cp2", "is down, and another control plane, cp0, would have to restart", "--skip cp2"},
		{"a typo in --skip", newVersion, func(in *plan.Input) { in.Skip = []string{"w9"} }, "", `--skip has "w9"`, "--skip"},
	} {
		t.Run(c.name, func(t *testing.T) {
			in := site(c.version)
			c.edit(&in)
			_, problems := plan.Make(in)
			found := slices.ContainsFunc(problems, func(p plan.Problem) bool {
				return p.Host == c.host && strings.Contains(p.What, c.what) && strings.Contains(p.Hint, c.hint)
			})
			if !found {
				t.Errorf("problems:\n%+v", problems)
			}
		})
	}
}

// Hosts that cannot be used come first, then the others in the order of the file, then what follows for the whole site.
func TestAllProblemsTogether(t *testing.T) {
	in := site("")
	fact(in, "w2").Arch, fact(in, "cp1").Arch = "arm64", "arm64"
	in.Answers["w0"] = plan.Answer{Err: errors.New("timeout")}
	in.Skip = []string{"x"}
	var hosts []string
	_, problems := plan.Make(in)
	for _, p := range problems {
		hosts = append(hosts, p.Host)
		if p.Hint == "" || p.What == "" {
			t.Errorf("%+v", p)
		}
	}
	if want := []string{"w0", "cp1", "w2", ""}; !slices.Equal(hosts, want) {
		t.Errorf("hosts %q, want %q", hosts, want)
	}
}

// TestNothingFollowsFromTheUnknown: a node that does not answer in time is not "no node".
func TestNothingFollowsFromTheUnknown(t *testing.T) {
	for _, name := range []string{"cp1", "w1"} {
		for _, role := range []bool{true, false} {
			in := site(newVersion)
			fact(in, name).Node, fact(in, name).Unknown = nil, map[string]string{"node": "no answer within 4.5s"}
			for i := range view(in).Nodes {
				if n := &view(in).Nodes[i]; n.Name == name {
					n.ControlPlane = n.ControlPlane == role
				}
			}
			_, problems := plan.Make(in)
			if len(problems) != 1 || problems[0].Host != name || !strings.Contains(problems[0].What, "its state is unknown") {
				t.Errorf("%s: %+v", name, problems)
			}
		}
	}
}

// TestEachUnknownFactIsOneProblem: no fact that a host could not read causes more than its own problem.
func TestEachUnknownFactIsOneProblem(t *testing.T) {
	lose := map[string]func(*facts.Node){
		"node.airlift":        func(n *facts.Node) { n.Airlift = false },
		"node.name":           func(n *facts.Node) { n.Name = "" },
		"node.version":        func(n *facts.Node) { n.Version = "" },
		"node.caSHA256":       func(n *facts.Node) { n.CASHA256 = "" },
		"node.apiServer":      func(n *facts.Node) { n.APIServer = "" },
		"node.kubeletRunning": func(n *facts.Node) { n.KubeletRunning = false },
		"node.cordoned":       func(n *facts.Node) { n.Cordoned = false },
	}
	for field, edit := range lose {
		for _, name := range []string{"cp0", "cp1", "w1"} {
			in := site(newVersion)
			f := fact(in, name)
			edit(f.Node)
			f.Unknown = map[string]string{field: "no answer"}
			p, problems := plan.Make(in)
			for _, problem := range problems {
				if !strings.Contains(problem.What, "its state is unknown") || problem.Host != name || len(problems) > 1 {
					t.Errorf("%s of %s: %+v", field, name, problems)
					break
				}
			}
			if len(problems) == 0 && len(p.Stages) > 0 {
				t.Errorf("%s of %s: %q", field, name, lines(p))
			}
		}
	}
}

// TestUnknownLedger: neither a reset nor a removal says that Airlift did not install a node whose ledger could not be read.
func TestUnknownLedger(t *testing.T) {
	in := site(newVersion)
	fact(in, "w1").Node.Airlift, fact(in, "w1").Unknown = false, map[string]string{"node.airlift": "permission denied"}
	problems := plan.CheckReset(in.Spec, in.Answers)
	if len(problems) != 1 || problems[0].Host != "w1" || problems[0].What != "it is unknown whether Airlift installed this node" || problems[0].Why != "permission denied" {
		t.Errorf("reset: %+v", problems)
	}
	leave(in, "w1")
	in.Remove = true
	_, problems = plan.Make(in)
	if len(problems) != 1 || problems[0].Host != "w1" || !strings.Contains(problems[0].What, "it is unknown whether Airlift installed this node") {
		t.Errorf("removal: %+v", problems)
	}
}

func TestPlans(t *testing.T) {
	for _, c := range []struct {
		name    string
		version string
		edit    func(*plan.Input)
		want    []string
	}{
		{"bare", "", func(*plan.Input) {}, []string{"init: cp0 init (none)", "join control planes: cp1 join (none), cp2 join (none)", "join workers: w0 join (none), w1 join (none), w2 join (none)"}},
		{"pain 17: init goes on where it began", "", func(in *plan.Input) { fact(*in, "cp1").Unfinished = "init" },
			[]string{"init: cp1 init (none)", "join control planes: cp0 join (none), cp2 join (none)", "join workers: w0 join (none), w1 join (none), w2 join (none)"}},
		{"pain 16: nothing to do", newVersion, func(*plan.Input) {}, nil},
		{"pain 18: an unfinished join is joined again", newVersion, func(in *plan.Input) { fact(*in, "w1").Unfinished = "join" }, []string{"join workers: w1 join (none)"}},
		{"pain 19: an upgrade is finished after another command ran", newVersion, func(in *plan.Input) {
			fact(*in, "w1").Node.Cordoned, view(*in).Nodes[4].Unschedulable = true, true
		}, []string{"upgrade worker: w1 upgrade node (drain)"}},
		{"pain 19: a control plane whose API did not come back", newVersion, func(in *plan.Input) {
			apiDown(*in, "cp2")
			fact(*in, "cp2").Unknown["cluster.etcdMembers"], fact(*in, "cp2").Unfinished = "timeout", "upgrade node"
		}, []string{"upgrade control planes: cp2 upgrade node (drain)"}},
		{"pain 17: a half joined host whose Node is registered", newVersion, func(in *plan.Input) {
			f := fact(*in, "w1")
			f.Unfinished, f.Node, view(*in).Nodes[4].Ready, in.Remove = "join", nil, false, true
		}, []string{"join workers: w1 join (none)"}},
		{"pain 17: a half joined host without a kubelet", newVersion, func(in *plan.Input) {
			f := fact(*in, "w1")
			f.Unfinished, f.Node.Name, f.Node.Version, f.Unknown = "join", "", "", map[string]string{"node.version": "there is no kubelet", "node.name": "no file"}
			view(*in).Nodes = slices.Delete(view(*in).Nodes, 4, 5)
		}, []string{"join workers: w1 join (none)"}},
		{"pain 15: labels do not drain", newVersion, func(in *plan.Input) { in.Spec.Hosts[3].Labels = map[string]string{"zone": "a"} }, []string{"labels and taints: w0 labels (none)"}},
		{"pain 15: NoExecute moves pods", newVersion, func(in *plan.Input) { in.Spec.Hosts[3].Taints = []string{"a=b:NoExecute"} }, []string{"labels and taints: w0 labels (drain)"}},
		{"upgrade", oldVersion, func(*plan.Input) {}, []string{
			"unpack: cp0 upgrade unpack (none), cp1 upgrade unpack (none), cp2 upgrade unpack (none), w0 upgrade unpack (none), w1 upgrade unpack (none), w2 upgrade unpack (none)",
			"upgrade control planes: cp0 upgrade apply (drain), cp1 upgrade node (drain), cp2 upgrade node (drain)",
			"upgrade worker: w0 upgrade node (drain), w1 upgrade node (drain), w2 upgrade node (drain)", "add-ons: cp0 upgrade apply (none)"}},
		{"pain 16: a control plane whose kubelet did not start again is finished, and is no reason to refuse that", oldVersion, func(in *plan.Input) {
			fact(*in, "cp1").Node.Version, view(*in).Nodes[1].Ready = newVersion, false
			in.Skip = []string{"w0", "w1", "w2"}
			for _, i := range []int{3, 4, 5} {
				view(*in).Nodes[i].Version = newVersion
			}
		}, []string{"unpack: cp0 upgrade unpack (none), cp2 upgrade unpack (none)", "upgrade control planes: cp0 upgrade apply (drain), cp1 upgrade node (drain), cp2 upgrade node (drain)"}},
		{"pain 32: cordoned by others", newVersion, func(in *plan.Input) {
			for _, i := range []int{4, 5} {
				view(*in).Nodes[i].Unschedulable, view(*in).Nodes[i].Version = true, oldVersion
			}
			fact(*in, "w2").Node.Cordoned, fact(*in, "w2").Unfinished = true, "upgrade node"
		}, []string{"upgrade worker: w1 upgrade node (restart), w2 upgrade node (drain)", "add-ons: cp0 upgrade apply (none)"}},
		{"pain 22: adds, removals, labels and an upgrade in one edit", oldVersion, func(in *plan.Input) {
			leave(*in, "cp2")
			leave(*in, "w2")
			in.Spec.Hosts = append(in.Spec.Hosts, spec.Host{Name: "cp3", Role: spec.ControlPlane, Group: spec.ControlPlane}, spec.Host{Name: "w3", Role: spec.Worker, Group: spec.Worker, NodeValues: spec.NodeValues{Labels: map[string]string{"a": "b"}}})
			for _, name := range []string{"cp3", "w3"} {
				in.Answers[name] = plan.Answer{Facts: &facts.Facts{Hostname: name, MachineID: name, Time: noon, Arch: "amd64"}, At: noon}
			}
			delete(in.Answers, "w2")
			in.Remove = true
		}, []string{
			"unpack: cp0 upgrade unpack (none), cp1 upgrade unpack (none), w0 upgrade unpack (none), w1 upgrade unpack (none)",
			"upgrade control planes: cp0 upgrade apply (drain), cp1 upgrade node (drain)",
			"join control planes: cp3 join (none)", "remove control planes: cp2 remove (drain)", "join workers: w3 join (none)", "labels and taints: w3 labels (none)",
			"upgrade worker: w0 upgrade node (drain), w1 upgrade node (drain)", "remove workers: w2 remove (is gone) (drain)", "add-ons: cp0 upgrade apply (none)"}},
		{"pain 29: an erased control plane joins again", newVersion, func(in *plan.Input) { apiDown(*in, "cp2"); fact(*in, "cp2").Node = nil; in.Remove = true },
			[]string{"remove lost hosts: cp2 remove (is gone) (none)", "join control planes: cp2 join (none)"}},
		{"pain 23: another endpoint", newVersion, func(in *plan.Input) { in.Spec.Endpoint.Address = "new.site" }, []string{
			"endpoint on control planes: cp0 endpoint apply (restart), cp1 endpoint apply (restart), cp2 endpoint apply (restart)", "endpoint worker: w0 endpoint node (restart), w1 endpoint node (restart), w2 endpoint node (restart)", "endpoint of the cluster: cp0 endpoint node (restart), cp1 endpoint node (restart)"}},
		{"an undone endpoint: all control planes stop serving it", newVersion, func(in *plan.Input) {
			view(*in).EndpointUndone = true
			for _, i := range []int{0, 2, 4} {
				view(*in).Nodes[i].EndpointBehind = true
			}
		}, []string{"endpoint on control planes: cp0 endpoint node (restart), cp2 endpoint node (restart)", "endpoint worker: w1 endpoint node (restart)",
			"endpoint of the cluster: cp0 endpoint node (restart), cp2 endpoint node (restart)"}},
		{"an endpoint in kubeadm's documents", newVersion, func(in *plan.Input) {
			in.Spec.Endpoint.Address, in.Spec.Kubeadm = "", []byte("kind: InitConfiguration\n---\nkind: ClusterConfiguration\ncontrolPlaneEndpoint: api.site\n")
		}, nil},
		{"pain 19: a worker did not follow the endpoint", newVersion, func(in *plan.Input) { view(*in).Nodes[4].EndpointBehind = true }, []string{"endpoint worker: w1 endpoint node (restart)", "endpoint of the cluster: cp0 endpoint node (restart)"}},
		{"pain 19: a control plane that only serves the endpoint", newVersion, func(in *plan.Input) { view(*in).Nodes[1].EndpointBehind = true }, []string{"endpoint on control planes: cp1 endpoint node (restart)", "endpoint of the cluster: cp1 endpoint node (restart)"}},
		{"pain 19: the add-ons do not use the endpoint", newVersion, func(in *plan.Input) { view(*in).EndpointWaits = true }, []string{"endpoint of the cluster: cp0 endpoint node (restart)"}},
		{"pain 23: the registry", newVersion, func(in *plan.Input) {
			view(*in).EmbeddedRegistry = false
			fact(*in, "cp0").Node.NoRegistry = true
		}, []string{"registry on control planes: cp0 registry enable (reload), cp1 registry enable (reload), cp2 registry enable (reload)", "registry on workers: w0 registry enable (reload), w1 registry enable (reload), w2 registry enable (reload)"}},
		{"add-ons that waited", newVersion, func(in *plan.Input) { view(*in).AddonsWait = true }, []string{"add-ons: cp0 upgrade apply (none)"}},
		{"another configuration", newVersion, func(in *plan.Input) { documented(in, facts.Change{Nodes: changedNodes("cp0", "cp1", "cp2", "w1")}) }, []string{
			"configuration: cp0 reconfigure (restart)", "configuration of control planes: cp1 reconfigure node (restart), cp2 reconfigure node (restart)", "configuration of worker: w1 reconfigure node (restart)"}},
		{"another configuration, and hosts join with it", newVersion, func(in *plan.Input) {
			documented(in, facts.Change{Nodes: changedNodes("cp0", "cp1")})
			in.Spec.Hosts = append(in.Spec.Hosts, spec.Host{Name: "w3", Role: spec.Worker, Group: spec.Worker})
			in.Answers["w3"] = plan.Answer{Facts: &facts.Facts{Hostname: "w3", MachineID: "w3", Time: noon, Arch: "amd64"}, At: noon}
		}, []string{"configuration: cp0 reconfigure (restart)", "configuration of control planes: cp1 reconfigure node (restart)", "join workers: w3 join (none)"}},
		{"names in certificates restart nothing", newVersion, func(in *plan.Input) {
			c := facts.Change{Nodes: changedNodes("cp0", "cp1"), Certificates: []facts.CertificateChange{{File: "/etc/kubernetes/pki/apiserver.crt", Added: []string{"a"}}}}
			for i := range c.Nodes {
				c.Nodes[i].Restarts = nil
			}
			documented(in, c)
		}, []string{"configuration: cp0 reconfigure (reload)", "configuration of control planes: cp1 reconfigure node (reload)"}},
		{"documents that the cluster has", newVersion, func(in *plan.Input) {
			documented(in, facts.Change{Nodes: []facts.ChangedNode{{Name: "cp0"}, {Name: "w2"}}})
		}, nil},
		{"a configuration that some did not follow", newVersion, func(in *plan.Input) {
			view(*in).Nodes[2].ConfigurationBehind, view(*in).Nodes[5].ConfigurationBehind = true, true
			in.Changes = map[string]plan.ChangeAnswer{"w2": {Change: &facts.Change{Nodes: []facts.ChangedNode{{Name: "w2"}}}}}
		}, []string{"configuration of control planes: cp2 reconfigure node (restart)", "configuration of worker: w2 reconfigure node (none)"}},
		{"an unfinished configuration goes on where it began", newVersion, func(in *plan.Input) {
			fact(*in, "cp1").Unfinished = "reconfigure"
			documented(in, facts.Change{})
			in.Changes = map[string]plan.ChangeAnswer{"cp1": {Change: &facts.Change{Nodes: []facts.ChangedNode{{Name: "cp1"}, {Name: "cp0", Command: "./install reconfigure node"}}}}}
		}, []string{"configuration: cp1 reconfigure (none)", "configuration of control planes: cp0 reconfigure node (none)"}},
		{"a node finishes the last configuration before it gets the next one", newVersion, func(in *plan.Input) {
			fact(*in, "w1").Reconfiguring, fact(*in, "w1").Unfinished = "reconfigure node", "import" // that ran since
			view(*in).Nodes[4].ConfigurationBehind = true
			documented(in, facts.Change{Nodes: changedNodes("cp0", "w1", "w2")})
			in.Changes["w1"] = plan.ChangeAnswer{Change: &facts.Change{Nodes: []facts.ChangedNode{{Name: "w1"}}}}
		}, []string{"unfinished configuration of worker: w1 reconfigure node (restart)", "configuration: cp0 reconfigure (restart)", "configuration of worker: w1 reconfigure node (restart), w2 reconfigure node (restart)"}},
		{"what only a reconfiguration needs does not stop another plan", newVersion, func(in *plan.Input) {
			documented(in, facts.Change{Nodes: []facts.ChangedNode{{Name: "cp0"}}, Errors: []facts.Finding{{Name: "EditedFiles", Message: "m", Fix: "f"}}})
			in.Spec.Hosts[3].Labels = map[string]string{"zone": "a"}
		}, []string{"labels and taints: w0 labels (none)"}},
		{"other names of images: the add-ons are last", newVersion, func(in *plan.Input) {
			documented(in, facts.Change{Nodes: changedNodes("cp0", "cp1", "w0", "w1"), Images: true})
		}, []string{"configuration: cp0 reconfigure (restart)", "configuration of control planes: cp1 reconfigure node (restart)",
			"configuration of worker: w0 reconfigure node (restart), w1 reconfigure node (restart)", "add-ons of the configuration: cp0 reconfigure (none)"}},
		{"pain 20: a worker that is off is skipped", newVersion, func(in *plan.Input) { delete(in.Answers, "w1"); in.Skip = []string{"w1"} }, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			in := site(c.version)
			c.edit(&in)
			p, problems := plan.Make(in)
			if len(problems) > 0 {
				t.Fatalf("%+v", problems)
			}
			if got := lines(p); !slices.Equal(got, c.want) {
				t.Errorf("plan:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(c.want, "\n"))
			}
		})
	}
}

// documented gives a site a document of kubeadm, and what the cluster reports about it.
func documented(in *plan.Input, c facts.Change) {
	in.Spec.Kubeadm = []byte("apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\n")
	in.Changes = map[string]plan.ChangeAnswer{"cp0": {Change: &c}}
}

// changedNodes have to follow a change, the first one to make it, and restart something.
func changedNodes(names ...string) (list []facts.ChangedNode) {
	for i, name := range names {
		n := facts.ChangedNode{Name: name, Restarts: []string{"kubelet"}, Command: "./install reconfigure node"}
		if i == 0 {
			n.Command = "./install reconfigure"
		}
		list = append(list, n)
	}
	return list
}

// Whom the driver asks about kubeadm's documents.
func TestQuestions(t *testing.T) {
	for name, c := range map[string]struct {
		version string
		edit    func(*plan.Input)
		want    map[string]string
	}{
		"no cluster":   {"", func(*plan.Input) {}, nil},
		"no documents": {newVersion, func(in *plan.Input) { in.Spec.Kubeadm = nil }, nil},
		"only documents of new nodes": {newVersion, func(in *plan.Input) {
			in.Spec.Kubeadm = []byte("apiVersion: kubeadm.k8s.io/v1beta4\nkind: JoinConfiguration\n")
		}, nil},
		"the healthiest":                 {newVersion, func(in *plan.Input) { apiDown(*in, "cp0") }, map[string]string{"cp1": "reconfigure"}},
		"after an upgrade":               {oldVersion, func(*plan.Input) {}, nil},
		"after a change of the endpoint": {newVersion, func(in *plan.Input) { in.Spec.Endpoint.Address = "new.site" }, nil},
		"after an upgrade of a worker": {newVersion, func(in *plan.Input) {
			view(*in).Nodes[4].Version, fact(*in, "w1").Node.Version = oldVersion, oldVersion
		}, nil},
		"where it began": {newVersion, func(in *plan.Input) { fact(*in, "cp2").Unfinished = "reconfigure" }, map[string]string{"cp2": "reconfigure"}},
		"one that has followed": {newVersion, func(in *plan.Input) {
			view(*in).Nodes[0].ConfigurationBehind, view(*in).Nodes[3].ConfigurationBehind = true, true
		}, map[string]string{"cp0": "reconfigure node", "cp1": "reconfigure", "w0": "reconfigure node"}},
	} {
		in := site(c.version)
		documented(&in, facts.Change{})
		c.edit(&in)
		if got := plan.Questions(in); len(got)+len(c.want) > 0 && fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// A plan shows what restarts on each host, and the differences of files.
func TestConfigurationIsShown(t *testing.T) {
	in := site(newVersion)
	documented(&in, facts.Change{Nodes: changedNodes("cp0", "w1"), AddOns: []string{"DaemonSet kube-system/kube-proxy"},
		Changes:  []facts.FileChange{{Name: "ConfigMap kube-system/kubeadm-config", Diff: "-a\n+b\n"}, {Name: "/etc/kubernetes/keys"}, {Name: "/etc/kubernetes/etcd/ca.crt", Removed: true}},
		Warnings: []facts.Finding{{Name: "ProxyMode", Message: "rules stay", Fix: "reboot"}}})
	in.Spec.Kubeadm = append(in.Spec.Kubeadm, "---\napiVersion: kubeadm.k8s.io/v1beta4\nkind: JoinConfiguration\n"...)
	leave(in, "w2")
	view(in).Nodes[5].ConfigurationBehind = true
	p, problems := plan.Make(in)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	var out strings.Builder
	out.WriteString(p.Text(0, false))
	for _, want := range []string{
		" ~ cp0    reconfigure       restart  kubeadm's documents differ: restarts kubelet, replaces the pods\n",
		"   of DaemonSet kube-system/kube-proxy\n",
		" ~ w1     reconfigure node  restart  follows the change of the configuration: restarts kubelet\n",
		"\nChanges on cp0:\n\n-a\n+b\n/etc/kubernetes/keys changes: its contents are not shown\n/etc/kubernetes/etcd/ca.crt: the file is removed\n",
		"  - cp0: ProxyMode: rules stay; reboot\n", "w2 has to follow the configuration, and this run leaves it alone", "JoinConfiguration are for new nodes",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	// A saved plan is another one if the difference is.
	other := in
	other.Changes = map[string]plan.ChangeAnswer{"cp0": {Change: &facts.Change{Nodes: changedNodes("cp0", "w1"), Changes: []facts.FileChange{{Name: "x", Diff: "y"}}}}}
	fresh, _ := plan.Make(other)
	if err := plan.Same(p, fresh); err == nil || !strings.Contains(err.Error(), "cp0: change of the configuration") {
		t.Error(err)
	}
}

// The cluster does not match the file while API servers wait for certificates of kubelets, also if no host has anything to do. A plan
// that changes the configuration does not know yet whether they will wait.
func TestCertificatesOfKubeletsHold(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := site(newVersion)
		change := facts.Change{}
		if rapid.Bool().Draw(t, "changes") {
			change.Nodes = changedNodes(rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"cp0", "cp1", "w1"}), 1, 3, rapid.ID[string]).Draw(t, "nodes")...)
		}
		waits := rapid.Bool().Draw(t, "waits")
		if waits {
			change.Warnings = []facts.Finding{{Name: "KubeletCertificates", Message: "w1: connection refused", Fix: "run it again"}}
		}
		documented(&in, change)
		in.Spec.Profile = spec.Hardened
		view(in).Profile = spec.Hardened
		p, problems := plan.Make(in)
		if len(problems) > 0 {
			t.Fatal(problems)
		}
		err := p.Outcome()
		held := err != nil && fault.ExitCode(err) == fault.Held && strings.Contains(err.Error(), "w1: connection refused")
		if changes := len(p.Stages) > 0; changes != (len(change.Nodes) > 0) || held != (waits && !changes) || (err != nil) != (waits || changes) {
			t.Fatalf("waits %t, changes %t: %v", waits, changes, err)
		}
	})
}

// An encryption of the site stays if only the profile asks for another one. A file that asks for it is refused.
func TestEncryptionOfTheSite(t *testing.T) {
	for _, byProfile := range []bool{true, false} {
		in := site(newVersion)
		in.Spec.EncryptSecrets, in.Spec.EncryptsByProfile = new(true), byProfile
		for _, name := range []string{"cp0", "cp1", "cp2"} {
			fact(in, name).Node.Encryption = &facts.Encryption{Site: "/etc/kms.yaml"}
		}
		p, problems := plan.Make(in)
		if byProfile && (len(problems) > 0 || len(p.Stages) > 0) || !byProfile && (len(problems) != 1 || !strings.Contains(problems[0].Why, "/etc/kms.yaml")) {
			t.Errorf("by the profile %t: %+v\n%+v", byProfile, problems, p)
		}
	}
}

// A change of the keys that was not finished waits for a decision if the file has none any more, for example because the profile was taken
// out of it: running the same command again would never finish it.
func TestUnfinishedKeysWithoutADecision(t *testing.T) {
	for _, decided := range []bool{true, false} {
		in := site(newVersion)
		documented(&in, facts.Change{})
		in.Spec.Profile = spec.NoProfile
		if decided {
			in.Spec.EncryptSecrets = new(true)
		}
		for _, name := range []string{"cp0", "cp1", "cp2"} {
			fact(in, name).Node.Encryption = &facts.Encryption{Steps: map[string]int{plan.SecretsEnable: 1, plan.SecretsDisable: 1}, Began: name == "cp0"}
		}
		p, problems := plan.Make(in)
		if len(problems) > 0 {
			t.Fatal(problems)
		}
		err := p.Outcome()
		if held := len(p.Stages) == 0 && fault.ExitCode(err) == fault.Held && strings.Contains(fault.Hint(err), "encryptSecrets"); held == decided {
			t.Errorf("decided %t: %v, %q\n%+v", decided, err, fault.Hint(err), p.Stages)
		}
	}
}

// A kubelet of an adopted node that does not read Airlift's files does not restart for a change, and has it only from its first upgrade
// on: also the plan after the change says so.
func TestKubeletOfAnAdoptedNode(t *testing.T) {
	const note = "the kubelet of w1, which was adopted, reads /etc/kubernetes/kubelet-config.yaml until its"
	for name, c := range map[string]struct {
		version string
		change  facts.Change
		noted   bool
	}{
		"change":  {newVersion, facts.Change{Nodes: changedNodes("cp0", "w1", "w2")}, true},
		"after":   {newVersion, facts.Change{}, true},
		"upgrade": {oldVersion, facts.Change{}, false},
	} {
		in := site(c.version)
		documented(&in, c.change)
		fact(in, "w1").Node.KubeletConfig = "/etc/kubernetes/kubelet-config.yaml"
		p, problems := plan.Make(in)
		if len(problems) > 0 {
			t.Fatal(problems)
		}
		var out strings.Builder
		out.WriteString(p.Text(0, false))
		if strings.Contains(out.String(), note) != c.noted {
			t.Errorf("%s: a note %t in\n%s", name, !c.noted, out.String())
		}
		if name != "change" {
			continue
		}
		for node, restarts := range map[string]bool{"w1": false, "w2": true} {
			if line := regexp.MustCompile(`(?m)^ ~ ` + node + ` +reconfigure node.*$`).FindString(out.String()); line == "" || strings.Contains(line, "restarts kubelet") != restarts {
				t.Errorf("%s: %q in\n%s", node, line, out.String())
			}
		}
	}
}

// Pain 24: any healthy control plane leads, wherever it is in the file.
func TestPain24AnyHealthyControlPlaneLeads(t *testing.T) {
	in := site(newVersion)
	apiDown(in, "cp0")
	in.Spec.Hosts[3].Labels = map[string]string{"zone": "a"}
	for range 2 {
		p, problems := plan.Make(in)
		if len(problems) > 0 || p.Leader != "cp1" || len(p.Stages) != 1 {
			t.Fatalf("%+v, %+v", p, problems)
		}
		slices.Reverse(in.Spec.Hosts)
	}
}

// Pain 31: a PodDisruptionBudget is named before anything is drained.
func TestPain31BudgetIsPredicted(t *testing.T) {
	in := site(oldVersion)
	view(in).BlockedBy = map[string][]string{"w1": {"shop/web"}}
	p, problems := plan.Make(in)
	if len(problems) > 0 || !slices.Contains(p.Notes, "w1 cannot be drained now: shop/web allows no disruption; apply waits for it at most 5m, and is held then") {
		t.Errorf("%+v, %+v", p, problems)
	}
}

// Pain 38: without --remove a Node that the file does not have holds the outcome, and with it only that Node goes.
func TestPain38OnlyWhatIsNotInTheFileIsRemoved(t *testing.T) {
	in := site(newVersion)
	leave(in, "w2")
	p, _ := plan.Make(in)
	if len(p.Stages) > 0 || len(p.Rest) != 1 || p.Rest[0].Outcome != "held" || p.Rest[0].What != "w2 is in the cluster, and not in cluster.yaml" {
		t.Errorf("%+v", p)
	}
	in.Remove = true
	p, _ = plan.Make(in)
	if got := lines(p); len(got) != 1 || got[0] != "remove workers: w2 remove (drain)" {
		t.Errorf("%q", got)
	}
}

func TestCanaryPausesTheRoll(t *testing.T) {
	in := site(oldVersion)
	in.Spec.Groups = append(in.Spec.Groups, spec.Group{Name: "canary", Roll: spec.GroupRoll{Pause: true}})
	in.Spec.Roll.Order = []string{"canary"}
	in.Spec.Hosts[5].Group = "canary"
	p, _ := plan.Make(in)
	if n := len(p.Stages); n != 3 || p.Stages[2].Name != "upgrade canary" || !strings.HasPrefix(p.Rest[0].What, "group canary gets v1.37.1, and the roll pauses after it; waiting: worker (2 hosts)") {
		t.Fatalf("%+v, %q", lines(p), p.Rest)
	}
	view(in).Version = newVersion
	for i := range view(in).Nodes {
		n := &view(in).Nodes[i]
		if n.ControlPlane || n.Name == "w2" {
			n.Version, fact(in, n.Name).Node.Version = newVersion, newVersion
		}
	}
	p, _ = plan.Make(in)
	if !p.Pauses() || !strings.Contains(p.Rest[0].What, "group canary has v1.37.1") || len(p.Stages) != 0 {
		t.Errorf("%q, %+v", p.Rest, lines(p))
	}
	view(in).AddonsWait = true
	if p, _ = plan.Make(in); !p.Pauses() || len(p.Stages) != 0 {
		t.Errorf("the add-ons wait for nodes that are held: %q, %+v", p.Rest, lines(p))
	}
	in.Continue = true
	if p, _ = plan.Make(in); p.Pauses() || len(p.Stages) != 3 {
		t.Errorf("%q, %+v", p.Rest, lines(p))
	}
}

// A pause holds back the upgrades of later groups, and nothing else. Without such a group, nothing pauses.
func TestAPauseHoldsBackLaterGroups(t *testing.T) {
	for _, c := range []struct {
		name   string
		edit   func(*plan.Input)
		stages string
		paused string
	}{
		{"control planes", func(*plan.Input) {}, "unpack, upgrade control planes", "group control-plane gets v1.37.1, and the roll pauses after it; waiting: worker (3 hosts)"},
		{"no later group", func(in *plan.Input) { in.Skip = []string{"w0", "w1", "w2"} }, "unpack, upgrade control planes", ""},
		{"a worker that leaves", func(in *plan.Input) { leave(*in, "w2"); in.Remove = true }, "unpack, upgrade control planes, remove workers", "group control-plane gets v1.37.1, and the roll pauses after it; waiting: worker (2 hosts)"},
		{"the last group, and a worker that leaves", func(in *plan.Input) {
			leave(*in, "w2")
			in.Remove, in.Spec.Groups[0].Roll.Pause = true, false
		}, "unpack, upgrade control planes, upgrade worker, remove workers, add-ons", ""},
		{"a new host", func(in *plan.Input) {
			fact(*in, "w2").Node = nil
			view(*in).Nodes = view(*in).Nodes[:5]
		}, "unpack, upgrade control planes, join workers", "group control-plane gets v1.37.1, and the roll pauses after it; waiting: worker (2 hosts)"},
		{"--continue, and the group that pauses is not done", func(in *plan.Input) { in.Continue = true }, "unpack, upgrade control planes", "group control-plane gets v1.37.1, and the roll pauses after it; waiting: worker (3 hosts)"},
		{"a group between others is done", func(in *plan.Input) {
			in.Spec.Groups = append(in.Spec.Groups, spec.Group{Name: "middle", Roll: spec.GroupRoll{Pause: true}}, spec.Group{Name: "end"})
			in.Spec.Groups[0].Roll.Pause, in.Spec.Groups[1].Roll.Pause = false, false
			in.Spec.Hosts[4].Group, in.Spec.Hosts[5].Group = "middle", "end"
			setVersion(*in, "w1", newVersion)
		}, "unpack, upgrade control planes, upgrade worker", "group middle has v1.37.1, and the roll pauses after it; waiting: end (1 host)"},
		{"the group that pauses is held", func(in *plan.Input) {
			in.Spec.Groups = append(in.Spec.Groups, spec.Group{Name: "end"})
			in.Spec.Groups[0].Roll.Pause, in.Spec.Hosts[5].Group, in.Skip = false, "end", []string{"w0"}
			view(*in).Nodes[3].Ready = false
		}, "unpack, upgrade control planes", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			in := site(oldVersion)
			in.Spec.Groups[0].Roll.Pause, in.Spec.Groups[1].Roll.Pause = true, true
			c.edit(&in)
			p, problems := plan.Make(in)
			if len(problems) > 0 {
				t.Fatalf("%+v", problems)
			}
			var stages, why []string
			for _, st := range p.Stages {
				stages = append(stages, st.Name)
			}
			for _, r := range p.Rest {
				if r.Outcome == "paused" {
					why = append(why, r.What)
				}
			}
			if strings.Join(stages, ", ") != c.stages || strings.Join(why, "\n") != c.paused {
				t.Errorf("%q, %q", strings.Join(stages, ", "), p.Rest)
			}
		})
	}
}

// A saved plan binds: it survives what changes by itself, and names what drifted.
func TestSameNamesTheHostAndTheField(t *testing.T) {
	make := func(edit func(*plan.Input)) *plan.Plan {
		in := site(oldVersion)
		edit(&in)
		p, problems := plan.Make(in)
		if len(problems) > 0 {
			t.Fatal(problems)
		}
		text, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		read := &plan.Plan{}
		if err := json.Unmarshal(text, read); err != nil {
			t.Fatal(err)
		}
		return read
	}
	saved := make(func(*plan.Input) {})
	for _, c := range []struct {
		edit func(*plan.Input)
		want string // "": no drift
	}{
		{func(in *plan.Input) {
			fact(*in, "w0").Time = noon.Add(time.Second)
			fact(*in, "w0").Runs = []facts.Run{{Command: "images"}}
			view(*in).Nodes[3].Ready = false
			view(*in).BlockedBy = map[string][]string{"w1": {"a/b"}}
			slices.Reverse(view(*in).Nodes)
		}, ""},
		{func(in *plan.Input) { fact(*in, "w1").MachineID = "new" }, "w1: machine-id: idw1 in the plan, new now"},
		{func(in *plan.Input) { view(*in).Nodes[4].Unschedulable = true }, "w1: unschedulable: none in the plan, true now"},
		{func(in *plan.Input) { fact(*in, "w1").Unfinished = "upgrade node" }, "w1: unfinished command: none in the plan, upgrade node now"},
		{func(in *plan.Input) { in.Bundle = "b2" }, "ID of the file: b1 in the plan, b2 now"},
		{func(in *plan.Input) { in.Spec.Digest = "e" }, "digest of cluster.yaml: d in the plan, e now"},
		{func(in *plan.Input) { in.Spec.Roll.Drain = false }, "the actions differ"},
	} {
		err := plan.Same(saved, make(c.edit))
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("got %v, want %q", err, c.want)
		}
	}
	edited := make(func(*plan.Input) {})
	edited.Seen["w1"]["machine-id"] = "x"
	if err := plan.Same(edited, saved); err == nil || !strings.Contains(err.Error(), "the plan was edited") {
		t.Error(err)
	}
}

// A node that is left alone keeps a change of the endpoint from its end: no apply repeats it, and a note names the node.
func TestEndpointIsNotRepeatedNextToANodeThatIsLeftAlone(t *testing.T) {
	const rest = "the change of the endpoint is not finished until "
	behind := func(in *plan.Input, i int) { view(*in).EndpointWaits, view(*in).Nodes[i].EndpointBehind = true, true }
	for _, c := range []struct {
		name string
		edit func(*plan.Input)
		want []string // stages
		note string
	}{
		{"a skipped worker", func(in *plan.Input) { behind(in, 4); in.Skip = []string{"w1"} }, nil, rest + "w1 follows it; on that host: ./install endpoint node"},
		{"a worker that is off", func(in *plan.Input) { behind(in, 4); delete(in.Answers, "w1"); in.Skip = []string{"w1"} }, nil, rest + "w1 follows it; on that host: ./install endpoint node"},
		{"a worker that is not in the file", func(in *plan.Input) { behind(in, 4); leave(*in, "w1") }, nil, rest + "w1 follows it; on that host: ./install endpoint node"},
		{"a skipped control plane that is down", func(in *plan.Input) { behind(in, 2); apiDown(*in, "cp2"); in.Skip = []string{"cp2"} }, nil, rest + "cp2 follows it; on that host: ./install endpoint node"},
		{"a skipped control plane that does not serve it yet", func(in *plan.Input) {
			for i := range 3 {
				behind(in, i)
				view(*in).Nodes[i].EndpointServes = i < 2
			}
			in.Skip = []string{"cp2"}
		}, nil, rest + "cp2 follows it; on that host: ./install endpoint node"},
		{"a skipped worker that may use what was undone", func(in *plan.Input) {
			behind(in, 1)
			behind(in, 4)
			view(*in).EndpointUndone, view(*in).EndpointWaits, view(*in).Nodes[1].EndpointServes, in.Skip = true, false, true, []string{"w1"}
		}, nil, rest + "w1 follows it; on that host: ./install endpoint node"},
		{"control planes in different windows: any may be the last", func(in *plan.Input) {
			behind(in, 0)
			behind(in, 1)
			in.Spec.Groups = append(in.Spec.Groups, spec.Group{Name: "night", Roll: spec.GroupRoll{Window: &spec.Window{Start: 22 * time.Hour, End: 4 * time.Hour}}})
			in.Spec.Hosts[1].Group = "night"
		}, []string{"endpoint on control planes: cp0 endpoint node (restart), cp1 endpoint node (restart)", "endpoint of the cluster: cp0 endpoint node (restart), cp1 endpoint node (restart)"}, ""},
		{"another endpoint, and an undone change that is not finished", func(in *plan.Input) {
			for i := range 6 {
				behind(in, i)
			}
			view(*in).EndpointUndone, in.Spec.Endpoint.Address, in.Skip = true, "new.site", []string{"w0", "w1", "w2"}
		}, []string{"endpoint on control planes: cp0 endpoint node (restart), cp1 endpoint node (restart), cp2 endpoint node (restart)"},
			"the endpoint gets the addresses in cluster.yaml after its last change is finished: then run the same command again"},
		{"a worker that leaves later", func(in *plan.Input) { behind(in, 4); leave(*in, "w1"); in.Remove = true }, []string{"remove workers: w1 remove (drain)", "endpoint of the cluster: cp0 endpoint node (restart)"}, ""},
		{"a worker that leaves first", func(in *plan.Input) {
			behind(in, 4)
			view(*in).Nodes[4].Ready, in.Remove = false, true
			leave(*in, "w1")
		}, []string{"remove lost hosts: w1 remove (drain)", "endpoint of the cluster: cp0 endpoint node (restart)"}, ""},
		{"a control plane that leaves before", func(in *plan.Input) { behind(in, 2); leave(*in, "cp2"); in.Remove = true },
			[]string{"remove control planes: cp2 remove (drain)", "endpoint of the cluster: cp0 endpoint node (restart)"}, ""},
		{"a new endpoint, and a control plane that leaves without it", func(in *plan.Input) {
			in.Spec.Endpoint.Address, in.Skip, in.Remove = "new.site", []string{"w0", "w1", "w2"}, true
			leave(*in, "cp2")
		}, []string{"endpoint on control planes: cp0 endpoint apply (restart), cp1 endpoint apply (restart)", "remove control planes: cp2 remove (drain)", "endpoint of the cluster: cp0 endpoint node (restart), cp1 endpoint node (restart)"},
			rest + "w1 follows it; on that host: ./install endpoint node"},
		{"a new endpoint: the control planes use it without the worker", func(in *plan.Input) {
			in.Spec.Endpoint.Address, in.Skip = "new.site", []string{"w0", "w1", "w2"}
		}, []string{"endpoint on control planes: cp0 endpoint apply (restart), cp1 endpoint apply (restart), cp2 endpoint apply (restart)", "endpoint of the cluster: cp0 endpoint node (restart), cp1 endpoint node (restart)"},
			rest + "w1 follows it; on that host: ./install endpoint node"},
		{"an undone endpoint: a worker may use what the control planes serve", func(in *plan.Input) {
			behind(in, 1)
			behind(in, 4)
			view(*in).EndpointUndone, in.Skip = true, []string{"w1"}
		}, []string{"endpoint on control planes: cp1 endpoint node (restart)"}, rest + "w1 follows it; on that host: ./install endpoint node"},
	} {
		t.Run(c.name, func(t *testing.T) {
			in := site(newVersion)
			c.edit(&in)
			p, problems := plan.Make(in)
			if len(problems) > 0 {
				t.Fatalf("%+v", problems)
			}
			if got := lines(p); !slices.Equal(got, c.want) {
				t.Errorf("plan:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(c.want, "\n"))
			}
			left := slices.Clone(p.Notes)
			for _, r := range p.Rest {
				if r.Outcome == "held" {
					left = append(left, r.What+"; "+r.Hint)
				}
			}
			if c.note != "" && !slices.Contains(left, c.note) || c.note == "" && strings.Contains(strings.Join(left, "\n"), rest) {
				t.Errorf("held, and notes: %q, want %q", left, c.note)
			}
		})
	}
}

// The add-ons wait for a node that keeps its version, and not for one that leaves.
func TestAddonsWaitForNodesThatStay(t *testing.T) {
	for _, remove := range []bool{true, false} {
		for _, name := range []string{"cp2", "w2"} {
			in := site(oldVersion)
			if leave(in, name); name == "cp2" && !remove {
				continue // refused
			}
			in.Remove = remove
			p, problems := plan.Make(in)
			if len(problems) > 0 {
				t.Fatalf("%+v", problems)
			}
			waits := slices.ContainsFunc(p.Rest, func(r plan.Rest) bool {
				return r.Outcome == "held" && r.What == "the add-ons keep their version until "+name+" has v1.37.1"
			})
			if last := p.Stages[len(p.Stages)-1].Name; waits == remove || (last == "add-ons") != remove {
				t.Errorf("%s, remove %v: last stage %q, rest %q", name, remove, last, p.Rest)
			}
		}
	}
}

// A saved plan stays valid when another control plane leads because one member of etcd did not answer for a moment.
func TestSameWithAnotherLeader(t *testing.T) {
	for name, edit := range map[string]func(*plan.Input){
		"upgrade":            func(in *plan.Input) { *in = site(oldVersion) },
		"endpoint":           func(in *plan.Input) { in.Spec.Endpoint.Address = "new.site" },
		"the endpoint waits": func(in *plan.Input) { view(*in).EndpointWaits = true },
		"a worker is behind": func(in *plan.Input) { view(*in).Nodes[4].EndpointBehind = true },
		"the add-ons wait":   func(in *plan.Input) { view(*in).AddonsWait = true },
		"cp1 only serves":    func(in *plan.Input) { view(*in).Nodes[1].EndpointBehind = true },
		"cp0, cp1 only serve": func(in *plan.Input) {
			view(*in).Nodes[0].EndpointBehind, view(*in).Nodes[1].EndpointBehind = true, true
		},
		"an undone endpoint":   func(in *plan.Input) { view(*in).EndpointUndone, view(*in).Nodes[0].EndpointBehind = true, true },
		"labels of the leader": func(in *plan.Input) { in.Spec.Hosts[0].Labels = map[string]string{"zone": "a"} },
	} {
		saved, fresh := site(newVersion), site(newVersion)
		edit(&saved)
		edit(&fresh)
		fact(fresh, "cp0").Unknown = map[string]string{"cluster.etcdMembers": "no answer within 4.5s"}
		a, problems := plan.Make(saved)
		b, more := plan.Make(fresh)
		if len(problems)+len(more) > 0 || a.Leader != "cp0" || b.Leader != "cp1" {
			t.Fatalf("%s: %+v %+v", name, problems, more)
		}
		if err := plan.Same(a, b); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		last := a.Stages[len(a.Stages)-1].Actions
		last[0].Host = "w1"
		if plan.Same(a, b) == nil {
			t.Errorf("%s: a plan is valid whose last stage was edited", name)
		}
	}
}

func TestTextOfAPlan(t *testing.T) {
	in := site(oldVersion)
	in.Spec.Hosts[3].Labels = map[string]string{"a.example.com/" + strings.Repeat("k", 63): strings.Repeat("v", 63), "zone": "a"}
	in.Spec.Hosts[4].Labels = map[string]string{"zone": "a"}
	in.Spec.Hosts = append(in.Spec.Hosts, spec.Host{Name: strings.Repeat("n", 63), Role: spec.Worker, Group: spec.Worker})
	in.Answers[strings.Repeat("n", 63)] = plan.Answer{Facts: &facts.Facts{Arch: "amd64"}}
	view(in).BlockedBy = map[string][]string{"w1": {"shop/" + strings.Repeat("b", 120)}}
	p, problems := plan.Make(in)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	var text bytes.Buffer
	text.WriteString(p.Text(0, false))
	for _, line := range strings.Split(text.String(), "\n") {
		if utf8.RuneCountInString(line) > 100 || strings.HasSuffix(line, " ") {
			t.Errorf("%d columns: %q", utf8.RuneCountInString(line), line)
		}
	}
	for _, want := range []string{"Cluster site (v1.37.1): 16 actions on 7 hosts.\n", "v1.36.3 → v1.37.1: has another version\n", "+zone=a\n", "1. unpack (at most 10 at once, about 10 s)\n"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in:\n%s", want, text.String())
		}
	}
	p, _ = plan.Make(site(newVersion))
	if text := p.Text(0, false); text != "Cluster site (v1.37.1): nothing to do.\n" {
		t.Errorf("%q", text)
	}
}
