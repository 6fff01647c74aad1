package uninstall

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/moby/sys/mountinfo"

	"airlift/installer/config"
	"airlift/installer/host"
	"airlift/installer/host/filesystem"
	"airlift/installer/host/ledger"
	"airlift/installer/host/podnetwork"
)

// A location is a path without links, and its place on its file system. With bind mounts, two paths have
// the same place.
type location struct{ path, device, place string }

// locate follows the links in a path, which may be missing.
func locate(path string, mounts []*mountinfo.Info) (location, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return location{}, err
	}
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		real, _, err = filesystem.Resolve(path)
	}
	if err != nil {
		return location{}, err
	}
	l := location{path: real}
	longest := 0
	for _, m := range mounts { // the last one is on top of the others
		if inner, ok := within(real, m.Mountpoint); ok && len(m.Mountpoint) >= longest {
			longest, l.device, l.place = len(m.Mountpoint), fmt.Sprintf("%d:%d", m.Major, m.Minor), filepath.Join(m.Root, inner)
		}
	}
	return l, nil
}

// within returns the part of a path below a directory, and whether it is the directory or below it.
func within(path, dir string) (inner string, ok bool) {
	if path == dir {
		return "", true
	}
	return strings.CutPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}

// isBelow reports whether l is dir or below it, by its path or its place.
func (l location) isBelow(dir location) bool {
	_, path := within(l.path, dir.path)
	_, place := within(l.place, dir.place)
	return path || place && l.device == dir.device
}

// RemovedByReset returns the file or directory with which reset, or a component, removes a file of the
// user at a path, also through links and bind mounts; "" if it stays. more are directories of components
// that the ledger may not have.
func RemovedByReset(h *host.Host, path string, more ...string) (string, error) {
	mounts, err := mountinfo.GetMounts(nil)
	if err != nil {
		return "", fmt.Errorf("listing mounts: %w", err)
	}
	at, err := locate(path, mounts)
	if err != nil {
		return "", filesystem.OutputFault(err)
	}
	dirs := append([]string{ledger.StateDir, config.KubernetesDir, config.KubeletDir, podnetwork.NetworksDir}, more...)
	for _, kind := range []string{ledger.Owned, ledger.Contents, ledger.File, ledger.Binary} {
		for _, e := range h.Records().Entries(kind) {
			dirs = append(dirs, e.Name)
		}
	}
	for _, dir := range dirs {
		if d, err := locate(h.Path(dir), mounts); err == nil && at.isBelow(d) {
			return dir, nil
		}
	}
	return "", nil
}
