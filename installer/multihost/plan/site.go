package plan

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"

	"airlift/installer/multihost/facts"
	"airlift/installer/multihost/spec"
)

// A site is an Input with what follows from it.
type site struct {
	Input
	// hosts of the file, without hosts that are skipped or did not answer; planes and workers are those with a role.
	hosts, planes, workers []host
	// leader is the control plane whose view of the cluster is used, and the one that gets init if cluster is nil.
	leader  string
	cluster *facts.Cluster // nil: no API server answers, or there is no cluster yet
	nodes   map[string]facts.ClusterNode
	gate    *facts.Gate // what the last batch of a roll still has to pass; nil if there is nothing
	leavers []leaver
	address string // of the endpoint that the user names, or ""
	// configures is the control plane that gets kubeadm's documents, "" if they are not compared with the cluster.
	configures string
	later      string   // why they are not: what must end first; "" if nothing must
	kinds      []string // of kubeadm's documents in the file
	// encryptor is the control plane that changes the keys of Secrets, "" if none has to.
	encryptor string

	// endpointOfWorkers lets workers follow the endpoint, and endpointHeld is what has to wait with that.
	endpointOfWorkers, endpointHeld []Stage

	changed []string // workers that a stage of hold changes
	down    []string // workers whose health decides what hold does

	problems []Problem
	rests    []Rest
	notes    []string
}

// A host is a host of the file that answered.
type host struct {
	spec.Host
	*facts.Facts
}

func newSite(in Input) *site {
	s := &site{Input: in, nodes: map[string]facts.ClusterNode{}, address: addressOf(in.Spec), kinds: kindsOf(in.Spec.Kubeadm)}
	s.Parallel = cmp.Or(s.Parallel, 10)
	for _, h := range in.Spec.Hosts {
		if a := in.Answers[h.Name]; !s.skipped(h.Name) && a.Err == nil && a.Facts != nil {
			s.hosts = append(s.hosts, host{h, a.Facts})
		}
	}
	s.planes = filter(s.hosts, func(h host) bool { return h.Role == spec.ControlPlane })
	s.workers = filter(s.hosts, func(h host) bool { return h.Role == spec.Worker })
	s.findLeader()
	if s.cluster == nil {
		return s
	}
	s.leavers, s.gate = s.findLeavers(), s.cluster.Gate
	s.endpointOfWorkers, s.endpointHeld = s.hold(s.roll("endpoint ", s.endpoint), some(s.endpoint))
	s.findConfigurer()
	s.findEncryptor()
	return s
}

// findLeader chooses the control plane with the healthiest view: any may lead, wherever it is in the file.
func (s *site) findLeader() {
	candidates := filter(s.planes, func(h host) bool { return h.Node != nil && h.Cluster != nil })
	if len(candidates) > 0 {
		best := slices.MinFunc(candidates, func(a, b host) int { return cmp.Or(cmp.Compare(ailments(a), ailments(b)), cmp.Compare(a.Name, b.Name)) })
		s.leader, s.cluster = best.Name, best.Cluster
		for _, n := range best.Cluster.Nodes {
			s.nodes[n.Name] = n
		}
		return
	}
	if list := slices.SortedStableFunc(slices.Values(s.planes), firstIf(func(h host) bool { return h.began(Init) })); len(list) > 0 {
		s.leader = list[0].Name
	}
}

// ailments counts what speaks against a control plane as the leader. One that does not know the cluster has none.
func ailments(h host) (n int) {
	if h.Cluster == nil {
		return 0
	}
	ready := slices.ContainsFunc(h.Cluster.Nodes, func(n facts.ClusterNode) bool { return n.Name == h.Name && n.Ready })
	return 2*number(!ready) + 2*number(h.Cluster.MemberIsDown(h.Name)) + 2*number(h.Unknown["cluster.etcdMembers"] != "") + number(h.Unfinished != "")
}

func (s *site) skipped(name string) bool { return slices.Contains(s.Skip, name) }

func (s *site) isNode(name string) bool {
	_, found := s.nodes[name]
	return found
}

