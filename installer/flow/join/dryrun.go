package join

import (
	"context"

	"airlift/installer/host"
	"airlift/installer/node"
	"airlift/installer/phases"
	"airlift/installer/workflow"
)

// DryRun writes the files that join would write on the host into a new
// directory. It only reads from the cluster.
func DryRun(ctx context.Context, p *phases.Plan, h *host.Host, c *workflow.Console) error {
	return phases.InDirectory("join", h, c, func(m *node.Machine) error {
		j := newJoin(p, m)
		defer j.Close()
		return j.dry().Run(ctx, j.steps, p.Config.SkipPhases)
	})
}

// DryRunPhase does the same as DryRun for one phase of join.
func DryRunPhase(ctx context.Context, p *phases.Plan, h *host.Host, c *workflow.Console, phase string) error {
	if phases.NothingToShow(newJoin(p, nil).steps, phase, c) {
		return nil
	}
	return phases.InDirectory("join-phase", h, c, func(m *node.Machine) error {
		j := newJoin(p, m)
		defer j.Close()
		return j.dry().RunPhase(ctx, j.steps, phase)
	})
}

func (j *Join) dry() phases.DryRun { return phases.DryRun{Machine: j.Machine, Site: j.nodeJoin.site} }
