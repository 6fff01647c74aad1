package plan

import (
	"cmp"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"

	"airlift/installer/multihost/facts"
	"airlift/installer/multihost/spec"
	"airlift/internal/fault"
)

// Names of stages that rules depend on.
const (
	endpointOfControlPlanes = "endpoint on control planes"
	endpointOfCluster       = "endpoint of the cluster"
	addons                  = "add-ons"
	lostHosts               = "remove lost hosts"
	lastBatch               = "check of the last batch"
	versionOfCluster        = "version of the cluster"
	removeWorkers           = "remove workers"
	keepsFile               = "keep the file"
)

// Make returns the plan for the site, or all problems that forbid one. A site that matches the file has a plan without
// stages.
func Make(in Input) (*Plan, []Problem) {
	s := newSite(in)
	s.check()
	p := &Plan{Cluster: in.Spec.Name, Version: in.Version, Bundle: in.Bundle, Spec: in.Spec.Digest, Leader: s.leader}
	if len(s.problems) == 0 {
		s.fill(p)
	}
	if len(s.problems) > 0 {
		return nil, s.sorted()
	}
	s.noteHosts()
	p.Rest, p.Notes = s.rests, s.notes
	p.Seen = s.seen()
	p.Observed = digest(p.Seen)
	return p, nil
}

// Entries returns a plan with only what makes hosts nodes, also if there are problems: for the checks of those hosts.
func Entries(in Input) *Plan {
	s := newSite(in)
	return &Plan{Cluster: in.Spec.Name, Leader: s.leader, Stages: []Stage{each("init", 1, s.planes, s.enters(Init)), each("join", s.Parallel, s.hosts, s.enters(Join))}}
}

// fill adds the stages. Their order keeps two rules for any mixture of edits: no kubelet is newer than an API server, and
// etcd has its quorum.
//
//   - Lost hosts leave first: they cost quorum, and a host must not join under the name of a member.
//   - Then, the last batch of a roll passes what it owes, before anything else changes.
//   - Control planes are upgraded before a host joins: the file has one version, and the new host gets it.
//   - The endpoint and the registry are there before hosts use them.
//   - The configuration changes before hosts join: they get the new one. It does not change together with the version or the
//     endpoint.
//   - Control planes leave after new ones have joined, and before a worker changes: they keep their old version.
//   - The keys of Secrets change when all control planes are there that have to follow.
//   - Workers join before others are drained: pods have a place. Labels, taints and the site's registries precede the
//     drains too.
//   - Timers of control planes follow when the control planes are there.
//   - Workers leave at the end. A change of the endpoint ends after one that does not follow it.
func (s *site) fill(p *Plan) {
	endpoint := s.onPlanes(endpointOfControlPlanes, s.endpoint)
	stages := []Stage{
		s.removes(lostHosts, func(l leaver) bool { return !l.ready }),
		each("init", 1, s.planes, s.enters(Init)),
		s.unfinishedKeys(),
		each("unpack", s.Parallel, s.hosts, s.unpack),
		s.upgradePlanes(),
		s.storeVersion(),
		endpoint,
		each("registry on control planes", 1, s.planes, s.registry),
	}
	stages = append(stages, s.configuration()...)
	stages = append(stages,
		each("join control planes", 1, unfinishedFirst(s.planes), s.enters(Join)),
		s.removes("remove control planes", func(l leaver) bool { return l.ready && l.controlPlane }))
	stages = append(stages, s.encryption()...)
	stages = append(stages, s.endpointOfWorkers...)
	end := s.endpointEnd(endpoint)
	waits := slices.ContainsFunc(s.leavers, s.endpointNeeds)
	if !waits {
		stages = append(stages, end)
	}
	stages = append(stages,
		each("registry on workers", s.Parallel, s.workers, s.registry),
		each("join workers", s.Parallel, unfinishedFirst(s.workers), s.enters(Join)),
		each("labels and taints", s.Parallel, s.hosts, s.labels),
		each("registries", s.Parallel, s.hosts, s.mirrors),
		each("renewal of certificates", s.Parallel, s.planes, s.renewal),
		each("backups", 1, s.planes, s.backups))
	upgrades, later := s.upgradeWorkers()
	stages = append(stages, upgrades...)
	stages = append(stages, s.removes(removeWorkers, func(l leaver) bool { return l.ready && !l.controlPlane }))
	if waits {
		stages = append(stages, end)
	}
	if len(later) == 0 {
		stages = append(stages, s.addons())
	}
	unpackLater(stages, later)
	p.Stages = s.gated(s.keepFile(filter(stages, func(st Stage) bool { return len(st.Actions) > 0 })))
	if s.gate != nil && len(s.skippedOf(s.gate)) > 0 {
		later = nil // nothing changes: see gated
	}
	s.checkLaggards(slices.Concat(p.Stages, later))
	for i := range p.Stages {
		s.finish(&p.Stages[i])
	}
	s.expect(p)
	p.MayFail = s.mayFail(p)
	p.Wait = s.closed(p.Stages)
}

