package store

import (
	"context"
	"fmt"

	imagesapi "github.com/containerd/containerd/api/services/images/v1"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"github.com/containerd/platforms"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
	criapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Pull makes containerd pull an image with its own configuration of registries, and pins it as an import does. It does nothing
// if containerd has the name and the image is pinned.
func (s Names) Pull(ctx context.Context, ref string) (pulled bool, err error) {
	rec, _, err := s.resolve(ctx, ref)
	if err == nil && s.store.labelled(rec) {
		return false, nil
	}
	if err != nil && !errdefs.IsNotFound(err) {
		return false, fmt.Errorf("looking for image %q: %w", ref, err)
	}
	if _, err = s.store.criImages.PullImage(ctx, &criapi.PullImageRequest{Image: &criapi.ImageSpec{Image: ref}}); err == nil {
		err = s.pin(ctx, ref)
	}
	if err != nil {
		return false, fmt.Errorf("pulling image %q: %w", ref, err)
	}
	return true, nil
}

// pin gives the names of an image that the CRI pulled the labels of an imported one.
func (s Names) pin(ctx context.Context, ref string) error {
	rec, _, err := s.resolve(ctx, ref)
	if err != nil {
		return err
	}
	config, err := images.Config(ctx, s.store.content, rec.target, platforms.Default())
	if err != nil {
		return err
	}
	names, err := recordNames(ref, rec.target.Digest, config.Digest)
	if err != nil {
		return err
	}
	for _, name := range names {
		labels := s.store.labels()
		labels[importedLabel] = Site
		fields := []string{}
		for label := range labels {
			fields = append(fields, "labels."+label)
		}
		_, err := s.store.images.Update(ctx, &imagesapi.UpdateImageRequest{
			Image: &imagesapi.Image{Name: name, Labels: labels, Target: toAPI(rec.target)}, UpdateMask: &fieldmaskpb.FieldMask{Paths: fields},
		})
		if err = errgrpc.ToNative(err); err != nil && !errdefs.IsNotFound(err) {
			return fmt.Errorf("pinning image record %s: %w", name, err)
		}
	}
	return nil
}
