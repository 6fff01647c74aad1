package plan

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"airlift/installer/config"
	"airlift/installer/multihost/facts"
	"airlift/installer/multihost/spec"
	"airlift/internal/fault"
)

// A leaver is a Node or an etcd member that is not in the file, or whose host is no node any more.
type leaver struct {
	name         string
	controlPlane bool
	ready        bool
	answers      bool // its host can be reset
	adopted      bool // another tool made its node
	lost         bool // its host is in the file, and has to join again
}

// findLeavers returns what the cluster has and the hosts of the file do not: lost ones first, then control planes
// first, then by name.
func (s *site) findLeavers() (list []leaver) {
	for _, n := range s.cluster.Nodes {
		if l, gone := s.leaving(n.Name); gone {
			l.controlPlane, l.ready = n.ControlPlane, n.Ready && !s.cluster.MemberIsDown(n.Name)
			list = append(list, l)
		}
	}
	for _, m := range s.cluster.EtcdMembers {
		if _, hasNode := s.nodes[m.Name]; hasNode || m.Name == "" {
			continue
		}
		if l, gone := s.leaving(m.Name); gone {
			l.controlPlane, l.ready = true, m.Healthy
			list = append(list, l)
		}
	}
	slices.SortFunc(list, func(a, b leaver) int {
		return cmp.Or(cmp.Compare(number(a.ready), number(b.ready)), cmp.Compare(number(b.controlPlane), number(a.controlPlane)),
			cmp.Compare(a.name, b.name))
	})
	return list
}

func (s *site) leaving(name string) (leaver, bool) {
	if h, used := s.find(name); used {
		return leaver{name: name, lost: true}, h.Node == nil && h.Unfinished == ""
	}
	f := s.Answers[name].Facts
	l := leaver{name: name, answers: f != nil && s.Answers[name].Err == nil && IsHostOf(f, name) && s.isOwn(f, name)}
	l.adopted = l.answers && f.Node != nil && f.Node.Adopted
	return l, !s.inFile(name)
}

// AddressOf returns the address at which the host of a Node is reached, "" if there is none. A kubelet reports its addresses, so only
// an IP address counts, and none of a host in the file, of another Node, or of the cluster.
func AddressOf(n facts.ClusterNode, c *facts.Cluster, hosts []spec.Host) string {
	var others []string
	for _, o := range c.Nodes {
		if o.Name != n.Name {
			others = append(others, o.Addresses...)
		}
	}
	others = append(others, c.VIP...)
	for _, h := range hosts {
		others = append(append(others, h.SSH.Address), texts(h.NodeIP)...)
	}
	taken := func(a netip.Addr) bool {
		return slices.ContainsFunc(others, func(text string) bool {
			o, err := netip.ParseAddr(text)
			return err == nil && o.Unmap() == a
		})
	}
	for _, text := range n.Addresses {
		if a, err := netip.ParseAddr(text); err == nil && a.Zone() == "" && a.Unmap().IsGlobalUnicast() && !taken(a.Unmap()) {
			return a.Unmap().String()
		}
	}
	return ""
}

// sharing returns the other Nodes that report an address of a Node: one of these kubelets is wrong, or lies.
func (s *site) sharing(name string) (others []string) {
	for _, n := range s.cluster.Nodes {
		if n.Name != name && slices.ContainsFunc(n.Addresses, func(a string) bool { return slices.Contains(s.nodes[name].Addresses, a) }) {
			others = append(others, n.Name)
		}
	}
	return others
}

// IsHostOf reports whether a machine at the address of a Node is the Node's host. After an interrupted removal it may
// be no node any more, and only the name of the machine shows it.
func IsHostOf(f *facts.Facts, name string) bool {
	if n := is(f); n != nil && n.Name != "" {
		return n.Name == name
	}
	return strings.EqualFold(f.Hostname, name) && len(f.Leftovers) == 0 && (f.Unfinished == "" || f.Unfinished == "reset")
}

// isOwn reports whether a host that leaves proves that it is the node of this cluster: its role, and the cluster's name and CA. One
// that is no node any more has nothing to prove.
func (s *site) isOwn(f *facts.Facts, name string) bool {
	n, role := is(f), spec.Worker
	if node, found := s.nodes[name]; !found || node.ControlPlane {
		role = spec.ControlPlane
	}
	if cluster := clusterOf(f); otherNode(f, name, role) != "" || cluster != "" && cluster != s.cluster.Name {
		return false
	}
	return n == nil || n.CASHA256 == "" && isHalf(f) || s.isMember(n)
}

