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

	"airlift/bundle"
	"airlift/fault"

	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/containerd/v2/pkg/archive"
	"github.com/containerd/errdefs"
	"github.com/moby/sys/userns"
	"github.com/opencontainers/go-digest"
	"golang.org/x/sys/unix"
)

// cleanupTimeout bounds what is done after a failure or a cancellation, in
// place of the context that has ended by then. A slow disk may need minutes to
// delete a large layer; a containerd that hangs is noticed earlier.
const cleanupTimeout = 5 * time.Minute

// damagedHint is for content that is not what its digest says.
const damagedHint = "the bundle is damaged: copy it again, or check it with `bundle verify`"

// afterwards returns a context for cleaning up that outlives ctx.
func afterwards(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
}

// A link is one layer on top of the ones below it: one snapshot. Images that
// share their lower layers share the links.
type link struct {
	diffID  digest.Digest
	chainID digest.Digest // the snapshot's name; covers the parents too
	parent  *link         // nil at the bottom
	image   string        // the first image that needs it, for messages
	stage   stage         // stored if it was there before; else only the caller of Blob goes by it

	prepared  *preparation  // nil until somebody wants to unpack into it
	committed chan struct{} // closed when the snapshot is
}

// ready says whether the snapshot below is there, or will be in a moment.
func (l *link) ready() bool { return l.parent == nil || l.parent.stage != lacking }

func (l *link) isCommitted() bool {
	select {
	case <-l.committed:
		return true
	default:
		return false
	}
}

