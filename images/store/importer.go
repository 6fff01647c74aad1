package store

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/leases"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/identity"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/sync/semaphore"

	"airlift/bundle"
	"airlift/internal/fault"
)

// ImportOptions are the importer's options.
type ImportOptions struct {
	// OnImage is called, from another goroutine, for each image as soon as pods can use
	// it. An error ends the import.
	OnImage func(context.Context, bundle.Image) error
}

// An Importer reads the blobs of a bundle in the order of the stream and creates images
// from them. One goroutine may use it. Other goroutines wait for the disk and for
// containerd, so that the stream need not wait: one for each snapshot and each document, and
// one that makes complete images usable.
//
// An image is usable soon after its last blob was received, in any order of the blobs. A
// layer that is needed several times (on top of different layers), or before the layers
// below it exist, stays in the content store until Close and is unpacked from there.
type Importer struct {
	store   *Store
	options ImportOptions
	lease   leases.Lease
	lock    *lock
	closed  bool

	ctx    context.Context // of all work; its cause is the first error, which ends the import
	cancel context.CancelCauseFunc
	work   sync.WaitGroup

	images    []*image // in boot order
	documents map[digest.Digest]*part
	labels    map[digest.Digest]map[string]string // labels of the documents
	links     map[digest.Digest]*link             // snapshots by chain ID
	layers    map[digest.Digest][]*link           // by diff ID

	memory   *semaphore.Weighted // for bytes of the stream on their way to containerd
	waiting  *semaphore.Weighted // for small layers that wait for one below them
	complete chan *image         // whose parts are stored

	mu       sync.Mutex
	unsynced string // a directory with layers that may not be on the disk yet
}

const (
	// maxMemory limits the bytes that were read from the stream and are still in memory.
	maxMemory = 5 << 20

	// taskWeight is the memory of a task in addition to its bytes: its goroutine, its
	// messages to containerd and its buffer.
	taskWeight = 64 << 10

	// smallLayer is the maximum size in bytes of a layer that is read into memory. The
	// lower layers of images are small, and a stream that waits for containerd at each
	// of them mostly waits. The control plane's images begin with layers of up to 3.2 MB.
	smallLayer = 4 << 20

	// maxWaiting limits, in bytes, the small layers that wait in memory for a layer that the
	// stream has not brought yet. Further ones go to the content store.
	maxWaiting = 2 << 20
)

// A part is a document, a snapshot, or an image with its names.
type part struct {
	received bool          // or there before the import; for the goroutine that uses the importer
	done     chan struct{} // closed when the part is stored or has failed
	err      error         // why it failed
}

func newPart() part { return part{done: make(chan struct{})} }

// there marks a part that containerd already has.
func (p *part) there() {
	p.received = true
	close(p.done)
}

