package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/containerd/v2/pkg/archive"
	"github.com/containerd/errdefs"
	"github.com/moby/sys/userns"
	"github.com/opencontainers/go-digest"
	"golang.org/x/sys/unix"

	"airlift/internal/fault"
)

// cleanupTimeout limits the cleanup after a failure or a cancellation, whose own context
// has ended. A slow disk may need minutes to delete a large layer. A containerd that hangs
// is detected earlier.
const cleanupTimeout = 5 * time.Minute

// damagedHint is the hint for content that does not match its digest.
const damagedHint = "the bundle is damaged: copy it again, or check it with bundle verify"

// afterwards returns a context for the cleanup after ctx has ended.
func afterwards(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
}

// A link is a layer on top of the layers below it: one snapshot. Images with the same
// lower layers share the links.
type link struct {
	part
	diffID  digest.Digest
	chainID digest.Digest // the snapshot's name; it depends on the parents too
	parent  *link         // nil for the lowest layer
	image   string        // the first image that needs it, for messages
	content chan layerContent
}

// A layerContent is where the tar of a layer comes from.
type layerContent struct {
	open     func() (io.ReadCloser, error)
	verified bool   // it was compared with the layer's digest
	unpacked func() // is called when the content is not needed any more
}

// underway reports whether the snapshot will exist without more entries of the stream.
func (l *link) underway() bool { return l == nil || l.received && l.parent.underway() }

func (l *link) receive(c layerContent) {
	l.received = true
	l.content <- c
}

func (l *link) failed(err error) error {
	return fmt.Errorf("unpacking layer %s of %s: %w", l.diffID, l.image, err)
}

func (im *Importer) run(l *link) {
	err := im.makeSnapshot(l)
	if err != nil {
		err = l.failed(err)
	}
	im.end(&l.part, err)
	select {
	case c := <-l.content: // another process was faster
		c.unpacked()
	case <-im.ctx.Done():
	}
}

// makeSnapshot prepares a snapshot when the one below is committed, so that the layer need not
// wait for it, then unpacks the layer into it, and commits it.
func (im *Importer) makeSnapshot(l *link) error {
	parent := ""
	if l.parent != nil {
		if err := l.parent.wait(im.ctx); err != nil {
			return err
		}
		parent = l.parent.chainID.String()
	}
	// Key and label follow containerd's convention for unpacking. With the label, a
	// snapshotter can report that it has the layer already.
	key := fmt.Sprintf(snapshots.UnpackKeyFormat, im.lease.ID, l.chainID)
	labels := snapshots.WithLabels(map[string]string{snapshots.LabelSnapshotRef: l.chainID.String()})
	mounts, err := im.store.snapshots.Prepare(im.ctx, key, parent, labels)
	if errdefs.IsAlreadyExists(err) {
		return im.adopt(l)
	}
	if err != nil {
		return fmt.Errorf("preparing a snapshot: %w", err)
	}
	select {
	case c := <-l.content:
		if err := unpackVerified(im.ctx, mounts, l.diffID, c); err != nil {
			return errors.Join(err, im.remove(key))
		}
		c.unpacked()
	case <-im.ctx.Done():
		return context.Cause(im.ctx)
	}
	err = im.store.snapshots.Commit(im.ctx, l.chainID.String(), key, labels)
	if errdefs.IsAlreadyExists(err) {
		err = errors.Join(im.adopt(l), im.remove(key))
	}
	if err != nil {
		return fmt.Errorf("committing the snapshot: %w", err)
	}
	if dir, _ := plainDir(mounts); dir != "" {
		im.syncLater(dir)
	}
	return nil
}

// syncLater records that a snapshot's directory may not be on the disk yet. The next image
// is published after a sync.
func (im *Importer) syncLater(dir string) {
	im.mu.Lock()
	defer im.mu.Unlock()
	// The parent directory of all snapshots remains, even if this snapshot is removed
	// because another process committed the same one.
	im.unsynced = filepath.Dir(filepath.Dir(dir))
}

func (im *Importer) remove(key string) error {
	ctx, cancel := afterwards(im.ctx)
	defer cancel()
	if err := im.store.snapshots.Remove(ctx, key); err != nil && !errdefs.IsNotFound(err) {
		return fmt.Errorf("removing unfinished snapshot %q: %w", key, err)
	}
	return nil
}

// adopt uses the snapshot that another importer committed meanwhile.
func (im *Importer) adopt(l *link) error {
	has, err := im.holdSnapshot(l.chainID)
	if err == nil && !has {
		err = fmt.Errorf("snapshot %s was created and removed by another process", l.chainID)
	}
	if err != nil {
		return err
	}
	return im.syncAdopted(l)
}

