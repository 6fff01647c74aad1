package store

import (
	"context"
	"crypto/rand"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"airlift/bundle"

	"github.com/containerd/containerd/v2/core/mount"
)

// searchPath is where a container's programs are looked for when its image
// does not say otherwise (containerd's oci.defaultUnixEnv).
var searchPath = []string{"usr/local/sbin", "usr/local/bin", "usr/sbin", "usr/bin", "sbin", "bin"}

// OpenProgram opens a program of an image that is unpacked here, "etcd", for
// reading or for running it by its file descriptor. It stays there while it is
// open, whatever becomes of the image. The error is fs.ErrNotExist where the
// image has no such program, or its snapshots are not plain folders.
func (s *Store) OpenProgram(ctx context.Context, img bundle.Image, name string) (*os.File, error) {
	chain := chainIDs(img)
	if len(chain) == 0 {
		return nil, fmt.Errorf("opening %s of %s: %w", name, img.Reference, fs.ErrNotExist)
	}
	// Nothing refers to the view: should this process be killed now, containerd
	// collects it.
	key := "airlift-view-" + rand.Text()
	mounts, err := s.snapshots.View(ctx, key, chain[len(chain)-1].String())
	if err != nil {
		return nil, fmt.Errorf("looking into %s: %w", img.Reference, err)
	}
	defer func() {
		after, cancel := afterwards(ctx)
		defer cancel()
		_ = s.snapshots.Remove(after, key) // or it is collected
	}()
	for _, folder := range lowerFolders(mounts) {
		for _, dir := range searchPath {
			f, err := os.OpenInRoot(folder, filepath.Join(dir, name))
			if err != nil {
				continue
			}
			if info, err := f.Stat(); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
				return f, nil
			}
			_ = f.Close()
		}
	}
	return nil, fmt.Errorf("opening %s of %s: %w", path.Join("/", searchPath[1], name), img.Reference, fs.ErrNotExist)
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
