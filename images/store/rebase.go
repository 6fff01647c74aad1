package store

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	introspectionapi "github.com/containerd/containerd/api/services/introspection/v1"
	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/containerd/v2/core/snapshots"
	continuity "github.com/containerd/continuity/fs"
	"github.com/containerd/continuity/sysx"
	"github.com/moby/sys/userns"
	"golang.org/x/sys/unix"
)

// rebases says whether a snapshot can be given its parent when it is committed,
// so that a layer can be unpacked before the ones below it are: since
// containerd 2.2 overlayfs can. Only its form of whiteouts is known here.
func (s *Store) rebases(ctx context.Context) (bool, error) {
	if s.snapshotter != defaultSnapshotter || userns.RunningInUserNS() {
		return false, nil
	}
	filter := "type==io.containerd.snapshotter.v1,id==" + s.snapshotter
	got, err := introspectionapi.NewIntrospectionClient(s.conn).Plugins(ctx, &introspectionapi.PluginsRequest{Filters: []string{filter}})
	if err != nil {
		return false, fmt.Errorf("asking containerd about its snapshotter: %w", err)
	}
	for _, p := range got.Plugins {
		if slices.Contains(p.Capabilities, snapshots.RebaseCap) {
			return true, nil
		}
	}
	return false, nil
}

// asUpper returns the mounts of a snapshot that has no parent yet as those of
// one that has, but for the lower folders.
func asUpper(mounts []mount.Mount) []mount.Mount {
	dir, _ := plainFolder(mounts)
	return []mount.Mount{{Type: "overlay", Options: []string{upperOption + dir}}}
}

// A listing notes which folders a layer lists, and which it goes without
// although it has something in them. Names are as in the layer, without a
// slash in front.
type listing struct {
	listed, unlisted map[string]bool
}

func newListing() *listing {
	return &listing{listed: map[string]bool{}, unlisted: map[string]bool{}}
}

// note is for archive.WithFilter, and refuses nothing.
func (l *listing) note(h *tar.Header) (bool, error) {
	name := strings.Trim(path.Clean(h.Name), "/")
	if h.Typeflag == tar.TypeDir {
		l.listed[name] = true
		delete(l.unlisted, name)
	}
	for dir := path.Dir(name); dir != "." && !l.listed[dir] && !l.unlisted[dir]; dir = path.Dir(dir) {
		l.unlisted[dir] = true
	}
	return true, nil
}

// inherit gives folders that a layer at upper does not list owner, mode and
// attributes of the same folders below it. That is what a layer that is
// unpacked on top of others gets at once; without, an overlay would show every
// folder as root's.
func (l *listing) inherit(upper string, lower []string) error {
	if len(l.unlisted) == 0 {
		return nil
	}
	// The layer may name one folder in two ways, through a link of its own.
	listed := map[string]bool{}
	for name := range l.listed {
		dir, err := continuity.RootPath(upper, name)
		if err != nil {
			return err
		}
		listed[dir] = true
	}
	for name := range l.unlisted {
		dir, err := continuity.RootPath(upper, name)
		if err != nil {
			return err
		}
		if info, err := os.Lstat(dir); listed[dir] || dir == filepath.Clean(upper) || err != nil || !info.IsDir() {
			continue // a whiteout or a file took its place
		}
		if err := inheritFolder(dir, strings.TrimPrefix(dir, filepath.Clean(upper)), lower); err != nil {
			return fmt.Errorf("folder %s: %w", name, err)
		}
	}
	return nil
}

// inheritFolder is inherit for one folder, which is called name in each layer.
func inheritFolder(dir, name string, lower []string) error {
	for _, root := range lower {
		from, err := continuity.RootPath(root, name)
		if err != nil {
			return err
		}
		info, err := os.Lstat(from)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil || !info.IsDir() {
			return err
		}
		st := info.Sys().(*syscall.Stat_t)
		if err := os.Lchown(dir, int(st.Uid), int(st.Gid)); err != nil {
			return err
		}
		if err := os.Chmod(dir, info.Mode()); err != nil {
			return err
		}
		return copyXattrs(dir, from)
	}
	return nil
}

// copyXattrs copies a folder's extended attributes, but for the kernel's own
// notes about overlays and the like.
func copyXattrs(to, from string) error {
	keys, err := sysx.LListxattr(from)
	if errors.Is(err, unix.ENOTSUP) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("listing the attributes of %s: %w", from, err)
	}
	for _, key := range keys {
		if strings.HasPrefix(key, "trusted.") {
			continue
		}
		value, err := sysx.LGetxattr(from, key)
		if err == nil {
			err = sysx.LSetxattr(to, key, value, 0)
		}
		if err != nil && !errors.Is(err, unix.ENOTSUP) && !errors.Is(err, unix.ENODATA) {
			return fmt.Errorf("copying attribute %s of %s: %w", key, from, err)
		}
	}
	return nil
}

// settle makes of a layer that was unpacked on its own one that stands on its
// parents, which are committed.
func (im *Importer) settle(ctx context.Context, l *link) error {
	p := l.prepared
	if len(p.listing.unlisted) == 0 {
		return nil
	}
	lower, err := im.store.folders(ctx, l.parent.chainID)
	if err != nil {
		return err
	}
	upper, _ := plainFolder(p.mounts)
	return p.listing.inherit(upper, lower)
}
