package store

import (
	"context"
	"crypto/rand"
	"strings"

	"github.com/containerd/containerd/v2/core/mount"
	"github.com/opencontainers/go-digest"
)

func (s *Store) view(ctx context.Context, chainID digest.Digest, look func([]mount.Mount) error) error {
	// If this process is killed, containerd's garbage collection removes the view.
	key := "airlift-view-" + rand.Text()
	mounts, err := s.snapshots.View(ctx, key, chainID.String())
	if err != nil {
		return err
	}
	err = look(mounts)
	ctx, cancel := afterwards(ctx)
	defer cancel()
	_ = s.snapshots.Remove(ctx, key) // otherwise the garbage collection removes it
	return err
}

// lowerDirs returns the directories of a read-only mount, the highest first, or none if a
// real mount is necessary.
func lowerDirs(mounts []mount.Mount) []string {
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
