package diagnosis

import (
	"fmt"
	"slices"
	"strings"
)

// Diagnose explains every failed observation by one finding. Causes precede what follows from them. Without a failed observation there
// is no finding.
func Diagnose(facts Facts, all []Observation) []Finding {
	c := &diagnosing{facts: facts, all: all, explained: make([]bool, len(all))}
	for _, explain := range []func(){
		c.hostMTU, c.nodesNotReady, c.hosts, c.podsThatDoNotStart, c.probesThatDoNotRun, c.forwarding, c.routes, c.networkPods, c.policies, c.proxies, c.sameNode, c.tunnel, c.podMTU,
		c.dnsPods, c.dnsPod, c.registries, c.apiServers, c.follow, c.serviceRoute, c.balancer, c.addresses, c.endpoints,
		c.hostPorts, c.clocks, c.others,
	} {
		explain()
	}
	return c.findings
}

// diagnosing is one diagnosis. Its methods explain observations, each one kind of cause.
type diagnosing struct {
	facts     Facts
	all       []Observation
	explained []bool
	findings  []Finding
}

// A pair is a direction between two nodes.
type pair struct{ from, to string }

// failed returns the failed observations that nothing explains yet.
func (c *diagnosing) failed(is func(Observation) bool) (list []int) {
	for i, o := range c.all {
		if !o.OK && !c.explained[i] && is(o) {
			list = append(list, i)
		}
	}
	return list
}

func of(kinds ...Kind) func(Observation) bool {
	return func(o Observation) bool { return slices.Contains(kinds, o.Kind) }
}

// add adds a finding that explains the observations at causes, and those that follow from it.
func (c *diagnosing) add(f Finding, causes []int, follows func(Observation) bool) {
	causes = slices.DeleteFunc(slices.Clone(causes), func(i int) bool { return c.explained[i] }) // by the last finding of this kind
	if len(causes) == 0 {
		return
	}
	f.claims = causes
	for _, i := range causes {
		c.explained[i] = true
	}
	for _, i := range c.failed(follows) {
		c.explained[i] = true
		f.claims = append(f.claims, i)
	}
	f.Explains, f.Evidence = len(f.claims), []string{}
	for _, i := range f.claims {
		if text := c.all[i].text(); len(f.Evidence) < maxEvidence && !slices.Contains(f.Evidence, text) {
			f.Evidence = append(f.Evidence, text)
		}
	}
	f.Nodes = c.inOrder(f.Nodes)
	c.findings = append(c.findings, f)
}

// none is for causes from which nothing else follows.
func none(Observation) bool { return false }

// text is an observation as evidence.
func (o Observation) text() string {
	who := o.From
	if o.To != "" && o.To != o.From {
		who = strings.TrimPrefix(o.From+" -> "+o.To, " -> ")
	}
	what := []string{string(o.Kind)}
	if place := map[string]string{FromPod: "from a pod", FromHost: "from the host"}[o.Place]; place != "" {
		what = append(what, place)
	}
	if o.Via != "" {
		what = append(what, o.Via)
	}
	text := strings.Join(what, ", ")
	if who != "" {
		text = who + ": " + text
	}
	if o.Detail != "" {
		text += ": " + o.Detail
	}
	return text
}

// podNetwork are the observations that need packets between pods of different nodes.
var podNetwork = of(PodReach, PodHeard, PodLarge, PodBulk, HostPod, DNSPod, NodePort, HostPort, Policy, Clock)

// onPairs matches what needs the path between two nodes, in either direction: answers use the other one.
func onPairs(pairs map[pair]bool, is func(Observation) bool) func(Observation) bool {
	return func(o Observation) bool {
		return is(o) && o.To != "" && (pairs[pair{o.From, o.To}] || pairs[pair{o.To, o.From}])
	}
}

// touching matches what needs packets from or to pods of a node.
func touching(node string, is func(Observation) bool) func(Observation) bool {
	return func(o Observation) bool { return is(o) && (o.From == node || o.To == node) }
}

