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

// StopKubelet stops the kubelet, so that it does not start again what reset
// takes away. A host that Airlift did not make a node may run another one.
func (h *Host) StopKubelet(ctx context.Context) error {
	if !h.RanNode() {
		return nil
	}
	return h.Stop(ctx, "kubelet.service")
}

// StopRuntime stops containerd where it is ours.
func (h *Host) StopRuntime(ctx context.Context) error {
	if !h.OwnsRuntime() {
		return nil
	}
	return h.Stop(ctx, "containerd.service")
}

// RemoveInterfaces removes the network interfaces that the ledger lists, and
// with a bridge the pods' ends that are still in it.
func (h *Host) RemoveInterfaces(ctx context.Context) error {
	entries := h.entries(kindInterface)
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
			err = h.forget(e.Kind, e.Name)
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

// RemoveState removes what programs collected while the node ran, as far as
// the ledger lists it. A directory that was there before, empty, may be a mount
// of its own: it is emptied, not removed.
func (h *Host) RemoveState(ctx context.Context) error {
	var failures []error
	for _, kind := range []string{kindNetwork, kindContents, kindOwned} {
		for _, e := range h.entries(kind) {
			if err := ctx.Err(); err != nil {
				return errors.Join(append(failures, err)...)
			}
			var err error
			switch kind {
			case kindNetwork:
				err = h.removeNetwork(e)
			case kindContents:
				err = h.emptyDir(e.Name)
			case kindOwned:
				err = h.removeTree(e.Name)
			}
			if err == nil {
				err = h.forget(e.Kind, e.Name)
			}
			failures = append(failures, err)
		}
	}
	return errors.Join(failures...)
}

// emptyDir removes what is in a directory, but for what is spared.
func (h *Host) emptyDir(dir string) error {
	names, err := h.toEmpty(dir)
	if err != nil {
		return fmt.Errorf("emptying %s: %w", dir, err)
	}
	var failures []error
	for _, name := range names {
		failures = append(failures, h.removeTree(name))
	}
	return errors.Join(failures...)
}

// toEmpty lists the paths that emptyDir removes.
func (h *Host) toEmpty(dir string) ([]string, error) {
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
		if _, spared := h.recorded(kindSpared, path); !spared && e.Name() != lostAndFound {
			list = append(list, path)
		}
	}
	return list, nil
}

// removeTree removes a path with all it holds, unless something is mounted in
// there: that is somebody's data, not ours to delete through a mount.
func (h *Host) removeTree(path string) error {
	real := h.Path(path)
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

// RemoveInstalled removes what the ledger lists besides, newest first: units,
// files, binaries and directories that are empty, and at last the ledger
// itself. What it leaves, or saves because it was edited, is returned in kept.
// What fails stays in the ledger for another try, and so does what was skipped
// before.
func (h *Host) RemoveInstalled(ctx context.Context) (kept []string, err error) {
	var failures []error
	fail := func(err error) {
		if err != nil {
			failures = append(failures, err)
		}
	}
	done := func(e entry, err error) {
		if err == nil {
			err = h.forget(e.Kind, e.Name)
		}
		fail(err)
	}
	newestFirst := func(kind string) []entry {
		list := h.entries(kind)
		slices.Reverse(list)
		return list
	}

	units := newestFirst(kindUnit)
	for _, e := range units {
		done(e, h.DisableNow(ctx, e.Name))
	}
	files := slices.Concat(newestFirst(kindFile), newestFirst(kindBinary))
	for _, e := range files {
		if err := os.Remove(tempFile(h.Path(e.Name))); !errors.Is(err, fs.ErrNotExist) {
			fail(err)
		}
	}
	for _, e := range files {
		remove := h.putBack
		if e.Kind == kindBinary {
			remove = h.removeBinary
		}
		note, err := remove(e)
		if note != "" {
			kept = append(kept, note)
		}
		done(e, err)
	}
	// Children were made after their parents.
	for _, e := range newestFirst(kindDir) {
		err := os.Remove(h.Path(e.Name))
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.EBUSY) {
			err = nil // others use it now, or it is a mount
		}
		done(e, err)
	}
	if len(units) > 0 {
		fail(h.DaemonReload(ctx))
	}
	if len(failures) > 0 {
		return kept, errors.Join(failures...)
	}
	return kept, h.removeLedger()
}

// notes are the kinds of entries that name nothing to remove.
var notes = []string{kindRuntime, kindSpared, kindSysctl, kindModule}

// removeBinary removes a binary, unless it was replaced.
func (h *Host) removeBinary(e entry) (note string, err error) {
	item, err := h.fate(e)
	switch {
	case err != nil:
		return "", err
	case item.Act == Leave:
		return item.String(), nil
	case item.Act == Remove:
		if err := os.Remove(h.Path(e.Name)); err != nil {
			return "", fmt.Errorf("removing %s: %w", e.Name, err)
		}
	}
	return "", nil
}

// removeLedger ends the bookkeeping, unless the ledger lists what was skipped.
func (h *Host) removeLedger() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, e := range h.ledger.Entries {
		if !slices.Contains(notes, e.Kind) {
			return nil
		}
	}
	if err := os.RemoveAll(h.Path(StateDir)); err != nil {
		return fmt.Errorf("removing the ledger: %w", err)
	}
	h.ledger, h.unsaved = ledger{Version: ledgerVersion}, false
	return nil
}
