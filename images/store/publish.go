package store

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	criapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"airlift/bundle"
	"airlift/bundle/platform"
	"airlift/internal/fault"
)

// criTimeout limits the wait until the CRI lists a new image record. This takes
// milliseconds; after a failure the CRI tries again within seconds.
const criTimeout = 2 * time.Minute

// publish creates an image from parts that are all stored: it labels them for containerd's
// garbage collection, records the image under its names and waits until the CRI lists it.
func (s *Store) publish(ctx context.Context, img bundle.Image) error {
	if err := s.checkDocuments(ctx, img); err != nil {
		return err
	}
	// Blobs from another source may have no labels.
	labels, err := s.missingLabels(ctx, img)
	if err != nil {
		return err
	}
	for _, l := range labels {
		_, err := s.content.Update(ctx,
			content.Info{Digest: l.blob, Labels: map[string]string{l.key: l.value}}, "labels."+l.key)
		if err != nil {
			return fmt.Errorf("labelling blob %s: %w", l.blob, err)
		}
	}
	names, err := namesOf(img)
	if err != nil {
		return err
	}
	if err := s.setRecords(ctx, names, descriptor(img.Target), kindOf(img)); err != nil {
		return err
	}
	return s.awaitCRI(ctx, names)
}

// setRecords records an image under all its names. A cancelled context does not interrupt it
// between two names. An image with only some of its names would keep its snapshots forever.
func (s *Store) setRecords(ctx context.Context, names []string, target ocispec.Descriptor, kind string) error {
	if err := s.announce(ctx, names, target.Digest); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	ctx, cancel := afterwards(ctx)
	defer cancel()
	for _, name := range names {
		if err := s.setRecord(ctx, name, target, kind); err != nil {
			return err
		}
	}
	return nil
}

// A gcLabel on a blob protects what it refers to as long as the blob exists. Without these
// labels containerd would collect the parts of a recorded image.
type gcLabel struct {
	blob       digest.Digest
	key, value string
}

// snapshotLabel and the name of a snapshotter are the key of the label on an image's config that
// names the highest snapshot of an image.
const snapshotLabel = "containerd.io/gc.ref.snapshot."

// gcLabels returns the labels from an image's target down to its snapshots. They are the
// labels of a pull, except those for the compressed layers, which do not exist (compare
// containerd's images.ChildGCLabelsFilterLayers).
func (s *Store) gcLabels(img bundle.Image) []gcLabel {
	config := digest.Digest(img.Config.Digest)
	labels := []gcLabel{{digest.Digest(img.Manifest.Digest), "containerd.io/gc.ref.content.config", config.String()}}
	for documents := documentsOf(img); len(documents) > 2; documents = documents[1:] {
		labels = append(labels, gcLabel{documents[0].Digest, "containerd.io/gc.ref.content.m.0", documents[1].Digest.String()})
	}
	if chain := chainIDs(img); len(chain) > 0 {
		top := chain[len(chain)-1]
		labels = append(labels, gcLabel{config, snapshotLabel + s.snapshotter, top.String()})
	}
	return labels
}

// missingLabels returns the labels that are missing on the image's blobs, including the labels of
// missing blobs.
func (s *Store) missingLabels(ctx context.Context, img bundle.Image) ([]gcLabel, error) {
	var missing []gcLabel
	for _, l := range s.gcLabels(img) {
		info, err := s.content.Info(ctx, l.blob)
		if errdefs.IsNotFound(err) { // collected since the last check
			missing = append(missing, l)
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("reading the labels of blob %s: %w", l.blob, err)
		}
		if info.Labels[l.key] != l.value {
			missing = append(missing, l)
		}
	}
	return missing, nil
}

// checkDocuments checks that the image's documents match the bundle's manifest. With other
// layers the image would look complete until the first pod needs it.
func (s *Store) checkDocuments(ctx context.Context, img bundle.Image) error {
	damaged := func(format string, args ...any) error {
		return fault.New(fault.Bundle, format, args...).Hint("the bundle is inconsistent: build it again with bundle build")
	}
	path, _, err := platform.Find(ctx, platform.Reader(s.blob), descriptor(img.Target), runtime.GOARCH)
	if err != nil && !errdefs.IsNotFound(err) {
		return damaged("target %s: %w", img.Target.Digest, err)
	}
	// Without its manifest, containerd would not find the image.
	if err != nil || path.Manifest().Digest.String() != img.Manifest.Digest {
		return damaged("%s does not contain manifest %s for linux/%s", img.Target.Digest, img.Manifest.Digest, runtime.GOARCH)
	}
	var manifest ocispec.Manifest
	if err := s.readJSON(ctx, img.Manifest, &manifest); err != nil {
		return err
	}
	if manifest.Config.Digest != digest.Digest(img.Config.Digest) {
		return damaged("manifest %s lists config %s, not %s", img.Manifest.Digest, manifest.Config.Digest, img.Config.Digest)
	}
	var config ocispec.Image
	if err := s.readJSON(ctx, img.Config, &config); err != nil {
		return err
	}
	if !slices.EqualFunc(config.RootFS.DiffIDs, img.Layers, func(d digest.Digest, l bundle.Layer) bool {
		return d == digest.Digest(l.DiffID)
	}) {
		return damaged("config %s lists other layers: %s", img.Config.Digest, config.RootFS.DiffIDs)
	}
	return nil
}

func (s *Store) blob(ctx context.Context, d ocispec.Descriptor) ([]byte, error) {
	b, err := content.ReadBlob(ctx, s.content, d)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", d.Digest, err)
	}
	return b, nil
}

func (s *Store) readJSON(ctx context.Context, d bundle.Descriptor, v any) error {
	b, err := s.blob(ctx, descriptor(d))
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, v); err != nil {
		return fmt.Errorf("decoding %s: %w", d.Digest, err)
	}
	return nil
}

// awaitCRI waits until the CRI knows all names of an image. The CRI learns about new records
// through events, shortly after they are written. Before that, the kubelet would try to
// pull the image.
func (s *Store) awaitCRI(ctx context.Context, names []string) error {
	if !s.hasCRI {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, criTimeout)
	defer cancel()
	for _, name := range names {
		err := poll(ctx, 5*time.Millisecond, func(ctx context.Context) error {
			known, err := s.criKnows(ctx, name)
			if err == nil && !known {
				err = fmt.Errorf("the image is not in its list")
			}
			return err
		})
		if err != nil {
			return fmt.Errorf("waiting for the CRI to list %s: %w", name, err)
		}
	}
	return nil
}

func (s *Store) criKnows(ctx context.Context, name string) (bool, error) {
	st, err := s.criImages.ImageStatus(ctx, &criapi.ImageStatusRequest{Image: &criapi.ImageSpec{Image: name}})
	return st.GetImage() != nil, err
}