// isMember reports whether a node is one of this cluster, and not of another one with the same name.
func (s *site) isMember(n *facts.Node) bool {
	leader := s.Answers[s.leader].Facts
	return leader != nil && leader.Node != nil && sameCA(n, leader.Node)
}

// checkMembership compares hosts that are nodes with the Nodes of the cluster.
func (s *site) checkMembership() {
	for _, h := range s.hosts {
		n, found := s.nodes[h.Name]
		switch {
		case h.Unknown["node"] != "": // checkAnswers refuses it: nothing follows from what is not known
		case h.Node != nil && h.Node.Name != h.Name && h.Node.Name != "": // checkNodes refuses it
		case h.Node != nil && !found && !h.isNew():
			s.problem(h.Name, "on that host: ./install reset; then run apply again", "its Node was deleted",
				"has the files of a node, and the cluster has no Node %s", h.Name)
		case s.hasNoMember(h):
			s.problem(h.Name, "take it out of cluster.yaml, run ./install cluster apply --remove, and add it again; or leave it alone: --skip "+h.Name,
				"a removal of the control plane did not finish", "its etcd is not a member of the cluster any more, and cannot come back")
		case found && n.ControlPlane != (h.Role == spec.ControlPlane) && h.Node == nil:
			s.problem(h.Name, "correct role in cluster.yaml", "the role of a node cannot change", "the cluster has a Node %s of the other role", h.Name)
		case found && h.Node == nil && n.Ready && h.Unfinished == "":
			s.problem(h.Name, "correct ssh.address in cluster.yaml; if its disk was erased a moment ago, wait until the Node is not Ready",
				"the address may belong to another machine", "is no node, and the cluster has a Ready Node %s", h.Name)
		}
	}
	s.checkOneDown()
}

// hasNoMember reports whether a control plane has an etcd of its own that is no member of the cluster's, so that its API server does
// not answer. One that joins may not be a member yet.
func (s *site) hasNoMember(h host) bool {
	return h.Node != nil && h.Node.Role == spec.ControlPlane && h.Node.Etcd && h.Cluster == nil && !h.isNew() && len(s.cluster.EtcdMembers) > 0 &&
		!slices.ContainsFunc(s.cluster.EtcdMembers, func(m facts.EtcdMember) bool { return m.Name == h.Name || m.Name == "" })
}

// checkOneDown refuses to restart a control plane while another one is down for a reason that the plan does not repair.
func (s *site) checkOneDown() {
	restarting := filter(s.planes, restarts(s.upgrade, s.endpoint, s.configure, s.follow))
	down := func(name, why, or string) {
		if i := slices.IndexFunc(restarting, func(o host) bool { return o.Name != name }); i >= 0 {
			s.problem(name, downHint+or, why, "is down, and another control plane, %s, would have to restart", restarting[i].Name)
		}
	}
	for _, h := range s.planes {
		upgrade := s.upgrade(h)
		begun := (upgrade != nil && upgrade.Began || h.began("endpoint") || h.reconfiguring() != "") && slices.ContainsFunc(restarting, func(o host) bool { return o.Name == h.Name })
		if !h.isNew() && !begun && s.isDown(h) {
			down(h.Name, s.reason(h), "; or leave it alone: --skip "+h.Name)
		}
	}
	for _, n := range s.cluster.Nodes {
		if n.ControlPlane && !s.uses(n.Name) && !s.leaves(n.Name) && (!n.Ready || s.cluster.MemberIsDown(n.Name)) {
			down(n.Name, "its Node or etcd member is not healthy", "")
		}
	}
	s.checkRestartQuorum()
}

// restarts reports whether one of several features restarts a control plane.
func restarts(features ...feature) func(host) bool {
	return func(h host) bool {
		return slices.ContainsFunc(features, func(f feature) bool {
			a := f(h)
			return a != nil && (a.Effect == Restart || a.Effect == Drain)
		})
	}
}

func (s *site) reason(h host) string {
	if why := h.Unknown["cluster"]; why != "" {
		return "its API server does not answer: " + why
	}
	if s.cluster.MemberIsDown(h.Name) {
		return "its etcd member is not healthy"
	}
	return "its Node is not Ready"
}

