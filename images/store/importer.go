package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/leases"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/identity"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

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
// containerd, so that the stream need not wait.
//
// An image is usable soon after its last blob was received, in any order of the blobs. A
// layer that is needed several times (on top of different layers), or before the layers
// below it exist, stays in the content store until Close and is unpacked from there.
type Importer struct {
	store      *Store
	lease      leases.Lease
	lock       *lock
	publisher  *publisher
	background *background
	inMemory   int // bytes of small layers that wait for one below them
	closed     bool

	labels map[digest.Digest]map[string]string // labels of the documents
	links  map[digest.Digest]*link             // snapshots by chain ID
	layers map[digest.Digest]*deferral         // by diff ID
	next   []*link                             // without a prepared snapshot, in the order of their use

	mu        sync.Mutex
	images    []bundle.Image          // incomplete images, in boot order
	documents map[digest.Digest]stage // indexes, manifests and configs
	unsynced  string                  // a directory with layers that may not be on the disk yet
}

// A stage is the progress of one part of an image.
type stage int

const (
	lacking  stage = iota
	received       // read from the stream, but not yet stored
	stored
)

// A deferral is a layer with the snapshots that it is to be unpacked into.
type deferral struct {
	links  []*link
	kept   *ocispec.Descriptor // the copy in the content store, if there is one
	memory []byte              // or the copy in memory, of a small layer
}

// received reports whether there is a copy of the layer.
func (d *deferral) received() bool { return d.kept != nil || d.memory != nil }

// open counts the snapshots that it is not yet unpacked into.
func (d *deferral) open() (n int) {
	for _, l := range d.links {
		if l.stage == lacking {
			n++
		}
	}
	return n
}

// NewImporter starts the import of images, usually of the images that Missing returned. It uses
// parts that containerd already has, from any source. The importer must be closed, also
// after an error.
func (s *Store) NewImporter(ctx context.Context, images []bundle.Image, options ImportOptions) (*Importer, error) {
	lease, lock, err := s.newLease(ctx)
	if err != nil {
		return nil, err
	}
	im := &Importer{
		store:     s,
		lease:     lease,
		lock:      lock,
		images:    append([]bundle.Image(nil), images...),
		documents: map[digest.Digest]stage{},
		labels:    map[digest.Digest]map[string]string{},
		links:     map[digest.Digest]*link{},
		layers:    map[digest.Digest]*deferral{},
	}
	im.publisher = newPublisher(im.leased(ctx), s, options.OnImage)
	im.background = newBackground(im.leased(ctx))
	if err := im.begin(ctx); err != nil {
		return nil, errors.Join(err, im.Close(ctx))
	}
	return im, nil
}

func (im *Importer) begin(ctx context.Context) error {
	for _, img := range im.images {
		im.plan(img)
	}
	// The order matters. What an importer unpacked before a power cut may be damaged
	// and must be removed first. The lease of a killed importer must stay until our
	// lease holds what we need, or containerd would remove its finished layers.
	if err := im.store.dropLeases(ctx, fromEarlierBoot); err != nil {
		return err
	}
	if err := im.survey(im.leased(ctx)); err != nil {
		return err
	}
	if err := im.store.dropLeases(ctx, abandoned); err != nil {
		return err
	}
	im.prepareAhead()
	im.publish()
	return nil
}

// plan lists the parts of an image.
func (im *Importer) plan(img bundle.Image) {
	for _, d := range documentsOf(img) {
		im.documents[d.Digest] = lacking
	}
	for _, l := range im.store.publication().gcLabels(img) {
		if im.labels[l.blob] == nil {
			im.labels[l.blob] = map[string]string{}
		}
		im.labels[l.blob][l.key] = l.value
	}
	var parent *link
	for i, chainID := range chainIDs(img) {
		l, known := im.links[chainID]
		if !known {
			l = &link{
				diffID: digest.Digest(img.Layers[i].DiffID), chainID: chainID, parent: parent, image: img.Reference,
				committed: make(chan struct{}),
			}
			im.links[chainID] = l
			im.next = append(im.next, l)
			layer := im.layers[l.diffID]
			if layer == nil {
				layer = &deferral{}
				im.layers[l.diffID] = layer
			}
			layer.links = append(layer.links, l)
		}
		parent = l
	}
}

// survey finds the parts that containerd already has and adds them to the lease, so that
// they cannot be garbage collected.
func (im *Importer) survey(ctx context.Context) error {
	for dgst := range im.documents {
		has, err := im.hold(ctx, leases.Resource{ID: dgst.String(), Type: "content"}, func() (bool, error) {
			return im.store.hasContent(ctx, dgst)
		})
		if err != nil {
			return err
		}
		if has {
			im.documents[dgst] = stored
		}
	}
	for chainID, l := range im.links {
		has, err := im.holdSnapshot(ctx, chainID)
		if err != nil {
			return err
		}
		if has {
			if err := im.syncAdopted(ctx, l); err != nil {
				return err
			}
			l.stage = stored
			close(l.committed)
		}
	}
	return nil
}

