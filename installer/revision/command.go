package revision

import (
	"context"

	"airlift/installer/desired"
	"airlift/installer/host"
	"airlift/installer/phases"
)

// Command returns the command airlift, and the units that run the one of a former build, if this node has another one than this
// file's.
func (r *Revision) Command(context.Context) (l desired.List, err error) {
	b := r.Node.Command()
	has, err := r.Existing.HasBinary(b)
	if err != nil || has && !r.Existing.Records().Wrote(host.FormerCommand) {
		return l, err
	}
	l.Binaries = []host.Binary{b}
	l.Files, err = r.Existing.FormerUnits()
	return l, err
}

// InstallCommand installs the command airlift of this file, and makes services on this host run it. Undo restores the previous one.
func (r *Revision) InstallCommand(ctx context.Context, l desired.List) error {
	if len(l.Binaries) == 0 {
		return nil
	}
	keep := []string{host.CommandPath}
	if r.Existing.Records().Wrote(host.FormerCommand) {
		keep = append(keep, host.FormerCommand)
	}
	for _, f := range l.Files {
		keep = append(keep, f.Path)
	}
	for _, file := range keep {
		if err := r.Keep(file); err != nil {
			return err
		}
	}
	if err := r.Host.InstallCommand(ctx, l.Binaries[0].SHA256); err != nil {
		return err
	}
	r.Console.Debug(1, "installed %s", host.CommandPath)
	r.Changed(true)
	if err := phases.RestartRegistry(ctx, r.Machine); err != nil {
		return err
	}
	if err := phases.RestartServing(ctx, r.Machine); err != nil {
		return err
	}
	return phases.RestartEndpoint(ctx, r.Machine)
}
