package store

import (
	"context"
	"fmt"

	"github.com/containerd/errdefs"
	criapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Pull makes containerd pull an image with its own configuration of registries, and pins it as an import does. It does nothing
// if containerd has the name and the image is pinned.
func (s *Store) Pull(ctx context.Context, ref string) (pulled bool, err error) {
	rec, _, err := s.resolve(ctx, ref)
	if err == nil && s.labelled(rec) {
		return false, nil
	}
	if err != nil && !errdefs.IsNotFound(err) {
		return false, fmt.Errorf("looking for image %q: %w", ref, err)
	}
	if _, err = s.criImages.PullImage(ctx, &criapi.PullImageRequest{Image: &criapi.ImageSpec{Image: ref}}); err == nil {
		err = s.pin(ctx, ref)
	}
	if err != nil {
		return false, fmt.Errorf("pulling image %q: %w", ref, err)
	}
	return true, nil
}

// pin gives the names of an image that the CRI pulled the labels of an imported one.
func (s *Store) pin(ctx context.Context, ref string) error {
	rec, _, err := s.resolve(ctx, ref)
	if err != nil {
		return err
	}
	names, err := s.namesAs(ctx, rec, ref)
	if err != nil {
		return err
	}
	for _, name := range names {
		labels := s.labels()
		labels[importedLabel] = Site
		if err := s.updateRecord(ctx, name, rec.target, labels); err != nil && !errdefs.IsNotFound(err) {
			return fmt.Errorf("pinning image record %s: %w", name, err)
		}
	}
	return nil
}
