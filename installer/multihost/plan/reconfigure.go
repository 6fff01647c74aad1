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

// kubeletCertificates is the warning of a host that waits with a part of the change. The cluster does not match the file before that part.
const kubeletCertificates = "KubeletCertificates"

// Questions returns the hosts that must be asked for Input.Changes before Make, each with the verb, Reconfigure or
// ReconfigureNode, of which they must report what it would change.
func Questions(in Input) map[string]string {
	s := newSite(in)
	questions := map[string]string{}
	if s.cluster == nil || s.later != "" {
		return questions
	}
	for _, h := range filter(s.hosts, s.isBehind) {
		questions[h.Name] = ReconfigureNode
	}
	if s.configures != "" {
		questions[s.configures] = Reconfigure
	}
	return questions
}

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

// findConfigurer chooses the control plane that gets kubeadm's documents: the one that did not finish to use them, or else the
// healthiest that has followed the last change. A reconfiguration keeps the version and the endpoint, so these change before.
func (s *site) findConfigurer() {
	switch {
	case s.cluster.Version != s.Version || slices.ContainsFunc(s.hosts, some(s.upgrade)):
		s.later = "the upgrade"
	case slices.ContainsFunc(s.hosts, some(s.endpoint)):
		s.later = "the change of the endpoint"
	case slices.ContainsFunc(s.hosts, func(h host) bool { return h.Node != nil && h.Node.Encryption != nil && h.Node.Encryption.Began }):
		s.later = laterKeys
	}
	began := func(h host) bool { return h.reconfiguring() == Reconfigure }
	list := filter(s.planes, func(h host) bool { return !h.isNew() && (h.Cluster != nil || began(h)) })
	if !s.configured() || s.later != "" || len(list) == 0 {
		return
	}
	s.configures = slices.MinFunc(list, func(a, b host) int {
		return cmp.Or(firstIf(began)(a, b), cmp.Compare(number(s.nodes[a.Name].ConfigurationBehind), number(s.nodes[b.Name].ConfigurationBehind)),
			cmp.Compare(ailments(a), ailments(b)), cmp.Compare(number(a.Name != s.leader), number(b.Name != s.leader)), cmp.Compare(a.Name, b.Name))
	}).Name
}

// isBehind reports whether a node has to follow the configuration that the cluster stores.
func (s *site) isBehind(h host) bool {
	return !h.isNew() && !(h.Node.Encryption != nil && h.Node.Encryption.Began) && (s.nodes[h.Name].ConfigurationBehind || h.reconfiguring() == ReconfigureNode)
}

// changedNode returns what the documents change on a node, as the control plane that gets them reports it.
func (s *site) changedNode(name string) facts.ChangedNode {
	if c := s.Changes[s.configures].Change; c != nil {
		if i := slices.IndexFunc(c.Nodes, func(n facts.ChangedNode) bool { return n.Name == name }); i >= 0 {
			return c.Nodes[i]
		}
	}
	return facts.ChangedNode{}
}

// configure gives kubeadm's documents to the control plane that was chosen for them, if they change something.
func (s *site) configure(h host) *Action {
	if h.Name != s.configures || s.changedNode(h.Name).Command == "" && h.reconfiguring() != Reconfigure {
		return nil
	}
	a := &Action{Host: h.Name, Verb: Reconfigure, To: s.Version, Why: s.differs(), Began: h.reconfiguring() != ""}
	if a.Began {
		a.Why = fmt.Sprintf("did not finish %q", h.reconfiguring())
	}
	a.describe(s.Changes[h.Name].Change)
	return a
}

// follow lets any other node follow the control plane that gets the documents.
func (s *site) follow(h host) *Action {
	if s.cluster == nil || h.isNew() || h.Name == s.configures || s.later != "" {
		return nil
	}
	if s.isBehind(h) || s.changedNode(h.Name).Command != "" || h.reconfiguring() == Reconfigure && s.configures != "" {
		return s.following(h)
	}
	return nil
}

// followFirst lets a node follow the last change before the next one: it did not finish that, and can finish nothing else; or it is the
// control plane of the next change, which would miss it.
func (s *site) followFirst(h host) *Action {
	unfinished, misses := h.reconfiguring() == ReconfigureNode && s.isBehind(h), s.nodes[h.Name].ConfigurationBehind && h.reconfiguring() != Reconfigure
	if next := slices.ContainsFunc(s.hosts, some(s.configure)); next && (unfinished || misses && s.configure(h) != nil) {
		return s.following(h)
	}
	return nil
}

// followLater lets a node follow the next change, or the last one if there is no next one.
func (s *site) followLater(h host) *Action {
	switch {
	case s.configure(h) != nil:
		return nil
	case h.Name == s.configures && s.isBehind(h):
		return s.following(h)
	case s.followFirst(h) != nil && s.changedNode(h.Name).Command == "":
		return nil
	}
	return s.follow(h)
}

