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

// Names of stages whose actions Same compares.
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
//   - Workers join before others are drained: pods have a place. Labels and taints precede the drains too.
//   - Workers leave at the end. A change of the endpoint ends after one that does not follow it.
func (s *site) fill(p *Plan) {
	endpoint, endpointWorkers := s.endpointControlPlanes(), s.endpointOfWorkers
	stages := []Stage{
		s.remove(lostHosts, func(l leaver) bool { return !l.ready }),
		s.init(),
		s.unpack(),
		s.upgradeControlPlanes(),
		s.storeVersion(),
		endpoint,
		s.registry("registry on control planes", s.controlPlanes(), 1),
	}
	stages = append(stages, s.configuration()...)
	stages = append(stages,
		s.join("join control planes", s.controlPlanes(), 1),
		s.remove("remove control planes", func(l leaver) bool { return l.ready && l.controlPlane }),
	)
	stages = append(stages, endpointWorkers...)
	end := s.endpointEnd(endpoint, endpointWorkers)
	waits := slices.ContainsFunc(s.leavers(), s.endpointNeeds)
	if !waits {
		stages = append(stages, end)
	}
	stages = append(stages,
		s.registry("registry on workers", s.workers(), s.Parallel),
		s.join("join workers", s.workers(), s.Parallel),
		s.labels())
	upgrades, later := s.upgradeWorkers()
	stages = append(stages, upgrades...)
	unpackLater(stages, later)
	stages = append(stages, s.remove(removeWorkers, func(l leaver) bool { return l.ready && !l.controlPlane }))
	if waits {
		stages = append(stages, end)
	}
	if len(later) == 0 {
		stages = append(stages, s.addons())
	}
	p.Stages = s.gated(s.keepFile(slices.DeleteFunc(stages, func(st Stage) bool { return len(st.Actions) == 0 })))
	if g := s.gate(); g != nil && len(s.skippedOf(g)) > 0 {
		later = nil // nothing changes: see gated
	}
	s.checkLaggards(slices.Concat(p.Stages, later))
	for i, st := range p.Stages {
		if st.Roll {
			p.Stages[i].Windows = s.windows(st)
		}
	}
	p.Wait = s.closed(p.Stages)
	s.setCommands(p)
}

// unpackLater takes hosts that are not upgraded now out of the stage that unpacks: each apply would do it again.
func unpackLater(stages, later []Stage) {
	waits := func(a Action) bool {
		return a.Verb == Unpack && slices.ContainsFunc(later, func(st Stage) bool {
			return slices.ContainsFunc(st.Actions, func(h Action) bool { return h.Host == a.Host })
		})
	}
	for i := range stages {
		stages[i].Actions = slices.DeleteFunc(stages[i].Actions, waits)
	}
}

