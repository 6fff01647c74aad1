package store

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"

	introspectionapi "github.com/containerd/containerd/api/services/introspection/v1"
	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/containerd/v2/pkg/archive"
	continuity "github.com/containerd/continuity/fs"
	"github.com/moby/sys/userns"
)

// rebases reports whether a snapshot can get its parent when it is committed, so that a
// layer can be unpacked before its parent. overlayfs supports this since containerd 2.2.
// This package only writes the whiteouts of overlayfs.
func (s *Store) rebases(ctx context.Context) (bool, error) {
	if s.snapshotter != defaultSnapshotter || userns.RunningInUserNS() {
		return false, nil
	}
	filter := "type==io.containerd.snapshotter.v1,id==" + s.snapshotter
	got, err := introspectionapi.NewIntrospectionClient(s.conn).Plugins(ctx, &introspectionapi.PluginsRequest{Filters: []string{filter}})
	if err != nil {
		return false, fmt.Errorf("getting the capabilities of containerd's snapshotter: %w", err)
	}
	for _, p := range got.Plugins {
		if slices.Contains(p.Capabilities, snapshots.RebaseCap) {
			return true, nil
		}
	}
	return false, nil
}

// asUpper converts the mounts of a snapshot without a parent to those of a snapshot with
// one, but without the lower directories.
func asUpper(mounts []mount.Mount) []mount.Mount {
	dir, _ := plainDir(mounts)
	return []mount.Mount{{Type: "overlay", Options: []string{upperOption + dir}}}
}

// lower waits until the parent is committed, and returns the directories of its layers, the
// highest first.
func (im *Importer) lower(ctx context.Context, l *link) ([]string, error) {
	select {
	case <-l.parent.committed:
		dirs, err := im.store.snapshotDirs(ctx, l.parent.chainID)
		if err == nil && len(dirs) == 0 {
			err = fmt.Errorf("snapshot %s has no directories on this host", l.parent.chainID)
		}
		return dirs, err
	case <-im.background.ctx.Done(): // the parent may never be committed
		return nil, im.background.ctx.Err()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// withParents is an option to unpack a layer into upper without its parents. archive.Apply
// needs the parents in one case only: if it has to create a directory that the layer has
// not listed yet, the directory gets owner, mode, times and attributes from the lower
// layers. So before such an entry this option waits for the lower layers and lets
// archive.Apply create the directories with them.
func withParents(ctx context.Context, upper string, lower func(context.Context) ([]string, error)) archive.ApplyOpt {
	var parents []string
	return archive.WithFilter(func(h *tar.Header) (bool, error) {
		// Apply resolves the path in the same way, through links in upper.
		dir, err := continuity.RootPath(upper, path.Dir(h.Name))
		if err != nil {
			return false, err
		}
		if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
			return true, nil // if this failed, Apply returns the error
		}
		if parents == nil {
			if parents, err = lower(ctx); err != nil {
				return false, err
			}
		}
		return true, makeParents(ctx, upper, h.Name, parents)
	})
}

// makeParents creates the directories above an entry of a layer with archive.Apply, but not
// the entry.
func makeParents(ctx context.Context, upper, name string, parents []string) error {
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	if err := errors.Join(w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name}), w.Close()); err != nil {
		return err
	}
	leaveOut := func(*tar.Header, string) (bool, error) { return false, nil }
	_, err := archive.Apply(ctx, upper, &layer, archive.WithParents(parents), archive.WithConvertWhiteout(leaveOut))
	return err
}
