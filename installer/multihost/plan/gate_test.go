package plan_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"airlift/installer/multihost/facts"
	"airlift/installer/multihost/plan"
	"airlift/installer/multihost/spec"
)

// gated is a site of which w0 has the version of the file, and its batch has not passed. The other nodes have the former version, except
// the control planes.
func gated() plan.Input {
	in := site(newVersion)
	in.Spec.Groups = append(in.Spec.Groups, spec.Group{Name: "canary", Roll: spec.GroupRoll{Soak: 10 * time.Minute, Check: []string{"true"}}})
	in.Spec.Roll.Order = []string{"canary"}
	in.Spec.Hosts[3].Group = "canary"
	for _, name := range []string{"w1", "w2"} {
		setVersion(in, name, oldVersion)
	}
	setGate(in, &facts.Gate{Stage: "upgrade canary", To: newVersion, Hosts: []string{"w0"}, Groups: []string{"canary"}, Checks: []string{"canary"}, By: "ann@laptop", Since: noon})
	return in
}

// setVersion changes the version of a node.
func setVersion(in plan.Input, name, version string) {
	fact(in, name).Node.Version = version
	c := view(in)
	i := slices.IndexFunc(c.Nodes, func(n facts.ClusterNode) bool { return n.Name == name })
	c.Nodes[i].Version = version
}

func setGate(in plan.Input, g *facts.Gate) {
	for _, a := range in.Answers {
		if a.Facts.Cluster != nil {
			a.Facts.Cluster.Gate = g
		}
	}
}

const check, unpack, others = "check of the last batch: w0 check (none)", "unpack: w1 upgrade unpack (none), w2 upgrade unpack (none)", "upgrade worker: w1 upgrade node (drain), w2 upgrade node (drain)"

// What the last batch owes comes before all that the plan would do next.
func TestGate(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*plan.Input)
		want   []string
		why    string // of the check
		note   string
		held   string
	}{
		{"after a failure", func(*plan.Input) {}, []string{check, unpack, others}, "health, soak 10m, check of group canary after upgrade canary", "", ""},
		{"nothing else is left", func(in *plan.Input) {
			setVersion(*in, "w1", newVersion)
			setVersion(*in, "w2", newVersion)
		}, []string{check}, "health, soak 10m, check of group canary after upgrade canary", "", ""},
		{"its upgrade did not end", func(in *plan.Input) { fact(*in, "w0").Unfinished = "upgrade node" },
			[]string{"upgrade canary: w0 upgrade node (drain)", check, unpack, others}, "health, soak 10m, check of group canary after upgrade canary", "", ""},
		{"its kubelet did not start again", func(in *plan.Input) {
			setVersion(*in, "w0", oldVersion)
			fact(*in, "w0").Node.Version = newVersion
		}, []string{"upgrade canary: w0 upgrade node (drain)", check, unpack, others}, "health, soak 10m, check of group canary after upgrade canary", "", ""},
		{"the upgrade of another host did not end", func(in *plan.Input) { fact(*in, "w1").Unfinished = "upgrade node" },
			[]string{check, "unpack: w2 upgrade unpack (none)", others}, "health, soak 10m, check of group canary after upgrade canary", "", ""},
		{"undone", func(in *plan.Input) { setVersion(*in, "w0", oldVersion) },
			[]string{check, "unpack: w0 upgrade unpack (none), w1 upgrade unpack (none), w2 upgrade unpack (none)", "upgrade canary: w0 upgrade node (drain)", others},
			"health, soak 10m, check of group canary after upgrade canary", "", ""},
		{"out of the file", func(in *plan.Input) { leave(*in, "w0") }, []string{check, unpack, others}, "health, soak 10m, check of group canary after upgrade canary", "", ""},
		{"it leaves", func(in *plan.Input) {
			leave(*in, "w0")
			in.Remove = true
		}, []string{"remove workers: w0 remove (drain)", "check of the last batch: cp0 check (none)", unpack, others}, "check of group canary after upgrade canary; its hosts are gone: w0", "", ""},
		{"it was removed", func(in *plan.Input) {
			leave(*in, "w0")
			view(*in).Nodes = slices.DeleteFunc(view(*in).Nodes, func(n facts.ClusterNode) bool { return n.Name == "w0" })
		}, []string{"check of the last batch: cp0 check (none)", unpack, others}, "check of group canary after upgrade canary; its hosts are gone: w0", "", ""},
		{"it moved to a group without rules", func(in *plan.Input) { in.Spec.Hosts[3].Group = "worker" },
			[]string{check, unpack, others}, "health, soak 10m, check of group canary after upgrade canary", "", ""},
		{"without the soak and the check", func(in *plan.Input) { in.Spec.Groups[2].Roll = spec.GroupRoll{} },
			[]string{check, unpack, others}, "health after upgrade canary", "had to pass the check of group canary, which cluster.yaml does not have any more", ""},
		{"skipped", func(in *plan.Input) { in.Skip = []string{"w0"} }, nil, "", "", "has not passed its checks"},
		{"another host is skipped", func(in *plan.Input) { in.Skip = []string{"w1"} },
			[]string{check, "unpack: w2 upgrade unpack (none)", "upgrade worker: w2 upgrade node (drain)"}, "health, soak 10m, check of group canary after upgrade canary", "", ""},
		{"two groups", func(in *plan.Input) {
			in.Spec.Groups[1].Roll = spec.GroupRoll{Soak: time.Hour, Check: []string{"true"}}
			setGate(*in, &facts.Gate{Stage: "endpoint", Hosts: []string{"w0", "w1"}, Groups: []string{"canary", "worker"}, Since: noon})
		}, []string{"check of the last batch: w0 check (none), w1 check (none)", unpack, others}, "health, soak 1h, check of group worker, check of group canary after endpoint", "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			in := gated()
			c.change(&in)
			p, problems := plan.Make(in)
			if len(problems) > 0 {
				t.Fatal(problems)
			}
			got := slices.DeleteFunc(lines(p), func(line string) bool { return strings.HasPrefix(line, "add-ons: ") })
			if !slices.Equal(got, c.want) {
				t.Errorf("%q, want %q", got, c.want)
			}
			i := slices.IndexFunc(p.Stages, func(st plan.Stage) bool { return st.Owed != nil })
			if c.why != "" && p.Stages[i].Actions[0].Why != c.why {
				t.Errorf("%q, want %q", p.Stages[i].Actions[0].Why, c.why)
			}
			gate := slices.IndexFunc(p.Rest, func(r plan.Rest) bool { return r.Outcome == "held" && strings.HasPrefix(r.What, "the last batch ") })
			if (c.held == "") != (gate < 0) || gate >= 0 && !strings.Contains(p.Rest[gate].What, c.held) || !strings.Contains(strings.Join(p.Notes, "\n"), c.note) {
				t.Errorf("rest %q, notes %q", p.Rest, p.Notes)
			}
		})
	}
}

