package store

import (
	"context"
	"fmt"
	"maps"
	"slices"

	imagesapi "github.com/containerd/containerd/api/services/images/v1"
	"github.com/containerd/containerd/api/types"
	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"github.com/distribution/reference"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"airlift/bundle"
)

// pinnedLabel is the CRI's label of pinned images.
const pinnedLabel = "io.cri-containerd.pinned"

// The labels that the CRI sets on its images (containerd's internal/cri/labels). Without
// "managed" the CRI would add the missing records itself. The kubelet's garbage collection
// does not remove pinned images.
var recordLabels = map[string]string{
	"io.cri-containerd.image": "managed",
	pinnedLabel:               "pinned",
}

// importedLabel marks the records that Airlift created. Its value is the kind of the image.
const importedLabel = "airlift.dev/imported"

// Kinds of imported images.
const (
	Kubernetes = "kubernetes" // a component of Kubernetes
	Site       = "site"       // the site's own
)

func kindOf(img bundle.Image) string {
	if img.Name == img.Reference {
		return Site
	}
	return Kubernetes
}

// labels returns the labels, a subset of recordLabels, that an import sets.
func (s *Store) labels() map[string]string {
	set := maps.Clone(recordLabels)
	if s.unpinned {
		delete(set, pinnedLabel)
	}
	return set
}

func (s *Store) labelled(r record) bool {
	for k, v := range s.labels() {
		if r.labels[k] != v {
			return false
		}
	}
	return true
}

// recordNames returns the names under which a pull by the CRI records an image: its ID (the
// config's digest), its name with the digest and, if it has one, its name with the tag,
// which pods use. A short name ("nginx") becomes the full one
// ("docker.io/library/nginx:latest").
func recordNames(ref string, target, config digest.Digest) ([]string, error) {
	named, err := parse(ref)
	if err != nil {
		return nil, err
	}
	if c, ok := named.(reference.Canonical); ok {
		return []string{config.String(), c.String()}, nil
	}
	return []string{config.String(), named.Name() + "@" + target.String(), named.String()}, nil
}

func namesOf(img bundle.Image) ([]string, error) {
	return recordNames(img.Reference, digest.Digest(img.Target.Digest), digest.Digest(img.Config.Digest))
}

func parse(ref string) (reference.Named, error) {
	named, err := reference.ParseDockerRef(ref)
	if err != nil {
		return nil, fmt.Errorf("parsing image reference %q: %w", ref, err)
	}
	return named, nil
}

type record struct {
	name   string
	target ocispec.Descriptor
	labels map[string]string
}

func fromAPI(img *imagesapi.Image) record {
	return record{img.Name, ocispec.Descriptor{
		MediaType: img.Target.GetMediaType(),
		Digest:    digest.Digest(img.Target.GetDigest()),
		Size:      img.Target.GetSize(),
	}, img.Labels}
}

func toAPI(d ocispec.Descriptor) *types.Descriptor {
	return &types.Descriptor{MediaType: d.MediaType, Digest: d.Digest.String(), Size: d.Size}
}

// record returns the record with this name. If there is none, the error is
// errdefs.ErrNotFound.
func (s *Store) record(ctx context.Context, name string) (record, error) {
	resp, err := s.images.Get(ctx, &imagesapi.GetImageRequest{Name: name})
	if err != nil {
		return record{}, errgrpc.ToNative(err)
	}
	return fromAPI(resp.Image), nil
}

// setRecord sets the target of name, with the CRI's labels. It always writes the record,
// because the CRI only notices a write. A new record gets the label of imported images; kind
// may be empty.
func (s *Store) setRecord(ctx context.Context, name string, target ocispec.Descriptor, kind string) error {
	img := &imagesapi.Image{Name: name, Labels: s.labels(), Target: toAPI(target)}
	if kind != "" {
		img.Labels[importedLabel] = kind
	}
	_, err := s.images.Create(ctx, &imagesapi.CreateImageRequest{Image: img})
	if err = errgrpc.ToNative(err); errdefs.IsAlreadyExists(err) {
		err = s.updateRecord(ctx, name, target, s.labels(), "target")
	}
	if err != nil {
		return fmt.Errorf("recording image %s: %w", name, err)
	}
	return nil
}

// updateRecord sets labels of a record, and the given fields. An empty label is removed.
func (s *Store) updateRecord(ctx context.Context, name string, target ocispec.Descriptor, labels map[string]string, fields ...string) error {
	for _, label := range slices.Sorted(maps.Keys(labels)) {
		fields = append(fields, "labels."+label)
	}
	_, err := s.images.Update(ctx, &imagesapi.UpdateImageRequest{
		Image: &imagesapi.Image{Name: name, Labels: labels, Target: toAPI(target)}, UpdateMask: &fieldmaskpb.FieldMask{Paths: fields},
	})
	return errgrpc.ToNative(err)
}

// removeRecord removes a record, if it exists, and everything that only it protected.
func (s *Store) removeRecord(ctx context.Context, name string) error {
	_, err := s.images.Delete(ctx, &imagesapi.DeleteImageRequest{Name: name, Sync: true})
	if err = errgrpc.ToNative(err); err != nil && !errdefs.IsNotFound(err) {
		return fmt.Errorf("removing image record %s: %w", name, err)
	}
	return nil
}

func descriptor(d bundle.Descriptor) ocispec.Descriptor {
	return ocispec.Descriptor{MediaType: d.MediaType, Digest: digest.Digest(d.Digest), Size: d.Size}
}