// checkLaggards refuses workers of the file's version, now or later, while a control plane that is left alone has an older one.
func (s *site) checkLaggards(stages []Stage) {
	changed := map[string]bool{}
	worker := ""
	for _, st := range stages {
		for _, a := range st.Actions {
			changed[a.Host] = changed[a.Host] || slices.Contains([]string{UpgradeApply, Upgrade, Remove, RemoveOff}, a.Verb)
			if (a.Verb == Upgrade || a.Verb == Join) && s.role(a.Host) == spec.Worker {
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

func (s *site) role(name string) string { return hostOf(s.Spec, name).Role }

func (s *site) init() Stage {
	st := Stage{Name: "init", Limit: 1}
	for _, h := range s.controlPlanes() {
		if h.Name == s.leader && s.cluster == nil || h.began(Init) {
			st.Actions = append(st.Actions, Action{Host: h.Name, Verb: Init, To: s.Version, Why: whyNew(h, "there is no cluster yet"), Effect: None})
		}
	}
	return st
}

func (s *site) join(name string, hosts []host, limit int) Stage {
	st := Stage{Name: name, Limit: limit}
	for _, h := range unfinishedFirst(hosts) {
		if h.isNew() && !h.began(Init) && (h.Name != s.leader || s.cluster != nil) {
			st.Actions = append(st.Actions, Action{Host: h.Name, Verb: Join, To: s.Version, Why: whyNew(h, "is not a node yet"), Effect: None})
		}
	}
	return st
}

// unfinishedFirst sorts hosts whose last command did not end to the front: they may be down.
func unfinishedFirst(hosts []host) []host {
	return slices.SortedStableFunc(slices.Values(hosts), func(a, b host) int {
		return cmp.Compare(number(a.Unfinished == ""), number(b.Unfinished == ""))
	})
}

// whyNew returns the reason of an init or a join.
func whyNew(h host, why string) string {
	if h.Unfinished == "" {
		return why
	}
	return fmt.Sprintf("did not finish %q", h.Unfinished)
}

func (s *site) unpack() Stage {
	st := Stage{Name: "unpack", Limit: s.Parallel}
	for _, h := range s.hosts {
		if s.needsUpgrade(h) && h.Node.Version != s.Version && !h.upgrading() {
			st.Actions = append(st.Actions, Action{Host: h.Name, Verb: Unpack, From: h.Node.Version, To: s.Version,
				Why: "images and binaries first, next to the old ones", Effect: None})
		}
	}
	return st
}

// upgradeControlPlanes begins with the one that runs upgrade apply. Next prefers one that did not finish: it may be down.
func (s *site) upgradeControlPlanes() Stage {
	st := Stage{Name: "upgrade control planes", Limit: 1, Roll: true}
	list := slices.DeleteFunc(s.controlPlanes(), func(h host) bool { return !s.needsUpgrade(h) })
	apply := s.leader // runs upgrade apply
	if i := slices.IndexFunc(list, func(h host) bool { return h.began(UpgradeApply) }); i >= 0 {
		apply = list[i].Name
	}
	slices.SortFunc(list, func(a, b host) int {
		return cmp.Or(cmp.Compare(number(a.Name != apply), number(b.Name != apply)), cmp.Compare(s.place(a), s.place(b)))
	})
	for i, h := range list {
		a := s.upgrade(h)
		if s.cluster.Version != s.Version && i == 0 || h.began(UpgradeApply) {
			a.Verb = UpgradeApply
		}
		st.Actions = append(st.Actions, a)
		st.Group = h.Group
	}
	if slices.ContainsFunc(list, func(h host) bool { return h.Group != st.Group }) {
		st.Group = ""
	}
	return st
}

func (s *site) upgrade(h host) Action {
	a := Action{Host: h.Name, Verb: Upgrade, From: h.Node.Version, To: s.Version, Why: "has another version",
		Effect: Drain, Began: h.upgrading()}
	switch {
	case a.Began:
		a.Why = "did not finish its upgrade"
	case h.Node.Version == s.Version:
		a.Why = fmt.Sprintf("its kubelet still runs %s", s.nodes[h.Name].Version)
	}
	if opens, _ := s.opens(h); !s.Spec.Roll.Drain || s.cordoned(h) || !opens {
		a.Effect = Restart
	}
	return a
}

// storeVersion lets the cluster have the version of the file if all its control planes have it, and no upgrade of one stores it.
func (s *site) storeVersion() Stage {
	st := Stage{Name: versionOfCluster, Limit: 1}
	if s.cluster != nil && s.cluster.Version != s.Version && !slices.ContainsFunc(s.controlPlanes(), s.needsUpgrade) {
		st.Actions = []Action{{Host: s.leader, Verb: UpgradeApply, To: s.Version, Why: "its control planes have another version than the cluster stores, " + s.cluster.Version, Effect: None}}
	}
	return st
}

// cordoned reports whether somebody else made the node unschedulable: it is neither drained nor uncordoned.
func (s *site) cordoned(h host) bool { return s.nodes[h.Name].Unschedulable && !h.Node.Cordoned }

// order returns the groups in the order of the roll.
func (s *site) order() []spec.Group {
	rank := func(g spec.Group) int {
		if i := slices.Index(s.Spec.Roll.Order, g.Name); i >= 0 {
			return i
		}
		return len(s.Spec.Roll.Order)
	}
	return slices.SortedStableFunc(slices.Values(s.Spec.Groups), func(a, b spec.Group) int { return cmp.Compare(rank(a), rank(b)) })
}

// place returns the position of a host in the roll, by its group and then in the file.
func (s *site) place(h host) int {
	i := slices.IndexFunc(s.order(), func(g spec.Group) bool { return g.Name == h.Group })
	return i*len(s.Spec.Hosts) + h.index
}

func (s *site) group(name string) spec.Group { return groupOf(s.Spec, name) }

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

// upgradeWorkers returns a stage for each group, and the stages that have to wait: for a pause, or for workers that are down.
func (s *site) upgradeWorkers() (now, later []Stage) {
	now, paused, rest := s.pause(s.roll("upgrade ", s.needsUpgrade, s.upgrade))
	now, later = s.hold(now, s.changes, paused...)
	if len(later) == 0 && len(paused) > 0 {
		later, s.rests = paused, append(s.rests, rest)
	}
	return append(now, s.repairs(paused)...), later // a pause is no reason to leave hosts of the last batch drained
}

// roll returns a stage for each group of workers, in the order of the roll.
func (s *site) roll(name string, needs func(host) bool, action func(host) Action) (list []Stage) {
	for _, g := range s.order() {
		st := Stage{Name: name + g.Name, Group: g.Name, Limit: maxUnavailable(g.Roll, groupSize(s.Spec, g.Name)), Roll: true}
		for _, h := range s.workers() {
			if h.Group == g.Name && needs(h) {
				st.Actions = append(st.Actions, action(h))
			}
		}
		if len(st.Actions) > 0 {
			list = append(list, st)
		}
	}
	return list
}

// pause splits the upgrades of workers at a pause, and returns it. A group that pauses the roll holds back the upgrades of the groups
// after it, and nothing else, until its hosts have the version of the file and apply runs with --continue. Control planes precede all
// workers.
func (s *site) pause(upgrades []Stage) (now, later []Stage, rest Rest) {
	var before []spec.Group // with hosts
	for _, h := range s.controlPlanes() {
		before = append(before, s.group(h.Group))
	}
	for _, g := range s.order() {
		i := slices.IndexFunc(upgrades, func(st Stage) bool { return st.Group == g.Name })
		if i < 0 {
			if slices.ContainsFunc(s.workers(), func(h host) bool { return h.Group == g.Name }) {
				before = append(before, g)
			}
			continue
		}
		for _, b := range slices.Backward(before) {
			changes := slices.ContainsFunc(s.hosts, func(h host) bool { return h.Group == b.Name && s.needsUpgrade(h) })
			if (b.Roll.Pause || b.Name == s.PauseAfter) && (changes || !s.Continue) {
				return upgrades[:i], upgrades[i:], s.paused(b, changes, upgrades[i:])
			}
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

func (s *site) needsEndpoint(h host) bool {
	return s.cluster != nil && !h.isNew() && (s.endpointDiffers() || h.began("endpoint") ||
		s.nodes[h.Name].EndpointBehind && (!s.nodes[h.Name].EndpointServes || s.endpointEnds()))
}

// endpointEnds reports whether control planes that only serve the endpoint can do more in this plan: all others serve it then, and
// after an undone change no node uses the other one.
func (s *site) endpointEnds() bool {
	undone := s.cluster.EndpointUndone && !s.endpointDiffers()
	return !slices.ContainsFunc(s.endpointLeft(), func(n facts.ClusterNode) bool { return n.ControlPlane && !n.EndpointServes || undone })
}

func (s *site) endpoint(h host) Action {
	a := Action{Host: h.Name, Verb: Endpoint, Why: "has not followed the last change of the endpoint", Effect: Restart, Began: h.began("endpoint")}
	if s.endpointDiffers() {
		a.Why = "the endpoint of the API changes"
		if h.Role == spec.ControlPlane {
			a.Verb = EndpointApply
		}
	}
	return a
}

// endpointControlPlanes begins with those that did not finish it, as Next does: they count as down.
func (s *site) endpointControlPlanes() Stage {
	st := Stage{Name: endpointOfControlPlanes, Limit: 1, Roll: true}
	for _, h := range s.controlPlanes() {
		if s.needsEndpoint(h) {
			st.Actions = append(st.Actions, s.endpoint(h))
		}
	}
	slices.SortStableFunc(st.Actions, func(a, b Action) int { return cmp.Compare(number(!a.Began), number(!b.Began)) })
	return st
}

func (s *site) endpointWorkers() []Stage {
	return s.roll("endpoint ", s.needsEndpoint, s.endpoint)
}

// endpointEnd finishes a change of the endpoint. Each control plane but the last only serves it until the others do, and kube-proxy
// and flannel use it when all nodes do. After an undone change, all control planes serve the former endpoint until no node uses it.
func (s *site) endpointEnd(planes Stage, workers []Stage) Stage {
	st := Stage{Name: endpointOfCluster, Limit: 1, Roll: true}
	if s.cluster == nil {
		return st
	}
	left := s.endpointLeft()
	for _, n := range left {
		if s.holdsEndpoint(n.Name) {
			continue // it has a reason of its own
		}
		s.rest(fault.Held, "on that host: ./install endpoint node", "the change of the endpoint is not finished until %s follows it", n.Name)
	}
	if s.otherEndpoint() && s.endpointUnfinished() {
		s.note("the endpoint gets the addresses in cluster.yaml after its last change is finished: then run the same command again")
	}
	if !s.cluster.EndpointWaits && (len(planes.Actions)+len(workers) == 0 || len(s.cluster.Nodes) < 2) {
		return st
	}
	undone := s.cluster.EndpointUndone && !s.endpointDiffers()
	waited := s.Remove && slices.ContainsFunc(s.leavers(), func(l leaver) bool { return l.ready && l.controlPlane }) // it left after the others ran
	var again []string
	for _, a := range planes.Actions {
		again = append(again, a.Host)
	}
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
	window := func(a Action) *spec.Window { return s.group(hostOf(s.Spec, a.Host).Group).Roll.Window }
	return !slices.ContainsFunc(st.Actions, func(a Action) bool { return !reflect.DeepEqual(window(a), window(st.Actions[0])) })
}

// endpointLeft returns the nodes that do not follow the endpoint in this plan, and do not leave: without them, the change is not
// finished.
func (s *site) endpointLeft() (left []facts.ClusterNode) {
	for _, n := range s.cluster.Nodes {
		acts := slices.ContainsFunc(s.hosts, func(h host) bool { return h.Name == n.Name })
		acts = acts && !s.holdsEndpoint(n.Name)
		if !acts && !s.leaves(n.Name) && (n.EndpointBehind || s.endpointDiffers()) {
			left = append(left, n)
		}
	}
	return left
}

// endpointNeeds reports whether the change of the endpoint cannot end before a worker that leaves at the end.
func (s *site) endpointNeeds(l leaver) bool {
	return s.leaves(l.name) && l.ready && !l.controlPlane && (s.endpointDiffers() || s.nodes[l.name].EndpointBehind)
}

// leaves reports whether this plan removes a Node.
func (s *site) leaves(name string) bool {
	return s.Remove && slices.ContainsFunc(s.leavers(), func(l leaver) bool { return l.name == name })
}

func (s *site) registry(name string, hosts []host, limit int) Stage {
	st := Stage{Name: name, Limit: limit}
	for _, h := range hosts {
		if s.cluster != nil && s.Spec.EmbeddedRegistry && !h.isNew() && (h.Node.NoRegistry || !s.cluster.EmbeddedRegistry || h.began("registry")) {
			st.Actions = append(st.Actions, Action{Host: h.Name, Verb: Registry, Why: "has no embedded registry yet", Effect: Reload})
		}
	}
	return st
}

// remove returns a stage that removes those leavers, one by one.
func (s *site) remove(name string, now func(leaver) bool) Stage {
	st := Stage{Name: name, Limit: 1}
	for _, l := range s.leavers() {
		if !s.Remove || !now(l) {
			continue
		}
		a := Action{Host: l.name, Verb: RemoveOff, Why: "is not in cluster.yaml; its host is not reset", Effect: None}
		if l.ready {
			a.Effect = Drain
		}
		switch {
		case l.lost:
			a.Why = "its host is no node any more, and joins again"
		case !l.answers && len(s.sharing(l.name)) > 0:
			a.Why += ": it is not known which host it is, because its address is also reported by " + strings.Join(s.sharing(l.name), ", ")
		case l.answers:
			a.Verb, a.Why, a.Effect, a.Adopted = Remove, "is not in cluster.yaml", Drain, l.adopted
			if at := AddressOf(s.nodes[l.name], s.cluster, s.Spec.Hosts); at != "" {
				a.Why += "; its host is " + at
			}
			if l.adopted {
				a.Why += "; another tool made its node, which is removed, too (reset --remove-node)"
			}
		}
		if bare := s.barePods(l.name); len(bare) > 0 {
			a.Changes = []string{"deletes pods that nothing creates again: " + strings.Join(bare, ", ")} // as "node remove" prints it
		}
		st.Actions = append(st.Actions, a)
	}
	return st
}

// holdsEndpoint reports whether a host has to wait before it follows the endpoint.
func (s *site) holdsEndpoint(name string) bool {
	return slices.ContainsFunc(s.endpointHeld, func(st Stage) bool { return slices.Contains(names(st.Actions), name) })
}

// barePods returns the pods of a node that no controller creates again.
func (s *site) barePods(node string) []string {
	return slices.Sorted(slices.Values(s.cluster.BarePods[node]))
}

// addons upgrades the add-ons, which wait until all nodes have their images. The last control plane does it if it can: it knows
// that of a worker that lists the images, and a node lists only its largest.
func (s *site) addons() Stage {
	st := Stage{Name: addons, Limit: 1}
	upgrades := s.cluster != nil && slices.ContainsFunc(s.cluster.Nodes, func(n facts.ClusterNode) bool { // after the control planes
		return n.Version != s.Version && !slices.ContainsFunc(s.controlPlanes(), func(h host) bool { return h.Name == n.Name })
	})
	applies := s.cluster != nil && (s.cluster.Version != s.Version || slices.ContainsFunc(s.controlPlanes(), s.needsUpgrade)) // which does it, too
	if s.cluster == nil || !upgrades && (!s.cluster.AddonsWait || applies) {
		return st
	}
	if i := slices.IndexFunc(s.cluster.Nodes, func(n facts.ClusterNode) bool {
		return n.Version != s.Version && (s.skipped(n.Name) || !s.inFile(n.Name) && !s.leaves(n.Name))
	}); i >= 0 {
		s.rest(fault.Held, "let it be upgraded, without --skip; or remove it from the cluster", "the add-ons keep their version until %s has %s", s.cluster.Nodes[i].Name, s.Version)
		return st
	}
	st.Actions = []Action{{Host: s.leader, Verb: UpgradeApply, To: s.Version, Why: "add-ons wait until all nodes have their images", Effect: None}}
	return st
}

// noteHosts adds what the plan leaves alone.
func (s *site) noteHosts() {
	if names := slices.Compact(slices.Sorted(slices.Values(s.Skip))); len(names) > 0 {
		s.rest(fault.Skipped, SkippedHint, "%s", strings.Join(names, ", "))
	}
	for _, h := range s.hosts {
		_, found := s.nodes[h.Name]
		switch {
		case found && s.needsUpgrade(h) && s.cordoned(h):
			s.note("%s is unschedulable, not by Airlift: it is not drained, and stays unschedulable", h.Name)
		case found && !h.isNew() && s.isDown(h):
			s.note("%s is down: %s", h.Name, s.reason(h))
		}
		if found && h.Node != nil && h.Node.KubeletConfig != "" && !s.needsUpgrade(h) {
			s.note("the kubelet of %s, which was adopted, reads %s until its first upgrade: changes of the kubelet's configuration reach it then", h.Name, h.Node.KubeletConfig)
		}
		if is := s.nodes[h.Name].Addresses; h.Node != nil && !h.isNew() && otherAddresses(h.NodeIP, is) {
			s.rest(fault.Held, fmt.Sprintf("write nodeIP: [%s]; or take it out of cluster.yaml, run ./install cluster apply --remove, and add it again", strings.Join(is, ", ")),
				"the node %s has the address %s in the cluster, and cluster.yaml has another nodeIP, %s: the address of a node changes only when it joins", h.Name, strings.Join(is, ", "), joinAddresses(h.NodeIP))
		}
		if blocked := s.blockedBy(h.Name); found && len(blocked) > 0 && s.needsUpgrade(h) && s.upgrade(h).Effect == Drain {
			s.note("%s cannot be drained now: %s allows no disruption; apply waits for it at most %s, and is held then", h.Name, strings.Join(blocked, ", "), short(WaitLimit))
		}
		if h.Unfinished != "" && !slices.ContainsFunc([]string{Init, Join, "upgrade", "endpoint", "registry"}, h.began) && !s.isConfigured(h) && !s.follows(h) && !s.isBehind(h) {
			s.rest(fault.Held, "run it there again", "%s did not finish the command %q", h.Name, h.Unfinished)
		}
	}
	if s.cluster == nil {
		return
	}
	if slices.ContainsFunc(s.cluster.EtcdMembers, func(m facts.EtcdMember) bool { return m.Name == "" }) {
		s.note("etcd has a member that has not started yet: the join that added it did not finish, and starts it when it runs again; if its host is lost, on a control plane: ./install etcd status; ./install etcd member remove ID")
	}
	s.noteConfiguration()
	if s.cluster.Version == s.Version && len(s.cluster.Bundles) > 0 && !slices.Contains(s.cluster.Bundles, s.Bundle) {
		s.note("the control planes keep another file with %s; to take the images of this one over, run: ./install cluster images import", s.Version)
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

func joinAddresses(list []netip.Addr) string {
	var text []string
	for _, a := range list {
		text = append(text, a.String())
	}
	return strings.Join(text, ", ")
}

func (s *site) blockedBy(name string) []string {
	if s.cluster == nil {
		return nil
	}
	return s.cluster.BlockedBy[name]
}
