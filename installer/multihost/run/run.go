package run

import (
	"cmp"
	"context"
	"errors"
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

// A Run executes a plan: Execute, stages, stage, all, act and perform call each other in this order.
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
		r.expect()
		for rest := p.Stages; len(rest) > 0; {
			n := plan.Together(rest)
			if err := r.stages(ctx, rest[:n]); err != nil {
				return err
			}
			rest = rest[n:]
		}
		if err := r.settle(ctx); err != nil {
			return err
		}
		return r.observeResult(ctx)
	})
}

// settleTime limits a wait that nothing depends on but the next plan.
const settleTime = time.Minute

// settle waits until the nodes are Ready after control planes restarted. A kubelet that missed its API server on a slow host is NotReady for
// seconds, also on a node of an earlier batch, and the next run would be refused. What is not Ready afterwards is in the next plan.
func (r *Run) settle(ctx context.Context) error {
	restarts := func(a plan.Action) bool {
		h := r.host(a.Host)
		return (a.Effect == plan.Restart || a.Effect == plan.Drain) && h != nil && h.Role == spec.ControlPlane
	}
	if !slices.ContainsFunc(actions(r.Plan), restarts) {
		return nil
	}
	var nodes []string
	for _, h := range r.filter(func(h *Host) bool { return h.Err == nil && h.Facts != nil && h.Facts.Node != nil }) {
		if !slices.ContainsFunc(actions(r.Plan), func(a plan.Action) bool { return a.Host == h.Name && a.Verb == plan.Remove }) {
			nodes = append(nodes, h.Name)
		}
	}
	limited, cancel := context.WithTimeout(ctx, settleTime)
	defer cancel()
	_, _ = r.healthy(limited, nodes, "", 0)
	return context.Cause(ctx)
}

// begin locks the hosts, and checks the plan.
func (r *Run) begin(ctx context.Context, check func() error) error {
	hosts := r.filter(func(h *Host) bool { return h.Err == nil })
	// While the user was asked, another driver may have removed the staged file.
	if err := quietly(ctx, hosts, func(ctx context.Context, h *Host) error { return h.bring(ctx) }); err != nil {
		return err
	}
	changed := []string{r.Plan.Leader}
	for _, a := range actions(r.Plan) {
		changed = append(changed, a.Host)
	}
	if err := r.lock(ctx, r.filter(func(h *Host) bool { return slices.Contains(changed, h.Name) && h.connection() != nil })); err != nil {
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

// expect shows what there is to do: a row for each host that changes, with its first action.
func (r *Run) expect() {
	weight := time.Duration(0)
	first := map[string]string{}
	for _, st := range r.Plan.Stages {
		for _, a := range st.Actions {
			weight += st.Share()
			first[a.Host] = cmp.Or(first[a.Host], a.Verb)
		}
	}
	r.Display.Expect(len(actions(r.Plan)), time.Duration(r.Plan.Seconds)*time.Second, weight)
	for _, h := range r.hosts {
		if first[h.Name] != "" {
			r.Display.Row(h.Name, first[h.Name])
		}
	}
}

// observeResult reads the facts of the hosts of the file once more, before other drivers may change them. A host that does not
// answer any more has the reason in Err.
func (r *Run) observeResult(ctx context.Context) error {
	r.Display.Printf("compare with the file\n")
	_ = quietly(ctx, r.filter(func(h *Host) bool { return h.Err == nil && h.proof == nil }), func(ctx context.Context, h *Host) error {
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

// actions returns the actions of a plan.
func actions(p *plan.Plan) (all []plan.Action) {
	for _, stage := range p.Stages {
		all = append(all, stage.Actions...)
	}
	return all
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
		wg.Go(func() { _, failed[i] = r.all(ctx, stage, stage.Actions, stage.Limit) })
	}
	wg.Wait()
	return ended(ctx, slices.Concat(failed...))
}

func (r *Run) stage(ctx context.Context, stage plan.Stage) error {
	r.Display.Printf("%s\n", stage.Name)
	switch {
	case stage.Owed != nil:
		err := r.passLast(ctx, *stage.Owed)
		if err == nil {
			r.Display.Passed(len(stage.Actions), stage.Share()*time.Duration(len(stage.Actions)))
		}
		return err
	case stage.Roll:
		return r.roll(ctx, stage)
	}
	// The others read the file from the leader, once it keeps it.
	var first, others []plan.Action
	for _, a := range stage.Actions {
		if a.Host == r.Plan.Leader && (a.Verb == plan.Unpack || a.Verb == plan.Registry) {
			first = append(first, a)
		} else {
			others = append(others, a)
		}
	}
	for _, actions := range [][]plan.Action{first, others} {
		_, failed := r.all(ctx, stage, actions, stage.Limit)
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

// all does actions of a stage, at most limit at once. After a failure, also of another stage, or the end of ctx it begins no other one,
// and waits for the running actions. done are the hosts whose action succeeded.
func (r *Run) all(ctx context.Context, stage plan.Stage, actions []plan.Action, limit int) (done []string, failed failures) {
	rows := make([]*live.Row, len(actions))
	for i, a := range actions {
		rows[i] = r.Display.Row(a.Host, a.Verb).Weigh(stage.Share(), time.Duration(a.Seconds)*time.Second)
	}
	stop := func() bool { return r.failed.Load() || ctx.Err() != nil }
	for i, err := range atOnce(len(actions), limit, stop, func(i int) error {
		rows[i].Begin()
		err := r.act(ctx, actions[i], rows[i])
		rows[i].End(err)
		if err != nil {
			r.failed.Store(true)
		}
		return err
	}) {
		if err != nil {
			failed = append(failed, failure{actions[i].Host, err})
		} else {
			done = append(done, actions[i].Host)
		}
	}
	return done, r.sorted(failed)
}

// sorted returns failures in the order of cluster.yaml.
func (s *Site) sorted(failed failures) failures {
	place := func(f failure) int { return slices.IndexFunc(s.hosts, func(h *Host) bool { return h.Name == f.Host }) }
	slices.SortStableFunc(failed, func(a, b failure) int { return place(a) - place(b) })
	return failed
}

// act does an action. If a connection is lost, it continues.
func (r *Run) act(ctx context.Context, a plan.Action, row *live.Row) error {
	h := r.host(a.Host)
	if h != nil {
		h.row = row
	}
	return r.retried(ctx, a.Verb, row, func() error { return r.perform(ctx, a, h) })
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
