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

// UpgradeDir has what an upgrade needs to continue and to be undone. Reset removes it before the files
// that undo would restore.
const UpgradeDir = ledger.StateDir + "/upgrade"

// ReconfigureDir has the previous files of a reconfiguration: it can be undone alone, before an upgrade that precedes it.
const ReconfigureDir = ledger.StateDir + "/reconfigure"

// UpgradeBackups has the backups of the cluster that upgrades saved. Reset keeps it: a restore
// follows a reset.
const UpgradeBackups = ledger.StateDir + "-backups"

// WaitingBackups has encrypted backups until they are at their target. Reset keeps it: they may be the last ones.
const WaitingBackups = UpgradeBackups + "/waiting"

// Paths below UpgradeDir and ReconfigureDir.
const (
	RevisionState    = UpgradeDir + "/state.json"     // the records of the revisions of this node
	ReconfigureState = ReconfigureDir + "/state.json" // the record of a reconfiguration that a former build wrote
	stagedDir        = UpgradeDir + "/staged"         // new binaries before their step, at their paths
)

// StagedPath is where a new binary waits until its step installs it.
func StagedPath(path string) string { return filepath.Join(stagedDir, path) }

// PrepareUpgrade creates the directories for staged binaries with these paths.
func (h Upgrades) PrepareUpgrade(paths ...string) error {
	if err := h.host.makeState(); err != nil {
		return fmt.Errorf("preparing %s: %w", h.dir, err)
	}
	dirs := []string{h.dir}
	for _, path := range paths {
		dirs = append(dirs, filepath.Dir(StagedPath(path)))
	}
	for _, dir := range dirs {
		if err := os.MkdirAll(h.host.Path(dir), 0o700); err != nil {
			return fmt.Errorf("preparing %s: %w", h.dir, err)
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

// RemoveStaged removes all staged binaries, also from the ledger. A reconfiguration has none.
func (h Upgrades) RemoveStaged() error {
	if h.dir != UpgradeDir {
		return nil
	}
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

// WriteState replaces the records of revisions.
func (h Upgrades) WriteState(data []byte) error {
	err := h.PrepareUpgrade()
	if err == nil {
		err = h.host.Change(RevisionState, func() error { return filesystem.Replace(h.host.Path(RevisionState), data, 0o600) })
	}
	if err != nil {
		return fmt.Errorf("writing %s: %w", RevisionState, err)
	}
	return h.removeState(ReconfigureState)
}

// RemoveState removes the records of revisions.
func (h Upgrades) RemoveState() error {
	if err := h.removeState(ReconfigureState); err != nil { // without RevisionState, it would count again
		return err
	}
	return h.removeState(RevisionState)
}

// PrepareBackups creates UpgradeBackups, and removes what an interrupted run has left there.
func (h Upgrades) PrepareBackups() error {
	if err := filesystem.OutputDir(h.host.Path(UpgradeBackups), 0o700); err != nil {
		return err
	}
	return h.RemoveUnfinishedBackups()
}

// PrepareWaiting creates WaitingBackups, and returns where it is.
func (h Upgrades) PrepareWaiting() (string, error) {
	dir := h.host.Path(WaitingBackups)
	return dir, filesystem.OutputDir(dir, 0o700)
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
	list, err := os.ReadDir(h.host.Path(h.dir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing previous files: %w", err)
	}
	for _, e := range list {
		if e.Name() == except || !e.IsDir() || e.Name() == filepath.Base(stagedDir) {
			continue
		}
		if err := h.host.RemoveTree(filepath.Join(h.dir, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

// RemoveUpgrade removes what the last upgrade kept.
func (h Upgrades) RemoveUpgrade() error {
	if err := h.RemoveStaged(); err != nil {
		return err
	}
	return h.RemoveKept("")
}

// EndRevisions makes undo impossible, before reset removes what undo would change: entries that stay in the
// ledger keep StateDir, and the next node on this host must not get files of this one.
func (h *Host) EndRevisions() error {
	if err := h.Upgrades().RemoveState(); err != nil {
		return err
	}
	return errors.Join(h.RemoveTree(UpgradeDir), h.RemoveTree(ReconfigureDir))
}

func (h Upgrades) removeState(file string) error {
	if err := os.Remove(h.host.Path(file)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing %s: %w", file, err)
	}
	return nil
}