// checkRestartQuorum refuses an upgrade or a reconfiguration if a restart would cost etcd its quorum because other members are down, as
// "upgrade" does. If all members are healthy, the restart of one of two is allowed: it interrupts the API for seconds.
func (s *site) checkRestartQuorum() {
	restarting := filter(s.planes, restarts(s.upgrade, s.configure, s.follow))
	v := votesOf(s.cluster.EtcdMembers)
	for _, l := range s.leavers {
		if s.Remove && !l.ready && l.controlPlane {
			v.remove(l.name)
		}
	}
	down := slices.DeleteFunc(v.down(), func(name string) bool {
		return slices.ContainsFunc(restarting, func(h host) bool { return h.Name == name })
	})
	if len(restarting) > 0 && len(down) > 0 && v.healthy()-1 < v.quorum() {
		s.problem(down[0], "restore it; or take it out of cluster.yaml, and run ./install cluster apply --remove with the file of "+s.cluster.Version,
			fmt.Sprintf("%d of %d members are healthy, and %d are needed", v.healthy(), len(v), v.quorum()),
			"its etcd member is not healthy: etcd would lose its quorum during the restart of another control plane")
	}
}

// votes are the members of etcd that vote, and whether each is healthy.
type votes map[string]bool

func votesOf(members []facts.EtcdMember) votes {
	v := votes{}
	for _, m := range members {
		if !m.Learner {
			v[m.Name] = m.Healthy
		}
	}
	return v
}

func (v votes) quorum() int        { return len(v)/2 + 1 }
func (v votes) healthy() int       { return len(v) - len(v.down()) }
func (v votes) remove(name string) { delete(v, name) }

func (v votes) down() (list []string) {
	for _, name := range sortedKeys(v) {
		if !v[name] {
			list = append(list, name)
		}
	}
	return list
}

// checkRemoval goes through the removals in their order: etcd must have its quorum before and after each.
func (s *site) checkRemoval() {
	list := s.leavers
	if !s.Remove {
		s.noteLeavers(list)
		return
	}
	if s.cluster == nil && slices.ContainsFunc(s.hosts, func(h host) bool { return h.Node != nil || h.began(Init) }) {
		return // checkAPI refuses it, or init continues
	}
	if s.cluster == nil {
		s.problem("", "if the control planes were replaced, keep one in cluster.yaml until the new ones have joined; for a new cluster, leave out --remove",
			"no control plane of cluster.yaml has a cluster", "--remove has nothing from which it could remove nodes")
		return
	}
	s.checkLeavers(list)
	if len(list) == 0 {
		s.note("--remove: each Node of the cluster is in cluster.yaml: there is nothing to remove")
	}
	if !slices.ContainsFunc(s.planes, func(h host) bool { return h.Node != nil && !h.isNew() }) && len(list) > 0 {
		s.problem("", "keep a control plane in cluster.yaml until others have joined", "the last control plane cannot be removed",
			"--remove would leave no control plane")
		return
	}
	v := votesOf(s.cluster.EtcdMembers)
	s.removeFrom(v, list, false)
	for _, h := range s.planes {
		if h.isNew() && len(s.cluster.EtcdMembers) > 0 {
			v[h.Name] = true
		}
	}
	s.removeFrom(v, list, true)
}

// checkLeavers refuses removals that could not end: a host that reset refuses, and the control plane at which the nodes reach the API.
func (s *site) checkLeavers(list []leaver) {
	for _, l := range list {
		f := s.Answers[l.name].Facts
		switch {
		case !l.answers || l.lost || f.Node == nil || f.Node.Airlift || f.Was != nil:
		case f.Unknown["node.airlift"] != "":
			s.problem(l.name, "on that host: ./install status", f.Unknown["node.airlift"], "cannot be removed: it is unknown whether Airlift installed this node")
		default:
			s.problem(l.name, "on that host: ./install adopt; or, to remove it there: ./install reset --without-ledger", "it has no ledger",
				"cannot be removed: it is a node that Airlift did not install")
		}
		if l.controlPlane {
			s.checkEndpointOf(l)
		}
	}
}

