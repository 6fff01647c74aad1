package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"airlift/installer/multihost/facts"
	"airlift/installer/multihost/live"
	"airlift/installer/multihost/plan"
	"airlift/installer/multihost/remote"
	"airlift/installer/multihost/spec"
	"airlift/internal/fault"
)

// A Run executes a plan.
type Run struct {
	*Site
	Plan *plan.Plan

	failed atomic.Bool // an action has failed
	served atomic.Bool // the leader keeps the file since this run

	gate   *facts.Gate    // in the cluster; nil if it has none
	broken map[string]int // the pods that were not ready before the first batch of the roll; nil: they are read with the first batch
}

// Execute executes the plan, stage by stage. It locks the hosts that it changes, reads the facts of all
// hosts once more, and calls check with them: another driver may have changed the site since the plan was made. Afterwards, Answers
// has the facts after the run.
func (s *Site) Execute(ctx context.Context, p *plan.Plan, check func() error) error {
	r := &Run{Site: s, Plan: p}
	return s.withLocks(ctx, func(ctx context.Context) error {
		if err := r.begin(ctx, check); err != nil {
			r.unlock()
			s.Discard(ctx)
			return err
		}
		defer s.forget(ctx, p)
		for rest := p.Stages; len(rest) > 0; {
			n := together(rest)
			if err := r.stages(ctx, rest[:n]); err != nil {
				return err
			}
			rest = rest[n:]
		}
		return r.observeResult(ctx)
	})
}

// observeResult reads the facts of the hosts of the file once more, before other drivers may change them. A host that does not
// answer any more has the reason in Err.
func (r *Run) observeResult(ctx context.Context) error {
	r.Display.Printf("compare with the file\n")
	var hosts []*Host
	for _, h := range r.hosts {
		inFile := slices.ContainsFunc(r.Cluster.Hosts, func(f spec.Host) bool { return f.Name == h.Name })
		if h.Err == nil && inFile {
			hosts = append(hosts, h)
		}
	}
	_ = quietly(ctx, hosts, func(ctx context.Context, h *Host) error {
		h.Err = h.observe(ctx)
		if lost := (*remote.LostError)(nil); errors.As(h.Err, &lost) {
			if h.Err = h.connect(ctx); h.Err == nil {
				h.Err = h.observe(ctx)
			}
		}
		return h.Err
	})
	return context.Cause(ctx)
}

// begin locks the hosts, and checks the plan.
func (r *Run) begin(ctx context.Context, check func() error) error {
	var hosts []*Host
	for _, h := range r.hosts {
		if h.Err == nil {
			hosts = append(hosts, h)
		}
	}
	// While the user was asked, another driver may have removed the staged file.
	if err := quietly(ctx, hosts, func(ctx context.Context, h *Host) error { return h.bring(ctx) }); err != nil {
		return err
	}
	if err := r.lock(ctx); err != nil {
		return err
	}
	if err := r.Each(ctx, "read facts", hosts, func(ctx context.Context, h *Host) error { return h.observe(ctx) }); err != nil {
		return err
	}
	if err := check(); err != nil {
		return err
	}
	if leader := r.host(r.Plan.Leader); leader != nil && leader.Facts.Cluster != nil {
		r.gate = leader.Facts.Cluster.Gate
	}
	if r.gate != nil { // this run continues its roll
		r.broken = r.gate.Broken
	}
	return quietly(ctx, hosts, func(ctx context.Context, h *Host) error { return h.adopt(ctx) })
}

// together returns how many of the first stages can run at once: stages in which hosts only join. A worker needs no more than one
// control plane.
func together(stages []plan.Stage) int {
	changes := func(a plan.Action) bool { return a.Verb != plan.Join }
	n := slices.IndexFunc(stages, func(st plan.Stage) bool { return slices.ContainsFunc(st.Actions, changes) })
	if n < 0 {
		n = len(stages)
	}
	return max(n, 1)
}

// stages runs stages at once.
func (r *Run) stages(ctx context.Context, stages []plan.Stage) error {
	if len(stages) == 1 {
		return r.stage(ctx, stages[0])
	}
	failed := make([]failures, len(stages))
	var wg sync.WaitGroup
	for i, stage := range stages {
		r.Display.Printf("%s\n", stage.Name)
		wg.Go(func() { _, failed[i] = r.all(ctx, stage.Actions, stage.Limit) })
	}
	wg.Wait()
	return ended(ctx, slices.Concat(failed...))
}

func (r *Run) stage(ctx context.Context, stage plan.Stage) error {
	r.Display.Printf("%s\n", stage.Name)
	switch {
	case stage.Owed != nil:
		return r.passLast(ctx, *stage.Owed)
	case stage.Roll:
		return r.roll(ctx, stage)
	}
	first, others := r.leaderFirst(stage.Actions)
	for _, actions := range [][]plan.Action{first, others} {
		_, failed := r.all(ctx, actions, stage.Limit)
		if err := ended(ctx, failed); err != nil {
			return err
		}
	}
	return nil
}

// ended returns the error of actions that have ended: their failures, or else the interruption.
func ended(ctx context.Context, failed failures) error {
	if err := failed.fault(); err != nil {
		return err
	}
	return context.Cause(ctx)
}

// leaderFirst separates an action after which the leader keeps the file: the others read it from there.
func (r *Run) leaderFirst(actions []plan.Action) (first, others []plan.Action) {
	for _, a := range actions {
		if a.Host == r.Plan.Leader && (a.Verb == plan.Unpack || a.Verb == plan.Registry) {
			first = append(first, a)
		} else {
			others = append(others, a)
		}
	}
	return first, others
}