// A pause after a group stays if an interruption left only its gate.
func TestGateKeepsThePause(t *testing.T) {
	in := gated()
	in.Spec.Groups[2].Roll.Pause, in.Continue = true, true
	fact(in, "w0").Unfinished = "upgrade node"
	p, problems := plan.Make(in)
	want := []string{"upgrade canary: w0 upgrade node (drain)", check}
	if len(problems) > 0 || !slices.Equal(lines(p), want) || !p.Pauses() || !p.Stages[0].Repair {
		t.Errorf("%+v, %q, %q", problems, lines(p), p.Rest)
	}
}

// Also while the roll pauses before its group, an interrupted host of the last batch is finished: otherwise, it could not pass.
func TestGateDuringAPause(t *testing.T) {
	in := gated()
	in.Spec.Groups[0].Roll.Pause = true
	fact(in, "w0").Unfinished = "upgrade node"
	p, problems := plan.Make(in)
	if want := []string{"upgrade canary: w0 upgrade node (drain)", check}; len(problems) > 0 || len(p.Rest) != 1 || p.Rest[0].Outcome != "paused" || !slices.Equal(lines(p), want) {
		t.Errorf("%+v; %q, want %q; %q", problems, lines(p), want, p.Rest)
	}
}

// A saved plan is not valid any more after a batch began, or after it passed.
func TestGateChangesAPlan(t *testing.T) {
	in := gated()
	with, _ := plan.Make(in)
	setGate(in, nil)
	without, _ := plan.Make(in)
	if err := plan.Same(with, without); err == nil || !strings.Contains(err.Error(), "cluster: last batch that has not passed: upgrade canary of w0") {
		t.Error(err)
	}
}

// A gate that this file cannot read forbids a plan.
func TestUnreadableGate(t *testing.T) {
	in := gated()
	for _, name := range []string{"cp0", "cp1", "cp2"} {
		fact(in, name).Unknown = map[string]string{"cluster.gate": "it has the format 2, and this file reads the format 1"}
	}
	_, problems := plan.Make(in)
	if len(problems) != 1 || !strings.Contains(problems[0].Why, "format 2") || !strings.Contains(problems[0].Hint, "kubectl -n kube-system get configmap airlift-roll") ||
		!strings.Contains(problems[0].Hint, "kubectl -n kube-system delete configmap airlift-roll") {
		t.Errorf("%+v", problems)
	}
}
