package initcluster

import (
	"context"

	"airlift/installer/host"
	"airlift/installer/node"
	"airlift/installer/phases"
	"airlift/installer/workflow"
)

// DryRun writes what init would write into a new directory. It changes nothing else.
func DryRun(ctx context.Context, p *phases.Plan, o phases.InitOptions, h *host.Host, c *workflow.Console) error {
	return phases.InDirectory("init", h, c, func(m *node.Machine) error {
		i := newInit(p, o, m)
		defer i.Close()
		return i.dry().Run(ctx, i.Steps(), p.Config.SkipPhases)
	})
}

// DryRunPhase does the same for one phase of init.
func DryRunPhase(ctx context.Context, p *phases.Plan, o phases.InitOptions, h *host.Host, c *workflow.Console, phase string) error {
	if phases.NothingToShow(newInit(p, o, nil).Steps(), phase, c) {
		return nil
	}
	return phases.InDirectory("init-phase", h, c, func(m *node.Machine) error {
		i := newInit(p, o, m)
		defer i.Close()
		return i.dry().RunPhase(ctx, i.Steps(), phase)
	})
}

func (i *Init) dry() phases.DryRun { return phases.DryRun{Machine: i.Machine, Site: i.site} }
