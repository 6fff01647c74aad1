package run

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"time"

	"airlift/installer/multihost/facts"
	"airlift/installer/multihost/plan"
	"airlift/installer/multihost/remote"
	"airlift/installer/multihost/spec"
	"airlift/internal/childprocess"
	"airlift/internal/fault"
)

// closeGate records in the cluster what a batch has to pass, before it changes a host. a is one of its actions.
func (r *Run) closeGate(ctx context.Context, stage plan.Stage, a plan.Action, hosts []string) error {
	groups := plan.GroupsOf(r.Cluster, hosts)
	owed := plan.OwedBy(r.Cluster, hosts, groups)
	return r.setGate(ctx, &facts.Gate{Stage: stage.Name, Verb: a.Verb, To: a.To, Hosts: hosts, Groups: groups, Soak: owed.Soak.String(), Checks: owed.Checks,
		By: r.Who, Since: time.Now().UTC(), Broken: r.broken})
}

// setGate replaces the gate of the cluster, unless another driver did.
func (r *Run) setGate(ctx context.Context, g *facts.Gate) error {
	leader, err := r.leader(r.Plan)
	if err != nil {
		return err
	}
	change, err := json.Marshal(map[string]*facts.Gate{"was": r.gate, "is": g})
	if err != nil {
		return err
	}
	var stored *facts.Gate
	err = r.retried(ctx, "record the batch", leader.row, func() error {
		out, err := leader.answer(ctx, workTime, bytes.NewReader(change), leader.installer, "cluster", "host", "gate")
		if err == nil {
			err = json.Unmarshal(out, &stored)
		}
		return err
	})
	if err != nil {
		return err
	}
	if r.gate = stored; stored != nil {
		r.broken = stored.Broken
	}
	return nil
}

// pass lets the hosts of a batch pass what they owe, and opens the gate. Otherwise, sick has the hosts that must be undone: those that
// are not healthy, or all if a check failed.
func (r *Run) pass(ctx context.Context, owed plan.Owed, version string) (sick []string, err error) {
	if len(owed.Hosts) > 0 {
		if sick, err = r.healthy(ctx, owed.Hosts, version, owed.Soak); err != nil {
			return sick, err
		}
	}
	for _, group := range owed.Checks {
		if err := r.check(ctx, group); err != nil {
			return owed.Hosts, err
		}
	}
	return nil, r.setGate(ctx, nil)
}

// healthy waits until nodes are Ready with a version, unless that is "", and their system pods too, for so long in a row. If they do
// not get healthy, sick has those that are not: all of them, if no API server answers.
func (r *Run) healthy(ctx context.Context, nodes []string, version string, soak time.Duration) (sick []string, err error) {
	leader, err := r.leader(r.Plan)
	if err != nil {
		return nil, err
	}
	args := []string{leader.installer, "cluster", "host", "wait"}
	if version != "" {
		args = append(args, "--version", version)
	}
	if soak > 0 {
		args = append(args, "--for", soak.String())
	}
	input, err := json.Marshal(map[string]any{"nodes": nodes, "broken": r.broken})
	if err != nil {
		return nil, err
	}
	row := r.Display.Row(leader.Name, "wait for nodes")
	row.Begin()
	var last waiting
	err = r.retried(ctx, "wait for nodes", row, func() error {
		lines := &events{other: func(line []byte) {
			last = waiting{}
			_ = json.Unmarshal(line, &last)
			row.Note("%s", last.text(soak))
		}}
		return described(leader.run(ctx, remote.Command{Args: args, Stdin: bytes.NewReader(input), Stdout: lines}))
	})
	row.End(err)
	if exit := (*remote.ExitError)(nil); errors.As(err, &exit) {
		if sick = last.Nodes; len(sick) == 0 {
			sick = nodes
		}
	}
	return sick, err
}

// A waiting is a line of "cluster host wait".
type waiting struct {
	WaitingFor []string `json:"waitingFor"`
	Nodes      []string `json:"nodes"`
}

// text returns what is waited for.
func (w waiting) text(soak time.Duration) string {
	if len(w.WaitingFor) == 0 && soak > 0 {
		return "healthy, and must be for " + soak.String()
	}
	return strings.Join(w.WaitingFor, "; ")
}

const (
	// checkLimit is how long the check of a group may take.
	checkLimit = 30 * time.Minute
	// outputLimit is how long a process that the check left behind may keep its output open.
	outputLimit = time.Second
)

// check runs the command of a group on this machine.
func (r *Run) check(ctx context.Context, group string) error {
	at := slices.IndexFunc(r.Cluster.Groups, func(g spec.Group) bool { return g.Name == group })
	command := r.Cluster.Groups[at].Roll.Check
	r.Display.Printf("check of group %s: %s\n", group, strings.Join(command, " "))
	limited, cancel := context.WithTimeoutCause(ctx, checkLimit, fmt.Errorf("it did not end within %s", checkLimit))
	defer cancel()
	c := childprocess.Command(limited, command[0], command[1:]...)
	c.WaitDelay = outputLimit
	out, err := c.CombinedOutput()
	if errors.Is(err, exec.ErrWaitDelay) {
		err = nil
	}
	if err != nil && ctx.Err() == nil {
		err = cmp.Or(context.Cause(limited), err)
		return fault.New(fault.Failure, "the check of group %s failed: %s: %w\n%s", group, command[0], err, lastLines(out)).
			Hint("solve what the check reports, and run the same command again: it repeats the check before it changes another host")
	}
	return context.Cause(ctx)
}

// lastLines are the last lines of an output, at most 10.
func lastLines(out []byte) string {
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	return strings.Join(lines[max(0, len(lines)-10):], "\n")
}
