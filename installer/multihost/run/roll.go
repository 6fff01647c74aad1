package run

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"airlift/installer/multihost/facts"
	"airlift/installer/multihost/plan"
	"airlift/installer/multihost/remote"
	"airlift/installer/multihost/spec"
	"airlift/internal/fault"
)

const (
	// rollInterval is the time between two looks at the cluster while a roll waits.
	rollInterval = 3 * time.Second
	longInterval = time.Minute
	// answerLimit is how long no API server may answer between two batches.
	answerLimit = 5 * time.Minute
)

// roll changes the hosts of a stage in batches, by the rules of its group. It waits for the group's window.
func (r *Run) roll(ctx context.Context, stage plan.Stage) error {
	state := plan.RollState{Spec: r.Cluster, Down: names(r.filter(func(h *Host) bool { return h.Err != nil }))} // whether a skipped host is down is what the cluster says
	said := ""
	var since time.Time // of a wait for the cluster; zero: it does not wait
	for {
		c, err := r.cluster(ctx)
		if err != nil {
			return err
		}
		state.Cluster, state.Now = c, time.Now()
		step := plan.Next(stage, state)
		switch {
		case step.Done:
			return nil
		case len(step.Batch) > 0:
			if err := r.batch(ctx, stage, step.Batch, &state); err != nil {
				return err
			}
			since = time.Time{}
			continue
		case !step.Until.IsZero():
			since = time.Time{}
		case since.IsZero():
			since = time.Now()
		case time.Since(since) >= plan.WaitLimit:
			return fault.New(fault.Held, "%s: %s; this did not change for %s", stage.Name, step.Wait, plan.WaitLimit).Hint(step.Hint + "; then run the same command again")
		}
		if step.Wait != said {
			said = step.Wait
			r.Display.Wait(step.Until, "%s: waiting: %s\n", stage.Name, said)
		}
		began := time.Now()
		if err := sleep(ctx, interval(step.Until)); err != nil {
			return err
		}
		if !step.Until.IsZero() {
			r.Display.Waited(time.Since(began))
		}
	}
}