func (p *part) wait(ctx context.Context) error {
	select {
	case <-p.done:
		return p.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

type image struct {
	part
	bundle.Image
	parts []*part
}

// NewImporter starts the import of images, usually of the images that Missing returned. It uses
// parts that containerd already has, from any source. The importer must be closed, also
// after an error. It outlives ctx: each of its methods ends the import when its own context ends.
func (s *Store) NewImporter(ctx context.Context, images []bundle.Image, options ImportOptions) (*Importer, error) {
	lease, lock, err := s.newLease(ctx)
	if err != nil {
		return nil, err
	}
	im := &Importer{
		store: s, options: options, lease: lease, lock: lock,
		documents: map[digest.Digest]*part{}, labels: map[digest.Digest]map[string]string{},
		links: map[digest.Digest]*link{}, layers: map[digest.Digest][]*link{},
		memory: semaphore.NewWeighted(maxMemory), waiting: semaphore.NewWeighted(maxWaiting),
		complete: make(chan *image, len(images)),
	}
	im.ctx, im.cancel = context.WithCancelCause(leases.WithLease(context.WithoutCancel(ctx), lease.ID))
	defer im.endsWith(ctx, "starting the import")()
	for _, img := range images {
		im.plan(img)
	}
	if err := im.begin(); err != nil {
		return nil, errors.Join(err, im.Close(ctx))
	}
	return im, nil
}

// endsWith cancels the import if ctx ends before stop is called. doing begins the error: "importing images".
func (im *Importer) endsWith(ctx context.Context, doing string) (stop func() bool) {
	end := func() { im.cancel(fmt.Errorf("%s: %w", doing, context.Cause(ctx))) }
	if ctx.Err() != nil {
		end()
	}
	return context.AfterFunc(ctx, end)
}

func (im *Importer) plan(img bundle.Image) {
	i := &image{part: newPart(), Image: img}
	for _, d := range documentsOf(img) {
		if im.documents[d.Digest] == nil {
			p := newPart()
			im.documents[d.Digest] = &p
		}
		i.parts = append(i.parts, im.documents[d.Digest])
	}
	for _, l := range im.store.gcLabels(img) {
		if im.labels[l.blob] == nil {
			im.labels[l.blob] = map[string]string{}
		}
		im.labels[l.blob][l.key] = l.value
	}
	var parent *link
	for n, chainID := range chainIDs(img) {
		l := im.links[chainID]
		if l == nil {
			l = &link{
				part: newPart(), diffID: digest.Digest(img.Layers[n].DiffID), chainID: chainID, parent: parent,
				image: img.Reference, content: make(chan layerContent, 1),
			}
			im.links[chainID] = l
			im.layers[l.diffID] = append(im.layers[l.diffID], l)
		}
		i.parts = append(i.parts, &l.part)
		parent = l
	}
	im.images = append(im.images, i)
}

// begin finds what containerd already has, and starts the work for the rest.
func (im *Importer) begin() error {
	// The order matters. What an importer unpacked before a power cut may be damaged
	// and must be removed first. The lease of a killed importer must stay until our
	// lease holds what we need, or containerd would remove its finished layers.
	if err := im.store.dropLeases(im.ctx, fromEarlierBoot); err != nil {
		return err
	}
	if err := im.survey(); err != nil {
		return err
	}
	if err := im.store.dropLeases(im.ctx, abandoned); err != nil {
		return err
	}
	for _, l := range im.links {
		if !l.received {
			im.work.Go(func() { im.run(l) })
		}
	}
	for _, i := range im.images {
		im.work.Go(func() {
			for _, p := range i.parts {
				if p.wait(im.ctx) != nil {
					return
				}
			}
			im.complete <- i
		})
	}
	im.work.Go(im.publish)
	return nil
}

// survey finds the parts that containerd already has and adds them to the lease, so that
// they cannot be garbage collected.
func (im *Importer) survey() error {
	for dgst, document := range im.documents {
		has, err := im.hold(leases.Resource{ID: dgst.String(), Type: "content"}, func() (bool, error) {
			return im.store.hasContent(im.ctx, dgst)
		})
		if err != nil {
			return err
		}
		if has {
			document.there()
		}
	}
	for _, l := range im.links {
		has, err := im.holdSnapshot(l.chainID)
		if err == nil && has {
			err = im.syncAdopted(l)
		}
		if err != nil {
			return err
		}
		if has {
			l.there()
		}
	}
	return nil
}

func (im *Importer) holdSnapshot(chainID digest.Digest) (bool, error) {
	return im.hold(leases.Resource{ID: chainID.String(), Type: "snapshots/" + im.store.snapshotter}, func() (bool, error) {
		return im.store.hasSnapshot(im.ctx, chainID)
	})
}

// hold adds a resource to the lease and returns whether it exists: it may have been
// garbage collected just before.
func (im *Importer) hold(r leases.Resource, there func() (bool, error)) (bool, error) {
	if has, err := there(); !has || err != nil {
		return false, err
	}
	if err := im.store.leases.AddResource(im.ctx, im.lease, r); err != nil {
		return false, fmt.Errorf("adding %s to lease %s: %w", r.ID, im.lease.ID, err)
	}
	return there()
}

// Wants reports whether the import still needs the bundle's entry of this name. Other
// entries can be skipped.
func (im *Importer) Wants(entry string) bool {
	dgst := blobDigest(entry)
	document := im.documents[dgst]
	return document != nil && !document.received || len(im.open(dgst)) > 0
}

// open returns the snapshots of a layer that was not received yet.
func (im *Importer) open(diffID digest.Digest) []*link {
	return slices.DeleteFunc(slices.Clone(im.layers[diffID]), func(l *link) bool { return l.received })
}

// Done reports whether the import needs no more entries.
func (im *Importer) Done() bool {
	for _, i := range im.images {
		if slices.ContainsFunc(i.parts, func(p *part) bool { return !p.received }) {
			return false
		}
	}
	return true
}

// Blob imports the content of a bundle entry. It does not read an entry that is not wanted. Blobs
// are stored in the background, so the error may be about an earlier entry.
func (im *Importer) Blob(ctx context.Context, e bundle.Entry, r io.Reader) error {
	defer im.endsWith(ctx, "importing images")()
	err := context.Cause(im.ctx)
	dgst := blobDigest(e.Name)
	links := im.open(dgst)
	switch document := im.documents[dgst]; {
	case err != nil:
	case document != nil && !document.received:
		err = im.document(document, dgst, e.Size, r)
	case len(links) == 0:
	case e.Size <= smallLayer:
		err = im.smallLayer(links, e.Size, r)
	case len(links) == 1 && links[0].parent.underway():
		err = im.largeLayer(links[0], r)
	default:
		err = im.keep(links, e.Size, r)
	}
	return cmp.Or(err, context.Cause(im.ctx), context.Cause(ctx))
}

// room waits until size bytes may be in memory. The caller must call free.
func (im *Importer) room(size int64) (free func(), err error) {
	size = min(size+taskWeight, maxMemory)
	if im.memory.Acquire(im.ctx, size) != nil {
		return nil, context.Cause(im.ctx)
	}
	return func() { im.memory.Release(size) }, nil
}

// document reads an index, a manifest or a config, and stores it in the background.
func (im *Importer) document(p *part, dgst digest.Digest, size int64, r io.Reader) error {
	free, err := im.room(size)
	if err != nil {
		return err
	}
	b, err := io.ReadAll(io.LimitReader(r, bundle.MaxDocument+1))
	if err == nil && len(b) > bundle.MaxDocument {
		err = fault.New(fault.Bundle, "larger than the limit of %d bytes", bundle.MaxDocument).Hint(damagedHint)
	}
	if err != nil {
		free()
		return fmt.Errorf("reading blob %s: %w", dgst, err)
	}
	p.received = true
	im.work.Go(func() {
		defer free()
		im.end(p, im.writeDocument(dgst, b))
	})
	return nil
}

// end completes a part, or ends the import.
func (im *Importer) end(p *part, err error) {
	if p.err = err; err != nil {
		im.cancel(err)
	}
	close(p.done)
}

// smallLayer reads a layer into memory. It is unpacked in the background.
func (im *Importer) smallLayer(links []*link, size int64, r io.Reader) error {
	var free func()
	if slices.ContainsFunc(links, func(l *link) bool { return !l.parent.underway() }) {
		if !im.waiting.TryAcquire(size) {
			return im.keep(links, size, r)
		}
		free = func() { im.waiting.Release(size) }
	} else {
		var err error
		if free, err = im.room(size); err != nil {
			return err
		}
	}
	b := bytes.NewBuffer(make([]byte, 0, size+bytes.MinRead)) // without MinRead, it would grow before it finds the end
	if _, err := b.ReadFrom(r); err != nil {
		free()
		return links[0].failed(err)
	}
	left := new(atomic.Int32)
	left.Store(int32(len(links)))
	for _, l := range links {
		l.receive(layerContent{
			open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b.Bytes())), nil },
			unpacked: func() {
				if left.Add(-1) == 0 {
					free()
				}
			},
		})
	}
	return nil
}

