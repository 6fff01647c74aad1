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

	"airlift/installer/host/filesystem"
	"airlift/installer/host/ledger"
)

// UpgradeDir has what an upgrade needs to continue and to be undone. Reset removes it before the files
// that undo would restore.
const UpgradeDir = ledger.StateDir + "/upgrade"

// UpgradeBackups has the backups of the cluster that upgrades saved. Reset keeps it: a restore
// follows a reset.
const UpgradeBackups = ledger.StateDir + "-backups"

// Paths below UpgradeDir.
const (
	UpgradeState = UpgradeDir + "/state.json"
	stagedDir    = UpgradeDir + "/staged" // new binaries before their step, at their paths
)

// StagedPath is where a new binary waits until its step installs it.
func StagedPath(path string) string { return filepath.Join(stagedDir, path) }

// PrepareUpgrade creates the directories for staged binaries with these paths.
func (h Upgrades) PrepareUpgrade(paths ...string) error {
	if err := h.host.makeState(); err != nil {
		return fmt.Errorf("preparing %s: %w", UpgradeDir, err)
	}
	for _, path := range append(slices.Clone(paths), "/") {
		if err := os.MkdirAll(filepath.Dir(h.host.Path(StagedPath(path))), 0o700); err != nil {
			return fmt.Errorf("preparing %s: %w", UpgradeDir, err)
		}
	}
	return nil
}

// InstallStaged replaces a binary with the staged one, and keeps the previous one. It does
// nothing if the binary is installed already.
func (h Upgrades) InstallStaged(ctx context.Context, b Binary, previous Kept) (changed bool, err error) {
	has, err := h.host.HasBinary(b)
	if err != nil || has {
		return false, err
	}
	if err := previous.Keep(b.Path); err != nil {
		return false, err
	}
	return h.installFrom(ctx, b, StagedPath(b.Path))
}

func (h Upgrades) installFrom(ctx context.Context, b Binary, path string) (changed bool, err error) {
	f, err := os.Open(h.host.Path(path))
	if err != nil {
		return false, fmt.Errorf("installing %s: %w", b.Path, err)
	}
	defer f.Close()
	return h.host.InstallBinary(ctx, b, f)
}

// RemoveStaged removes all staged binaries, also from the ledger.
func (h Upgrades) RemoveStaged() error {
	if err := os.RemoveAll(h.host.Path(stagedDir)); err != nil {
		return fmt.Errorf("removing %s: %w", stagedDir, err)
	}
	for _, e := range h.host.Records().Entries(ledger.Binary) {
		if strings.HasPrefix(e.Name, stagedDir+"/") {
			if err := h.host.Records().Forget(e.Kind, e.Name); err != nil {
				return err
			}
		}
	}
	return nil
}

// WriteUpgrade replaces the state of the upgrade.
func (h Upgrades) WriteUpgrade(data []byte) error {
	err := h.PrepareUpgrade()
	if err == nil {
		err = h.host.Change(UpgradeState, func() error { return filesystem.Replace(h.host.Path(UpgradeState), data, 0o600) })
	}
	if err != nil {
		return fmt.Errorf("writing %s: %w", UpgradeState, err)
	}
	return nil
}

// PrepareBackups creates UpgradeBackups, and removes what an interrupted run has left there.
func (h Upgrades) PrepareBackups() error {
	if err := filesystem.OutputDir(h.host.Path(UpgradeBackups), 0o700); err != nil {
		return err
	}
	return h.RemoveUnfinishedBackups()
}

// RemoveUnfinishedBackups removes the files of interrupted runs: they have keys, and are no backups.
func (h Upgrades) RemoveUnfinishedBackups() error {
	list, err := os.ReadDir(h.host.Path(UpgradeBackups))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing unfinished backups: %w", err)
	}
	for _, e := range list {
		if strings.HasPrefix(e.Name(), ".airlift-") {
			if err := h.host.RemoveTree(filepath.Join(UpgradeBackups, e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

// RemoveKept removes all previous files except those with a name.
func (h Upgrades) RemoveKept(except string) error {
	list, err := os.ReadDir(h.host.Path(UpgradeDir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing previous files: %w", err)
	}
	for _, e := range list {
		if e.Name() == except || !e.IsDir() || e.Name() == filepath.Base(stagedDir) {
			continue
		}
		if err := h.host.RemoveTree(filepath.Join(UpgradeDir, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

// RemoveUpgrade removes the last upgrade's state and what it kept.
func (h Upgrades) RemoveUpgrade() error {
	if err := h.RemoveStaged(); err != nil {
		return err
	}
	if err := h.RemoveKept(""); err != nil {
		return err
	}
	// The state goes last: without it, no command would remove the previous files.
	if err := os.Remove(h.host.Path(UpgradeState)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing %s: %w", UpgradeState, err)
	}
	return nil
}

// EndUpgrade makes undo impossible, before reset removes what undo would change: entries that stay in the
// ledger keep StateDir, and the next node on this host must not get files of this one.
func (h Upgrades) EndUpgrade() error {
	if err := os.Remove(h.host.Path(UpgradeState)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing %s: %w", UpgradeState, err)
	}
	return h.host.RemoveTree(UpgradeDir)
}