func (s *site) inFile(name string) bool { return hostOf(s.Spec, name).Name != "" }

// find returns a host that this run uses.
func (s *site) find(name string) (host, bool) {
	if i := slices.IndexFunc(s.hosts, func(h host) bool { return h.Name == name }); i >= 0 {
		return s.hosts[i], true
	}
	return host{}, false
}

func (s *site) uses(name string) bool {
	_, found := s.find(name)
	return found
}

// began reports whether a command on the host was not finished: verb, or verb with a phase.
func (h host) began(verb string) bool {
	return h.Unfinished == verb || strings.HasPrefix(h.Unfinished, verb+" ")
}

// isNew reports whether the host has to get init or join, or has to finish it.
func (h host) isNew() bool { return h.Node == nil || h.began(Init) || h.began(Join) }

// upgrading reports whether an upgrade was not finished that may have drained the node. Another command may have run since.
func (h host) upgrading() bool {
	return h.began("upgrade") && !strings.HasSuffix(h.Unfinished, " unpack") || h.Node != nil && h.Node.Cordoned
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

// isDown reports whether the control plane or worker does not serve now.
func (s *site) isDown(h host) bool {
	n, found := s.nodes[h.Name]
	return !found || !n.Ready || h.Role == spec.ControlPlane && h.Cluster == nil || s.cluster.MemberIsDown(h.Name)
}

func (s *site) problem(host, hint, why, what string, args ...any) {
	s.problems = append(s.problems, Problem{Host: host, What: fmt.Sprintf(what, args...), Why: why, Hint: hint})
}

func (s *site) note(text string, args ...any) { s.notes = append(s.notes, fmt.Sprintf(text, args...)) }

// sorted returns the problems without repetitions: first those from which others may follow, then by host in the order of the
// file, and last those of the whole site.
func (s *site) sorted() []Problem {
	at := map[string]int{"": len(s.Spec.Hosts) + 1}
	for i, h := range s.Spec.Hosts {
		at[h.Name] = i
	}
	place := func(p Problem) int {
		i, ok := at[p.Host]
		switch {
		case p.isCause:
			return i - len(at)
		case ok:
			return i
		}
		return len(s.Spec.Hosts)
	}
	slices.SortStableFunc(s.problems, func(a, b Problem) int { return cmp.Compare(place(a), place(b)) })
	return slices.Compact(s.problems)
}

func hostOf(c *spec.Cluster, name string) spec.Host {
	if i := slices.IndexFunc(c.Hosts, func(h spec.Host) bool { return h.Name == name }); i >= 0 {
		return c.Hosts[i]
	}
	return spec.Host{}
}

func groupOf(c *spec.Cluster, name string) spec.Group {
	if i := slices.IndexFunc(c.Groups, func(g spec.Group) bool { return g.Name == name }); i >= 0 {
		return c.Groups[i]
	}
	return spec.Group{Name: name}
}

// older reports whether version a is before b. Versions that are none were refused before.
func older(a, b string) bool {
	va, errA := version.ParseSemantic(a)
	vb, errB := version.ParseSemantic(b)
	return errA == nil && errB == nil && va.LessThan(vb)
}

// minor returns the minor version.
func minor(v string) (int, error) {
	parsed, err := version.ParseSemantic(v)
	if err != nil {
		return 0, errors.New("is not a version such as v1.37.1")
	}
	return int(parsed.Minor()), nil
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// filter returns what of a list is so.
func filter[T any](list []T, is func(T) bool) []T {
	return slices.DeleteFunc(slices.Clone(list), func(item T) bool { return !is(item) })
}

// firstIf orders what is so before what is not.
func firstIf[T any](is func(T) bool) func(a, b T) int {
	return func(a, b T) int { return cmp.Compare(number(!is(a)), number(!is(b))) }
}

func number(b bool) int {
	if b {
		return 1
	}
	return 0
}

func texts[T fmt.Stringer](list []T) (all []string) {
	for _, item := range list {
		all = append(all, item.String())
	}
	return all
}
