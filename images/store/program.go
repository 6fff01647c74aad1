package store

import (
	"context"
	"crypto/rand"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/containerd/containerd/v2/core/mount"
	"github.com/opencontainers/go-digest"

	"airlift/bundle"
)

// searchPath is the default PATH of containers (containerd's oci.defaultUnixEnv).
var searchPath = []string{"usr/local/sbin", "usr/local/bin", "usr/sbin", "usr/bin", "sbin", "bin"}

// ProgramPath returns the path on this host of a binary in an unpacked image, such as "etcd".
// It can be executed there while the image exists. The error is fs.ErrNotExist if the image has
// no such binary, or if its snapshots are not plain directories.
func (s *Store) ProgramPath(ctx context.Context, img bundle.Image, name string) (string, error) {
	chain := chainIDs(img)
	if len(chain) == 0 {
		return "", fmt.Errorf("looking for %s in %s: %w", name, img.Reference, fs.ErrNotExist)
	}
	dirs, err := s.snapshotDirs(ctx, chain[len(chain)-1])
	if err != nil {
		return "", fmt.Errorf("reading the layers of %s: %w", img.Reference, err)
	}
	for _, layer := range dirs {
		for _, dir := range searchPath {
			file := filepath.Join(layer, dir, name)
			// A link points to another file than in the container.
			if info, err := os.Lstat(file); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
				return file, nil
			}
		}
	}
	return "", fmt.Errorf("looking for %s in %s: %w", name, img.Reference, fs.ErrNotExist)
}

// snapshotDirs returns the directories of a committed snapshot and its parents, the highest
// first, or none if a real mount is necessary.
func (s *Store) snapshotDirs(ctx context.Context, chainID digest.Digest) (dirs []string, err error) {
	err = s.view(ctx, chainID, func(mounts []mount.Mount) error {
		dirs = lowerDirs(mounts)
		return nil
	})
	return dirs, err
}

// view calls look with the read-only mounts of a committed snapshot.
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
