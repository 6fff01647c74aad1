package uninstall

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"airlift/installer/host"
	"airlift/installer/host/ledger"
)

// ofAirlift reports whether an entry is only of use to Airlift: a timer with its service, the command airlift, a record.
// All others are of the node.
func ofAirlift(e ledger.Entry) bool {
	switch e.Kind {
	case ledger.Unit:
		return strings.HasPrefix(e.Name, "airlift-")
	case ledger.File:
		return strings.HasPrefix(filepath.Base(e.Name), "airlift-") || strings.HasPrefix(e.Name, ledger.StateDir+"/")
	case ledger.Binary:
		return e.Name == host.CommandPath || e.Name == host.FormerCommand
	case ledger.Owned, ledger.Contents:
		return strings.HasPrefix(e.Name, ledger.StateDir+"/")
	}
	return false
}

// PlanDisown lists what the end of the adoption of this node removes, and what it leaves of Airlift's changes.
func PlanDisown(h *host.Host) (goes, stays []string, err error) {
	for _, kind := range []string{ledger.Unit, ledger.File, ledger.Binary, ledger.Owned, ledger.Contents, ledger.Saved} {
		for _, e := range h.Records().Entries(kind) {
			name := e.Name
			if kind == ledger.Unit {
				name = "systemd unit " + name
			} else if _, err := os.Lstat(h.Path(e.Name)); errors.Is(err, fs.ErrNotExist) {
				continue
			} else if err != nil {
				return nil, nil, err
			}
			if ofAirlift(e) {
				goes = append(goes, name)
			} else {
				stays = append(stays, name)
			}
		}
	}
	for _, e := range h.Records().Entries(ledger.Package) {
		stays = append(stays, "package "+e.Name)
	}
	for _, i := range backups(h) {
		stays = append(stays, i.String())
	}
	return append(goes, ledger.StateDir), stays, nil
}

// RemoveServices stops and removes what is only of use to Airlift, and leaves the node.
func RemoveServices(ctx context.Context, h *host.Host) error {
	var units []string
	for _, kind := range []string{ledger.Unit, ledger.File, ledger.Binary, ledger.Owned, ledger.Contents} {
		list := h.Records().Entries(kind)
		slices.Reverse(list)
		for _, e := range list {
			if !ofAirlift(e) {
				continue
			}
			var err error
			switch {
			case kind == ledger.Unit:
				units = append(units, e.Name)
				err = h.Systemd().DisableNow(ctx, e.Name)
			case kind == ledger.File:
				_, err = putBack(h, e)
			case kind == ledger.Binary:
				_, err = removeBinary(h, e)
			default:
				err = h.RemoveTree(e.Name)
			}
			if err == nil {
				err = h.Records().Forget(e.Kind, e.Name)
			}
			if err != nil {
				return err
			}
		}
	}
	dirs := h.Records().Entries(ledger.Dir)
	slices.Reverse(dirs)
	for _, e := range dirs {
		if err := h.RemoveEmpty(e.Name); err != nil {
			return err
		}
	}
	return h.Systemd().Reread(ctx, units...)
}

// RemoveLedger removes StateDir. Undo and reset become impossible before the files go that they would restore. The ledger goes
// last: until then, the command can be repeated.
func RemoveLedger(h *host.Host) error {
	if err := h.EndRevisions(); err != nil {
		return err
	}
	if err := h.Records().BeginDisown(); err != nil {
		return err
	}
	if err := emptyState(h); err != nil {
		return err
	}
	return h.Records().Remove(true, func() error { return h.RemoveTree(ledger.StateDir) })
}

// emptyState removes everything but the ledger from StateDir.
func emptyState(h *host.Host) error {
	list, err := os.ReadDir(h.Path(ledger.StateDir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("listing %s: %w", ledger.StateDir, err)
	}
	var failures []error
	for _, e := range list {
		if path := filepath.Join(ledger.StateDir, e.Name()); path != ledger.Path {
			failures = append(failures, h.RemoveTree(path))
		}
	}
	return errors.Join(failures...)
}
