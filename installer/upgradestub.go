package installer

import (
	"context"

	"airlift/installer/host"
)

// staleStub reports whether the copy of the installer that timers and units on this host run differs
// from the installer in this file. A host without such a unit has no copy.
func (u *Upgrade) staleStub() (bool, error) {
	if !u.existing.Wrote(host.StubPath) {
		return false, nil
	}
	has, err := u.existing.HasBinary(host.Binary{Path: host.StubPath, SHA256: u.bundle.file.Installer().SHA256})
	return !has, err
}

// upgradeStub makes timers and units on this host run the installer in this file, after all else has
// its new version. Undo restores the previous copy.
func (u *Upgrade) upgradeStub(ctx context.Context) error {
	stale, err := u.staleStub()
	if err != nil || !stale {
		return err
	}
	if err := u.begin(); err != nil {
		return err
	}
	if err := u.former().Keep(host.StubPath); err != nil {
		return err
	}
	if err := u.host.InstallStub(ctx, u.bundle.file.Installer().SHA256); err != nil {
		return err
	}
	u.console.Debug(1, "installed %s", host.StubPath)
	u.changed(true)
	return nil
}
