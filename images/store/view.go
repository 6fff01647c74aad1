package store

import (
	"context"
	"crypto/rand"
	"strings"

	"github.com/containerd/containerd/v2/core/mount"
	"github.com/opencontainers/go-digest"
)

// folders are the folders that a finished snapshot is made of, the upper ones
// first; none where it takes a real mount to see them.
func (s *Store) folders(ctx context.Context, chainID digest.Digest) (folders []string, err error) {
	err = s.view(ctx, chainID, func(mounts []mount.Mount) error {
		folders = lowerFolders(mounts)
		return nil
	})
	return folders, err
}

// view calls look with the read-only mounts of a finished snapshot.
func (s *Store) view(ctx context.Context, chainID digest.Digest, look func([]mount.Mount) error) error {
	// Nothing refers to the view: should this process be killed now, containerd
	// collects it.
	key := "airlift-view-" + rand.Text()
	mounts, err := s.snapshots.View(ctx, key, chainID.String())
	if err != nil {
		return err
	}
	err = look(mounts)
	ctx, cancel := afterwards(ctx)
	defer cancel()
	_ = s.snapshots.Remove(ctx, key) // or it is collected
	return err
}

// lowerFolders are the folders that a read-only mount shows, the upper ones
// first; none where it takes a real mount to see them.
func lowerFolders(mounts []mount.Mount) []string {
	if len(mounts) != 1 {
		return nil
	}
	switch m := mounts[0]; m.Type {
	case "bind", "rbind":
		return []string{m.Source}
	case "overlay":
		for _, o := range m.Options {
			if lower, ok := strings.CutPrefix(o, "lowerdir="); ok {
				return strings.Split(lower, ":")
			}
		}
	}
	return nil
}
