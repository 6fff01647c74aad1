package upgrade

import (
	"context"
	"strings"

	"airlift/installer/config"
	"airlift/installer/node"
	"airlift/installer/phases"
)

// DryRun runs the checks, and writes the files and objects that the upgrade would change into a new
// directory. It changes nothing else.
func (u *Upgrade) DryRun(ctx context.Context) error {
	return phases.InDirectory(strings.Replace(u.facts.options.command(), " ", "-", 1), u.facts.node.Existing, u.facts.node.Console, func(m *node.Machine) error {
		dry := newUpgrade(&phases.Plan{Config: &config.Config{}, Bundle: u.facts.bundle}, u.facts.options, m)
		defer dry.Close()
		return phases.DryRun{Machine: m, OnlyChanges: true}.Run(ctx, dry.Steps(), u.facts.options.SkipPhases)
	})
}
