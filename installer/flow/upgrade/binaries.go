package upgrade

import (
	"context"
	"errors"
	"io/fs"
	"path"
	"strings"

	"airlift/installer/config"
	"airlift/installer/host"
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
