package plan_test

import (
	"slices"
	"strings"
	"testing"
	"unicode"

	"pgregory.net/rapid"

	"airlift/installer/multihost/facts"
	"airlift/installer/multihost/plan"
	_ "airlift/scripts/fixtures/seed"
)

// A member that learns does not vote. Its host may be lost in its join, and then etcd still has its quorum: one of one.
func TestPain29LearnerWhoseHostIsLostCanBeRemoved(t *testing.T) {
	for _, learners := range [][]string{{"cp1"}, {"cp1", "cp2"}} {
		in := site(newVersion)
		c := view(in)
		c.EtcdMembers = c.EtcdMembers[:1]
		fact(in, "cp0").Cluster = c
		for _, name := range []string{"cp1", "cp2"} {
			leave(in, name)
			delete(in.Answers, name)
			if slices.Contains(learners, name) {
				c.EtcdMembers = append(c.EtcdMembers, facts.EtcdMember{Name: name, Learner: true})
			}
		}
		c.Nodes = slices.DeleteFunc(c.Nodes, func(n facts.ClusterNode) bool { return n.Name == "cp1" || n.Name == "cp2" })
		in.Spec.Hosts = slices.Clone(in.Spec.Hosts)
		in.Remove = true
		p, problems := plan.Make(in)
		if len(problems) > 0 {
			t.Fatal(problems)
		}
		want := "remove lost hosts: " + strings.Join(learners, " remove (is gone) (none), ") + " remove (is gone) (none)"
		if got := lines(p); !slices.Equal(got, []string{want}) {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// etcd does not know the name of a member before it starts: there is no host "" to remove.
func TestPain29MemberWithoutANameIsNoHost(t *testing.T) {
	in := site(newVersion)
	c := view(in)
	c.EtcdMembers = append(c.EtcdMembers, facts.EtcdMember{Learner: true})
	in.Remove = true
	p, problems := plan.Make(in)
	if len(problems) > 0 || len(p.Stages) > 0 {
		t.Fatal(problems, lines(p))
	}
	if !strings.Contains(strings.Join(p.Notes, "\n"), "etcd has a member that has not started yet") {
		t.Error(p.Notes)
	}
}

// Whatever hosts report, each action is for a host that exists, the text of the plan cannot control a terminal, and a plan is
// the same plan again.
func TestPlansFromFactsThatLie(t *testing.T) {
	texts := rapid.SampledFrom([]string{"", "cp0", "cp1", "CP1", "w0", "-x", "sha256:aa", "v1.37.1", "v1.37.1+k3s1", "v1.37.0-rc.1", "v1.36.3", "1.36", "init", "join",
		"upgrade node", "upgrade node phase unpack", "reset", "\x1b[2J\n", "control-plane", "worker", "amd64", "etcd", "node.version", "cluster.etcdMembers", "cluster"})
	rapid.Check(t, func(t *rapid.T) {
		in := site(rapid.SampledFrom([]string{"", oldVersion, newVersion}).Draw(t, "version"))
		in.Remove, in.Continue = rapid.Bool().Draw(t, "remove"), rapid.Bool().Draw(t, "continue")
		for range rapid.IntRange(1, 6).Draw(t, "lies") {
			lie(t, fact(in, rapid.SampledFrom([]string{"cp0", "cp1", "cp2", "w0", "w1"}).Draw(t, "liar")), texts)
		}
		p, problems := plan.Make(in)
		if len(problems) > 0 {
			return
		}
		var text strings.Builder
		text.WriteString(p.Text(0, false))
		if strings.ContainsFunc(text.String(), func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }) {
			t.Errorf("the plan has control characters: %q", text.String())
		}
		for _, st := range p.Stages {
			for _, a := range st.Actions {
				if a.Host == "" {
					t.Errorf("an action for no host: %+v", a)
				}
			}
		}
		again, problems := plan.Make(in)
		if len(problems) > 0 {
			t.Fatal(problems)
		}
		if err := plan.Same(p, again); err != nil {
			t.Error(err)
		}
	})
}

// lie changes one fact.
func lie(t *rapid.T, f *facts.Facts, texts *rapid.Generator[string]) {
	text, is := texts.Draw(t, "text"), rapid.Bool().Draw(t, "is")
	lies := []func(){
		func() { f.Unfinished = text },
		func() { f.Arch = text },
		func() { f.Hostname = text },
		func() { f.Unknown = map[string]string{text: text} },
		func() { f.Node = nil },
		func() { f.Cluster = nil },
		func() { f.Runs = []facts.Run{{Command: f.Unfinished, Version: text}} },
		func() { f.Node = &facts.Node{Name: text, Role: text, Airlift: is, Version: text, CASHA256: text} },
	}
	if n := f.Node; n != nil {
		lies = append(lies, func() { n.Name = text }, func() { n.Version = text }, func() { n.CASHA256 = text }, func() { n.Cordoned = is }, func() { n.Role = text },
			func() { n.CASHA256s = []string{text} })
	}
	if c := f.Cluster; c != nil {
		lies = append(lies, func() { c.Name = text }, func() { c.Version = text }, func() { c.Nodes = nil },
			func() {
				c.Nodes = append(c.Nodes, facts.ClusterNode{Name: text, Version: text, Ready: is, ControlPlane: !is})
			},
			func() { c.EtcdMembers = append(c.EtcdMembers, facts.EtcdMember{Name: text, Healthy: is}) },
			func() { c.EtcdMembers = append(c.EtcdMembers, facts.EtcdMember{Name: text, Learner: true}) },
			func() { c.BlockedBy = map[string][]string{text: {text}} }, func() { c.AddonsWait, c.EndpointWaits = is, !is }, func() { c.VIP = []string{text} })
	}
	rapid.SampledFrom(lies).Draw(t, "lie")()
}

// A saved plan whose rules were edited is not the plan of the site.
func TestPlansThatWereEdited(t *testing.T) {
	for name, edit := range map[string]func(*plan.Plan){
		"limit":   func(p *plan.Plan) { last(p).Limit = 3 },
		"roll":    func(p *plan.Plan) { last(p).Roll = false },
		"repair":  func(p *plan.Plan) { last(p).Repair = true },
		"effect":  func(p *plan.Plan) { last(p).Actions[0].Effect = plan.None },
		"host":    func(p *plan.Plan) { last(p).Actions[0].Host = "w2" },
		"no more": func(p *plan.Plan) { p.Stages = p.Stages[:1] },
		"seen":    func(p *plan.Plan) { p.Seen["w0"]["version"] = newVersion },
	} {
		saved, _ := plan.Make(site(oldVersion))
		fresh, _ := plan.Make(site(oldVersion))
		if err := plan.Same(saved, fresh); err != nil {
			t.Fatal(err)
		}
		edit(saved)
		if plan.Same(saved, fresh) == nil {
			t.Errorf("%s: the edited plan is valid", name)
		}
	}
}

// last returns the last stage that is a roll.
func last(p *plan.Plan) *plan.Stage {
	for i := range slices.Backward(p.Stages) {
		if p.Stages[i].Roll {
			return &p.Stages[i]
		}
	}
	panic("the plan has no roll")
}