// interval is the time until the next look, if nothing can change before until; zero: it may change at any time.
func interval(until time.Time) time.Duration {
	if until.IsZero() {
		return rollInterval
	}
	return min(max(time.Until(until), rollInterval), longInterval)
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

// cluster returns the state of the cluster as the first control plane has it whose API answers. A control plane whose connection
// is lost is asked again only if no other one answers.
func (r *Run) cluster(ctx context.Context) (c *facts.Cluster, err error) {
	planes := r.filter(func(h *Host) bool { return h.Role == spec.ControlPlane && h.connection() != nil })
	for end := time.Now().Add(answerLimit); ; {
		for _, again := range []bool{false, true} {
			for _, h := range planes {
				if c, why := h.cluster(ctx, again); c != nil {
					return c, nil
				} else if why != nil {
					err = why
				}
			}
		}
		if time.Now().After(end) {
			return nil, fault.New(fault.Failure, "no API server answers for %s: %w", answerLimit, err).Hint("see: ./install cluster status")
		}
		if err := sleep(ctx, rollInterval); err != nil {
			return nil, err
		}
	}
}

// cluster returns the state of the cluster as this control plane has it. Again connects once more if the connection is lost.
func (h *Host) cluster(ctx context.Context, again bool) (*facts.Cluster, error) {
	conn := h.connection()
	err := h.observe(ctx)
	if lost := (*remote.LostError)(nil); errors.As(err, &lost) && again {
		if err = h.reconnect(ctx, conn); err == nil {
			err = h.observe(ctx)
		}
	}
	switch {
	case err != nil:
		return nil, err
	case h.Facts.Cluster == nil && h.Facts.Unknown["cluster"] != "":
		return nil, errors.New(h.Name + ": " + h.Facts.Unknown["cluster"])
	}
	return h.Facts.Cluster, nil
}

// batch changes hosts at once, and lets them pass what they owe. What fails is undone if the rules say so; an interruption is not.
func (r *Run) batch(ctx context.Context, stage plan.Stage, actions []plan.Action, state *plan.RollState) error {
	var hosts []string
	for _, a := range actions {
		hosts = append(hosts, a.Host)
	}
	continues := r.gate != nil // of the hosts of the last batch: the stage that follows lets them pass
	switch {
	case !continues:
		if err := r.closeGate(ctx, stage, actions[0], hosts); err != nil {
			return err
		}
	case !r.gate.Has(hosts):
		return fault.New(fault.Failure, "%s cannot change before the last batch has passed its checks: %s", strings.Join(hosts, ", "), strings.Join(r.gate.Hosts, ", ")).
			Hint("run the same command again")
	}
	done, failed := r.all(ctx, stage, actions, len(actions))
	sick := failed.hosts()
	err := ended(ctx, failed)
	switch owed := plan.OwedBy(r.Cluster, done, plan.GroupsOf(r.Cluster, hosts)); {
	case ctx.Err() != nil:
		return err
	case err == nil && !continues:
		sick, err = r.pass(ctx, owed, actions[0].To)
	case err == nil || r.Cluster.Roll.Undo && len(done) > 0: // also of a host whose action succeeded
		unhealthy, why := r.healthy(ctx, done, actions[0].To, 0)
		sick, err = append(sick, unhealthy...), cmp.Or(err, why)
	}
	if err == nil {
		state.Done = append(state.Done, hosts...)
		return nil
	}
	if ctx.Err() != nil || !r.Cluster.Roll.Undo {
		return err
	}
	var undo []*Host
	for _, a := range actions {
		if h := r.host(a.Host); h != nil && slices.Contains(sick, a.Host) && isUpgrade(a.Verb) {
			undo = append(undo, h)
		}
	}
	return r.undone(ctx, undo, err)
}

func isUpgrade(verb string) bool { return verb == plan.Upgrade || verb == plan.UpgradeApply }

// passLast lets the last batch pass, which an earlier run changed. What fails is undone if the rules say so.
func (r *Run) passLast(ctx context.Context, owed plan.Owed) error {
	g := r.gate
	sick, err := r.passAs(ctx, owed, g)
	if err == nil || ctx.Err() != nil || !r.Cluster.Roll.Undo || g == nil || !isUpgrade(g.Verb) {
		return err
	}
	var undo []*Host
	for _, name := range sick {
		h := r.host(name)
		if h == nil || h.connection() == nil {
			continue
		}
		if why := h.observe(ctx); why != nil {
			return errors.Join(err, why)
		}
		if h.Facts.Node != nil && h.Facts.Node.Version == g.To { // else it was undone before
			undo = append(undo, h)
		}
	}
	return r.undone(ctx, undo, err)
}

// passAs lets hosts pass. Hosts that were not undone must have the version of the batch: its driver may still change a host that this
// cluster.yaml does not have.
func (r *Run) passAs(ctx context.Context, owed plan.Owed, g *facts.Gate) (sick []string, err error) {
	undone := func(name string) bool {
		h := r.host(name)
		return h != nil && h.Facts != nil && h.Facts.Node != nil && h.Facts.Node.Version != g.To
	}
	if changed := slices.DeleteFunc(slices.Clone(owed.Hosts), undone); g != nil && g.To != "" && len(changed) > 0 {
		if sick, err = r.healthy(ctx, changed, g.To, 0); err != nil {
			return sick, err
		}
	}
	return r.pass(ctx, owed, "")
}

// undone takes the upgrades of hosts back. The gate stays closed: the next run finds out whether the cause was the upgrade.
func (r *Run) undone(ctx context.Context, hosts []*Host, why error) error {
	if len(hosts) == 0 {
		return why
	}
	err := r.Each(ctx, "upgrade undo", hosts, func(ctx context.Context, h *Host) error { return h.Install(ctx, "upgrade", "undo", "--yes") })
	if err != nil {
		return fault.Wrap(errors.Join(why, err), fault.ExitCode(why), "see the node: ./install cluster status")
	}
	// What upgrade adds to a hint, how to continue it or to undo it, is no longer true.
	hint, _, _ := strings.Cut(fault.Hint(why), "to continue, run the same command again")
	return fault.New(fault.ExitCode(why), "%w\nThe upgrade of %s was undone", why, strings.Join(names(hosts), ", ")).
		Hint(hint + "when the cause is gone: ./install cluster apply")
}

func names(hosts []*Host) (list []string) {
	for _, h := range hosts {
		list = append(list, h.Name)
	}
	return list
}
