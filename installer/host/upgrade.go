package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// UpgradeDir has what an upgrade needs to continue and to be undone. Reset removes it with
// StateDir.
const UpgradeDir = StateDir + "/upgrade"

// Paths below UpgradeDir.
const (
	upgradeState = UpgradeDir + "/state.json"
	formerDir    = UpgradeDir + "/former" // the replaced files, at their paths
	stagedDir    = UpgradeDir + "/staged" // new binaries before their step, at their paths
)

// absentSuffix marks a path at which no file was before the upgrade.
const absentSuffix = ".absent"

// StagedPath is where a new binary waits until its step installs it.
func StagedPath(path string) string { return filepath.Join(stagedDir, path) }

// PrepareUpgrade creates the directories for staged binaries with these paths.
func (h *Host) PrepareUpgrade(paths ...string) error {
	if err := h.makeState(); err != nil {
		return fmt.Errorf("preparing %s: %w", UpgradeDir, err)
	}
	for _, path := range append(slices.Clone(paths), "/") {
		if err := os.MkdirAll(filepath.Dir(h.Path(StagedPath(path))), 0o700); err != nil {
			return fmt.Errorf("preparing %s: %w", UpgradeDir, err)
		}
	}
	return nil
}

// InstallStaged replaces a binary with the staged one, and keeps the previous one. It does
// nothing if the binary is installed already.
func (h *Host) InstallStaged(ctx context.Context, b Binary) (changed bool, err error) {
	has, err := h.HasBinary(b)
	if err != nil || has {
		return false, err
	}
	if err := h.KeepFormer(b.Path); err != nil {
		return false, err
	}
	return h.installFrom(ctx, b, StagedPath(b.Path))
}

func (h *Host) installFrom(ctx context.Context, b Binary, path string) (changed bool, err error) {
	f, err := os.Open(h.Path(path))
	if err != nil {
		return false, fmt.Errorf("installing %s: %w", b.Path, err)
	}
	defer f.Close()
	return h.InstallBinary(ctx, b, f)
}

// RemoveStaged removes all staged binaries, also from the ledger.
func (h *Host) RemoveStaged() error {
	if err := os.RemoveAll(h.Path(stagedDir)); err != nil {
		return fmt.Errorf("removing %s: %w", stagedDir, err)
	}
	for _, e := range h.entries(kindBinary) {
		if strings.HasPrefix(e.Name, stagedDir+"/") {
			if err := h.forget(e.Kind, e.Name); err != nil {
				return err
			}
		}
	}
	return nil
}

// KeepFormer keeps a copy of a file before the upgrade replaces it, unless it has one already:
// after an interruption, the file may be the new one.
func (h *Host) KeepFormer(path string) error {
	kept := h.Path(filepath.Join(formerDir, path))
	if exists(kept) || exists(kept+absentSuffix) {
		return nil
	}
	err := h.makeState()
	if err == nil {
		err = os.MkdirAll(filepath.Dir(kept), 0o700)
	}
	if err == nil {
		err = copyFile(h.Path(path), kept)
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = replaceFile(kept+absentSuffix, nil, 0o600)
	}
	if err != nil {
		return fmt.Errorf("keeping the former %s: %w", path, err)
	}
	return nil
}

// ReadFormer reads the previous file at a path; nil if none is kept.
func (h *Host) ReadFormer(path string) ([]byte, error) {
	data, err := os.ReadFile(h.Path(filepath.Join(formerDir, path)))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return data, err
}

// Former lists the paths of the files of which the previous one is kept, or recorded as absent.
func (h *Host) Former() (paths []string, err error) {
	root := h.Path(formerDir)
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
		return nil, fmt.Errorf("listing %s: %w", formerDir, err)
	}
	return paths, nil
}

// RestoreFormer restores the previous file at a path, or removes the new one if there was none.
func (h *Host) RestoreFormer(ctx context.Context, path string) (changed bool, err error) {
	kept := filepath.Join(formerDir, path)
	if exists(h.Path(kept + absentSuffix)) {
		if !exists(h.Path(path)) {
			return false, nil
		}
		return true, h.Remove(path)
	}
	if _, ok := h.recorded(kindBinary, path); ok {
		sum, err := digestFile(h.Path(kept))
		if err != nil {
			return false, fmt.Errorf("restoring %s: %w", path, err)
		}
		return h.installFrom(ctx, Binary{path, sum}, kept)
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

// ReadUpgrade reads the state of the last upgrade; nil if there was none.
func (h *Host) ReadUpgrade() ([]byte, error) {
	data, err := os.ReadFile(h.Path(upgradeState))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return data, err
}

// WriteUpgrade replaces the state of the upgrade.
func (h *Host) WriteUpgrade(data []byte) error {
	err := h.PrepareUpgrade()
	if err == nil {
		err = replaceFile(h.Path(upgradeState), data, 0o600)
	}
	if err != nil {
		return fmt.Errorf("writing %s: %w", upgradeState, err)
	}
	return nil
}

// RemoveUpgrade forgets the last upgrade and what it kept.
func (h *Host) RemoveUpgrade() error {
	if err := h.RemoveStaged(); err != nil {
		return err
	}
	// The state goes last: without it, the previous files would be those of no upgrade.
	for _, path := range []string{formerDir, upgradeState} {
		if err := os.RemoveAll(h.Path(path)); err != nil {
			return fmt.Errorf("removing %s: %w", path, err)
		}
	}
	return nil
}
