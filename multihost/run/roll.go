package run

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"airlift/childprocess"
	"airlift/fault"
	"airlift/multihost/facts"
	"airlift/multihost/plan"
	"airlift/multihost/remote"
	"airlift/multihost/spec"
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
	state := plan.RollState{Spec: r.Cluster, Down: r.down()}
	said := ""
	for {
		if err := r.look(ctx, &state); err != nil {
			return err
		}
		step := plan.Next(stage, state)
		switch {
		case step.Done:
			return nil
		case len(step.Batch) > 0:
			if err := r.batch(ctx, stage, step.Batch, &state); err != nil {
				return err
			}
			continue
		case step.Wait != said:
			said = step.Wait
			r.Display.Printf("%s: waiting: %s\n", stage.Name, said)
		}
		if err := sleep(ctx, interval(step.Until)); err != nil {
			return err
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

// down returns the names of hosts that did not answer. Whether a skipped host is down is what the cluster says.
func (r *Run) down() (names []string) {
	for _, h := range r.hosts {
		if h.Err != nil {
			names = append(names, h.Name)
		}
	}
	return names
}

// look sets the state of the cluster now.
func (r *Run) look(ctx context.Context, state *plan.RollState) error {
	c, err := r.cluster(ctx)
	if err != nil {
		return err
	}
	state.Cluster, state.Now = c, time.Now()
	unhealthy := slices.ContainsFunc(c.Nodes, func(n facts.ClusterNode) bool { return !n.Ready && slices.Contains(state.Done, n.Name) })
	switch {
	case unhealthy:
		state.HealthySince = time.Time{}
	case state.HealthySince.IsZero():
		state.HealthySince = state.Now
	}
	return nil
}

// cluster returns the state of the cluster as the first control plane has it whose API answers. A control plane whose connection
// is lost is asked again only if no other one answers.
func (r *Run) cluster(ctx context.Context) (c *facts.Cluster, err error) {
	for end := time.Now().Add(answerLimit); ; {
		for _, again := range []bool{false, true} {
			for _, h := range r.hosts {
				if h.Role != spec.ControlPlane || h.connection() == nil {
					continue
				}
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

// batch changes hosts at once, waits until their nodes are healthy, and runs the check of the group. What fails is undone if
// the rules say so; an interruption is not.
func (r *Run) batch(ctx context.Context, stage plan.Stage, actions []plan.Action, state *plan.RollState) error {
	done, failed := r.all(ctx, actions, len(actions))
	err := ended(ctx, failed)
	if err == nil {
		err = r.healthy(ctx, actions)
	}
	if err == nil {
		err = r.check(ctx, stage.Group)
		done = nil // a check is about the whole batch
	}
	if err == nil {
		for _, a := range actions {
			state.Done = append(state.Done, a.Host)
		}
		state.LastBatch, state.HealthySince = time.Now(), time.Now()
		return nil
	}
	if ctx.Err() == nil && r.Cluster.Roll.Undo {
		return r.undone(ctx, actions, done, err)
	}
	return err
}

// undone takes the upgrades back that failed: except on hosts in succeeded.
func (r *Run) undone(ctx context.Context, actions []plan.Action, succeeded []string, why error) error {
	var hosts []*Host
	for _, a := range actions {
		h := r.host(a.Host)
		if h != nil && !slices.Contains(succeeded, a.Host) && (a.Verb == plan.Upgrade || a.Verb == plan.UpgradeApply) {
			hosts = append(hosts, h)
		}
	}
	if len(hosts) == 0 {
		return why
	}
	err := r.Each(ctx, "upgrade undo", hosts, r.undo)
	if err != nil {
		return fault.Wrap(errors.Join(why, err), fault.ExitCode(why), "see the node: ./install cluster status")
	}
	// What upgrade adds to a hint, how to continue it or to undo it, is no longer true.
	hint, _, _ := strings.Cut(fault.Hint(why), "to continue, run the same command again")
	return fault.New(fault.ExitCode(why), "%w\nThe upgrade of %s was undone", why, names(hosts)).
		Hint(hint + "when the cause is gone: ./install cluster apply")
}

func names(hosts []*Host) string {
	var list []string
	for _, h := range hosts {
		list = append(list, h.Name)
	}
	return strings.Join(list, ", ")
}

// healthy waits until the nodes of a batch are Ready with their version, and their system pods too.
func (r *Run) healthy(ctx context.Context, actions []plan.Action) error {
	leader, err := r.leader(r.Plan)
	if err != nil {
		return err
	}
	var wait []string
	args := []string{leader.installer, "cluster", "host", "wait"}
	for _, a := range actions {
		wait = append(wait, a.Host)
		if a.To != "" && len(args) == 4 {
			args = append(args, "--version", a.To)
		}
	}
	list, err := json.Marshal(wait)
	if err != nil {
		return err
	}
	row := r.Display.Row(leader.Name, "wait for nodes")
	row.Begin()
	err = r.retried(ctx, "wait for nodes", row, func() error {
		lines := &events{other: func(line []byte) { row.Note("%s", waitingFor(line)) }}
		return described(leader.connection().Run(ctx, remote.Command{Args: args, Stdin: bytes.NewReader(list), Stdout: lines}))
	})
	row.End(err)
	return err
}

// waitingFor is what a line of "cluster host wait" waits for.
func waitingFor(line []byte) string {
	var w struct {
		WaitingFor []string `json:"waitingFor"`
	}
	_ = json.Unmarshal(line, &w)
	return strings.Join(w.WaitingFor, "; ")
}

// check runs the command of a group on this machine.
func (r *Run) check(ctx context.Context, group string) error {
	at := slices.IndexFunc(r.Cluster.Groups, func(g spec.Group) bool { return g.Name == group })
	if at < 0 || len(r.Cluster.Groups[at].Roll.Check) == 0 {
		return nil
	}
	command := r.Cluster.Groups[at].Roll.Check
	r.Display.Printf("check of group %s: %s\n", group, strings.Join(command, " "))
	out, err := childprocess.Command(ctx, command[0], command[1:]...).CombinedOutput()
	if err != nil && ctx.Err() == nil {
		return fault.New(fault.Failure, "the check of group %s failed: %s: %w\n%s", group, command[0], err, lastLines(out)).
			Hint("solve what the check reports, and run the same command again")
	}
	return context.Cause(ctx)
}

// lastLines are the last lines of an output, at most 10.
func lastLines(out []byte) string {
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	return strings.Join(lines[max(0, len(lines)-10):], "\n")
}