// syncAdopted makes sure that a snapshot of another process is on the disk before an image
// of it is published. It may be committed but not synced: an importer may have been killed
// before its sync, and containerd itself does not sync.
func (im *Importer) syncAdopted(l *link) error {
	im.mu.Lock()
	noted := im.unsynced != "" // all snapshots in plain directories are on one file system
	im.mu.Unlock()
	if noted {
		return nil
	}
	return im.store.view(im.ctx, l.chainID, func(mounts []mount.Mount) error {
		if dirs := lowerDirs(mounts); len(dirs) > 0 {
			im.syncLater(dirs[0])
			return nil
		}
		return withMount(mounts, syncFS) // later it is no longer mounted
	})
}

// unpackVerified unpacks a layer into its snapshot and checks that all of its content has
// the layer's digest.
func unpackVerified(ctx context.Context, mounts []mount.Mount, diffID digest.Digest, c layerContent) error {
	content, err := c.open()
	if err != nil {
		return err
	}
	defer content.Close()
	var r io.Reader = content
	digester := diffID.Algorithm().Digester()
	if !c.verified {
		r = io.TeeReader(r, digester.Hash())
	}
	if dir, opts := plainDir(mounts); dir != "" {
		err = applyTo(ctx, dir, r, opts...)
	} else {
		err = withMount(mounts, func(root string) error {
			if err := applyTo(ctx, root, r); err != nil {
				return err
			}
			return syncFS(root) // later it is no longer mounted
		})
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	// The digest also covers the bytes after the archive's end. If unpacking failed,
	// the digest distinguishes a damaged layer from a full disk.
	if _, readErr := io.Copy(io.Discard, r); readErr != nil {
		return readErr
	}
	if got := digester.Digest(); !c.verified && got != diffID {
		return fault.New(fault.Bundle, "content has digest %s", got).Hint(damagedHint)
	}
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		err = fault.Wrap(err, fault.Failure, "free some space on the file system of containerd's root directory (usually /var/lib/containerd) and run the command again")
	}
	return err
}

// plainDir returns the directory that a mount would make writable, and the options to
// apply a layer to it directly. It returns "" if a real mount is necessary.
//
// The usual snapshotters use plain directories: native always, overlayfs for the lowest
// layer (a bind mount) and for the others (the mount's upper directory). containerd's own
// applier for overlayfs also writes there without mounting. This is faster, and a killed
// process leaves no mount. Whiteouts must then be written in overlayfs's form. A user
// namespace forbids that, but with a mount the kernel writes them.
func plainDir(mounts []mount.Mount) (dir string, opts []archive.ApplyOpt) {
	if len(mounts) != 1 {
		return "", nil
	}
	m := mounts[0]
	if m.Type == "bind" || m.Type == "rbind" {
		return m.Source, nil
	}
	if m.Type != "overlay" || userns.RunningInUserNS() {
		return "", nil
	}
	opts = append(opts, archive.WithConvertWhiteout(archive.OverlayConvertWhiteout))
	for _, o := range m.Options {
		if upper, ok := strings.CutPrefix(o, "upperdir="); ok {
			dir = upper
		}
		if lower, ok := strings.CutPrefix(o, "lowerdir="); ok {
			opts = append(opts, archive.WithParents(strings.Split(lower, ":")))
		}
	}
	return dir, opts
}

func applyTo(ctx context.Context, root string, r io.Reader, opts ...archive.ApplyOpt) error {
	_, err := os.Stat(root)
	if errors.Is(err, fs.ErrNotExist) {
		return fault.New(fault.Failure, "containerd's snapshot directory %s does not exist on this host", root).
			Hint("if containerd runs in a container or in its own mount namespace, run the installer there")
	}
	if err != nil {
		return err
	}
	_, err = archive.Apply(ctx, root, r, opts...)
	return err
}

func syncFS(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.Syncfs(int(f.Fd())); err != nil {
		return fmt.Errorf("syncing the file system of %s: %w", dir, err)
	}
	return nil
}

func withMount(mounts []mount.Mount, f func(root string) error) (err error) {
	root, err := os.MkdirTemp(runDir, "layer-")
	if err != nil {
		return err
	}
	defer func() {
		// Remove, not RemoveAll: if the unmount failed, the directory still has the
		// layer.
		err = errors.Join(err, mount.UnmountMounts(mounts, root, 0), os.Remove(root))
	}()
	// Nothing reads the layer before it is committed, so a mount without sync
	// ("volatile") is useless here, and some kernels refuse to use it again.
	mounts = mount.RemoveVolatileOption(slices.Clone(mounts))
	if err := mount.All(mounts, root); err != nil {
		return fmt.Errorf("mounting a snapshot at %s: %w", root, err)
	}
	return f(root)
}
