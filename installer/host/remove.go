package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"airlift/installer/host/ledger"
	"airlift/internal/atomicfile"
)

// Remove removes a file that WriteFile or InstallBinary wrote; it may be missing. Reset still
// restores the original that it replaced.
func (h *Host) Remove(path string) error {
	if err := h.Change(path, func() error { return os.Remove(h.Path(path)) }); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing %s: %w", path, err)
	}
	for _, kind := range []string{ledger.File, ledger.Binary} {
		if e, ok := h.Records().Find(kind, path); !ok || e.Original != "" {
			continue
		}
		if err := h.Records().Forget(kind, path); err != nil {
			return err
		}
	}
	return nil
}

// RemoveTree removes a path with its contents, unless something is mounted below
// it: the mount may contain other data.
func (h *Host) RemoveTree(path string) error {
	real := h.Path(path)
	mounted, err := mountsWithin(real)
	if err != nil {
		return err
	}
	if mounted != "" {
		return fmt.Errorf("removing %s: %s is mounted there", path, mounted)
	}
	if err := h.Change(path, func() error { return os.RemoveAll(real) }); err != nil {
		return fmt.Errorf("removing %s: %w", path, err)
	}
	return nil
}

// Rename gives a file or directory that a run prepared its final name.
func (h *Host) Rename(from, to string) error {
	place, err := h.Place(to)
	if err == nil {
		err = h.Change(to, func() error { return os.Rename(h.Path(from), place) })
	}
	if err == nil {
		err = atomicfile.SyncDir(filepath.Dir(place))
	}
	if err != nil {
		return fmt.Errorf("creating %s: %w", to, err)
	}
	return nil
}

// mountsWithin returns a mount point at or below a path, or "". It resolves
// links in the path, because the kernel lists resolved paths.
func mountsWithin(path string) (string, error) {
	if parent, err := filepath.EvalSymlinks(filepath.Dir(path)); err == nil {
		path = filepath.Join(parent, filepath.Base(path))
	}
	mounts, err := mountinfo.GetMounts(func(m *mountinfo.Info) (skip, stop bool) {
		within := m.Mountpoint == path || strings.HasPrefix(m.Mountpoint, path+"/")
		return !within, within
	})
	if err != nil {
		return "", fmt.Errorf("listing mounts: %w", err)
	}
	if len(mounts) == 0 {
		return "", nil
	}
	return mounts[0].Mountpoint, nil
}

// RemoveEmpty removes a directory that Airlift created, if it is empty.
func (h *Host) RemoveEmpty(path string) error {
	if _, ok := h.Records().Find(ledger.Dir, path); !ok {
		return nil
	}
	err := h.Change(path, func() error { return os.Remove(h.Path(path)) })
	if errors.Is(err, unix.ENOTEMPTY) {
		return nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing %s: %w", path, err)
	}
	return h.Records().Forget(ledger.Dir, path)
}
