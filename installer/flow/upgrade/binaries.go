package upgrade

import (
	"context"
	"errors"
	"io/fs"
	"path"
	"strings"

	"airlift/installer/config"
	"airlift/installer/desired"
	"airlift/installer/host"
	"airlift/installer/phases"
	"airlift/internal/fault"
)

// pending returns the bundle's binaries that chosen accepts, by their path, and that are not
// installed yet. A binary that Airlift did not install is an error.
func (u *Upgrade) pending(chosen func(path string) bool) (list []host.Binary, err error) {
	for _, b := range u.Binaries() {
		if !chosen(b.Path) {
			continue
		}
		has, err := u.Existing.HasBinary(b)
		if err != nil {
			return nil, err
		}
		if !has {
			list = append(list, b)
		}
	}
	return list, nil
}

// all accepts every binary.
func all(string) bool { return true }

// install installs staged binaries.
func (u *Upgrade) install(ctx context.Context, list []host.Binary) error {
	for _, b := range list {
		if err := u.Begin(); err != nil {
			return err
		}
		changed, err := u.Host.Upgrades().InstallStaged(ctx, b, u.Record.Kept(u.Host))
		if errors.Is(err, fs.ErrNotExist) {
			return fault.Wrap(err, fault.Preflight, "run the phase unpack first: ./install "+u.Options.Command+" phase unpack")
		}
		if err != nil {
			return err
		}
		u.Console.Debug(1, "installed %s", b.Path)
		u.Changed(changed)
	}
	return nil
}

// ofRuntime reports whether a binary belongs to the container runtime.
func ofRuntime(p string) bool {
	name := path.Base(p)
	return path.Dir(p) == config.CNIBinDir || name == "runc" || name == "ctr" || strings.HasPrefix(name, "containerd")
}

// staleStub reports whether the copy of the installer that timers and units on this host run differs
// from the installer in this file. A host without such a unit has no copy.
func (u *Upgrade) staleStub() (bool, error) {
	if !u.Existing.Records().Wrote(host.StubPath) {
		return false, nil
	}
	has, err := u.Existing.HasBinary(host.Binary{Path: host.StubPath, SHA256: u.Bundle.File.Installer().SHA256})
	return !has, err
}

// stub returns the copy of the installer, if timers and units on this host run another one.
func (u *Upgrade) stub(context.Context) (l desired.List, err error) {
	stale, err := u.staleStub()
	if err == nil && stale {
		self := u.Bundle.File.Installer()
		l.Binaries = []host.Binary{{Path: host.StubPath, SHA256: self.SHA256, Size: self.Size}}
	}
	return l, err
}

// upgradeStub makes timers and units on this host run the installer in this file, after all else has
// its new version. Undo restores the previous copy.
func (u *Upgrade) upgradeStub(ctx context.Context, l desired.List) error {
	if len(l.Binaries) == 0 {
		return nil
	}
	if err := u.Keep(host.StubPath); err != nil {
		return err
	}
	if err := u.Host.InstallStub(ctx, l.Binaries[0].SHA256); err != nil {
		return err
	}
	u.Console.Debug(1, "installed %s", host.StubPath)
	u.Changed(true)
	if err := phases.RestartRegistry(ctx, u.Machine); err != nil {
		return err
	}
	return phases.RestartEndpoint(ctx, u.Machine)
}
