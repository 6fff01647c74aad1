// Package workflow runs the steps of a command in order, and prints its progress. Most steps are
// kubeadm's phases of the same name. A few extra steps are for isolated hosts or for the site's own
// content.
package workflow

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"airlift/installer/desired"
	"airlift/installer/timeline"
	"airlift/internal/fault"
	"airlift/internal/progress"
)

// A Step is one phase. It has work, Steps or both. If it has both, its own work is the work of all
// Steps at once, and it reports all problems together. The work checks the current state before it
// changes anything. So a step can run again, and it then continues an interrupted one.
//
// The work of a step that writes files or objects is in two parts: Desired computes what the step makes
// true, and Apply does it. A dry run and upgrade plan call only Desired. The work of any other step is Run.
type Step struct {
	Name string // kubeadm's name
	Doc  string // purpose, for the user
	Run  func(context.Context) error
	// Prepare, if not nil, runs before the work, for example to connect to the cluster. A dry run and
	// upgrade plan do not call it.
	Prepare func(context.Context) error
	Desired func(context.Context) (desired.List, error)
	// Apply gets what Desired returned.
	Apply func(context.Context, desired.List) error
	// Reads reports that Run changes nothing. A dry run runs it too.
	Reads bool
	Steps []Step // sub-phases; their full names are "addon/coredns"
	// Aliases are other names of the step: kubeadm's aliases, and its names in
	// other versions of kubeadm.
	Aliases []string
	// Empty reports that there is nothing to do, because the bundle has no such
	// content. Run leaves such a step out.
	Empty bool
	// Needed reports whether later steps depend on this step, so that it cannot
	// be skipped.
	Needed bool
}

// called reports whether name is the step's name or an alias.
func (s Step) called(name string) bool {
	return s.Name == name || slices.Contains(s.Aliases, name)
}

// Run runs steps in order and stops at the first error. It skips the names in
// skip ("addon/kube-proxy"). A name that no step has is an error.
func Run(ctx context.Context, c *Console, steps []Step, skip []string) error {
	skip, err := Skipped(steps, skip)
	if err != nil {
		return err
	}
	steps = slices.DeleteFunc(slices.Clone(steps), func(s Step) bool { return s.Empty })
	for i, s := range steps {
		Begin(c, i, steps)
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
	c.Close()
	return nil
}

// Begin prints a step's line: its number, name and purpose.
func Begin(c *Console, i int, steps []Step) {
	width := 0
	for _, s := range steps {
		width = max(width, len(s.Name))
	}
	n, s := len(steps), steps[i]
	c.print(progress.Event{Kind: progress.Step, Step: s.Name, Number: i + 1, Of: n, Text: s.Doc},
		fmt.Sprintf("[%*d/%d] %-*s %s\n", len(fmt.Sprint(n)), i+1, n, width, s.Name, s.Doc))
}

// run runs the step, or its sub-phases, and records it in the timeline.
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
	if s.works() && !slices.ContainsFunc(skip, below) {
		return s.work(ctx)
	}
	for _, sub := range s.Steps {
		c.Debug(1, "%s/%s", name, sub.Name)
		if err := sub.run(ctx, name+"/", c, skip); err != nil {
			return fmt.Errorf("%s: %w", sub.Name, err)
		}
	}
	return nil
}

// works reports whether the step has work of its own.
func (s Step) works() bool { return s.Run != nil || s.Desired != nil }

// work does the step's own work.
func (s Step) work(ctx context.Context) error {
	if s.Prepare != nil {
		if err := s.Prepare(ctx); err != nil {
			return err
		}
	}
	if s.Desired == nil {
		return s.Run(ctx)
	}
	list, err := s.Desired(ctx)
	if err != nil {
		return err
	}
	return s.Apply(ctx, list)
}