// either matches what one of several matches.
func either(list ...func(Observation) bool) func(Observation) bool {
	return func(o Observation) bool {
		return slices.ContainsFunc(list, func(is func(Observation) bool) bool { return is(o) })
	}
}

// silent matches what is not known of nodes because the path between their kubelet and the API servers is broken.
func (c *diagnosing) silent(pairs map[pair]bool) func(Observation) bool {
	return func(o Observation) bool {
		if !slices.ContainsFunc(c.facts.Planes, func(plane string) bool { return pairs[pair{o.From, plane}] || pairs[pair{plane, o.From}] }) {
			return false
		}
		return of(PodRuns, ProbeRuns, Pull, Component)(o) || o.Kind == NodeReady && strings.Contains(o.Detail, "stopped posting")
	}
}

// detail returns what the failures have in common, or else the first one.
func (c *diagnosing) detail(list []int) string {
	for _, i := range list {
		if d := c.all[i].Detail; d != "" {
			return d
		}
	}
	return "no answer"
}

// has reports whether an observation of a kind between two nodes succeeded. Without one, it did not.
func (c *diagnosing) has(kind Kind, from, to string) bool {
	return slices.ContainsFunc(c.all, func(o Observation) bool { return o.Kind == kind && o.OK && o.From == from && o.To == to })
}

// inOrder returns names once each, in the order of the facts; unknown ones follow.
func (c *diagnosing) inOrder(names []string) []string {
	out := []string{}
	for _, n := range slices.Concat(c.facts.Nodes, slices.Sorted(slices.Values(names))) {
		if slices.Contains(names, n) && !slices.Contains(out, n) {
			out = append(out, n)
		}
	}
	return out
}

// byNode groups observations by the node that key returns, in the order of the nodes.
func (c *diagnosing) byNode(list []int, key func(Observation) string) (nodes []string, groups map[string][]int) {
	groups = map[string][]int{}
	for _, i := range list {
		n := key(c.all[i])
		groups[n] = append(groups[n], i)
		nodes = append(nodes, n)
	}
	return c.inOrder(nodes), groups
}

func from(o Observation) string { return o.From }
func to(o Observation) string   { return o.To }

// pairsOf returns the directions of observations.
func (c *diagnosing) pairsOf(list []int) map[pair]bool {
	pairs := map[pair]bool{}
	for _, i := range list {
		pairs[pair{c.all[i].From, c.all[i].To}] = true
	}
	return pairs
}

// maxNamed keeps lists of names and pairs on a line.
const maxNamed = 4

func names(list []string) string {
	if len(list) > maxNamed {
		return fmt.Sprintf("%s and %d more", strings.Join(list[:maxNamed], ", "), len(list)-maxNamed)
	}
	return strings.Join(list, ", ")
}

// subject describes directions in one phrase, and returns the nodes that are concerned: one node, if all are from or to it.
func (c *diagnosing) subject(pairs map[pair]bool) (text string, nodes []string) {
	var ends []string
	for p := range pairs {
		ends = append(ends, p.from, p.to)
	}
	ends = c.inOrder(ends)
	others := len(c.facts.Nodes) - 1
	if len(pairs) > 1 {
		for _, n := range ends {
			in, out := 0, 0
			for p := range pairs {
				if p.to == n {
					in++
				}
				if p.from == n {
					out++
				}
			}
			switch {
			case in == len(pairs) && in >= others:
				return "all other nodes -> " + n, []string{n}
			case out == len(pairs) && out >= others:
				return n + " -> all other nodes", []string{n}
			case in+out == len(pairs) && in >= others && out >= others:
				return n + " <-> all other nodes", []string{n}
			}
		}
		if len(pairs) == others*(others+1) {
			return "between all nodes", ends
		}
	}
	var list []string
	for _, a := range ends {
		for _, b := range ends {
			switch {
			case pairs[pair{a, b}] && pairs[pair{b, a}]:
				if a < b {
					list = append(list, a+" <-> "+b)
				}
			case pairs[pair{a, b}]:
				list = append(list, a+" -> "+b)
			}
		}
	}
	return names(list), ends
}
