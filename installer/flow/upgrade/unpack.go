package upgrade

import (
	"context"

	"airlift/installer/node"
)

// unpack imports the images, and places the new binaries next to the old ones. Nothing that
// runs is disturbed.
func (u *Upgrade) unpack(ctx context.Context) error {
	if err := u.Ready(ctx); err != nil {
		return err
	}
	if err := u.Bundle.AttachNode(ctx, u.Existing, u.Console); err != nil {
		return err
	}
	remains, err := u.Remains()
	if err != nil {
		return err
	}
	if remains {
		if err := u.Begin(); err != nil {
			return err
		}
	}
	pending, err := u.pending(all)
	if err != nil {
		return err
	}
	wanted := map[string]bool{}
	var paths []string
	for _, b := range pending {
		wanted[b.Path] = true
		paths = append(paths, b.Path)
	}
	if len(paths) > 0 {
		if err := u.Host.Upgrades().PrepareUpgrade(paths...); err != nil {
			return err
		}
	}
	if err := u.ConnectRuntime(ctx); err != nil {
		return err
	}
	if err := u.KeepNames(ctx); err != nil {
		return err
	}
	return u.Stage(ctx, func(entry string) bool { return wanted[node.BinaryPath(entry)] })
}
