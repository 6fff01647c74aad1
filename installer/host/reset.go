package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// StopKubelet stops the kubelet, so that it does not restart what reset removes.
// It leaves the kubelet of a host that Airlift did not make a node.
func (h Removal) StopKubelet(ctx context.Context) error {
	if !h.host.Records().RanNode() {
		return nil
	}
	return h.host.Systemd().Stop(ctx, "kubelet.service")
}

// StopRuntime stops containerd if Airlift installed it.
func (h Removal) StopRuntime(ctx context.Context) error {
	if !h.host.Records().OwnsRuntime() {
		return nil
	}
	return h.host.Systemd().Stop(ctx, "containerd.service")
}

// RemoveInterfaces removes the network interfaces in the ledger, and the veth
// interfaces that are attached to a bridge among them.
func (h Removal) RemoveInterfaces(ctx context.Context) error {
	entries := h.host.Records().entries(kindInterface)
	if len(entries) == 0 {
		return nil
	}
	links, err := netlink.LinkList()
	if err != nil {
		return fmt.Errorf("listing network interfaces: %w", err)
	}
	var failures []error
	for _, e := range entries {
		if err := ctx.Err(); err != nil {
			return errors.Join(append(failures, err)...)
		}
		err := removeInterface(links, e.Name)
		if err == nil {
			err = h.host.Records().forget(e.Kind, e.Name)
		}
		failures = append(failures, err)
	}
	return errors.Join(failures...)
}

func removeInterface(links []netlink.Link, name string) error {
	i := slices.IndexFunc(links, func(l netlink.Link) bool { return l.Attrs().Name == name })
	if i < 0 {
		return nil
	}
	remove := []netlink.Link{}
	for _, l := range links {
		if l.Type() == "veth" && l.Attrs().MasterIndex == links[i].Attrs().Index {
			remove = append(remove, l)
		}
	}
	for _, l := range append(remove, links[i]) {
		if err := netlink.LinkDel(l); err != nil && !errors.Is(err, unix.ENODEV) {
			return fmt.Errorf("removing network interface %s: %w", l.Attrs().Name, err)
		}
	}
	return nil
}

// RemoveState removes the data of components in the ledger. A directory that
// existed before and was empty is emptied and not removed: it may be a mount.
func (h Removal) RemoveState(ctx context.Context) error {
	var failures []error
	for _, kind := range []string{kindNetwork, kindContents, kindOwned} {
		for _, e := range h.host.Records().entries(kind) {
			if err := ctx.Err(); err != nil {
				return errors.Join(append(failures, err)...)
			}
			var err error
			switch kind {
			case kindNetwork:
				err = h.host.Networks().removeNetwork(e)
			case kindContents:
				err = h.emptyDir(e)
			case kindOwned:
				err = h.removeTree(e.Name)
			}
			if err == nil {
				err = h.host.Records().forget(e.Kind, e.Name)
			}
			failures = append(failures, err)
		}
	}
	return errors.Join(failures...)
}

// emptyDir removes the contents of a directory, except spared ones, and restores its mode:
// containerd and etcd change that of their data directory.
func (h Removal) emptyDir(e entry) error {
	names, err := h.toEmpty(e.Name)
	if err != nil {
		return fmt.Errorf("emptying %s: %w", e.Name, err)
	}
	var failures []error
	for _, name := range names {
		failures = append(failures, h.removeTree(name))
	}
	if _, err := os.Stat(h.host.Path(e.Name)); err == nil && e.Mode != 0 {
		place, err := h.host.place(e.Name)
		if err == nil {
			err = os.Chmod(place, e.Mode)
		}
		if err != nil {
			failures = append(failures, fmt.Errorf("restoring the mode of %s: %w", e.Name, err))
		}
	}
	return errors.Join(failures...)
}