// wait returns when the snapshot is committed.
func (l *link) wait(ctx context.Context) error {
	select {
	case <-l.committed:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// A preparation is a snapshot to unpack a layer into.
type preparation struct {
	key    string
	labels snapshots.Opt
	alone  bool          // it gets its parent when it is committed
	done   chan struct{} // closed when what follows is known
	mounts []mount.Mount
	there  bool // somebody else finished the snapshot in the meantime
	err    error
}

// preparedAhead is for how many layers to come a snapshot is prepared, so that
// they need not wait for it.
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

// prepare begins to make a snapshot for a layer. Unless containerd can rebase
// it, that cannot be before the one below it is committed.
func (im *Importer) prepare(l *link) *preparation {
	if l.prepared != nil {
		return l.prepared
	}
	l.prepared = &preparation{
		// Key and label are containerd's convention for extractions. The label
		// also lets a snapshotter that has the layer already say so.
		key:    fmt.Sprintf(snapshots.UnpackKeyFormat, im.lease.ID, l.chainID),
		labels: snapshots.WithLabels(map[string]string{snapshots.LabelSnapshotRef: l.chainID.String()}),
		done:   make(chan struct{}),
	}
	l.prepared.alone = im.rebase && l.parent != nil
	im.behind.prepare(func(ctx context.Context) {
		defer close(l.prepared.done)
		l.prepared.err = im.makeSnapshot(ctx, l)
	})
	return l.prepared
}

func (im *Importer) makeSnapshot(ctx context.Context, l *link) (err error) {
	parent, p := "", l.prepared
	if l.parent != nil && !p.alone {
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
	if p.alone {
		p.mounts = asUpper(p.mounts)
	}
	return nil
}

// apply unpacks the layer tar r into a new snapshot, to be committed behind the
// stream's back when the content turns out to be what the link says. On failure
// nothing remains.
func (im *Importer) apply(ctx context.Context, l *link, r io.Reader) error {
	if err := im.extract(ctx, l, r); err != nil {
		// It may be for want of a snapshot below that could not be committed.
		return cmp.Or(im.failed(), l.failed(err))
	}
	l.stage = passed
	im.prepareAhead()
	return im.behind.start(ctx, 0, func(ctx context.Context) error {
		if err := im.commit(ctx, l); err != nil {
			return l.failed(err)
		}
		im.publish()
		return nil
	})
}

const (
	// smallLayer is the largest layer, in bytes, that is taken into memory. Images
	// stand on small ones, and a stream that waited for containerd at each would
	// stand still more often than not. What the control plane's images stand on
	// are layers of up to 3.2 MB.
	smallLayer = 4 << 20

	// maxInMemory bounds, in bytes, the small layers that stay there because
	// they are needed again. Those beyond go to the content store.
	maxInMemory = 2 << 20
)

// smallLayer takes a layer into memory.
func (im *Importer) smallLayer(ctx context.Context, layer *deferral, e bundle.Entry, r io.Reader) error {
	if err := im.behind.room(ctx, e.Size); err != nil {
		return err
	}
	b := bytes.NewBuffer(make([]byte, 0, e.Size+bytes.MinRead)) // or it would grow to look for the end
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

// fits says whether a layer can be unpacked at once wherever it is needed.
func (d *deferral) fits() bool {
	for _, l := range d.links {
		if l.stage == lacking && !l.ready() {
			return false
		}
	}
	return true
}

// forget frees the memory of a layer that is not needed again.
func (im *Importer) forget(layer *deferral) {
	if layer.memory != nil && layer.open() == 0 {
		im.inMemory -= len(layer.memory)
		layer.memory = nil
	}
}

// applyBehind unpacks a layer behind the stream's back.
func (im *Importer) applyBehind(ctx context.Context, l *link, b []byte) error {
	im.prepare(l)
	l.stage = passed
	im.prepareAhead()
	return im.behind.start(ctx, int64(len(b)), func(ctx context.Context) error {
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

// commit finishes the snapshot that a layer was unpacked into.
func (im *Importer) commit(ctx context.Context, l *link) error {
	p := l.prepared
	if !p.there {
		options := []snapshots.Opt{p.labels}
		if p.alone {
			if err := l.parent.wait(ctx); err != nil {
				return err
			}
			options = append(options, snapshots.WithParent(l.parent.chainID.String()))
		}
		err := im.store.snapshots.Commit(ctx, l.chainID.String(), p.key, options...)
		if errdefs.IsAlreadyExists(err) {
			err = errors.Join(im.adopt(ctx, l), im.remove(ctx, p))
		}
		if err != nil {
			return fmt.Errorf("committing the snapshot: %w", err)
		}
	}
	if folder, _ := plainFolder(p.mounts); folder != "" {
		im.syncLater(folder)
	}
	im.mu.Lock()
	defer im.mu.Unlock()
	close(l.committed)
	return nil
}

// syncLater notes that a snapshot's directory may not be on the disk yet: the
// next image to be published waits until it is.
func (im *Importer) syncLater(folder string) {
	im.mu.Lock()
	defer im.mu.Unlock()
	// The snapshots' own folder is still there when this one is not, because
	// somebody else's snapshot took its place.
	im.unsynced = filepath.Dir(filepath.Dir(folder))
}

// remove removes a snapshot that is not to be finished.
func (im *Importer) remove(ctx context.Context, p *preparation) error {
	ctx, cancel := afterwards(ctx)
	defer cancel()
	if err := im.store.snapshots.Remove(ctx, p.key); err != nil && !errdefs.IsNotFound(err) {
		return fmt.Errorf("removing unfinished snapshot %q: %w", p.key, err)
	}
	return nil
}

// adopt uses the snapshot that another importer finished in the meantime.
func (im *Importer) adopt(ctx context.Context, l *link) error {
	has, err := im.holdSnapshot(ctx, l.chainID)
	if err == nil && !has {
		err = fmt.Errorf("snapshot %s came and went", l.chainID)
	}
	if err != nil {
		return err
	}
	return im.syncAdopted(ctx, l)
}

// syncAdopted makes sure that a snapshot which somebody else has finished is on
// the disk before an image of it is published. That it is committed says
// nothing: an importer that was killed may not have come to its sync, and
// containerd's own unpacking does without.
func (im *Importer) syncAdopted(ctx context.Context, l *link) error {
	im.mu.Lock()
	noted := im.unsynced != "" // all snapshots in plain folders are on one file system
	im.mu.Unlock()
	if noted {
		return nil
	}
	return im.store.view(ctx, l.chainID, func(mounts []mount.Mount) error {
		if folders := lowerFolders(mounts); len(folders) > 0 {
			im.syncLater(folders[0])
			return nil
		}
		return withMount(mounts, syncFS) // it cannot be reached later
	})
}

// A verifier is a reader that gives io.EOF only when others have made sure that its
// content has the sha256 it names: a bundle's digests do.
type verifier interface{ Verifies() (sha256Hex string) }

// unpackVerified unpacks the layer tar r into what was prepared for it and
// checks that r, read to its end, has the layer's digest.
func (im *Importer) unpackVerified(ctx context.Context, l *link, r io.Reader) error {
	digester := l.diffID.Algorithm().Digester()
	v, verified := r.(verifier)
	verified = verified && v.Verifies() == l.diffID.Encoded()
	if !verified {
		r = io.TeeReader(r, digester.Hash())
	}
	err := im.unpack(ctx, l, r)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	// What follows the archive's end mark belongs to the digest as well. If
	// unpacking failed, the digest tells a damaged layer from a full disk.
	if _, readErr := io.Copy(io.Discard, r); readErr != nil {
		return readErr
	}
	if got := digester.Digest(); !verified && got != l.diffID {
		return fault.New(fault.Bundle, damagedHint, "content has digest %s", got)
	}
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		err = fault.Wrap(err, fault.Failure, "make room on the file system of containerd's root folder (usually /var/lib/containerd) and run it again")
	}
	return err
}

// unpack applies the layer tar r to the file system that was prepared for it.
func (im *Importer) unpack(ctx context.Context, l *link, r io.Reader) error {
	if dir, opts := plainFolder(l.prepared.mounts); dir != "" {
		if l.prepared.alone {
			lower := func(ctx context.Context) ([]string, error) { return im.lower(ctx, l) }
			opts = append(opts, withParents(ctx, dir, lower))
		}
		return applyTo(ctx, dir, r, opts...)
	}
	return withMount(l.prepared.mounts, func(root string) error {
		if err := applyTo(ctx, root, r); err != nil {
			return err
		}
		return syncFS(root) // it cannot be reached later
	})
}

// plainFolder returns the folder that a mount would make writable, and how to
// apply a layer to it directly; "" where it takes a real mount.
//
// The usual snapshotters hand out plain folders: native always, overlayfs for
// the bottom layer (a bind mount) and for the others (the mount's upper
// folder). Writing there without mounting is what containerd's own applier
// does for overlayfs; it is faster, and a process that gets killed leaves no
// mount behind. Whiteouts then have to be written in overlayfs's form, which
// a user namespace forbids; the kernel does it there.
func plainFolder(mounts []mount.Mount) (dir string, opts []archive.ApplyOpt) {
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
		if upper, ok := strings.CutPrefix(o, upperOption); ok {
			dir = upper
		}
		if lower, ok := strings.CutPrefix(o, "lowerdir="); ok {
			opts = append(opts, archive.WithParents(strings.Split(lower, ":")))
		}
	}
	return dir, opts
}

// upperOption stands before the folder that an overlay writes to.
const upperOption = "upperdir="

func applyTo(ctx context.Context, root string, r io.Reader, opts ...archive.ApplyOpt) error {
	_, err := os.Stat(root)
	if errors.Is(err, fs.ErrNotExist) {
		return fault.New(fault.Failure, "containerd seems to run in a container or mount namespace of its own; run the installer there",
			"containerd's snapshot folder %s does not exist here", root)
	}
	if err != nil {
		return err
	}
	_, err = archive.Apply(ctx, root, r, opts...)
	return err
}

// syncFS waits until everything on dir's file system is on the disk.
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

// withMount mounts what mounts describes and calls f with the place. The mount
// is gone when it returns.
func withMount(mounts []mount.Mount, f func(root string) error) (err error) {
	root, err := os.MkdirTemp(runDir, "layer-")
	if err != nil {
		return err
	}
	defer func() {
		// Remove, not RemoveAll: should the unmount have failed, then what is
		// in the folder is the layer.
		err = errors.Join(err, mount.UnmountMounts(mounts, root, 0), os.Remove(root))
	}()
	// Nothing reads the layer before it is committed, so a mount that does not
	// sync ("volatile") has no use here and some kernels refuse to reuse it.
	mounts = mount.RemoveVolatileOption(slices.Clone(mounts))
	if err := mount.All(mounts, root); err != nil {
		return fmt.Errorf("mounting a snapshot at %s: %w", root, err)
	}
	return f(root)
}
