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
)

// A Step is one phase. It has either Run or Steps. Every Run looks at the world
// before it changes it, so running it again is safe and resumes what was left.
type Step struct {
	Name  string // kubeadm's name
	Doc   string // what it does, for people
	Run   func(context.Context) error
	Steps []Step // sub-phases, named "addon/coredns" from outside
	// Needed says that later steps cannot do without what this one finds or
	// brings, so it cannot be skipped.
	Needed bool
}

// Run runs steps in order and stops at the first error. Names in skip
// ("addon/kube-proxy") are left out; a name that no step has is an error.
func Run(ctx context.Context, c *Console, steps []Step, skip []string) error {
	if err := checkSkip(steps, skip); err != nil {
		return err
	}
	started := time.Now()
	for i, s := range steps {
		c.begin(i+1, len(steps), s)
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
	c.Debug(1, "all steps took %s", round(time.Since(started)))
	c.close()
	return nil
}

func (s Step) run(ctx context.Context, parent string, c *Console, skip []string) error {
	name := parent + s.Name
	if slices.Contains(skip, name) {
		c.Note("%s skipped", name)
		return nil
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if s.Run != nil {
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

func checkSkip(steps []Step, skip []string) error {
	known := Names(steps)
	for _, s := range steps {
		if s.Needed && slices.Contains(skip, s.Name) {
			return fault.New(fault.Usage, "", "--skip-phases %q: it cannot be left out, because later phases need what it brings", s.Name)
		}
	}
	for _, name := range skip {
		if !slices.Contains(known, name) {
			return fault.New(fault.Usage, "the phases are: "+strings.Join(known, ", "),
				"--skip-phases %q: there is no such phase", name)
		}
	}
	return nil
}
