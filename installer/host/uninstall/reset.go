// Package uninstall removes from a host what the ledger lists, and restores what Airlift replaced.
package uninstall

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"airlift/installer/host"
	"airlift/installer/host/filesystem"
	"airlift/installer/host/ledger"
	"airlift/installer/host/podnetwork"
)

// StopKubelet stops the kubelet, so that it does not restart what reset removes.
// It leaves the kubelet of a host that Airlift did not make a node.
func StopKubelet(ctx context.Context, h *host.Host) error {
	if !h.Records().RanNode() {
		return nil
	}
	return h.Systemd().Stop(ctx, "kubelet.service")
}

// StopRuntime stops containerd if Airlift installed it.
func StopRuntime(ctx context.Context, h *host.Host) error {
	if !h.Records().OwnsRuntime() {
		return nil
	}
	return h.Systemd().Stop(ctx, "containerd.service")
}

// RemoveState removes the data of components in the ledger. A directory that
// existed before and was empty is emptied and not removed: it may be a mount.
func RemoveState(ctx context.Context, h *host.Host) error {
	var failures []error
	for _, kind := range []string{ledger.Network, ledger.Contents, ledger.Owned} {
		for _, e := range h.Records().Entries(kind) {
			if err := ctx.Err(); err != nil {
				return errors.Join(append(failures, err)...)
			}
			var err error
			switch kind {
			case ledger.Network:
				err = podnetwork.RemoveState(h, e)
			case ledger.Contents:
				err = emptyDir(h, e)
			case ledger.Owned:
				err = h.RemoveTree(e.Name)
			}
			if err == nil {
				err = h.Records().Forget(e.Kind, e.Name)
			}
			failures = append(failures, err)
		}
	}
	return errors.Join(failures...)
}

// emptyDir removes the contents of a directory, except spared ones, and restores its mode and
// owner: containerd and etcd change them.
func emptyDir(h *host.Host, e ledger.Entry) error {
	names, err := toEmpty(h, e.Name)
	if err != nil {
		return fmt.Errorf("emptying %s: %w", e.Name, err)
	}
	var failures []error
	for _, name := range names {
		failures = append(failures, h.RemoveTree(name))
	}
	if _, err := os.Stat(h.Path(e.Name)); err == nil && e.Mode != 0 {
		place, err := h.Place(e.Name)
		if err == nil && e.Owner != nil {
			err = os.Chown(place, e.Owner.UID, e.Owner.GID)
		}
		if err == nil {
			err = os.Chmod(place, e.Mode)
		}
		if err != nil {
			failures = append(failures, fmt.Errorf("restoring the mode and the owner of %s: %w", e.Name, err))
		}
	}
	return errors.Join(failures...)
}

// toEmpty lists the paths that emptyDir removes.
func toEmpty(h *host.Host, dir string) ([]string, error) {
	names, err := os.ReadDir(h.Path(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var list []string
	for _, e := range names {
		path := filepath.Join(dir, e.Name())
		if _, spared := h.Records().Find(ledger.Spared, path); !spared && e.Name() != ledger.LostAndFound {
			list = append(list, path)
		}
	}
	return list, nil
}

// RemoveInstalled removes the units, files, binaries and empty directories in the ledger, newest
// first, and then the ledger itself. kept describes what it left, or saved because it was edited.
// Failed entries, and entries of skipped phases, stay in the ledger for the next reset. On an adopted
// node, the ledger stays, with what adopt found.
func RemoveInstalled(ctx context.Context, h *host.Host) (kept []string, err error) {
	if err := h.EndRevisions(); err != nil {
		return nil, err
	}
	var failures []error
	fail := func(err error) {
		if err != nil {
			failures = append(failures, err)
		}
	}
	done := func(e ledger.Entry, err error) {
		if err == nil {
			err = h.Records().Forget(e.Kind, e.Name)
		}
		fail(err)
	}
	newestFirst := func(kind string) []ledger.Entry {
		list := h.Records().Entries(kind)
		slices.Reverse(list)
		return list
	}

	units := newestFirst(ledger.Unit)
	for _, e := range units {
		done(e, h.Systemd().DisableNow(ctx, e.Name))
	}
	files := slices.Concat(newestFirst(ledger.File), newestFirst(ledger.Binary))
	for _, e := range slices.Concat(files, h.Records().Entries(ledger.Saved)) {
		if err := os.Remove(filesystem.TempName(h.Path(e.Name))); !errors.Is(err, fs.ErrNotExist) {
			fail(err)
		}
	}
	for _, e := range files {
		if KeepsCredentials(h, e) {
			continue // whoever restores its server forgets it
		}
		if e.Name == host.AccountFile { // it declares what to remove
			note, err := h.RemoveAccount(ctx, host.EtcdAccount)
			if note != "" {
				kept = append(kept, note)
			}
			if err != nil {
				fail(err)
				continue
			}
		}
		remove := putBack
		if e.Kind == ledger.Binary {
			remove = removeBinary
		}
		note, err := remove(h, e)
		if note != "" {
			kept = append(kept, note)
		}
		done(e, err)
	}
	// Newest first: children were created after their parents.
	for _, e := range newestFirst(ledger.Dir) {
		err := os.Remove(h.Path(e.Name))
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.EBUSY) {
			err = nil // not empty any more, or a mount
		}
		done(e, err)
	}
	if len(units) > 0 { // an original may be older than what systemd has read
		fail(h.Systemd().Reload(ctx, units[0].Name))
	}
	fail(h.Upgrades().RemoveUnfinishedBackups())
	if len(failures) > 0 {
		return kept, errors.Join(failures...)
	}
	if err := h.Records().Remove(false, func() error { return h.RemoveTree(ledger.StateDir) }); err != nil {
		return kept, err
	}
	if h.Records().Adopted() == nil || h.Records().HasEntries() {
		return kept, nil
	}
	return kept, emptyState(h)
}

// removeBinary removes a binary, unless it was replaced, and restores the binary that it replaced.
func removeBinary(h *host.Host, e ledger.Entry) (note string, err error) {
	item, err := planned(h, e)
	switch {
	case err != nil:
		return "", err
	case item.Act == Leave:
		return item.String(), nil
	case e.Original != "" && filesystem.Exists(h.Path(e.Original)):
		return "", restoreOriginal(h, e)
	case item.Act == Remove:
		if err := h.Change(e.Name, func() error { return os.Remove(h.Path(e.Name)) }); err != nil {
			return "", fmt.Errorf("removing %s: %w", e.Name, err)
		}
	}
	return "", nil
}