// configuration returns the stages that give the nodes another configuration: the control plane that gets the documents, the other
// control planes one by one, and the workers by the rules of their groups. Add-ons whose images get other names wait for all nodes.
func (s *site) configuration() []Stage {
	before := s.onPlanes("unfinished configuration of control planes", s.followFirst)
	first := s.onPlanes("configuration", s.configure)
	planes := s.onPlanes("configuration of control planes", s.followLater)
	reconfigured := some(s.endpoint, s.configure, s.follow)
	unfinished, later := s.hold(s.roll("unfinished configuration of ", s.followFirst), reconfigured)
	if len(later) > 0 { // they can finish nothing else
		return append([]Stage{before}, unfinished...)
	}
	workers, later := s.hold(s.roll("configuration of ", s.followLater), reconfigured)
	last := Stage{Name: "add-ons of the configuration", Limit: 1}
	behind := len(planes.Actions)+len(workers) > 0
	if c := s.Changes[s.configures].Change; c != nil && behind && len(later) == 0 && (c.Images || len(c.AddOns) > 0 && len(first.Actions) > 0 && len(s.changedNode(s.configures).Restarts) == 0) {
		last.Actions = []Action{{Host: s.configures, Verb: Reconfigure, To: s.Version, Why: "the add-ons waited until all nodes have their images", Effect: None, Images: c.Images}}
	}
	return slices.Concat([]Stage{before}, unfinished, []Stage{first, planes}, workers, []Stage{last})
}

// following is the action of a node that follows.
func (s *site) following(h host) *Action {
	a := &Action{Host: h.Name, Verb: ReconfigureNode, To: s.Version, Why: "follows the change of the configuration", Began: h.reconfiguring() != ""}
	switch {
	case a.Began:
		a.Why = fmt.Sprintf("did not finish %q", h.reconfiguring())
	case s.nodes[h.Name].ConfigurationBehind:
		a.Why = "has not followed the last change of the configuration"
	}
	own, n := facts.Change{}, facts.ChangedNode{}
	if h.Name != s.configures {
		n = s.changedNode(h.Name)
		if c := s.Changes[h.Name].Change; c != nil {
			own = *c
		}
	}
	if n.Command != "" {
		c := s.Changes[s.configures].Change
		if h.Role == spec.ControlPlane {
			own.Certificates = union(own.Certificates, c.Certificates, func(c facts.CertificateChange) string { return c.File })
		}
		own.Images = own.Images || c.Images
	}
	restarts := n.Restarts
	if len(own.Nodes) > 0 {
		restarts = union(own.Nodes[0].Restarts, restarts, func(name string) string { return name })
	}
	if h.Node.KubeletConfig != "" {
		restarts = filter(restarts, func(name string) bool { return name != "kubelet" })
	}
	own.Nodes = []facts.ChangedNode{{Name: h.Name, Restarts: restarts}}
	a.describe(&own)
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
func (a *Action) describe(c *facts.Change) {
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
		if h, used := s.find(name); !used || !some(s.configure, s.follow)(h) { // another plan must not wait for what only a reconfiguration needs
			continue
		}
		for _, e := range a.Change.Errors {
			s.problem(name, "on that host: "+e.Fix, "", "the configuration cannot change: %s: %s", e.Name, e.Message)
		}
	}
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
		switch {
		case !s.configured() && !behind:
		case s.later == laterKeys && s.Spec.EncryptSecrets == nil: // the profile that asked for the change is gone, so nobody finishes it
			s.rest(fault.Held, "write to cluster.yaml how it ends: encryptSecrets: true, or false; then run the same command again", "kubeadm's documents and the profile are not compared with the cluster before %s", s.later)
		default:
			s.note("kubeadm's documents and the profile are compared with the cluster after %s: then run the same command again", s.later)
		}
	} else {
		for _, n := range s.cluster.Nodes {
			leaves := s.Remove && !s.inFile(n.Name)
			if !s.uses(n.Name) && !leaves && (n.ConfigurationBehind || s.changedNode(n.Name).Command != "") {
				s.note("%s has to follow the configuration, and this run leaves it alone; on that host: ./install reconfigure node", n.Name)
			}
		}
		for _, name := range sortedKeys(s.Changes) {
			h, used := s.find(name)
			if !used || s.Changes[name].Change == nil {
				continue
			}
			for _, w := range s.Changes[name].Change.Warnings {
				switch {
				case some(s.configure, s.follow)(h):
					s.note("%s: %s: %s; %s", name, w.Name, w.Message, w.Fix)
				case w.Name == kubeletCertificates && !slices.ContainsFunc(s.hosts, some(s.configure, s.follow)):
					s.rest(fault.Held, "see why they have none: ./install docs hardening", "%s", w.Message)
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
