// Package installer is the story of a node: init, join and reset as step lists
// that can be read aloud. Each step is kubeadm's phase of the same name, or one
// of the few that the isolated host needs besides (unpack, runtime, images,
// pod-network, wait-node).
//
// What the steps compute comes from render and pki, what they do is done by
// host, cluster and images/store.
package installer

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"airlift/fault"
	"airlift/installer/timeline"
)

// A Step is one phase. It has Run, Steps or both: then Run does in one go what
// the Steps do one by one, and sees all that is wrong at once. Every Run looks
// at the world before it changes it, so running it again is safe and resumes
// what was left.
type Step struct {
	Name  string // kubeadm's name
	Doc   string // what it does, for people
	Run   func(context.Context) error
	Steps []Step // sub-phases, named "addon/coredns" from outside
	// Aliases are what other versions of kubeadm call it.
	Aliases []string
	// Needed says that later steps cannot do without what this one finds or
	// brings, so it cannot be skipped.
	Needed bool
}

// called says whether a name that somebody gave is this step's.
func (s Step) called(name string) bool {
	return s.Name == name || slices.Contains(s.Aliases, name)
}

// Run runs steps in order and stops at the first error. Names in skip
// ("addon/kube-proxy") are left out; a name that no step has is an error.
func Run(ctx context.Context, c *Console, steps []Step, skip []string) error {
	skip, err := skipped(steps, skip)
	if err != nil {
		return err
	}
	for i, s := range steps {
		begin(c, i, steps)
		if slices.Contains(skip, s.Name) {
			c.Note("skipped")
			continue
		}
		stepStarted := time.Now()
		if err := s.run(ctx, "", c, skip); err != nil {
			return fmt.Errorf("%s: %w", s.Name, err)
		}
		c.end(time.Since(stepStarted))
	}
	c.close()
	return nil
}

// begin prints a step's line: its place among all steps, name and purpose.
func begin(c *Console, i int, steps []Step) {
	width := 0
	for _, s := range steps {
		width = max(width, len(s.Name))
	}
	n, s := len(steps), steps[i]
	fmt.Fprintf(c.Out, "[%*d/%d] %-*s %s\n", len(fmt.Sprint(n)), i+1, n, width, s.Name, s.Doc)
}

// run runs the step, or its sub-phases, as a span of the timeline in ctx.
func (s Step) run(ctx context.Context, parent string, c *Console, skip []string) (err error) {
	name := parent + s.Name
	if slices.Contains(skip, name) {
		c.Note("%s skipped", name)
		return nil
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	ctx, span := timeline.Start(ctx, timeline.Steps, s.Name)
	defer func() {
		if err != nil {
			span.Set("failed", true)
		}
		span.End()
	}()
	below := func(skipped string) bool { return strings.HasPrefix(skipped, name+"/") }
	if s.Run != nil && !slices.ContainsFunc(skip, below) {
		return s.Run(ctx)
	}
	for _, sub := range s.Steps {
		c.Debug(1, "%s/%s", name, sub.Name)
		if err := sub.run(ctx, name+"/", c, skip); err != nil {
			return fmt.Errorf("%s: %w", sub.Name, err)
		}
	}
	return nil
}

// RunPhase runs a single one of the steps, "certs" or "certs/apiserver".
func RunPhase(ctx context.Context, c *Console, steps []Step, name string) error {
	s, ok := find(steps, strings.TrimSuffix(name, "/all"))
	if !ok {
		return fault.New(fault.Usage, "the phases are: "+strings.Join(Names(steps), ", "), "there is no phase %q", name)
	}
	full := s
	full.Name = strings.TrimSuffix(name, "/all")
	begin(c, 0, []Step{full})
	started := time.Now()
	if err := s.run(ctx, "", c, nil); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	c.end(time.Since(started))
	c.close()
	return nil
}

// find finds a step by its name, with its parents' before it.
func find(steps []Step, name string) (Step, bool) {
	first, rest, deeper := strings.Cut(name, "/")
	for _, s := range steps {
		if !s.called(first) {
			continue
		}
		if deeper {
			return find(s.Steps, rest)
		}
		return s, true
	}
	return Step{}, false
}

// Names lists the steps' and sub-steps' names in order.
func Names(steps []Step) []string {
	var names []string
	for _, s := range steps {
		names = append(names, s.Name)
		for _, sub := range Names(s.Steps) {
			names = append(names, s.Name+"/"+sub)
		}
	}
	return names
}

// skipped turns the names that the user gave into the steps' own, and refuses
// what no step is called and what cannot be left out.
func skipped(steps []Step, given []string) (skip []string, err error) {
	known := Names(steps)
	for _, name := range given {
		s, ok := find(steps, name)
		if !ok {
			return nil, fault.New(fault.Usage, "the phases are: "+strings.Join(known, ", "),
				"--skip-phases %q: there is no such phase", name)
		}
		if s.Needed {
			return nil, fault.New(fault.Usage, "", "--skip-phases %q: it cannot be left out, because later phases need what it brings", name)
		}
		if parent := name[:strings.LastIndex(name, "/")+1]; parent != "" {
			skip = append(skip, parent+s.Name)
		} else {
			skip = append(skip, s.Name)
		}
	}
	return skip, nil
}