// finish sets what follows from the actions of a stage.
func (s *site) finish(st *Stage) {
	if st.Roll {
		st.Windows = s.windows(*st)
	}
	for i := range st.Actions {
		a := &st.Actions[i]
		a.Commands = s.commands(*a)
		if a.Effect == Drain && s.cluster != nil {
			a.Pods = s.cluster.Pods[a.Host]
		}
	}
}

// unpackLater takes hosts that are not upgraded now out of the stage that unpacks: each apply would do it again.
func unpackLater(stages, later []Stage) {
	for i := range stages {
		stages[i].Actions = slices.DeleteFunc(stages[i].Actions, func(a Action) bool {
			return a.Verb == Unpack && slices.ContainsFunc(later, func(st Stage) bool { return slices.Contains(names(st.Actions), a.Host) })
		})
	}
}

// checkLaggards refuses workers of the file's version, now or later, while a control plane that is left alone has an older one.
func (s *site) checkLaggards(stages []Stage) {
	changed := map[string]bool{}
	worker := ""
	for _, st := range stages {
		for _, a := range st.Actions {
			changed[a.Host] = changed[a.Host] || slices.Contains([]string{UpgradeApply, Upgrade, Remove, RemoveOff}, a.Verb)
			if (a.Verb == Upgrade || a.Verb == Join) && hostOf(s.Spec, a.Host).Role == spec.Worker {
				worker = a.Host
			}
		}
	}
	if s.cluster == nil || worker == "" {
		return
	}
	for _, n := range s.cluster.Nodes {
		if n.ControlPlane && older(n.Version, s.Version) && !changed[n.Name] {
			s.problem(n.Name,
				"let it be upgraded: add it to cluster.yaml, without --skip; or remove it: take it out of cluster.yaml, and run ./install cluster apply --remove",
				fmt.Sprintf("%s would get %s, and a kubelet must not be newer than an API server", worker, s.Version),
				"is a control plane with %s that this run would leave alone", n.Version)
		}
	}
}

// upgradePlanes begins with the one that runs upgrade apply. Next prefers one that did not finish: it may be down.
func (s *site) upgradePlanes() Stage {
	st := each("upgrade control planes", 1, s.planes, s.upgrade)
	st.Roll = true
	if len(st.Actions) == 0 {
		return st
	}
	applying := func(a Action) bool { return host{Facts: s.Answers[a.Host].Facts}.began(UpgradeApply) }
	first := s.leader
	if i := slices.IndexFunc(st.Actions, applying); i >= 0 {
		first = st.Actions[i].Host
	}
	order := s.order()
	place := func(a Action) int {
		group := slices.IndexFunc(order, func(g spec.Group) bool { return g.Name == hostOf(s.Spec, a.Host).Group })
		return group*len(s.Spec.Hosts) + slices.IndexFunc(s.Spec.Hosts, func(h spec.Host) bool { return h.Name == a.Host })
	}
	slices.SortFunc(st.Actions, func(a, b Action) int {
		return cmp.Or(firstIf(func(a Action) bool { return a.Host == first })(a, b), cmp.Compare(place(a), place(b)))
	})
	for i, a := range st.Actions {
		if s.cluster.Version != s.Version && i == 0 || applying(a) {
			st.Actions[i].Verb = UpgradeApply
		}
	}
	return s.inGroup(st)
}

