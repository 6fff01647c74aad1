package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"airlift/installer/multihost/facts"
	"airlift/installer/multihost/spec"
	"airlift/internal/documents"
	"airlift/internal/fault"
)

// A ChangeAnswer is what a host answered to a question of Questions.
type ChangeAnswer struct {
	Change *facts.Change
	Err    error
}

// Questions returns the hosts that must be asked for Input.Changes before Make, each with the verb, Reconfigure or
// ReconfigureNode, of which they must report what it would change.
func Questions(in Input) map[string]string {
	s := newSite(in)
	questions := map[string]string{}
	if s.cluster == nil || s.later != "" {
		return questions
	}
	for _, h := range s.hosts {
		if s.isBehind(h) {
			questions[h.Name] = ReconfigureNode
		}
	}
	if s.configures != "" {
		questions[s.configures] = Reconfigure
	}
	return questions
}

// compared are the kinds of kubeadm's documents that are compared with the cluster.
var compared = []string{"ClusterConfiguration", "KubeletConfiguration", "KubeProxyConfiguration"}

// kindsOf returns the kinds of kubeadm's documents.
func kindsOf(stream []byte) (kinds []string) {
	list, _ := documents.Read(stream) // package spec has checked them
	for _, d := range list {
		if kind := documents.Value(d.Node, "kind"); kind != nil {
			kinds = append(kinds, kind.Value)
		}
	}
	return kinds
}

// has reports whether the file has one of these documents of kubeadm.
func (s *site) has(kinds ...string) bool {
	return slices.ContainsFunc(s.kinds, func(kind string) bool { return slices.Contains(kinds, kind) })
}

// comparesLater returns what must end before the configuration is compared with the cluster; "" if it is compared now. A
// reconfiguration keeps the version and the endpoint.
func (s *site) comparesLater() string {
	switch {
	case s.cluster == nil:
	case s.cluster.Version != s.Version || slices.ContainsFunc(s.hosts, s.needsUpgrade):
		return "the upgrade"
	case slices.ContainsFunc(s.hosts, s.needsEndpoint):
		return "the change of the endpoint"
	}
	return ""
}

// findConfigurer chooses the control plane that gets kubeadm's documents: the one that did not finish to use them, or else the
// healthiest that has followed the last change.
func (s *site) findConfigurer() {
	s.kinds, s.later = kindsOf(s.Spec.Kubeadm), s.comparesLater()
	if s.cluster == nil || !s.has(compared...) || s.later != "" {
		return
	}
	list := slices.DeleteFunc(s.controlPlanes(), func(h host) bool {
		return h.Node == nil || h.isNew() || h.Cluster == nil && h.reconfiguring() != Reconfigure
	})
	if len(list) == 0 {
		return
	}
	ills := func(h host) int {
		if h.Cluster == nil {
			return 0
		}
		return ailments(h)
	}
	s.configures = slices.MinFunc(list, func(a, b host) int {
		return cmp.Or(cmp.Compare(number(a.reconfiguring() != Reconfigure), number(b.reconfiguring() != Reconfigure)),
			cmp.Compare(number(s.nodes[a.Name].ConfigurationBehind), number(s.nodes[b.Name].ConfigurationBehind)),
			cmp.Compare(ills(a), ills(b)), cmp.Compare(number(a.Name != s.leader), number(b.Name != s.leader)), cmp.Compare(a.Name, b.Name))
	}).Name
}

// reconfiguring returns the verb, Reconfigure or ReconfigureNode, that the host did not finish, or "". Another command may have run
// since.
func (h host) reconfiguring() string {
	for _, verb := range []string{Reconfigure, ReconfigureNode} {
		if h.Reconfiguring == verb || h.Unfinished == verb {
			return verb
		}
	}
	return ""
}

// isBehind reports whether a node has to follow the configuration that the cluster stores.
func (s *site) isBehind(h host) bool {
	return h.Node != nil && !h.isNew() && (s.nodes[h.Name].ConfigurationBehind || h.reconfiguring() == ReconfigureNode)
}

// change returns what a host reported. It may be nil.
func (s *site) change(name string) *facts.Change { return s.Changes[name].Change }

// changedNode returns what the documents change on a node, as the control plane that gets them reports it.
func (s *site) changedNode(name string) facts.ChangedNode {
	if c := s.change(s.configures); c != nil {
		if i := slices.IndexFunc(c.Nodes, func(n facts.ChangedNode) bool { return n.Name == name }); i >= 0 {
			return c.Nodes[i]
		}
	}
	return facts.ChangedNode{}
}

// isConfigured reports whether a host is the one that gets the documents, and has something to do.
func (s *site) isConfigured(h host) bool {
	return h.Name == s.configures && s.configures != "" && (s.changedNode(h.Name).Command != "" || h.reconfiguring() == Reconfigure)
}

// follows reports whether a node has to run reconfigure node after the host that gets the documents.
func (s *site) follows(h host) bool {
	if s.cluster == nil || h.Node == nil || h.isNew() || h.Name == s.configures || s.later != "" {
		return false
	}
	return s.isBehind(h) || s.changedNode(h.Name).Command != "" || h.reconfiguring() == Reconfigure && s.configures != ""
}

