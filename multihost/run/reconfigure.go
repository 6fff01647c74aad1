package run

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"sync"

	"airlift/fault"
	"airlift/multihost/facts"
	"airlift/multihost/plan"
	"airlift/multihost/remote"
)

// plannedPatchesDir has the patches of a host while it finds out what a reconfiguration would change. It is not on a disk: a run that
// changes nothing leaves no trace there.
const plannedPatchesDir = "/run/airlift-planned-patches"

// Changes asks hosts what a reconfiguration would change there, and changes nothing. questions are those of plan.Questions.
func (s *Site) Changes(ctx context.Context, questions map[string]string) map[string]plan.ChangeAnswer {
	var hosts []*Host
	for _, h := range s.hosts {
		if questions[h.Name] != "" && h.connection() != nil {
			hosts = append(hosts, h)
		}
	}
	var mu sync.Mutex
	answers := map[string]plan.ChangeAnswer{}
	_ = s.Each(ctx, "compare configuration", hosts, func(ctx context.Context, h *Host) error {
		c, err := h.change(ctx, questions[h.Name])
		mu.Lock()
		defer mu.Unlock()
		answers[h.Name] = plan.ChangeAnswer{Change: c, Err: err}
		return err
	})
	return answers
}

// change asks what a verb would change on the host.
func (h *Host) change(ctx context.Context, verb string) (*facts.Change, error) {
	args, document, err := h.reconfiguration(h.installer, verb, plannedPatchesDir)
	if err != nil {
		return nil, err
	}
	if h.Patches != "" {
		if err := h.bringPatchesTo(ctx, plannedPatchesDir); err != nil {
			return nil, err
		}
	}
	out, err := h.output(ctx, document, append(args, "--plan", "-o", "json")...)
	if h.Patches != "" {
		if _, err := h.output(ctx, nil, "rm", "-rf", plannedPatchesDir); err != nil {
			return nil, err
		}
	}
	exit := (*remote.ExitError)(nil)
	if err != nil && (!errors.As(err, &exit) || !slices.Contains([]fault.Code{fault.Work, fault.Preflight}, fault.Code(exit.Code))) {
		return nil, err
	}
	c := &facts.Change{}
	if json.Unmarshal(out, c) != nil || len(c.Nodes)+len(c.Refused) == 0 {
		if err == nil {
			err = errors.New("the host did not report what the configuration changes")
		}
		return nil, err
	}
	return c, nil
}

// reconfiguration returns the command of a verb, and its standard input. patches is where the patches of the host are.
func (h *Host) reconfiguration(installer, verb, patches string) (args []string, document io.Reader, err error) {
	args = []string{installer, "reconfigure"}
	if verb == plan.ReconfigureNode {
		args = append(args, "node")
	} else {
		args = append(args, "--config", "-")
		document, err = h.site.clusterDocuments()
	}
	if h.Patches != "" {
		args = append(args, "--patches", patches)
	}
	return args, document, err
}

// reconfigure gives a node another configuration.
func (r *Run) reconfigure(ctx context.Context, a plan.Action, h *Host) (err error) {
	from := h.installer
	if a.Images {
		if err := r.serve(ctx); err != nil {
			return err
		}
		if from, err = r.source(ctx, h); err != nil {
			return err
		}
	}
	if err := h.bringPatches(ctx); err != nil {
		return err
	}
	args, document, err := h.reconfiguration(from, a.Verb, patchesDir)
	if err != nil {
		return err
	}
	if a.Verb == plan.Reconfigure {
		args = append(args, "--yes")
	}
	if err := h.install(ctx, document, args...); err != nil || !a.Images {
		return err
	}
	return h.dropWhole(ctx)
}
