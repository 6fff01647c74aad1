package plan

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"airlift/installer/multihost/facts"
	"airlift/installer/multihost/spec"
)

// A RollState is what is known between two batches of a stage with Roll.
type RollState struct {
	Spec *spec.Cluster
	// Done are hosts of the stage whose action has ended without an error, and who have passed what they owed.
	Done []string
	// Cluster is the state of the cluster now. Down are other hosts that cannot serve: they do not answer.
	Cluster *facts.Cluster
	Down    []string
	Now     time.Time
}

// A Step is what to do next in a roll: a batch, a wait, or the end of the stage.
type Step struct {
	// Batch are actions to run at once now.
	Batch []Action
	// Wait is why there is no batch yet, a sentence that names what it waits for. Until is when a window ends the wait. If it is
	// zero, the cluster must change: wait no longer than WaitLimit, and then give Hint to the user.
	Wait, Hint string
	Until      time.Time
	// Done is set when each action of the stage has ended.
	Done bool
}

// WaitLimit is how long a roll waits for what only the cluster can change: as long as for a batch to become healthy.
const WaitLimit = 5 * time.Minute

// Next returns what a stage with Roll does next. Call it while no action of the stage runs.
func Next(stage Stage, s RollState) Step {
	r := roll{s, stage}
	pending := filter(stage.Actions, func(a Action) bool { return !slices.Contains(s.Done, a.Host) })
	if len(pending) == 0 {
		return Step{Done: true}
	}
	pending = r.first(pending)
	open, opens := r.open(pending)
	if len(open) == 0 {
		return Step{Wait: fmt.Sprintf("the window of %s opens at %s", strings.Join(names(pending), ", "), opens.Format("Mon 2006-01-02 15:04 MST")), Until: opens}
	}
	free, wait := r.free(open)
	if len(free) == 0 {
		return Step{Wait: wait, Hint: "kubectl get poddisruptionbudgets -A; let one more pod run, or change the budget"}
	}
	step := r.batch(free)
	if step.Wait != "" && slices.ContainsFunc(pending, func(a Action) bool { return !slices.Contains(names(open), a.Host) && r.isDown(a.Host) }) {
		step.Until = opens // it is changed in its window, and is up then
	}
	return step
}

// A roll is one stage at one time.
type roll struct {
	RollState
	stage Stage
}

// names returns the hosts of actions.
func names(actions []Action) (list []string) {
	for _, a := range actions {
		list = append(list, a.Host)
	}
	return list
}

// first returns the actions that must precede the others: the cluster gets its version by upgrade apply, whichever window opens before.
// An upgrade that was begun is finished first, because its host is down.
func (r roll) first(pending []Action) []Action {
	i := slices.IndexFunc(pending, func(a Action) bool { return a.Verb == UpgradeApply })
	if i < 0 || slices.ContainsFunc(pending, func(a Action) bool { return a.Began }) {
		return pending
	}
	return pending[i : i+1]
}

// open returns the actions whose window is open, and when the next other window opens; zero if there is none.
func (r roll) open(pending []Action) (open []Action, opens time.Time) {
	for _, a := range pending {
		begin, now := windowAt(groupOf(r.Spec, hostOf(r.Spec, a.Host).Group).Roll.Window, r.Now)
		if now || r.stage.Repair {
			open = append(open, a)
		} else if opens.IsZero() || begin.Before(opens) {
			opens = begin
		}
	}
	return open, opens
}

// free returns the actions that no PodDisruptionBudget forbids. A node that is down has no pods to evict.
func (r roll) free(open []Action) (free []Action, wait string) {
	var blocked []string
	for _, a := range open {
		var budgets []string
		if r.Cluster != nil && a.Effect == Drain && !r.isDown(a.Host) {
			budgets = r.Cluster.BlockedBy[a.Host]
		}
		if len(budgets) == 0 {
			free = append(free, a)
		} else {
			blocked = append(blocked, fmt.Sprintf("%s of pods on %s", strings.Join(budgets, ", "), a.Host))
		}
	}
	return free, "these PodDisruptionBudgets allow no disruption: " + strings.Join(blocked, "; ")
}

// batch chooses hosts that are down first, because changing them costs nothing, and others as long as no more than the
// limit of the group are down. Among those, what was begun is finished first.
func (r roll) batch(free []Action) Step {
	down, limit := r.down(), r.stage.Limit
	var batch []Action
	for _, a := range free {
		if slices.Contains(down, a.Host) && len(batch) < limit {
			batch = append(batch, a)
		}
	}
	slices.SortStableFunc(free, firstIf(func(a Action) bool { return a.Began }))
	for _, a := range free {
		if !slices.Contains(down, a.Host) && len(down) < limit {
			batch = append(batch, a)
			down = append(down, a.Host)
		}
	}
	if len(batch) > 0 {
		return Step{Batch: batch}
	}
	return Step{Wait: fmt.Sprintf("%s down: at most %d may be at once", areDown(down), limit), Hint: downHint}
}

