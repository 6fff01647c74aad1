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
	"airlift/installer/payload"
	"airlift/installer/phases"
	"airlift/internal/fault"
)

// binaries are the binaries of the bundle, and the copy of its installer, that this node gets.
type binaries struct {
	node    *phases.Node
	options Options
	bundle  *payload.Bundle
	record  *record
}

// pending returns the bundle's binaries that chosen accepts, by their path, and that are not
// installed yet. A binary that Airlift did not install is an error. A reconfiguration installs none.
func (s *binaries) pending(chosen func(path string) bool) (list []host.Binary, err error) {
	if s.options.reconfigures {
		return nil, nil
	}
	for _, b := range s.node.Binaries() {
		if !chosen(b.Path) {
			continue
		}
		has, err := s.node.Existing.HasBinary(b)
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
func (s *binaries) install(ctx context.Context, list []host.Binary) error {
	for _, b := range list {
		if err := s.record.begin(); err != nil {
			return err
		}
		changed, err := s.node.Host.Upgrades().InstallStaged(ctx, b, s.record.former())
		if errors.Is(err, fs.ErrNotExist) {
			return fault.Wrap(err, fault.Preflight, "run the phase unpack first: ./install "+s.options.command()+" phase unpack")
		}
		if err != nil {
			return err
		}
		s.node.Console.Debug(1, "installed %s", b.Path)
		s.node.Changed(changed)
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
func (s *binaries) staleStub() (bool, error) {
	if s.options.reconfigures || !s.node.Existing.Records().Wrote(host.StubPath) {
		return false, nil
	}
	has, err := s.node.Existing.HasBinary(host.Binary{Path: host.StubPath, SHA256: s.bundle.File.Installer().SHA256})
	return !has, err
}

// stub returns the copy of the installer, if timers and units on this host run another one.
func (s *binaries) stub(context.Context) (l desired.List, err error) {
	stale, err := s.staleStub()
	if err == nil && stale {
		self := s.bundle.File.Installer()
		l.Binaries = []host.Binary{{Path: host.StubPath, SHA256: self.SHA256, Size: self.Size}}
	}
	return l, err
}

// upgradeStub makes timers and units on this host run the installer in this file, after all else has
// its new version. Undo restores the previous copy.
func (s *binaries) upgradeStub(ctx context.Context, l desired.List) error {
	if len(l.Binaries) == 0 {
		return nil
	}
	if err := s.record.begin(); err != nil {
		return err
	}
	if err := s.record.former().Keep(host.StubPath); err != nil {
		return err
	}
	if err := s.node.Host.InstallStub(ctx, l.Binaries[0].SHA256); err != nil {
		return err
	}
	s.node.Console.Debug(1, "installed %s", host.StubPath)
	s.node.Changed(true)
	if err := phases.RestartRegistry(ctx, s.node.Machine); err != nil {
		return err
	}
	return phases.RestartEndpoint(ctx, s.node.Machine)
}