func (im *Importer) holdSnapshot(ctx context.Context, chainID digest.Digest) (bool, error) {
	return im.hold(ctx, leases.Resource{ID: chainID.String(), Type: "snapshots/" + im.store.snapshotter}, func() (bool, error) {
		return im.store.hasSnapshot(ctx, chainID)
	})
}

// hold adds a resource to the lease and returns whether it exists: it may have been
// garbage collected just before.
func (im *Importer) hold(ctx context.Context, r leases.Resource, there func() (bool, error)) (bool, error) {
	if has, err := there(); !has || err != nil {
		return false, err
	}
	if err := im.store.leases.AddResource(ctx, im.lease, r); err != nil {
		return false, fmt.Errorf("adding %s to lease %s: %w", r.ID, im.lease.ID, err)
	}
	return there()
}

// Wants reports whether the import still needs the bundle's entry of this name. Other
// entries can be skipped.
func (im *Importer) Wants(entry string) bool {
	dgst, ok := blobDigest(entry)
	if !ok {
		return false
	}
	if layer, ok := im.layers[dgst]; ok {
		return !layer.received() && layer.open() > 0
	}
	im.mu.Lock()
	defer im.mu.Unlock()
	stage, ok := im.documents[dgst]
	return ok && stage == lacking
}

// Blob imports the content of a bundle entry. It does not read an entry that is not wanted. Blobs
// are stored in the background, so the error may be about an earlier entry.
func (im *Importer) Blob(ctx context.Context, e bundle.Entry, r io.Reader) error {
	if err := im.failed(); err != nil {
		return err
	}
	if !im.Wants(e.Name) {
		return nil
	}
	ctx = im.leased(ctx)
	dgst, _ := blobDigest(e.Name)
	if layer, ok := im.layers[dgst]; ok {
		return im.layer(ctx, layer, e, r)
	}
	return im.document(ctx, dgst, r)
}

// layer unpacks a layer, and then those kept layers that waited for it.
func (im *Importer) layer(ctx context.Context, layer *deferral, e bundle.Entry, r io.Reader) error {
	if e.Size <= smallLayer {
		return im.smallLayer(ctx, layer, e, r)
	}
	if layer.open() == 1 {
		for _, l := range layer.links {
			if l.stage == lacking && l.ready() {
				if err := im.apply(ctx, l, r); err != nil {
					return err
				}
				return im.catchUp(ctx)
			}
		}
	}
	return im.keep(ctx, layer, e, r)
}

// keep stores a layer in the content store, to unpack it from there.
func (im *Importer) keep(ctx context.Context, layer *deferral, e bundle.Entry, r io.Reader) error {
	desc := ocispec.Descriptor{MediaType: ocispec.MediaTypeImageLayer, Digest: layer.links[0].diffID, Size: e.Size}
	if err := im.write(ctx, desc, r); err != nil {
		return err
	}
	layer.kept = &desc
	return im.catchUp(ctx)
}

// catchUp unpacks kept layers whose parents exist, as long as there are any.
func (im *Importer) catchUp(ctx context.Context) error {
	for progress := true; progress; {
		progress = false
		for _, layer := range im.layers {
			for _, l := range layer.links {
				if !layer.received() || l.stage != lacking || !l.ready() {
					continue
				}
				if err := im.applyKept(ctx, l, layer); err != nil {
					return err
				}
				progress = true
			}
			im.forget(layer)
		}
	}
	return nil
}

func (im *Importer) applyKept(ctx context.Context, l *link, layer *deferral) error {
	if layer.memory != nil {
		return im.applyInBackground(ctx, l, layer.memory)
	}
	ra, err := im.store.content.ReaderAt(ctx, *layer.kept)
	if err != nil {
		return fmt.Errorf("reading layer %s of %s: %w", l.diffID, l.image, err)
	}
	defer ra.Close()
	return im.apply(ctx, l, content.NewReader(ra))
}

// document reads an index, a manifest or a config, and stores it in the background.
func (im *Importer) document(ctx context.Context, dgst digest.Digest, r io.Reader) error {
	b, err := io.ReadAll(io.LimitReader(r, bundle.MaxDocument+1))
	if err != nil {
		return fmt.Errorf("reading blob %s: %w", dgst, err)
	}
	if len(b) > bundle.MaxDocument {
		return fault.New(fault.Bundle, "reading blob %s: larger than the limit of %d bytes", dgst, bundle.MaxDocument).Hint(damagedHint)
	}
	im.setDocument(dgst, received)
	return im.background.start(ctx, int64(len(b)), func(ctx context.Context) error {
		if err := im.writeDocument(ctx, dgst, b); err != nil {
			return err
		}
		im.setDocument(dgst, stored)
		im.publish()
		return nil
	})
}

func (im *Importer) setDocument(dgst digest.Digest, to stage) {
	im.mu.Lock()
	defer im.mu.Unlock()
	im.documents[dgst] = to
}