// reconfigures reports whether components of a node restart because of the configuration.
func (s *site) reconfigures(h host) bool {
	return s.isConfigured(h) && s.configure(h).Effect == Restart || s.follows(h) && s.follow(h).Effect == Restart
}

// configuration returns the stages that give the nodes another configuration: the control plane that gets the documents, the other
// control planes one by one, and the workers by the rules of their groups. Add-ons whose images get other names wait for all nodes.
func (s *site) configuration() []Stage {
	if s.cluster == nil {
		return nil
	}
	before := Stage{Name: "unfinished configuration of control planes", Limit: 1, Roll: true}
	first := Stage{Name: "configuration", Limit: 1, Roll: true}
	planes := Stage{Name: "configuration of control planes", Limit: 1, Roll: true}
	last := Stage{Name: "add-ons of the configuration", Limit: 1}
	for _, h := range unfinishedFirst(s.controlPlanes()) {
		if s.followsFirst(h) {
			before.Actions = append(before.Actions, s.follow(h))
		}
		switch {
		case s.isConfigured(h):
			first.Actions = append(first.Actions, s.configure(h))
		case s.followsLater(h) || h.Name == s.configures && s.isBehind(h):
			planes.Actions = append(planes.Actions, s.follow(h))
		}
	}
	unfinished := s.roll("unfinished configuration of ", s.followsFirst, s.follow)
	workers := s.roll("configuration of ", s.followsLater, s.follow)
	reconfigured := func(h host) bool { return s.needsEndpoint(h) || s.isConfigured(h) || s.follows(h) }
	unfinished, later := s.hold(unfinished, reconfigured)
	if len(later) > 0 { // they can finish nothing else
		return append([]Stage{before}, unfinished...)
	}
	workers, later = s.hold(workers, reconfigured)
	behind := len(planes.Actions)+len(workers) > 0
	if c := s.change(s.configures); c != nil && behind && len(later) == 0 && (c.Images || len(c.AddOns) > 0 && len(first.Actions) > 0 && len(s.changedNode(s.configures).Restarts) == 0) {
		last.Actions = []Action{{Host: s.configures, Verb: Reconfigure, To: s.Version, Why: "the add-ons waited until all nodes have their images", Effect: None, Images: c.Images}}
	}
	stages := []Stage{before, first, planes}
	for i := range stages {
		if len(stages[i].Actions) > 0 {
			stages[i].Group = hostOf(s.Spec, stages[i].Actions[0].Host).Group
		}
		if slices.ContainsFunc(stages[i].Actions, func(a Action) bool { return hostOf(s.Spec, a.Host).Group != stages[i].Group }) {
			stages[i].Group = ""
		}
	}
	return slices.Concat(stages[:1], unfinished, stages[1:], workers, []Stage{last})
}

// followsFirst reports whether a node must follow the last change before the next one: it did not finish that, and can finish
// nothing else; or it is the control plane of the next change, which would miss it.
func (s *site) followsFirst(h host) bool {
	next := slices.ContainsFunc(s.hosts, func(o host) bool { return s.isConfigured(o) })
	return next && (h.reconfiguring() == ReconfigureNode && s.isBehind(h) || s.isConfigured(h) && s.nodes[h.Name].ConfigurationBehind && h.reconfiguring() != Reconfigure)
}

// followsLater reports whether a node must follow the next change, or the last one if there is no next one.
func (s *site) followsLater(h host) bool {
	return s.follows(h) && (!s.followsFirst(h) || s.changedNode(h.Name).Command != "")
}

const behindText = "has not followed the last change of the configuration"

// configure is the action of the control plane that gets the documents.
func (s *site) configure(h host) Action {
	a := Action{Host: h.Name, Verb: Reconfigure, To: s.Version, Why: "kubeadm's documents differ", Began: h.reconfiguring() != ""}
	if a.Began {
		a.Why = fmt.Sprintf("did not finish %q", h.reconfiguring())
	}
	s.describe(&a, s.change(h.Name))
	return a
}

// follow is the action of another node.
func (s *site) follow(h host) Action {
	a := Action{Host: h.Name, Verb: ReconfigureNode, To: s.Version, Why: "follows the change of the configuration", Began: h.reconfiguring() != ""}
	switch {
	case a.Began:
		a.Why = fmt.Sprintf("did not finish %q", h.reconfiguring())
	case s.nodes[h.Name].ConfigurationBehind:
		a.Why = behindText
	}
	own := facts.Change{}
	if c := s.change(h.Name); c != nil && h.Name != s.configures {
		own = *c
	}
	n := s.changedNode(h.Name)
	if h.Name == s.configures {
		n = facts.ChangedNode{}
	}
	if c := s.change(s.configures); c != nil && n.Command != "" {
		if h.Role == spec.ControlPlane {
			own.Certificates = union(own.Certificates, c.Certificates, func(c facts.CertificateChange) string { return c.File })
		}
		own.Images = own.Images || c.Images
	}
	restarts := n.Restarts
	if len(own.Nodes) > 0 {
		restarts = union(own.Nodes[0].Restarts, restarts, func(name string) string { return name })
	}
	if h.Node != nil && h.Node.KubeletConfig != "" {
		restarts = slices.DeleteFunc(slices.Clone(restarts), func(name string) bool { return name == "kubelet" })
	}
	own.Nodes = []facts.ChangedNode{{Name: h.Name, Restarts: restarts}}
	s.describe(&a, &own)
	if s.isBehind(h) && s.Changes[h.Name].Change == nil || h.Name == s.configures {
		a.Effect = Restart // it was not asked what changes
	}
	return a
}

