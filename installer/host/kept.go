package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"airlift/installer/host/filesystem"
	"airlift/installer/host/ledger"
)

// Kept has the previous versions of files that an upgrade or a reconfiguration replaces, at their paths below a
// directory in UpgradeDir or ReconfigureDir.
type Kept struct {
	host *Host
	dir  string
}

// Kept returns the previous files with a name. There may be none.
func (h Upgrades) Kept(name string) Kept { return Kept{h.host, filepath.Join(h.dir, name)} }

// absentSuffix marks a path at which no file was before the upgrade.
const absentSuffix = ".absent"

// Keep copies a file before the upgrade replaces it, unless there is a copy already: after an
// interruption, the file may be the new one.
func (k Kept) Keep(path string) error {
	kept := k.host.Path(filepath.Join(k.dir, path))
	if filesystem.Exists(kept) || filesystem.Exists(kept+absentSuffix) {
		return nil
	}
	err := k.host.makeState()
	if err == nil {
		err = os.MkdirAll(filepath.Dir(kept), 0o700)
	}
	if err == nil {
		err = k.host.Change(path, func() error { return filesystem.Copy(k.host.Path(path), kept) })
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = filesystem.Replace(kept+absentSuffix, nil, 0o600)
	}
	if err != nil {
		return fmt.Errorf("keeping the previous %s: %w", path, err)
	}
	return nil
}

// Read reads the previous file at a path; nil if none is kept.
func (k Kept) Read(path string) ([]byte, error) {
	return k.host.ReadIfExists(k.Place(path))
}

// Place is where the previous version of a file is, if there is one.
func (k Kept) Place(path string) string { return filepath.Join(k.dir, path) }

// Paths lists the files whose previous version is kept, or recorded as absent.
func (k Kept) Paths() (paths []string, err error) {
	root := k.host.Path(k.dir)
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) && path == root {
			return nil
		}
		if err != nil || d.IsDir() {
			return err
		}
		if strings.HasPrefix(d.Name(), ".airlift-") {
			return nil // of an interrupted copy
		}
		paths = append(paths, strings.TrimSuffix(strings.TrimPrefix(path, root), absentSuffix))
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("listing %s: %w", k.dir, err)
	}
	return paths, nil
}

// Restore restores the previous file at a path, or removes the new one if there was none.
func (k Kept) Restore(ctx context.Context, path string) (changed bool, err error) {
	h, kept := k.host, filepath.Join(k.dir, path)
	if filesystem.Exists(h.Path(kept + absentSuffix)) {
		if !filesystem.Exists(h.Path(path)) {
			return false, nil
		}
		return true, h.Remove(path)
	}
	if _, ok := h.Records().Find(ledger.Binary, path); ok {
		sum, err := filesystem.DigestFile(h.Path(kept))
		if err != nil {
			return false, fmt.Errorf("restoring %s: %w", path, err)
		}
		return h.Upgrades().installFrom(ctx, Binary{Path: path, SHA256: sum}, kept)
	}
	info, err := os.Stat(h.Path(kept))
	if err != nil {
		return false, fmt.Errorf("restoring %s: %w", path, err)
	}
	data, err := os.ReadFile(h.Path(kept))
	if err != nil {
		return false, fmt.Errorf("restoring %s: %w", path, err)
	}
	return h.WriteFile(path, data, info.Mode().Perm())
}

// Remove removes all of these copies.
func (k Kept) Remove() error { return k.host.RemoveTree(k.dir) }