// leads returns a stage with one command on the leader.
func (s *site) leads(name, verb, why string) Stage {
	return Stage{Name: name, Limit: 1, Actions: []Action{{Host: s.leader, Verb: verb, To: s.Version, Why: why, Effect: None}}}
}

// storeVersion lets the cluster have the version of the file if all its control planes have it, and no upgrade of one stores it.
func (s *site) storeVersion() (st Stage) {
	if s.cluster != nil && s.cluster.Version != s.Version && !slices.ContainsFunc(s.planes, some(s.upgrade)) {
		st = s.leads(versionOfCluster, UpgradeApply, "its control planes have another version than the cluster stores, "+s.cluster.Version)
	}
	return st
}

// upgradeWorkers returns a stage for each group, and the stages that have to wait: for a pause, or for workers that are down.
func (s *site) upgradeWorkers() (now, later []Stage) {
	now, paused, rest := s.pause(s.roll("upgrade ", s.upgrade))
	now, later = s.hold(now, some(s.enter, s.endpoint, s.configure, s.follow, s.upgrade), paused...)
	if len(later) == 0 && len(paused) > 0 {
		later, s.rests = paused, append(s.rests, rest)
	}
	for _, st := range paused { // a pause is no reason to leave hosts of the last batch drained
		repair, _ := split(st, s.repairs(st))
		now = append(now, asRepairs(repair)...)
	}
	return now, later
}

// pause splits the upgrades of workers at a pause, and returns it. A group that pauses the roll holds back the upgrades of the groups
// after it, and nothing else, until its hosts have the version of the file and apply runs with --continue. Control planes precede all
// workers.
func (s *site) pause(upgrades []Stage) (now, later []Stage, rest Rest) {
	var before []spec.Group // with hosts
	for _, h := range s.planes {
		before = append(before, groupOf(s.Spec, h.Group))
	}
	for _, g := range s.order() {
		in := func(h host) bool { return h.Group == g.Name }
		if i := slices.IndexFunc(upgrades, func(st Stage) bool { return st.Group == g.Name }); i >= 0 {
			for _, b := range slices.Backward(before) {
				changes := slices.ContainsFunc(s.hosts, func(h host) bool { return h.Group == b.Name && s.upgrade(h) != nil })
				if (b.Roll.Pause || b.Name == s.PauseAfter) && (changes || !s.Continue) {
					return upgrades[:i], upgrades[i:], s.paused(b, changes, upgrades[i:])
				}
			}
		} else if !slices.ContainsFunc(s.workers, in) {
			continue
		}
		before = append(before, g)
	}
	return upgrades, nil, Rest{}
}

func (s *site) paused(g spec.Group, changes bool, later []Stage) Rest {
	var waiting []string
	for _, st := range later {
		waiting = append(waiting, fmt.Sprintf("%s (%s)", st.Group, count(len(st.Actions), "host")))
	}
	has := "has"
	if changes {
		has = "gets"
	}
	pauses, hint := "the roll pauses after it", "to go on: ./install cluster apply --continue"
	if !g.Roll.Pause {
		pauses = "--pause-after pauses the roll after it, in this run"
		hint = "to go on: ./install cluster apply; to pause until --continue in each run, write roll.pause to the group"
	}
	return Rest{fault.Paused.Word(), fmt.Sprintf("group %s %s %s, and %s; waiting: %s", g.Name, has, s.Version, pauses, strings.Join(waiting, ", ")), hint}
}

// endpointEnds reports whether control planes that only serve the endpoint can do more in this plan: all others serve it then, and
// after an undone change no node uses the other one.
func (s *site) endpointEnds() bool {
	undone := s.cluster.EndpointUndone && !s.endpointDiffers()
	return !slices.ContainsFunc(s.endpointLeft(), func(n facts.ClusterNode) bool { return n.ControlPlane && !n.EndpointServes || undone })
}

