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
	hosts []host // of the file, without hosts that are skipped or did not answer
	// leader is the control plane whose view of the cluster is used, and the one that gets init if cluster is nil.
	leader  string
	cluster *facts.Cluster // nil: no API server answers, or there is no cluster yet
	nodes   map[string]facts.ClusterNode
	address string // of the endpoint that the user names, or ""
	// configures is the control plane that gets kubeadm's documents, "" if they are not compared with the cluster.
	configures string
	later      string   // why they are not: what must end first; "" if nothing must
	kinds      []string // of kubeadm's documents in the file

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
	index int // in the file
}

func newSite(in Input) *site {
	s := &site{Input: in, nodes: map[string]facts.ClusterNode{}, address: addressOf(in.Spec)}
	if s.Parallel == 0 {
		s.Parallel = 10
	}
	for i, h := range in.Spec.Hosts {
		if a := in.Answers[h.Name]; !s.skipped(h.Name) && a.Err == nil && a.Facts != nil {
			s.hosts = append(s.hosts, host{h, a.Facts, i})
		}
	}
	s.findLeader()
	if s.cluster != nil {
		s.endpointOfWorkers, s.endpointHeld = s.hold(s.endpointWorkers(), s.needsEndpoint)
	}
	s.findConfigurer()
	return s
}

// findLeader chooses the control plane with the healthiest view: any may lead, wherever it is in the file.
func (s *site) findLeader() {
	candidates := slices.DeleteFunc(s.controlPlanes(), func(h host) bool { return h.Node == nil || h.Cluster == nil })
	if len(candidates) > 0 {
		best := slices.MinFunc(candidates, func(a, b host) int {
			return cmp.Or(cmp.Compare(ailments(a), ailments(b)), cmp.Compare(a.Name, b.Name))
		})
		s.leader, s.cluster = best.Name, best.Cluster
		for _, n := range best.Cluster.Nodes {
			s.nodes[n.Name] = n
		}
		return
	}
	cps := s.controlPlanes()
	if i := slices.IndexFunc(cps, func(h host) bool { return h.began(Init) }); i >= 0 {
		s.leader = cps[i].Name
	} else if len(cps) > 0 {
		s.leader = cps[0].Name
	}
}

// ailments counts what speaks against a control plane as the leader.
func ailments(h host) (n int) {
	i := slices.IndexFunc(h.Cluster.Nodes, func(n facts.ClusterNode) bool { return n.Name == h.Name })
	if i < 0 || !h.Cluster.Nodes[i].Ready {
		n += 2
	}
	if h.Cluster.MemberIsDown(h.Name) {
		n += 2
	}
	if h.Unknown["cluster.etcdMembers"] != "" {
		n += 2
	}
	if h.Unfinished != "" {
		n++
	}
	return n
}

func (s *site) controlPlanes() (list []host) {
	for _, h := range s.hosts {
		if h.Role == spec.ControlPlane {
			list = append(list, h)
		}
	}
	return list
}

func (s *site) workers() (list []host) {
	for _, h := range s.hosts {
		if h.Role == spec.Worker {
			list = append(list, h)
		}
	}
	return list
}

func (s *site) skipped(name string) bool { return slices.Contains(s.Skip, name) }

func (s *site) inFile(name string) bool {
	return slices.ContainsFunc(s.Spec.Hosts, func(h spec.Host) bool { return h.Name == name })
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

// isDown reports whether the control plane or worker does not serve now.
func (s *site) isDown(h host) bool {
	n, found := s.nodes[h.Name]
	return !found || !n.Ready || h.Role == spec.ControlPlane && h.Cluster == nil || s.memberIsDown(h.Name)
}

func (s *site) memberIsDown(name string) bool {
	return s.cluster != nil && s.cluster.MemberIsDown(name)
}

// needsUpgrade reports whether a node has another version than the file, or did not finish its upgrade.
func (s *site) needsUpgrade(h host) bool {
	return !h.isNew() && (h.Node.Version != s.Version || s.nodes[h.Name].Version != s.Version || h.began("upgrade") || h.upgrading())
}

func (s *site) problem(host, hint, why, what string, args ...any) {
	s.problems = append(s.problems, Problem{Host: host, What: fmt.Sprintf(what, args...), Why: why, Hint: hint})
}

func (s *site) note(text string, args ...any) { s.notes = append(s.notes, fmt.Sprintf(text, args...)) }

// sorted returns the problems by host in the order of the file, problems of the whole site first, without repetitions.
func (s *site) sorted() []Problem {
	at := map[string]int{"": -1}
	for i, h := range s.Spec.Hosts {
		at[h.Name] = i
	}
	place := func(p Problem) int {
		if i, ok := at[p.Host]; ok {
			return i
		}
		return len(at)
	}
	slices.SortStableFunc(s.problems, func(a, b Problem) int { return cmp.Compare(place(a), place(b)) })
	return slices.Compact(s.problems)
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
