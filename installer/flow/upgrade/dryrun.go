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
	return phases.InDirectory(strings.Replace(u.Options.Command, " ", "-", 1), u.Existing, u.Console, func(m *node.Machine) error {
		dry := newUpgrade(&phases.Plan{Config: &config.Config{}, Bundle: u.Bundle}, u.options, m)
		defer dry.Close()
		return phases.DryRun{Machine: m, OnlyChanges: true}.Run(ctx, dry.Steps(), u.Options.SkipPhases)
	})
}
