package upgrade

import (
	"context"

	"airlift/installer/desired"
)

// runtimeFiles returns the new binaries, and containerd's configuration and unit, unless the host has its own.
func (u *Upgrade) runtimeFiles(context.Context) (l desired.List, err error) {
	if l.Binaries, err = u.pending(ofRuntime); err != nil {
		return l, err
	}
	l.Files, err = u.RuntimeFiles()
	return l, err
}

// upgradeRuntime installs containerd, runc and the CNI plugins, and restarts containerd. The containers keep running.
func (u *Upgrade) upgradeRuntime(ctx context.Context, l desired.List) error {
	if err := u.Ready(ctx); err != nil {
		return err
	}
	if err := u.install(ctx, l.Binaries); err != nil {
		return err
	}
	if u.Observed.KeepsRuntime {
		u.Console.Note("this host's existing containerd is not changed")
		return nil
	}
	return u.RestartRuntime(ctx, l)
}