// largeLayer waits until a layer is unpacked while it is read.
func (im *Importer) largeLayer(l *link, r io.Reader) error {
	v, ok := r.(bundle.Content)
	unpacked := make(chan struct{})
	l.receive(layerContent{
		open:     func() (io.ReadCloser, error) { return io.NopCloser(r), nil },
		unpacked: func() { close(unpacked) },
		verified: ok && v.Verifies() == l.diffID.Encoded(),
	})
	select {
	case <-unpacked:
		return nil
	case <-l.done: // nothing reads the content any more
		return l.err
	}
}

// keep stores a layer in the content store, to unpack it from there when the layers below exist.
func (im *Importer) keep(links []*link, size int64, r io.Reader) error {
	diffID := links[0].diffID
	desc := ocispec.Descriptor{MediaType: ocispec.MediaTypeImageLayer, Digest: diffID, Size: size}
	if err := storing(diffID, content.WriteBlob(im.ctx, im.store.content, im.upload(diffID), r, desc)); err != nil {
		return err
	}
	for _, l := range links {
		l.receive(layerContent{unpacked: func() {}, open: func() (io.ReadCloser, error) {
			ra, err := im.store.content.ReaderAt(im.ctx, desc)
			if err != nil {
				return nil, err
			}
			return struct {
				io.Reader
				io.Closer
			}{content.NewReader(ra), ra}, nil
		}})
	}
	return nil
}

// writeDocument stores a document, whose digest containerd checks. content.WriteBlob would need a
// buffer of 1 MiB to copy it.
func (im *Importer) writeDocument(dgst digest.Digest, b []byte) error {
	desc := ocispec.Descriptor{Digest: dgst, Size: int64(len(b))}
	w, err := content.OpenWriter(im.ctx, im.store.content, content.WithRef(im.upload(dgst)), content.WithDescriptor(desc))
	if err == nil {
		defer w.Close()
		var status content.Status
		if status, err = w.Status(); err == nil {
			_, err = w.Write(b[min(status.Offset, desc.Size):]) // nothing is left to write if another namespace has it
		}
		if err == nil {
			err = w.Commit(im.ctx, desc.Size, desc.Digest, content.WithLabels(im.labels[dgst]))
		}
	}
	if errdefs.IsAlreadyExists(err) {
		err = nil
	}
	return storing(dgst, err)
}

