package store

import (
	"context"
	"fmt"

	"airlift/bundle"

	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/errdefs"
	"github.com/distribution/reference"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// The labels that the CRI gives its own images (containerd's
// internal/cri/labels). Without "managed" it would add the records it misses
// by itself; pinned images are left alone by the kubelet's garbage collection.
var recordLabels = map[string]string{
	"io.cri-containerd.image":  "managed",
	"io.cri-containerd.pinned": "pinned",
}

// recordNames returns the names under which a pull by the CRI records an
// image: its ID (the config's digest), its name by digest, and, where it has
// one, its name by tag. The last one is the one that pods ask for. A short
// name ("nginx") becomes the full one ("docker.io/library/nginx:latest").
func recordNames(ref string, target, config digest.Digest) ([]string, error) {
	named, err := reference.ParseDockerRef(ref)
	if err != nil {
		return nil, fmt.Errorf("parsing image reference %q: %w", ref, err)
	}
	if c, ok := named.(reference.Canonical); ok {
		return []string{config.String(), c.String()}, nil
	}
	return []string{config.String(), named.Name() + "@" + target.String(), named.String()}, nil
}

// namesOf is recordNames for an image of a bundle.
func namesOf(img bundle.Image) ([]string, error) {
	return recordNames(img.Reference, digest.Digest(img.Target.Digest), digest.Digest(img.Config.Digest))
}

func descriptor(d bundle.Descriptor) ocispec.Descriptor {
	return ocispec.Descriptor{MediaType: d.MediaType, Digest: digest.Digest(d.Digest), Size: d.Size}
}

// record makes name point at target, with the CRI's labels. The record is
// written even if nothing changes: the write is what makes the CRI look.
func (s *Store) record(ctx context.Context, name string, target ocispec.Descriptor) error {
	img := images.Image{Name: name, Target: target, Labels: recordLabels}
	_, err := s.client.ImageService().Create(ctx, img)
	if errdefs.IsAlreadyExists(err) {
		fields := []string{"target"}
		for label := range recordLabels {
			fields = append(fields, "labels."+label)
		}
		_, err = s.client.ImageService().Update(ctx, img, fields...)
	}
	if err != nil {
		return fmt.Errorf("recording image %s: %w", name, err)
	}
	return nil
}
