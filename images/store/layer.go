package store

import (
	"bytes"
	"cmp"
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

	"airlift/bundle"
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
	diffID  digest.Digest
	chainID digest.Digest // the snapshot's name; it depends on the parents too
	parent  *link         // nil for the lowest layer
	image   string        // the first image that needs it, for messages
	stage   stage         // stored if it existed before; otherwise only the goroutine that calls Blob uses it

	prepared  *preparation  // nil until the snapshot is being prepared
	committed chan struct{} // closed when the snapshot is committed
}

// ready reports whether the parent exists or is being committed.
func (l *link) ready() bool { return l.parent == nil || l.parent.stage != lacking }

func (l *link) isCommitted() bool {
	select {
	case <-l.committed:
		return true
	default:
		return false
	}
}

// wait waits until the snapshot is committed.
func (l *link) wait(ctx context.Context) error {
	select {
	case <-l.committed:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// A preparation is a snapshot that a layer is unpacked into.
type preparation struct {
	key    string
	labels snapshots.Opt
	done   chan struct{} // closed when the following fields are set
	mounts []mount.Mount
	there  bool // another process has committed the snapshot meanwhile
	err    error
}

// preparedAhead is the number of snapshots that are prepared in advance, so that layers
// need not wait for them.
const preparedAhead = 4

// prepareAhead prepares snapshots for the next layers.
func (im *Importer) prepareAhead() {
	waiting := 0
	for len(im.next) > 0 && im.next[0].stage != lacking {
		im.next = im.next[1:]
	}
	for _, l := range im.next {
		if waiting == preparedAhead {
			return
		}
		if l.stage == lacking {
			im.prepare(l)
			waiting++
		}
	}
}

// prepare starts to create a snapshot for a layer, as soon as the parent is committed.
func (im *Importer) prepare(l *link) *preparation {
	if l.prepared != nil {
		return l.prepared
	}
	l.prepared = &preparation{
		// Key and label follow containerd's convention for unpacking. With the label, a
		// snapshotter can report that it has the layer already.
		key:    fmt.Sprintf(snapshots.UnpackKeyFormat, im.lease.ID, l.chainID),
		labels: snapshots.WithLabels(map[string]string{snapshots.LabelSnapshotRef: l.chainID.String()}),
		done:   make(chan struct{}),
	}
	im.background.prepare(func(ctx context.Context) {
		defer close(l.prepared.done)
		l.prepared.err = im.makeSnapshot(ctx, l)
	})
	return l.prepared
}

func (im *Importer) makeSnapshot(ctx context.Context, l *link) (err error) {
	parent, p := "", l.prepared
	if l.parent != nil {
		if err := l.parent.wait(ctx); err != nil {
			return err
		}
		parent = l.parent.chainID.String()
	}
	p.mounts, err = im.store.snapshots.Prepare(ctx, p.key, parent, p.labels)
	if errdefs.IsAlreadyExists(err) {
		p.there = true
		return im.adopt(ctx, l)
	}
	if err != nil {
		return fmt.Errorf("preparing a snapshot: %w", err)
	}
	return nil
}

// apply unpacks the layer tar r into a new snapshot. If the digest matches, the snapshot is
// committed in the background. On failure it is removed.
func (im *Importer) apply(ctx context.Context, l *link, r io.Reader) error {
	if err := im.extract(ctx, l, r); err != nil {
		// The cause may be a parent that could not be committed.
		return cmp.Or(im.failed(), l.failed(err))
	}
	l.stage = received
	im.prepareAhead()
	return im.background.start(ctx, 0, func(ctx context.Context) error {
		if err := im.commit(ctx, l); err != nil {
			return l.failed(err)
		}
		im.publish()
		return nil
	})
}

const (
	// smallLayer is the maximum size in bytes of a layer that is read into memory. The
	// lower layers of images are small, and a stream that waits for containerd at each
	// of them mostly waits. The control plane's images begin with layers of up to 3.2 MB.
	smallLayer = 4 << 20

	// maxInMemory limits, in bytes, the small layers that stay in memory because they
	// are needed again. Further ones go to the content store.
	maxInMemory = 2 << 20
)

// smallLayer reads a layer into memory.
func (im *Importer) smallLayer(ctx context.Context, layer *deferral, e bundle.Entry, r io.Reader) error {
	if err := im.background.room(ctx, e.Size); err != nil {
		return err
	}
	b := bytes.NewBuffer(make([]byte, 0, e.Size+bytes.MinRead)) // without MinRead, it would grow before it finds the end
	if _, err := b.ReadFrom(r); err != nil {
		return layer.links[0].failed(err)
	}
	if im.inMemory+b.Len() > maxInMemory && !layer.fits() {
		return im.keep(ctx, layer, e, b)
	}
	layer.memory = b.Bytes()
	im.inMemory += b.Len()
	return im.catchUp(ctx)
}

// fits reports whether a layer can be unpacked now for all its snapshots.
func (d *deferral) fits() bool {
	for _, l := range d.links {
		if l.stage == lacking && !l.ready() {
			return false
		}
	}
	return true
}

// forget frees the memory of a layer that is no longer needed.
func (im *Importer) forget(layer *deferral) {
	if layer.memory != nil && layer.open() == 0 {
		im.inMemory -= len(layer.memory)
		layer.memory = nil
	}
}

// applyInBackground unpacks a layer in the background.
func (im *Importer) applyInBackground(ctx context.Context, l *link, b []byte) error {
	im.prepare(l)
	l.stage = received
	im.prepareAhead()
	return im.background.start(ctx, int64(len(b)), func(ctx context.Context) error {
		err := im.extract(ctx, l, bytes.NewReader(b))
		if err == nil {
			err = im.commit(ctx, l)
		}
		if err != nil {
			return l.failed(err)
		}
		im.publish()
		return nil
	})
}

func (l *link) failed(err error) error {
	return fmt.Errorf("unpacking layer %s of %s: %w", l.diffID, l.image, err)
}

func (im *Importer) extract(ctx context.Context, l *link, r io.Reader) error {
	p := im.prepare(l)
	select {
	case <-p.done:
	case <-ctx.Done():
		return ctx.Err()
	}
	if p.err != nil || p.there {
		return p.err
	}
	err := im.unpackVerified(ctx, l, r)
	if err != nil {
		err = errors.Join(err, im.remove(ctx, p))
	}
	return err
}

// commit commits the snapshot of an unpacked layer.
func (im *Importer) commit(ctx context.Context, l *link) error {
	p := l.prepared
	if !p.there {
		err := im.store.snapshots.Commit(ctx, l.chainID.String(), p.key, p.labels)
		if errdefs.IsAlreadyExists(err) {
			err = errors.Join(im.adopt(ctx, l), im.remove(ctx, p))
		}
		if err != nil {
			return fmt.Errorf("committing the snapshot: %w", err)
		}
	}
	if dir, _ := plainDir(p.mounts); dir != "" {
		im.syncLater(dir)
	}
	im.mu.Lock()
	defer im.mu.Unlock()
	close(l.committed)
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

// remove removes an uncommitted snapshot.
func (im *Importer) remove(ctx context.Context, p *preparation) error {
	ctx, cancel := afterwards(ctx)
	defer cancel()
	if err := im.store.snapshots.Remove(ctx, p.key); err != nil && !errdefs.IsNotFound(err) {
		return fmt.Errorf("removing unfinished snapshot %q: %w", p.key, err)
	}
	return nil
}

// adopt uses the snapshot that another importer committed meanwhile.
func (im *Importer) adopt(ctx context.Context, l *link) error {
	has, err := im.holdSnapshot(ctx, l.chainID)
	if err == nil && !has {
		err = fmt.Errorf("snapshot %s was created and removed by another process", l.chainID)
	}
	if err != nil {
		return err
	}
	return im.syncAdopted(ctx, l)
}

// syncAdopted makes sure that a snapshot of another process is on the disk before an image
// of it is published. It may be committed but not synced: an importer may have been killed
// before its sync, and containerd itself does not sync.
func (im *Importer) syncAdopted(ctx context.Context, l *link) error {
	im.mu.Lock()
	noted := im.unsynced != "" // all snapshots in plain directories are on one file system
	im.mu.Unlock()
	if noted {
		return nil
	}
	return im.store.view(ctx, l.chainID, func(mounts []mount.Mount) error {
		if dirs := lowerDirs(mounts); len(dirs) > 0 {
			im.syncLater(dirs[0])
			return nil
		}
		return withMount(mounts, syncFS) // later it is no longer mounted
	})
}

// unpackVerified unpacks the layer tar r into its snapshot and checks that all of r has
// the layer's digest.
func (im *Importer) unpackVerified(ctx context.Context, l *link, r io.Reader) error {
	digester := l.diffID.Algorithm().Digester()
	v, verified := r.(bundle.Content)
	verified = verified && v.Verifies() == l.diffID.Encoded()
	if !verified {
		r = io.TeeReader(r, digester.Hash())
	}
	err := im.unpack(ctx, l, r)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	// The digest also covers the bytes after the archive's end. If unpacking failed,
	// the digest distinguishes a damaged layer from a full disk.
	if _, readErr := io.Copy(io.Discard, r); readErr != nil {
		return readErr
	}
	if got := digester.Digest(); !verified && got != l.diffID {
		return fault.New(fault.Bundle, "content has digest %s", got).Hint(damagedHint)
	}
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		err = fault.Wrap(err, fault.Failure, "free some space on the file system of containerd's root directory (usually /var/lib/containerd) and run the command again")
	}
	return err
}

// unpack applies the layer tar r to the file system of its snapshot.
func (im *Importer) unpack(ctx context.Context, l *link, r io.Reader) error {
	if dir, opts := plainDir(l.prepared.mounts); dir != "" {
		return applyTo(ctx, dir, r, opts...)
	}
	return withMount(l.prepared.mounts, func(root string) error {
		if err := applyTo(ctx, root, r); err != nil {
			return err
		}
		return syncFS(root) // later it is no longer mounted
	})
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

// syncFS waits until everything on the file system of dir is on the disk.
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

// withMount mounts mounts at a temporary directory, calls f with it, and unmounts.
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