// downHint is the hint for a host that is down, and lets others wait.
const downHint = "on that host: ./install status; if it is lost, take it out of cluster.yaml, and run ./install cluster apply --remove"

func areDown(names []string) string {
	if len(names) == 1 {
		return names[0] + " is"
	}
	return strings.Join(names, ", ") + " are"
}

// down returns the hosts of the stage's group that are down, or all control planes that are.
func (r roll) down() (list []string) {
	controlPlanes := hostOf(r.Spec, r.stage.Actions[0].Host).Role == spec.ControlPlane
	for _, h := range r.Spec.Hosts {
		inGroup := h.Role == spec.Worker && h.Group == r.stage.Group
		if controlPlanes {
			inGroup = h.Role == spec.ControlPlane
		}
		if inGroup && r.isDown(h.Name) {
			list = append(list, h.Name)
		}
	}
	if !controlPlanes || r.Cluster == nil {
		return list
	}
	for _, n := range r.Cluster.Nodes {
		if n.ControlPlane && !n.Ready && !slices.Contains(list, n.Name) {
			list = append(list, n.Name)
		}
	}
	return list
}

// isDown reports whether a host is down. A host that the cluster does not have yet is not: it serves nothing. A worker that was begun
// may be drained. A control plane may serve nevertheless: then its restart costs as much as that of another one.
func (r roll) isDown(name string) bool {
	began := func(a Action) bool {
		return a.Host == name && a.Began && !slices.Contains(r.Done, name) && hostOf(r.Spec, name).Role == spec.Worker
	}
	if slices.Contains(r.Down, name) || slices.ContainsFunc(r.stage.Actions, began) {
		return true
	}
	if r.Cluster == nil {
		return false
	}
	return slices.ContainsFunc(r.Cluster.Nodes, func(n facts.ClusterNode) bool { return n.Name == name && !n.Ready }) ||
		r.Cluster.MemberIsDown(name)
}

// groupSize returns how many workers a group has.
func groupSize(c *spec.Cluster, group string) int {
	return len(filter(c.Hosts, func(h spec.Host) bool { return h.Role == spec.Worker && h.Group == group }))
}

// maxUnavailable returns how many of the hosts of a group may be down at once: at least 1. Package spec has checked the
// text.
func maxUnavailable(g spec.GroupRoll, hosts int) int {
	percent, isPercent := strings.CutSuffix(g.MaxUnavailable, "%")
	n, err := strconv.Atoi(percent)
	if err != nil {
		return 1
	}
	if isPercent {
		n = hosts * n / 100
	}
	return max(n, 1)
}

// windowAt reports whether a window is open at a time, and otherwise when it opens. Hours are local times in its zone,
// also on a day when the clock changes: it does not show some of them, or shows them twice.
func windowAt(w *spec.Window, now time.Time) (opens time.Time, open bool) {
	if w == nil || isOpen(w, now) {
		return now, true
	}
	const day, change = 24 * time.Hour, 3 * time.Hour // no change of a clock for the summer is longer
	end := now.Add(15 * day)                          // a change may close a window for a week
	for at := now.Truncate(time.Minute).Add(time.Minute); at.Before(end); at = at.Add(time.Minute) {
		if isOpen(w, at) {
			return at, false
		}
		clock, _ := clockIn(w, at)
		at = at.Add(max(0, (w.Start-clock+day)%day-change))
	}
	return time.Time{}, false // days has no day of the week
}

func isOpen(w *spec.Window, at time.Time) bool {
	on := func(d time.Weekday) bool { return len(w.Days) == 0 || slices.Contains(w.Days, d%7) }
	clock, today := clockIn(w, at)
	if w.Start < w.End {
		return w.Start <= clock && clock < w.End && on(today)
	}
	return w.Start <= clock && on(today) || clock < w.End && on(today+6)
}

// clockIn returns what a clock in the zone of a window shows, as the time since midnight, and the day.
func clockIn(w *spec.Window, at time.Time) (time.Duration, time.Weekday) {
	zone := w.Zone
	if zone == nil {
		zone = time.UTC
	}
	at = at.In(zone)
	h, m, s := at.Clock()
	return time.Duration(h)*time.Hour + time.Duration(m)*time.Minute + time.Duration(s)*time.Second, at.Weekday()
}