// endpointEnd finishes a change of the endpoint. Each control plane but the last only serves it until the others do, and kube-proxy
// and flannel use it when all nodes do. After an undone change, all control planes serve the former endpoint until no node uses it.
func (s *site) endpointEnd(planes Stage) Stage {
	st := Stage{Name: endpointOfCluster, Limit: 1, Roll: true}
	if s.cluster == nil {
		return st
	}
	left := s.endpointLeft()
	for _, n := range left {
		if !s.holdsEndpoint(n.Name) { // else it has a reason of its own
			s.rest(fault.Held, "on that host: ./install endpoint node", "the change of the endpoint is not finished until %s follows it", n.Name)
		}
	}
	if s.otherEndpoint() && s.endpointUnfinished() {
		s.note("the endpoint gets the addresses in cluster.yaml after its last change is finished: then run the same command again")
	}
	if !s.cluster.EndpointWaits && (len(planes.Actions)+len(s.endpointOfWorkers) == 0 || len(s.cluster.Nodes) < 2) {
		return st
	}
	undone := s.cluster.EndpointUndone && !s.endpointDiffers()
	waited := s.Remove && slices.ContainsFunc(s.leavers, func(l leaver) bool { return l.ready && l.controlPlane }) // it left after the others ran
	again := names(planes.Actions)
	switch {
	case !s.endpointEnds():
		again = nil // they would not finish either
	case len(again) == 0 && len(left) == 0:
		again = []string{s.leader}
	case len(again) > 0 && !undone && !waited && (len(again) > 1 || len(left) > 0) && s.inOrder(planes):
		again = again[:len(again)-1]
	}
	for _, name := range again {
		st.Actions = append(st.Actions, Action{Host: name, Verb: Endpoint, Why: "control planes, kube-proxy and flannel use the endpoint after the other nodes", Effect: Restart})
	}
	return st
}

// inOrder reports whether the hosts of a stage change in its order: windows that differ open one after the other.
func (s *site) inOrder(st Stage) bool {
	window := func(a Action) *spec.Window { return groupOf(s.Spec, hostOf(s.Spec, a.Host).Group).Roll.Window }
	return !slices.ContainsFunc(st.Actions, func(a Action) bool { return !reflect.DeepEqual(window(a), window(st.Actions[0])) })
}

// endpointLeft returns the nodes that do not follow the endpoint in this plan, and do not leave: without them, the change is not
// finished.
func (s *site) endpointLeft() []facts.ClusterNode {
	return filter(s.cluster.Nodes, func(n facts.ClusterNode) bool {
		acts := s.uses(n.Name) && !s.holdsEndpoint(n.Name)
		return !acts && !s.leaves(n.Name) && (n.EndpointBehind || s.endpointDiffers())
	})
}

// endpointNeeds reports whether the change of the endpoint cannot end before a worker that leaves at the end.
func (s *site) endpointNeeds(l leaver) bool {
	return s.leaves(l.name) && l.ready && !l.controlPlane && (s.endpointDiffers() || s.nodes[l.name].EndpointBehind)
}

// holdsEndpoint reports whether a host has to wait before it follows the endpoint.
func (s *site) holdsEndpoint(name string) bool {
	return slices.ContainsFunc(s.endpointHeld, func(st Stage) bool { return slices.Contains(names(st.Actions), name) })
}

// leaves reports whether this plan removes a Node.
func (s *site) leaves(name string) bool {
	return s.Remove && slices.ContainsFunc(s.leavers, func(l leaver) bool { return l.name == name })
}

// removes returns a stage that removes those leavers, one by one.
func (s *site) removes(name string, now func(leaver) bool) Stage {
	st := Stage{Name: name, Limit: 1}
	for _, l := range s.leavers {
		if s.Remove && now(l) {
			st.Actions = append(st.Actions, s.remove(l))
		}
	}
	return st
}

// addons upgrades the add-ons, which wait until all nodes have their images. The last control plane does it if it can: it knows
// that of a worker that lists the images, and a node lists only its largest.
func (s *site) addons() (st Stage) {
	if s.cluster == nil {
		return st
	}
	isPlane := func(name string) bool {
		h, found := s.find(name)
		return found && h.Role == spec.ControlPlane
	}
	upgrades := slices.ContainsFunc(s.cluster.Nodes, func(n facts.ClusterNode) bool { return n.Version != s.Version && !isPlane(n.Name) }) // after the control planes
	applies := s.cluster.Version != s.Version || slices.ContainsFunc(s.planes, some(s.upgrade))                                            // which does it, too
	if !upgrades && (!s.cluster.AddonsWait || applies) {
		return st
	}
	if i := slices.IndexFunc(s.cluster.Nodes, func(n facts.ClusterNode) bool {
		return n.Version != s.Version && (s.skipped(n.Name) || !s.inFile(n.Name) && !s.leaves(n.Name))
	}); i >= 0 {
		s.rest(fault.Held, "let it be upgraded, without --skip; or remove it from the cluster", "the add-ons keep their version until %s has %s", s.cluster.Nodes[i].Name, s.Version)
		return st
	}
	return s.leads(addons, UpgradeApply, "add-ons wait until all nodes have their images")
}