// checkEndpointOf refuses to remove the control plane whose address is the endpoint: no other node would reach the API. If it is
// lost, they do not reach the API already. The name of another endpoint in the file is resolved only by "node remove", which refuses, too.
func (s *site) checkEndpointOf(l leaver) {
	addresses := slices.DeleteFunc(slices.Clone(s.nodes[l.name].Addresses), func(a string) bool { return slices.Contains(s.cluster.VIP, a) })
	serves := !l.lost && (l.ready || l.answers || slices.ContainsFunc(s.cluster.EtcdMembers, func(m facts.EtcdMember) bool { return m.Name == l.name && m.Healthy }))
	if !serves {
		if slices.ContainsFunc(s.cluster.EndpointAddresses, func(a string) bool { return slices.Contains(addresses, a) }) {
			until := "another host has it"
			if l.lost {
				until = "it has joined again"
			}
			s.note("%s has the address of the endpoint, %s: until %s, or the endpoint changes, nodes do not reach the API; to change it, on a control plane: ./install endpoint apply --control-plane-endpoint HOST:PORT",
				l.name, s.cluster.ControlPlaneEndpoint, until)
		}
		return
	}
	has := func(endpoint string) bool {
		host := endpointHost(endpoint)
		return slices.Contains(addresses, host) || strings.EqualFold(host, l.name)
	}
	const first = "its removal would end the API for all other nodes"
	change := "write another endpoint to cluster.yaml, such as vip, and run without --remove: ./install cluster apply; more: ./install endpoint apply --help"
	switch {
	case has(s.cluster.ControlPlaneEndpoint) || slices.ContainsFunc(s.cluster.EndpointAddresses, func(a string) bool { return slices.Contains(addresses, a) }):
		s.problem(l.name, change, first, "cannot be removed: the endpoint of the cluster, %s, is its address", s.cluster.ControlPlaneEndpoint)
	case s.cluster.FormerEndpoint != "" && has(s.cluster.FormerEndpoint):
		s.problem(l.name, "write it to cluster.yaml again, and run ./install cluster apply --remove without --skip first: that finishes the change of the endpoint",
			"the last change of the endpoint is not finished", "cannot be removed: kube-proxy, flannel or nodes still use %s, its address", s.cluster.FormerEndpoint)
	case s.address != "" && has(s.address):
		s.problem(l.name, "write another endpoint to cluster.yaml", first, "cannot be removed: cluster.yaml has its address as the endpoint, %s", s.address)
	case s.cluster.ControlPlaneEndpoint != "" && s.Answers[s.leader].Facts.Unknown["cluster.endpointAddresses"] != "":
		s.problem(l.name, "on "+s.leader+": getent hosts "+endpointHost(s.cluster.ControlPlaneEndpoint), s.Answers[s.leader].Facts.Unknown["cluster.endpointAddresses"],
			"cannot be removed: it is not known whether the endpoint of the cluster, %s, leads to it", s.cluster.ControlPlaneEndpoint)
	default:
		s.checkServersOf(l, has)
	}
}

// checkServersOf refuses to remove a control plane that is the API server of a node that stays: the node has not followed a change
// of the endpoint, or another tool made it.
func (s *site) checkServersOf(l leaver, has func(endpoint string) bool) {
	for _, h := range s.hosts {
		if h.Node == nil || h.isNew() || s.leaves(h.Name) {
			continue
		}
		if _, server, found := strings.Cut(h.Node.APIServer, "://"); found && has(server) {
			s.problem(h.Name, "first, without --remove: ./install cluster apply; or, on that host: ./install endpoint node",
				"its kubelet.conf has the server "+h.Node.APIServer, "would not reach the API any more without %s, which leaves", l.name)
		}
	}
}

func endpointHost(endpoint string) string {
	host, _, err := config.SplitEndpoint(endpoint, 0)
	if err != nil {
		return endpoint
	}
	return host
}

func (s *site) removeFrom(v votes, list []leaver, ready bool) {
	for _, l := range list {
		if _, member := v[l.name]; !member || l.ready != ready {
			continue
		}
		before := fmt.Sprintf("%d of %d members are healthy, and %d are needed; down: %s", v.healthy(), len(v), v.quorum(), strings.Join(v.down(), ", "))
		enough := v.healthy() >= v.quorum()
		v.remove(l.name)
		if !enough || v.healthy() < v.quorum() {
			s.problem(l.name, "restore the members that are down first: on each of them: ./install status", before,
				"cannot be removed: etcd would have no quorum")
		}
	}
}

func (s *site) noteLeavers(list []leaver) {
	for _, l := range list {
		if !l.lost {
			s.rest(fault.Held, "to remove it: ./install cluster apply --remove; or add it to cluster.yaml", "%s is in the cluster, and not in cluster.yaml", l.name)
			continue
		}
		if !l.ready {
			s.problem(l.name, "to remove the former node and let this host join: ./install cluster apply --remove",
				"its disk was erased, or it is another machine with the same name",
				"is no node, and the cluster still has its former Node or etcd member")
		}
	}
}
