package upgrade

import (
	"context"

	"airlift/installer/config"
	"airlift/installer/desired"
	"airlift/installer/host"
	"airlift/installer/phases"
	"airlift/installer/preflight"
	"airlift/installer/registry"
	"airlift/installer/upgradecheck"
)

// target reads all that the checks of an upgrade look at. It changes nothing.
func (u *Upgrade) target(ctx context.Context, command upgradecheck.Command) (*upgradecheck.Target, error) {
	t, err := u.Target(ctx, command)
	if err != nil {
		return nil, err
	}
	files, err := u.RuntimeFiles()
	if err != nil {
		return nil, err
	}
	if t.ContainerdFiles, err = u.ContainerdProblems(ctx, files...); err != nil {
		return nil, err
	}
	more, err := u.space(ctx, t.Etcd)
	t.Disk = append(t.Disk, more...)
	return t, err
}

// check runs the checks that precede an upgrade. It changes nothing.
func (u *Upgrade) check(ctx context.Context, t *upgradecheck.Target) (preflight.Report, error) {
	return upgradecheck.Run(ctx, t, u.Options.IgnorePreflightErrors)
}

// space returns how much the upgrade of this node writes in addition to its images: the new
// binaries and copies of the previous ones, and a backup with a snapshot of etcd.
func (u *Upgrade) space(ctx context.Context, e *upgradecheck.Etcd) ([]preflight.Space, error) {
	state := preflight.Space{Path: host.UpgradeDir}
	pending, err := u.pending(all)
	if err != nil {
		return nil, err
	}
	for _, b := range pending {
		state.Bytes += 2 * uint64(b.Size) // staged, and the previous one
		state.Files += 2
		if u.Existing.Records().Adopted() != nil {
			state.Bytes += uint64(b.Size) // the original, for reset
		}
	}
	command, err := u.Command(ctx)
	if err != nil {
		return nil, err
	}
	for _, b := range command.Binaries {
		state.Bytes += uint64(b.Size) // the previous one
	}
	list := phases.Space(desired.List{Binaries: append(pending, command.Binaries...)}, all)
	saves, err := u.needsBackup()
	if err != nil {
		return nil, err
	}
	if e != nil && saves {
		for _, m := range e.Members {
			if m.Name == u.Config.NodeRegistration.Name {
				state.Bytes += uint64(m.DBSize) // the snapshot, until it is in the backup
				list = append(list, preflight.Space{Path: host.UpgradeBackups, Bytes: uint64(m.DBSize) + phases.SmallBytes, Files: 1})
			}
		}
	}
	if u.servesRegistry() {
		kept := config.EmbeddedRegistry{Bundles: []config.KeptBundle{registry.Describe(u.Bundle.File, u.Bundle.Manifest)}}
		list = append(list, phases.KeptSpace(u.Existing, kept))
	}
	return append(list, state), nil
}
