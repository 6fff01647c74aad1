package local

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"airlift/builder/fetch"
	"airlift/builder/oci"
	"airlift/bundle"
	"airlift/bundle/platform"
	"airlift/internal/fault"
	"airlift/internal/interrupt"
)

// indexFile lists the images of an OCI image layout.
const indexFile = "index.json"

// Annotations of the images in index.json.
const (
	refName        = "org.opencontainers.image.ref.name" // of the specification: a tag, or a full name
	containerdName = "io.containerd.image.name"          // of containerd and docker: a full name
)

func findInLayout(f files, spec Spec) ([]candidate, error) {
	text, err := readSmall(f, indexFile, bundle.MaxDocument)
	if err != nil {
		return nil, err
	}
	var index ocispec.Index
	if err := json.Unmarshal(text, &index); err != nil {
		return nil, fmt.Errorf("reading %s: %w", f.path(indexFile), err)
	}
	// Several manifests with one name are the platforms of one image.
	var entries []entry
	var targets [][]ocispec.Descriptor
	for _, d := range index.Manifests {
		if d.Platform != nil && d.Platform.OS == "unknown" { // a build attestation
			continue
		}
		e := namesOf(d.Annotations)
		same := slices.IndexFunc(targets, func(t []ocispec.Descriptor) bool { return t[0].Digest == d.Digest })
		if same < 0 && len(e.names()) > 0 {
			same = slices.IndexFunc(entries, func(o entry) bool { return slices.Equal(o.names(), e.names()) })
		}
		if same < 0 {
			entries, targets = append(entries, e), append(targets, []ocispec.Descriptor{d})
			continue
		}
		entries[same].full = union(entries[same].full, e.full)
		entries[same].tags = union(entries[same].tags, e.tags)
		if !slices.ContainsFunc(targets[same], func(t ocispec.Descriptor) bool { return t.Digest == d.Digest }) {
			targets[same] = append(targets[same], d)
		}
	}
	choices, err := choose(entries, spec)
	if err != nil {
		return nil, err
	}
	var list []candidate
	for _, c := range choices {
		list = append(list, candidate{c.reference, layoutImage{targets[c.entry]}.read})
	}
	return list, nil
}

func namesOf(annotations map[string]string) (e entry) {
	for _, key := range []string{containerdName, refName} {
		name := annotations[key]
		if name == "" {
			continue
		}
		if full, ok := fullName(name); ok {
			e.full = union(e.full, []string{full})
		} else {
			e.tags = union(e.tags, []string{name})
		}
	}
	return e
}

func union(a, b []string) []string {
	for _, s := range b {
		if !slices.Contains(a, s) {
			a = append(a, s)
		}
	}
	return a
}

// A layoutImage is an image of a layout: an index or a manifest, or several manifests for
// different platforms.
type layoutImage struct{ targets []ocispec.Descriptor }

func (l layoutImage) read(ctx context.Context, r *Reader, f files, img *bundle.Image) error {
	missing := &platform.MissingError{Arch: r.Arch}
	var found []bundle.Image
	var manifest v1.Manifest
	for _, t := range l.targets {
		one := bundle.Image{Reference: img.Reference}
		m, err := r.resolve(ctx, f, t, &one)
		if other := (*platform.MissingError)(nil); errors.As(err, &other) {
			missing.Has = union(missing.Has, other.Has)
			continue
		}
		if err != nil {
			return err
		}
		found, manifest = append(found, one), m
	}
	switch len(found) {
	case 0:
		slices.Sort(missing.Has)
		return missing
	case 1:
		*img = found[0]
	default:
		return fault.New(fault.Usage, "two images for linux/%s have the name %s: %s and %s", r.Arch, img.Reference, found[0].Target.Digest, found[1].Target.Digest).
			Hint("give them different names, for example with skopeo copy, or remove one from " + f.path(indexFile))
	}
	for n := range img.Layers {
		if err := r.layer(ctx, f, manifest.Layers[n], &img.Layers[n]); err != nil {
			return err
		}
	}
	return nil
}

// resolve reads the documents of an image up to its config.
func (r *Reader) resolve(ctx context.Context, f files, target ocispec.Descriptor, img *bundle.Image) (m v1.Manifest, err error) {
	if target.Platform != nil {
		if err := platform.Usable(*target.Platform, r.Arch); err != nil {
			return m, err
		}
	}
	from := layoutSource{r, f, target.Digest}
	body, err := from.Document(ctx, target)
	if err != nil {
		return m, err
	}
	if img.Target, err = oci.Describe(body); err != nil {
		return m, err
	}
	return oci.Resolve(ctx, from, img, r.Arch)
}

