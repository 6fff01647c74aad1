package store

import (
	"context"
	"fmt"
	"slices"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"

	"airlift/bundle"
)

// Missing returns those images that are not complete, in their order. A complete image is
// recorded under all its names with exactly this content, pinned (unless LeaveUnpinned was
// called), labelled for garbage collection, unpacked, and known to the CRI. An import repairs
// incomplete images.
func (s *Store) Missing(ctx context.Context, images []bundle.Image) ([]bundle.Image, error) {
	var missing []bundle.Image
	for _, img := range images {
		ok, err := s.has(ctx, img, targetsOf(images, img.Config.Digest))
		if err != nil {
			return nil, fmt.Errorf("looking for image %s: %w", img.Reference, err)
		}
		if !ok {
			missing = append(missing, img)
		}
	}
	return missing, nil
}

// Replaced returns the references of images whose name an import recorded for another Kubernetes
// image.
func (s *Store) Replaced(ctx context.Context, images []bundle.Image) (references []string, err error) {
	for _, img := range images {
		named, err := parse(img.Reference)
		if err != nil {
			return nil, err
		}
		rec, err := s.record(ctx, named.String())
		if errdefs.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("looking for image record %s: %w", named, err)
		}
		if rec.labels[importedLabel] == Kubernetes && rec.target.Digest.String() != img.Target.Digest {
			references = append(references, img.Reference)
		}
	}
	return references, nil
}

// targetsOf returns the targets of the images with this config. They have the same ID, so only
// one of them has the record with the ID as its name.
func targetsOf(images []bundle.Image, config string) (targets []digest.Digest) {
	for _, img := range images {
		if img.Config.Digest == config {
			targets = append(targets, digest.Digest(img.Target.Digest))
		}
	}
	return targets
}

// has reports whether an image is complete. sameID are the targets of all images with its ID.
func (s *Store) has(ctx context.Context, img bundle.Image, sameID []digest.Digest) (bool, error) {
	names, err := namesOf(img)
	if err != nil {
		return false, err
	}
	for _, name := range names {
		targets := []digest.Digest{digest.Digest(img.Target.Digest)}
		if name == img.Config.Digest {
			targets = sameID
		}
		rec, err := s.record(ctx, name)
		if err != nil && !errdefs.IsNotFound(err) {
			return false, err
		}
		if err != nil || !s.labelled(rec) || !slices.Contains(targets, rec.target.Digest) {
			return false, nil
		}
	}
	for _, d := range documentsOf(img) {
		if ok, err := s.hasContent(ctx, d.Digest); !ok || err != nil {
			return false, err
		}
	}
	if lacks, err := s.missingLabels(ctx, img); len(lacks) > 0 || err != nil {
		return false, err
	}
	// A snapshot keeps its parents, so it is enough to check the highest one.
	if chain := chainIDs(img); len(chain) > 0 {
		if ok, err := s.hasSnapshot(ctx, chain[len(chain)-1]); !ok || err != nil {
			return false, err
		}
	}
	if !s.hasCRI {
		return true, nil
	}
	for _, name := range names {
		if ok, err := s.criKnows(ctx, name); !ok || err != nil {
			return false, err
		}
	}
	return true, nil
}