// union returns a and what b has in addition, by key.
func union[T any](a, b []T, key func(T) string) []T {
	list := slices.Clone(a)
	for _, item := range b {
		if !slices.ContainsFunc(a, func(other T) bool { return key(other) == key(item) }) {
			list = append(list, item)
		}
	}
	return list
}

// describe adds what changes on the host of an action, which is the first node of the change.
func (s *site) describe(a *Action, c *facts.Change) {
	a.Effect = None
	if c == nil || len(c.Nodes) == 0 {
		return
	}
	for _, one := range c.Certificates {
		a.Effect = Reload
		var names []string
		for _, name := range one.Added {
			names = append(names, "+"+name)
		}
		for _, name := range one.Removed {
			names = append(names, "-"+name)
		}
		a.Changes = append(a.Changes, strings.TrimSpace("renews "+one.File+" "+strings.Join(names, " ")))
	}
	if list := c.Nodes[0].Restarts; len(list) > 0 {
		a.Effect = Restart
		a.Changes = append(a.Changes, "restarts "+strings.Join(list, " "))
	}
	for _, name := range c.AddOns {
		a.Changes = append(a.Changes, "replaces the pods of "+name)
	}
	a.Changes = append(a.Changes, c.Marks...)
	a.Images, a.Files = c.Images, c.Changes
}

// checkChanges refuses what a running cluster cannot change, and what could not succeed.
func (s *site) checkChanges() {
	for _, name := range sortedKeys(s.Changes) {
		a := s.Changes[name]
		if a.Err != nil || a.Change == nil {
			why := "it was not asked"
			if a.Err != nil {
				why = a.Err.Error()
			}
			s.problem(name, cmp.Or(fault.Hint(a.Err), "on that host: ./install status"), why, "it is unknown what the configuration changes")
			continue
		}
		for _, r := range a.Change.Refused {
			field := r.Field
			if i := strings.LastIndex(field, ": "); i >= 0 { // its line is one of what the host got
				field = field[i+2:]
			}
			s.problem("", "needed: "+r.Needed, r.Reason, "%s is %s in kubeadm's documents, and the cluster has %s", field, orUnset(r.To), orUnset(r.From))
		}
		if !s.isAction(name) { // another plan must not wait for what only a reconfiguration needs
			continue
		}
		for _, e := range a.Change.Errors {
			s.problem(name, "on that host: "+e.Fix, "", "the configuration cannot change: %s: %s", e.Name, e.Message)
		}
	}
}

// isAction reports whether a host that was asked has to do what it was asked about.
func (s *site) isAction(name string) bool {
	return slices.ContainsFunc(s.hosts, func(h host) bool { return h.Name == name && (s.isConfigured(h) || s.follows(h)) })
}

func orUnset(value string) string {
	if value == "" {
		return "not set"
	}
	return fmt.Sprintf("%q", value)
}

// noteConfiguration adds what is not compared, and what hosts outside of the plan have to do.
func (s *site) noteConfiguration() {
	if s.later != "" {
		behind := slices.ContainsFunc(s.hosts, s.isBehind)
		if s.has(compared...) || behind {
			s.note("kubeadm's documents are compared with the cluster after %s: then run the same command again", s.later)
		}
	} else {
		for _, n := range s.cluster.Nodes {
			used := slices.ContainsFunc(s.hosts, func(h host) bool { return h.Name == n.Name })
			leaves := s.Remove && !s.inFile(n.Name)
			if !used && !leaves && (n.ConfigurationBehind || s.changedNode(n.Name).Command != "") {
				s.note("%s has to follow the configuration, and this run leaves it alone; on that host: ./install reconfigure node", n.Name)
			}
		}
		for _, name := range sortedKeys(s.Changes) {
			if c := s.change(name); c != nil && s.isAction(name) {
				for _, w := range c.Warnings {
					s.note("%s: %s: %s; %s", name, w.Name, w.Message, w.Fix)
				}
			}
		}
	}
	if s.has("InitConfiguration", "JoinConfiguration") {
		s.note("InitConfiguration and JoinConfiguration are for new nodes, and are not compared with the others; to change the arguments of a running kubelet, on that host: ./install reconfigure node --config FILE")
	}
	if slices.ContainsFunc(s.hosts, func(h host) bool { return h.Patches != "" && !h.isNew() }) {
		s.note("changes in patches are not compared with the nodes; on each node: ./install upgrade node --patches DIRECTORY")
	}
}
