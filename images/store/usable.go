package store

import (
	"context"
	"fmt"

	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/errdefs"
	"github.com/containerd/platforms"
	"github.com/opencontainers/go-digest"

	"airlift/bundle"
)

// An ImageState is what the kubelet can do with an image.
type ImageState int

const (
	Absent     ImageState = iota // no image has its name
	Incomplete                   // a part of it is not in containerd
	Usable                       // however it came: by an import, by ctr or by a pull
)

// StateOf returns the state of a bundle's image. Missing is stricter: an image that was
// pulled is usable, but an import still pins it and records its other names.
func (s *Store) StateOf(ctx context.Context, img bundle.Image) (ImageState, error) {
	named, err := parse(img.Reference)
	if err != nil {
		return Absent, err
	}
	state, err := s.stateOf(ctx, named.String(), img)
	if err != nil {
		return Absent, fmt.Errorf("looking for image %s: %w", img.Reference, err)
	}
	return state, nil
}

func (s *Store) stateOf(ctx context.Context, name string, img bundle.Image) (ImageState, error) {
	rec, err := s.record(ctx, name)
	if errdefs.IsNotFound(err) {
		return s.stateByCRI(ctx, name)
	}
	if err != nil {
		return Absent, err
	}
	if rec.labels[importedLabel] != "" && rec.target.Digest.String() == img.Target.Digest {
		// Without its labels, containerd would collect parts of it.
		if lacks, err := s.missingLabels(ctx, img); len(lacks) > 0 || err != nil {
			return Incomplete, err
		}
	}
	manifest, err := images.Manifest(ctx, s.content, rec.target, platforms.Default())
	if errdefs.IsNotFound(err) {
		return Incomplete, nil
	}
	if err != nil {
		return Absent, err
	}
	info, err := s.content.Info(ctx, manifest.Config.Digest)
	if errdefs.IsNotFound(err) {
		return Incomplete, nil
	}
	if err != nil {
		return Absent, err
	}
	// Unpacked: the label names the highest snapshot, which keeps its parents.
	if chain := info.Labels[snapshotLabel+s.snapshotter]; chain != "" {
		if ok, err := s.hasSnapshot(ctx, digest.Digest(chain)); ok || err != nil {
			return Usable, err
		}
	}
	// The CRI unpacks an image when the first container needs it.
	for _, layer := range manifest.Layers {
		if ok, err := s.hasContent(ctx, layer.Digest); !ok || err != nil {
			return Incomplete, err
		}
	}
	return Usable, nil
}

// stateByCRI asks the CRI for an image without a record of its name: a name with a digest may
// belong to another record.
func (s *Store) stateByCRI(ctx context.Context, name string) (ImageState, error) {
	if !s.hasCRI {
		return Absent, nil
	}
	if known, err := s.criKnows(ctx, name); !known || err != nil {
		return Absent, err
	}
	return Usable, nil
}