// WouldRun prints what a command that was asked not to change anything would do: its description, and the steps that have work.
func (c *Console) WouldRun(description string, steps []Step) {
	var b strings.Builder
	b.WriteString(description + "\nNothing was changed. The command would run these steps:\n\n")
	for _, s := range steps {
		if !s.Empty {
			fmt.Fprintf(&b, "  - %s: %s\n", s.Name, s.Doc)
		}
	}
	c.Summary(b.String())
	c.Close()
}

// Preview returns the steps of a dry run: the steps that change nothing, and the steps that write
// files or objects. show gets the desired list of each writing step, with the full name of the
// step.
func Preview(steps []Step, show func(ctx context.Context, step string, l desired.List) error) []Step {
	return preview("", steps, show)
}

func preview(parent string, steps []Step, show func(context.Context, string, desired.List) error) (list []Step) {
	for _, s := range steps {
		name, compute := parent+s.Name, s.Desired
		s.Steps = preview(name+"/", s.Steps, show)
		switch {
		case compute != nil:
			s.Desired, s.Prepare, s.Apply = nil, nil, nil
			s.Run = func(ctx context.Context) error {
				l, err := compute(ctx)
				if err != nil {
					return err
				}
				return show(ctx, name, l)
			}
		case s.Reads:
		case len(s.Steps) > 0:
			s.Run = nil
		default:
			continue
		}
		list = append(list, s)
	}
	return list
}

// Desired returns what steps make true, with their sub-phases, in the order of the steps.
func Desired(ctx context.Context, steps []Step) (all desired.List, err error) {
	for _, s := range steps {
		var l desired.List
		if s.Desired != nil {
			l, err = s.Desired(ctx)
		} else {
			l, err = Desired(ctx, s.Steps)
		}
		if err != nil {
			return all, fmt.Errorf("%s: %w", s.Name, err)
		}
		all = all.Add(l)
	}
	return all, nil
}

// RunParts runs the parts of a step. They are not phases: only the timeline has their names.
func RunParts(ctx context.Context, c *Console, parts []Step) error {
	for _, p := range parts {
		if err := p.run(ctx, "", c, nil); err != nil {
			return err
		}
	}
	return nil
}

// RunPhase runs one of the steps alone: "certs" or "certs/apiserver".
func RunPhase(ctx context.Context, c *Console, steps []Step, name string) error {
	s, ok := Find(steps, strings.TrimSuffix(name, "/all"))
	if !ok {
		return fault.New(fault.Usage, "there is no phase %q", name).Hint(fault.Choose(name, "the phases are", Names(steps)))
	}
	full := s
	full.Name = strings.TrimSuffix(name, "/all")
	Begin(c, 0, []Step{full})
	if s.Empty {
		c.Note("nothing to do: this bundle has no such content")
		c.Close()
		return nil
	}
	started := time.Now()
	if err := s.run(ctx, "", c, nil); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	c.end(time.Since(started))
	c.Close()
	return nil
}

// Find returns the step with a full name: "certs" or "certs/apiserver".
func Find(steps []Step, name string) (Step, bool) {
	first, rest, deeper := strings.Cut(name, "/")
	for _, s := range steps {
		if !s.called(first) {
			continue
		}
		if deeper {
			return Find(s.Steps, rest)
		}
		return s, true
	}
	return Step{}, false
}

// Names returns the names of the steps and their sub-steps in order.
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

// Skipped replaces aliases in the user's names by the steps' names. It refuses
// unknown names and steps that cannot be skipped.
func Skipped(steps []Step, given []string) (skip []string, err error) {
	known := Names(steps)
	for _, name := range given {
		s, ok := Find(steps, name)
		if !ok {
			return nil, fault.New(fault.Usage, "--skip-phases %q: there is no such phase", name).Hint(fault.Choose(name, "the phases are", known))
		}
		if s.Needed {
			return nil, fault.New(fault.Usage, "--skip-phases %q: this phase cannot be skipped, because later phases need its results", name)
		}
		if parent := name[:strings.LastIndex(name, "/")+1]; parent != "" {
			skip = append(skip, parent+s.Name)
		} else {
			skip = append(skip, s.Name)
		}
	}
	return skip, nil
}
