package store

import (
	"context"
	"crypto/rand"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"airlift/bundle"

	"github.com/containerd/containerd/v2/core/mount"
	"github.com/opencontainers/go-digest"
)

// searchPath is where a container's programs are looked for when its image
// does not say otherwise (containerd's oci.defaultUnixEnv).
var searchPath = []string{"usr/local/sbin", "usr/local/bin", "usr/sbin", "usr/bin", "sbin", "bin"}

// ProgramPath is where a program of an image that is unpacked here, "etcd",
// lies on this host: it can be run from there as long as the image stays. The
// error is fs.ErrNotExist where the image has no such program, or its
// snapshots are not plain folders.
func (s *Store) ProgramPath(ctx context.Context, img bundle.Image, name string) (string, error) {
	chain := chainIDs(img)
	if len(chain) == 0 {
		return "", fmt.Errorf("looking for %s in %s: %w", name, img.Reference, fs.ErrNotExist)
	}
	folders, err := s.folders(ctx, chain[len(chain)-1])
	if err != nil {
		return "", fmt.Errorf("looking into %s: %w", img.Reference, err)
	}
	for _, folder := range folders {
		for _, dir := range searchPath {
			file := filepath.Join(folder, dir, name)
			// A link would lead elsewhere than in the container.
			if info, err := os.Lstat(file); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
				return file, nil
			}
		}
	}
	return "", fmt.Errorf("looking for %s in %s: %w", name, img.Reference, fs.ErrNotExist)
}

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