// noteHosts adds what the plan leaves alone.
func (s *site) noteHosts() {
	if names := slices.Compact(slices.Sorted(slices.Values(s.Skip))); len(names) > 0 {
		s.rest(fault.Skipped, SkippedHint, "%s", strings.Join(names, ", "))
	}
	for _, h := range s.hosts {
		s.noteHost(h)
	}
	if s.cluster == nil {
		return
	}
	if slices.ContainsFunc(s.cluster.EtcdMembers, func(m facts.EtcdMember) bool { return m.Name == "" }) {
		s.note("etcd has a member that has not started yet: the join that added it did not finish, and starts it when it runs again; if its host is lost, on a control plane: ./install etcd status; ./install etcd member remove ID")
	}
	s.noteConfiguration()
	if s.cluster.Version == s.Version && len(s.cluster.Bundles) > 0 && !s.cluster.Keeps(s.Bundle) {
		s.note("the control planes keep another file with %s; to take the images of this one over, run: ./install cluster images import", s.Version)
	}
}

func (s *site) noteHost(h host) {
	continued := slices.ContainsFunc([]string{Init, Join, "upgrade", "endpoint", "registry"}, h.began) && !h.began(Mirrors)
	if h.Unfinished != "" && !continued && !some(s.configure, s.follow, s.backups, s.mirrors)(h) && !s.isBehind(h) && h.Name != s.encryptor {
		s.rest(fault.Held, "run it there again", "%s did not finish the command %q", h.Name, h.Unfinished)
	}
	n, found := s.nodes[h.Name]
	if !found || h.isNew() {
		return
	}
	if s.Spec.Registries != nil && h.Node.OtherRuntime {
		s.note("the registries of cluster.yaml are not for %s: Airlift did not install its containerd, and does not change that one's configuration", h.Name)
	}
	upgrade := s.upgrade(h)
	switch {
	case upgrade != nil && s.cordoned(h):
		s.note("%s is unschedulable, not by Airlift: it is not drained, and stays unschedulable", h.Name)
	case s.isDown(h):
		s.note("%s is down: %s", h.Name, s.reason(h))
	}
	if h.Node.KubeletConfig != "" && upgrade == nil {
		s.note("the kubelet of %s, which was adopted, reads %s until its first upgrade: changes of the kubelet's configuration reach it then", h.Name, h.Node.KubeletConfig)
	}
	if otherAddresses(h.NodeIP, n.Addresses) {
		is := strings.Join(n.Addresses, ", ")
		s.rest(fault.Held, fmt.Sprintf("write nodeIP: [%s]; or take it out of cluster.yaml, run ./install cluster apply --remove, and add it again", is),
			"the node %s has the address %s in the cluster, and cluster.yaml has another nodeIP, %s: the address of a node changes only when it joins", h.Name, is, strings.Join(texts(h.NodeIP), ", "))
	}
	if blocked := s.cluster.BlockedBy[h.Name]; len(blocked) > 0 && upgrade != nil && upgrade.Effect == Drain {
		s.note("%s cannot be drained now: %s allows no disruption; apply waits for it at most %s, and is held then", h.Name, strings.Join(blocked, ", "), short(WaitLimit))
	}
}

// otherAddresses reports whether a node has other addresses than its nodeIP in the file. Without one, the host chooses.
func otherAddresses(nodeIP []netip.Addr, is []string) bool {
	has := map[netip.Addr]bool{}
	for _, text := range is {
		if a, err := netip.ParseAddr(text); err == nil {
			has[a] = true
		}
	}
	return len(nodeIP) > 0 && len(has) > 0 &&
		(len(has) != len(nodeIP) || slices.ContainsFunc(nodeIP, func(a netip.Addr) bool { return !has[a] }))
}
