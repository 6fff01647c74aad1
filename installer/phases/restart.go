package phases

import (
	"context"
	"slices"

	"airlift/installer/node"
)

// RestartStale restarts a unit that was started before one of its files was written, of those that exist: an adopted node may not have
// all. written reports that this run has written one of them.
func RestartStale(ctx context.Context, n *Node, unit string, written bool, files ...string) (restarted bool, err error) {
	files = slices.DeleteFunc(files, func(file string) bool { return !node.FileExists(n.Existing, file) })
	stale, err := n.Host.Systemd().StartedBefore(ctx, unit, files...)
	if err != nil {
		return false, err
	}
	state, err := n.Host.Systemd().Unit(ctx, unit)
	if err != nil {
		return false, err
	}
	if !stale && !written && state.Running() {
		return false, nil
	}
	prepare := n.Host.Systemd().Enable
	if n.Existing.Records().Adopted() != nil { // what starts at boot stays as it is
		prepare = func(ctx context.Context, unit string) error { return n.Host.Systemd().Reread(ctx, unit) }
	}
	if err := prepare(ctx, unit); err != nil {
		return false, err
	}
	n.Changed(true)
	return true, n.Host.Systemd().Restart(ctx, unit)
}
