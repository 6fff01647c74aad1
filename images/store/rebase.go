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

// lower waits until the snapshot below is committed, and returns the directories
// that it is made of, the upper ones first.
func (im *Importer) lower(ctx context.Context, l *link) ([]string, error) {
	select {
	case <-l.parent.committed:
		folders, err := im.store.folders(ctx, l.parent.chainID)
		if err == nil && len(folders) == 0 {
			err = fmt.Errorf("snapshot %s has no directories on this host", l.parent.chainID)
		}
		return folders, err
	case <-im.behind.ctx.Done(): // it may not come
		return nil, im.behind.ctx.Err()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// withParents is for a layer that is unpacked into upper without the ones below
// it. Those matter to archive.Apply in one place only: a directory that it has to
// make because an entry is in it, and the layer has not listed it yet, takes
// owner, mode, times and attributes from the lower layers. So before such an
// entry, the directories are made by archive.Apply itself, which is then shown
// the lower layers. Until there is one, nothing waits for them.
func withParents(ctx context.Context, upper string, lower func(context.Context) ([]string, error)) archive.ApplyOpt {
	var parents []string
	return archive.WithFilter(func(h *tar.Header) (bool, error) {
		// As Apply looks for it: through the links that are in upper by now.
		dir, err := continuity.RootPath(upper, path.Dir(h.Name))
		if err != nil {
			return false, err
		}
		if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
			return true, nil // if this failed, Apply will say so
		}
		if parents == nil {
			if parents, err = lower(ctx); err != nil {
				return false, err
			}
		}
		return true, makeParents(ctx, upper, h.Name, parents)
	})
}

// makeParents makes the directories above an entry of a layer, as archive.Apply
// makes them, and not the entry.
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