// A layoutSource has the documents and configs of the image with this target in a layout.
type layoutSource struct {
	*Reader
	files
	target digest.Digest
}

func (s layoutSource) Config(ctx context.Context, d ocispec.Descriptor) ([]byte, error) {
	return s.blob(ctx, s.files, d)
}

// Document adds a hint if a document that an index lists is missing: docker save and ctr images
// export leave out platforms, but keep the index.
func (s layoutSource) Document(ctx context.Context, d ocispec.Descriptor) ([]byte, error) {
	if name, err := blobFile(d.Digest.String()); d.Digest != s.target && err == nil && !has(s.files, name) {
		return nil, fault.New(fault.Failure, "the index lists linux/%s, but its manifest is not there: %s is missing", s.Arch, s.path(name)).
			Hint("export this platform too: docker save, skopeo copy and ctr images export have the option --platform linux/" + s.Arch + " or --all")
	}
	return s.blob(ctx, s.files, d)
}

func (r *Reader) blob(ctx context.Context, f files, d ocispec.Descriptor) ([]byte, error) {
	name, err := blobFile(d.Digest.String())
	if err != nil {
		return nil, err
	}
	body, err := readSmall(f, name, bundle.MaxDocument)
	if err != nil {
		return nil, err
	}
	if int64(len(body)) != d.Size {
		return nil, fmt.Errorf("%s has %d bytes, but its descriptor lists %d", f.path(name), len(body), d.Size)
	}
	_, _, err = r.Cache.Put(ctx, bytes.NewReader(body), oci.Hex(d.Digest.String()))
	return body, damaged(err, f.path(name))
}

// layer compares a layer with its digest and puts it into the cache.
func (r *Reader) layer(ctx context.Context, f files, d v1.Descriptor, layer *bundle.Layer) error {
	name, err := blobFile(d.Digest.String())
	if err != nil {
		return err
	}
	if err := verify(ctx, f, name, d); err != nil {
		return err
	}
	if err := r.store(ctx, f, name, "layer "+d.Digest.String(), layer); err != nil {
		return err
	}
	again := func() (io.ReadCloser, error) {
		content, _, err := f.open(name)
		return content, err
	}
	layer.Compressed, err = oci.DescribeCompressed(ctx, r.Cache, again, layer.DiffID, d.Digest.String(), d.Size, r.Keep)
	return err
}

// store decompresses a layer to the cache, unless it is there, and sets its size.
func (r *Reader) store(ctx context.Context, f files, name, what string, layer *bundle.Layer) error {
	size, ok, err := r.Cache.Has(ctx, oci.Hex(layer.DiffID))
	if ok || err != nil {
		layer.Size = size
		return err
	}
	content, compressed, err := open(f, name)
	if err != nil {
		return err
	}
	defer content.Close()
	layer.Size, err = oci.StoreLayer(ctx, r.Cache, content, layer.DiffID, compressed, what, f.path(name))
	return err
}

func verify(ctx context.Context, f files, name string, d v1.Descriptor) error {
	content, size, err := open(f, name)
	if err != nil {
		return err
	}
	defer content.Close()
	if size != d.Size {
		return fmt.Errorf("%s has %d bytes, but its descriptor lists %d", f.path(name), size, d.Size)
	}
	h := sha256.New()
	if _, err := io.Copy(h, interrupt.Reader(ctx, content)); err != nil {
		return fmt.Errorf("reading %s: %w", f.path(name), err)
	}
	if got := fmt.Sprintf("%x", h.Sum(nil)); got != d.Digest.Hex {
		return damaged(&fetch.MismatchError{Want: d.Digest.Hex, Got: got}, f.path(name))
	}
	return nil
}

func damaged(err error, path string) error {
	if m := (*fetch.MismatchError)(nil); errors.As(err, &m) && m.Name == "" {
		return fmt.Errorf("%s is damaged: %w", path, err)
	}
	return err
}

func blobFile(digest string) (string, error) {
	h, err := v1.NewHash(digest)
	if err != nil {
		return "", err
	}
	if h.Algorithm != "sha256" {
		return "", fmt.Errorf("digest %s is not a sha256", digest)
	}
	return "blobs/sha256/" + h.Hex, nil
}