// lock locks the hosts that the plan changes.
func (r *Run) lock(ctx context.Context) error {
	names := []string{r.Plan.Leader}
	for _, stage := range r.Plan.Stages {
		for _, a := range stage.Actions {
			names = append(names, a.Host)
		}
	}
	var hosts []*Host
	for _, h := range r.hosts {
		if slices.Contains(names, h.Name) && h.connection() != nil {
			hosts = append(hosts, h)
		}
	}
	return r.Each(ctx, "lock", hosts, func(ctx context.Context, h *Host) error { return h.lock(ctx, false) })
}

// leader returns the host that runs commands for the cluster.
func (s *Site) leader(p *plan.Plan) (*Host, error) {
	h := s.host(p.Leader)
	if h == nil || h.connection() == nil {
		return nil, fault.New(fault.Failure, "%q, the control plane that runs the commands for the cluster, is not connected", p.Leader).
			Hint("see which control planes answer: ./install cluster status")
	}
	return h, nil
}

// all does actions, at most limit at once. After a failure, also of another stage, or the end of ctx it begins no other one,
// and waits for the running actions. done are the hosts whose action succeeded.
func (r *Run) all(ctx context.Context, actions []plan.Action, limit int) (done []string, failed failures) {
	rows := make([]*live.Row, len(actions))
	for i, a := range actions {
		rows[i] = r.Display.Row(a.Host, a.Verb)
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	slots := make(chan struct{}, max(limit, 1))
	for i, a := range actions {
		slots <- struct{}{}
		if r.failed.Load() || ctx.Err() != nil {
			break
		}
		wg.Go(func() {
			defer func() { <-slots }()
			rows[i].Begin()
			err := r.act(ctx, a, rows[i])
			rows[i].End(err)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				r.failed.Store(true)
				failed = append(failed, failure{a.Host, err})
			} else {
				done = append(done, a.Host)
			}
		})
	}
	wg.Wait()
	return done, r.sorted(failed)
}

// sorted returns failures in the order of cluster.yaml.
func (s *Site) sorted(failed failures) failures {
	place := func(f failure) int { return slices.IndexFunc(s.hosts, func(h *Host) bool { return h.Name == f.Host }) }
	slices.SortStableFunc(failed, func(a, b failure) int { return place(a) - place(b) })
	return failed
}

// act does an action.
func (r *Run) act(ctx context.Context, a plan.Action, row *live.Row) error {
	h := r.host(a.Host)
	if h != nil {
		h.row = row
	}
	return r.retried(ctx, a.Verb, row, func() error { return r.perform(ctx, a, h) })
}

// retried does something. If a connection is lost, it connects once more and does it again: it continues.
func (r *Run) retried(ctx context.Context, what string, row *live.Row, do func() error) error {
	before := r.connections()
	err := do()
	lost := (*remote.LostError)(nil)
	if !errors.As(err, &lost) || ctx.Err() != nil {
		return err
	}
	on := r.host(lost.Host)
	if on == nil {
		return err
	}
	row.Note("%v: connecting again", err)
	if err := on.reconnect(ctx, before[on.Name]); err != nil {
		return unknown(what, err)
	}
	if err = do(); errors.As(err, &lost) {
		return unknown(what, err)
	}
	return err
}

// unknown is the error of what nobody knows how it ended.
func unknown(what string, err error) error {
	return fault.New(fault.Failure, "unknown: the connection was lost during %q, and again: %w", what, err).
		Hint("when the host answers, run the same command again: it continues")
}

const (
	// reconnectLimit is longer than a lock without beats, and a reboot of most machines.
	reconnectLimit    = 3 * time.Minute
	reconnectInterval = 5 * time.Second
)

// connections returns the present connections by the names of the hosts.
func (r *Run) connections() map[string]remote.Conn {
	all := map[string]remote.Conn{}
	for _, h := range r.hosts {
		all[h.Name] = h.connection()
	}
	return all
}

// reconnect connects again, waits until the host answers, and takes its lock again, if this driver had it, unless another action has done so
// since the connection was lost. The former lock may last until the host finds out that it was.
func (h *Host) reconnect(ctx context.Context, lost remote.Conn) error {
	asked := time.Now()
	h.again.Lock()
	defer h.again.Unlock()
	if h.connection() != lost {
		return nil
	}
	if h.tried.After(asked) { // by another action, in vain
		return h.gone
	}
	h.close() // only a session may be lost: the host ends the lock with the connection
	var final error
	next := &Host{Host: h.Host, site: h.site, installer: h.installer} // which nobody else has before it has the lock
	err := patiently(ctx, func(ctx context.Context) error {
		if err := next.connect(ctx); err != nil {
			return err
		}
		f, err := next.readFacts(ctx)
		if err != nil {
			return err
		}
		if h.Facts != nil && f.MachineID != h.Facts.MachineID {
			final = fault.New(fault.Failure, "another machine answers at its address: its machine-id is %s, and was %s", f.MachineID, h.Facts.MachineID).
				Hint("see which machines have the address: ip neigh; then run the same command again")
			return nil
		}
		if h.lockHeld() != nil {
			err = next.relock(ctx)
		}
		if ended := (*lostError)(nil); errors.As(err, &ended) {
			final = err
			return nil
		}
		return err
	})
	if err = cmp.Or(final, err); err != nil {
		next.close() // without the lock, nothing may run there
		h.tried, h.gone = time.Now(), err
		return err
	}
	h.unlock() // ends what is left of the lost lock
	h.mu.Lock()
	defer h.mu.Unlock()
	h.conn, h.locked = next.conn, next.locked
	return nil
}

// patiently connects again to a host that may not answer for a while.
func patiently(ctx context.Context, connect func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, reconnectLimit)
	defer cancel()
	for {
		err := connect(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("connecting again for %s: %w", reconnectLimit, err)
		case <-time.After(reconnectInterval):
		}
	}
}