// toEmpty lists the paths that emptyDir removes.
func (h Removal) toEmpty(dir string) ([]string, error) {
	names, err := os.ReadDir(h.host.Path(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var list []string
	for _, e := range names {
		path := filepath.Join(dir, e.Name())
		if _, spared := h.host.Records().recorded(kindSpared, path); !spared && e.Name() != lostAndFound {
			list = append(list, path)
		}
	}
	return list, nil
}

// removeTree removes a path with its contents, unless something is mounted below
// it: the mount may contain other data.
func (h Removal) removeTree(path string) error {
	real := h.host.Path(path)
	mounted, err := mountsWithin(real)
	if err != nil {
		return err
	}
	if mounted != "" {
		return fmt.Errorf("removing %s: %s is mounted there", path, mounted)
	}
	if err := os.RemoveAll(real); err != nil {
		return fmt.Errorf("removing %s: %w", path, err)
	}
	return nil
}

// RemoveInstalled removes the units, files, binaries and empty directories in
// the ledger, newest first, and then the ledger itself. kept describes what it
// left, or saved because it was edited. Entries that fail, and those of skipped
// phases, stay in the ledger for the next reset.
func (h Removal) RemoveInstalled(ctx context.Context) (kept []string, err error) {
	if err := h.host.Upgrades().endUpgrade(); err != nil {
		return nil, err
	}
	var failures []error
	fail := func(err error) {
		if err != nil {
			failures = append(failures, err)
		}
	}
	done := func(e entry, err error) {
		if err == nil {
			err = h.host.Records().forget(e.Kind, e.Name)
		}
		fail(err)
	}
	newestFirst := func(kind string) []entry {
		list := h.host.Records().entries(kind)
		slices.Reverse(list)
		return list
	}

	units := newestFirst(kindUnit)
	for _, e := range units {
		done(e, h.host.Systemd().DisableNow(ctx, e.Name))
	}
	files := slices.Concat(newestFirst(kindFile), newestFirst(kindBinary))
	for _, e := range slices.Concat(files, h.host.Records().entries(kindSaved)) {
		if err := os.Remove(tempFile(h.host.Path(e.Name))); !errors.Is(err, fs.ErrNotExist) {
			fail(err)
		}
	}
	for _, e := range files {
		remove := h.host.putBack
		if e.Kind == kindBinary {
			remove = h.removeBinary
		}
		note, err := remove(e)
		if note != "" {
			kept = append(kept, note)
		}
		done(e, err)
	}
	// Newest first: children were created after their parents.
	for _, e := range newestFirst(kindDir) {
		err := os.Remove(h.host.Path(e.Name))
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.EBUSY) {
			err = nil // not empty any more, or a mount
		}
		done(e, err)
	}
	if len(units) > 0 {
		fail(h.host.Systemd().DaemonReload(ctx))
	}
	fail(h.host.Upgrades().removeUnfinishedBackups())
	if len(failures) > 0 {
		return kept, errors.Join(failures...)
	}
	return kept, h.removeLedger()
}

// notes are the kinds of entries for which there is nothing to remove.
var notes = []string{kindRuntime, kindSaved, kindSpared, kindSysctl, kindModule}

// removeBinary removes a binary, unless it was replaced.
func (h Removal) removeBinary(e entry) (note string, err error) {
	item, err := h.planned(e)
	switch {
	case err != nil:
		return "", err
	case item.Act == Leave:
		return item.String(), nil
	case item.Act == Remove:
		if err := os.Remove(h.host.Path(e.Name)); err != nil {
			return "", fmt.Errorf("removing %s: %w", e.Name, err)
		}
	}
	return "", nil
}

// removeLedger removes the ledger, unless it still has entries to remove.
func (h Removal) removeLedger() error {
	h.host.mu.Lock()
	defer h.host.mu.Unlock()
	for _, e := range h.host.ledger.Entries {
		if !slices.Contains(notes, e.Kind) {
			return nil
		}
	}
	if err := h.removeTree(StateDir); err != nil {
		return err
	}
	h.host.ledger, h.host.unsaved = ledger{Version: ledgerVersion}, false
	return nil
}
