package local

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"airlift/bundle"
	"airlift/bundle/fetch"
	"airlift/fault"
	"airlift/images/oci"
	"airlift/interrupt"
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
	var index v1.IndexManifest
	if err := json.Unmarshal(text, &index); err != nil {
		return nil, fmt.Errorf("reading %s: %w", f.path(indexFile), err)
	}
	// Several manifests with one name are the platforms of one image.
	var entries []entry
	var targets [][]v1.Descriptor
	for _, d := range index.Manifests {
		if d.Platform != nil && d.Platform.OS == "unknown" { // a build attestation
			continue
		}
		e := namesOf(d.Annotations)
		same := slices.IndexFunc(targets, func(t []v1.Descriptor) bool { return t[0].Digest == d.Digest })
		if same < 0 && len(e.names()) > 0 {
			same = slices.IndexFunc(entries, func(o entry) bool { return slices.Equal(o.names(), e.names()) })
		}
		if same < 0 {
			entries, targets = append(entries, e), append(targets, []v1.Descriptor{d})
			continue
		}
		entries[same].full = union(entries[same].full, e.full)
		entries[same].tags = union(entries[same].tags, e.tags)
		if !slices.ContainsFunc(targets[same], func(t v1.Descriptor) bool { return t.Digest == d.Digest }) {
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
type layoutImage struct{ targets []v1.Descriptor }

func (l layoutImage) read(ctx context.Context, r *Reader, f files, img *bundle.Image) error {
	img.Target = oci.Descriptor(l.targets[0])
	if len(l.targets) > 1 {
		index, err := json.Marshal(v1.IndexManifest{Manifests: l.targets})
		if err != nil {
			return err
		}
		if img.Target, err = oci.Choose(img.Reference, index, r.Arch); err != nil {
			return err
		}
	}
	body, err := r.document(ctx, f, &img.Target)
	if err != nil {
		return err
	}
	img.Manifest = img.Target
	if oci.IsIndex(img.Target.MediaType) {
		if img.Manifest, err = oci.Choose(img.Reference, body, r.Arch); err != nil {
			return err
		}
		chosen := img.Manifest
		if body, err = r.document(ctx, f, &chosen); err != nil {
			return r.notExported(f, chosen, err)
		}
	}
	m, err := oci.ReadManifest(img.Manifest.Digest, body)
	if err != nil {
		return err
	}
	img.Config = oci.Descriptor(m.Config)
	config, err := r.blob(ctx, f, img.Config)
	if err != nil {
		return err
	}
	if img.Layers, err = oci.ReadConfig(img.Reference, img.Config, config, len(m.Layers), r.Arch); err != nil {
		return err
	}
	for n := range img.Layers {
		if err := r.layer(ctx, f, m.Layers[n], &img.Layers[n]); err != nil {
			return err
		}
	}
	return nil
}

// notExported adds a hint if the manifest that an index lists is missing: docker save and
// ctr images export leave out platforms, but keep the index.
func (r *Reader) notExported(f files, d bundle.Descriptor, err error) error {
	if name, e := blobFile(d.Digest); e != nil || has(f, name) {
		return err
	}
	return fault.Wrap(fmt.Errorf("the index lists linux/%s, but its manifest is not there: %w", r.Arch, err), fault.Failure,
		"export this platform too: docker save, skopeo copy and ctr images export have the option --platform linux/"+r.Arch+" or --all")
}

// document puts an index or a manifest into the cache. It sets the media type in d to that
// of the content.
func (r *Reader) document(ctx context.Context, f files, d *bundle.Descriptor) ([]byte, error) {
	body, err := r.blob(ctx, f, *d)
	if err != nil {
		return nil, err
	}
	*d, err = oci.Describe(body)
	return body, err
}

// blob puts a small blob into the cache.
func (r *Reader) blob(ctx context.Context, f files, d bundle.Descriptor) ([]byte, error) {
	name, err := blobFile(d.Digest)
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
	_, _, err = r.Cache.Put(ctx, bytes.NewReader(body), oci.Hex(d.Digest))
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
	open := func() (io.ReadCloser, error) {
		content, _, err := f.open(name)
		return content, err
	}
	layer.Compressed, err = oci.DescribeCompressed(ctx, r.Cache, open, layer.DiffID, d.Digest.String(), d.Size, r.Keep)
	return err
}

// store decompresses a layer to the cache, unless it is there, and sets its size.
func (r *Reader) store(ctx context.Context, f files, name, what string, layer *bundle.Layer) error {
	size, ok, err := r.Cache.Has(ctx, oci.Hex(layer.DiffID))
	if ok || err != nil {
		layer.Size = size
		return err
	}
	content, compressed, err := f.open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s is missing", f.path(name))
	}
	if err != nil {
		return err
	}
	defer content.Close()
	layer.Size, err = oci.StoreLayer(ctx, r.Cache, content, layer.DiffID, compressed, what, f.path(name))
	return err
}

// verify compares a blob with its descriptor.
func verify(ctx context.Context, f files, name string, d v1.Descriptor) error {
	content, size, err := f.open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s is missing", f.path(name))
	}
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

// damaged adds the path to a *fetch.MismatchError.
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