// write stores a blob in the content store, which checks its digest.
func (im *Importer) write(ctx context.Context, desc ocispec.Descriptor, r io.Reader) error {
	return storing(desc.Digest, content.WriteBlob(ctx, im.store.content, im.upload(desc.Digest), r, desc, content.WithLabels(im.labels[desc.Digest])))
}

// writeDocument is write for bytes in memory. WriteBlob would need a buffer of 1 MiB to
// copy them.
func (im *Importer) writeDocument(ctx context.Context, dgst digest.Digest, b []byte) error {
	desc := ocispec.Descriptor{Digest: dgst, Size: int64(len(b))}
	w, err := content.OpenWriter(ctx, im.store.content, content.WithRef(im.upload(dgst)), content.WithDescriptor(desc))
	if err == nil {
		defer w.Close()
		err = commit(ctx, w, desc, b, content.WithLabels(im.labels[dgst]))
	}
	if errdefs.IsAlreadyExists(err) {
		err = nil
	}
	return storing(dgst, err)
}

// commit writes the rest of b to w. Nothing is left to write if another namespace has it.
func commit(ctx context.Context, w content.Writer, desc ocispec.Descriptor, b []byte, labels content.Opt) error {
	status, err := w.Status()
	if err != nil {
		return err
	}
	if _, err := w.Write(b[min(status.Offset, desc.Size):]); err != nil {
		return err
	}
	return w.Commit(ctx, desc.Size, desc.Digest, labels)
}

// upload is a unique name for an upload.
func (im *Importer) upload(dgst digest.Digest) string { return im.lease.ID + "-" + dgst.String() }

// storing wraps the error of storing a blob.
func storing(dgst digest.Digest, err error) error {
	if errdefs.IsFailedPrecondition(err) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = fault.Wrap(err, fault.Bundle, damagedHint)
	}
	if err != nil {
		return fmt.Errorf("storing blob %s: %w", dgst, err)
	}
	return nil
}

// publish passes the complete images to the publisher.
func (im *Importer) publish() {
	im.mu.Lock()
	defer im.mu.Unlock()
	incomplete := im.images[:0:0]
	for _, img := range im.images {
		if !im.complete(img) {
			incomplete = append(incomplete, img)
			continue
		}
		im.publisher.add(img, im.unsynced)
		im.unsynced = ""
	}
	im.images = incomplete
}

// complete reports whether all parts of an image are stored. The caller holds im.mu.
func (im *Importer) complete(img bundle.Image) bool {
	for _, d := range documentsOf(img) {
		if im.documents[d.Digest] != stored {
			return false
		}
	}
	for _, chainID := range chainIDs(img) {
		if !im.links[chainID].isCommitted() {
			return false
		}
	}
	return true
}

// Done reports whether the import needs no more entries.
func (im *Importer) Done() bool {
	im.mu.Lock()
	defer im.mu.Unlock()
	for _, s := range im.documents {
		if s == lacking {
			return false
		}
	}
	for _, l := range im.links {
		if l.stage == lacking {
			return false
		}
	}
	return true
}

// Finish waits until everything that was received is stored, and until the complete images
// are on the disk and usable. It returns the incomplete images. After the whole stream
// there are none, unless parts were missing in the stream.
func (im *Importer) Finish(ctx context.Context) (incomplete []bundle.Image, err error) {
	if err := im.background.finish(ctx); err != nil {
		return nil, err
	}
	if err := im.publisher.finish(ctx); err != nil {
		return nil, err
	}
	im.mu.Lock()
	defer im.mu.Unlock()
	return im.images, nil
}

// failed returns the error of an earlier blob, if there is one.
func (im *Importer) failed() error {
	if err := im.background.failed(); err != nil {
		return err
	}
	return im.publisher.failed()
}

// Close ends the import. It removes what was unpacked for images that are not usable:
// incomplete images and, unless Finish was called before, some complete ones. It also
// works with a cancelled context. A second Close does nothing.
func (im *Importer) Close(ctx context.Context) error {
	if im.closed {
		return nil
	}
	im.closed = true
	im.background.stop()
	im.publisher.stop()
	ctx, cancel := afterwards(ctx)
	defer cancel()
	return errors.Join(im.store.deleteLease(ctx, im.lease), im.lock.release())
}

// leased returns a context whose writes are added to the lease.
func (im *Importer) leased(ctx context.Context) context.Context {
	return leases.WithLease(ctx, im.lease.ID)
}

// blobDigest returns the digest in a blob entry's name.
func blobDigest(entry string) (digest.Digest, bool) {
	hex, ok := strings.CutPrefix(entry, bundle.BlobDir)
	return digest.NewDigestFromEncoded(digest.SHA256, hex), ok
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
	if errdefs.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("looking for blob %s: %w", dgst, err)
	}
	return true, nil
}

func (s *Store) hasSnapshot(ctx context.Context, chainID digest.Digest) (bool, error) {
	_, err := s.snapshots.Stat(ctx, chainID.String())
	if errdefs.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("looking for snapshot %s: %w", chainID, err)
	}
	return true, nil
}