// upload is a unique name for an upload.
func (im *Importer) upload(dgst digest.Digest) string { return im.lease.ID + "-" + dgst.String() }

func storing(dgst digest.Digest, err error) error {
	if errdefs.IsFailedPrecondition(err) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = fault.Wrap(err, fault.Bundle, damagedHint)
	}
	if err != nil {
		return fmt.Errorf("storing blob %s: %w", dgst, err)
	}
	return nil
}

// publish makes complete images usable. Images that become complete during a sync share the
// next one.
func (im *Importer) publish() {
	for {
		var batch []*image
		select {
		case i := <-im.complete:
			batch = append(batch, i)
		case <-im.ctx.Done():
			return
		}
		for len(im.complete) > 0 {
			batch = append(batch, <-im.complete)
		}
		// containerd syncs its database at once. Without this sync, a power cut could leave an
		// image that is recorded as complete but has empty files.
		im.mu.Lock()
		unsynced := im.unsynced
		im.unsynced = ""
		im.mu.Unlock()
		if unsynced != "" {
			if err := syncFS(unsynced); err != nil {
				im.cancel(fmt.Errorf("importing %s: %w", batch[0].Reference, err))
			}
		}
		for _, i := range batch {
			if im.ctx.Err() != nil {
				return
			}
			err := im.store.publish(im.ctx, i.Image)
			if err != nil {
				err = fmt.Errorf("importing %s: %w", i.Reference, err)
			} else if im.options.OnImage != nil {
				err = im.options.OnImage(im.ctx, i.Image)
			}
			im.end(&i.part, err)
		}
	}
}

// Finish waits until everything that was received is stored, and until the complete images
// are on the disk and usable. It returns the incomplete images. After the whole stream
// there are none, unless parts were missing in the stream.
func (im *Importer) Finish(ctx context.Context) (incomplete []bundle.Image, err error) {
	defer im.endsWith(ctx, "waiting for containerd to store the images")()
	for _, i := range im.images {
		complete := true
		for _, p := range i.parts {
			if !p.received {
				complete = false
			} else if err := p.wait(im.ctx); err != nil {
				return nil, err
			}
		}
		if !complete {
			incomplete = append(incomplete, i.Image)
		} else if err := i.wait(im.ctx); err != nil {
			return nil, err
		}
	}
	return incomplete, nil
}

var errClosed = errors.New("the import was closed")

// Close ends the import. It removes what was unpacked for images that are not usable:
// incomplete images and, unless Finish was called before, some complete ones. It also
// works with a cancelled context. A second Close does nothing.
func (im *Importer) Close(ctx context.Context) error {
	if im.closed {
		return nil
	}
	im.closed = true
	im.cancel(errClosed)
	im.work.Wait()
	ctx, cancel := afterwards(ctx)
	defer cancel()
	return errors.Join(im.store.deleteLease(ctx, im.lease), im.lock.release())
}

func blobDigest(entry string) digest.Digest {
	return digest.NewDigestFromEncoded(digest.SHA256, strings.TrimPrefix(entry, bundle.BlobDir))
}

// documentsOf returns the blobs of an image except its layers, beginning with its target.
func documentsOf(img bundle.Image) []ocispec.Descriptor {
	var docs []ocispec.Descriptor
	for _, d := range img.Documents() {
		docs = append(docs, descriptor(d))
	}
	return slices.CompactFunc(docs, func(a, b ocispec.Descriptor) bool { return a.Digest == b.Digest })
}

// chainIDs returns the names of the image's snapshots, the lowest first.
func chainIDs(img bundle.Image) []digest.Digest {
	ids := make([]digest.Digest, len(img.Layers))
	for i, l := range img.Layers {
		ids[i] = digest.Digest(l.DiffID)
	}
	return identity.ChainIDs(ids)
}

func (s *Store) hasContent(ctx context.Context, dgst digest.Digest) (bool, error) {
	_, err := s.content.Info(ctx, dgst)
	return found("blob", dgst, err)
}

func (s *Store) hasSnapshot(ctx context.Context, chainID digest.Digest) (bool, error) {
	_, err := s.snapshots.Stat(ctx, chainID.String())
	return found("snapshot", chainID, err)
}

// found returns whether something exists, from the error of a request for it.
func found(what string, dgst digest.Digest, err error) (bool, error) {
	if err != nil && !errdefs.IsNotFound(err) {
		return false, fmt.Errorf("looking for %s %s: %w", what, dgst, err)
	}
	return err == nil, nil
}
