package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	imagesapi "github.com/containerd/containerd/api/services/images/v1"
	"github.com/containerd/containerd/v2/core/leases"
	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
)

// keptLease protects the previous targets of image names that an import changed, until
// the names are restored.
const keptLease = "airlift-kept"

// A Target is the target of an image name.
type Target struct {
	MediaType string `json:"mediaType"`
	Digest    string `json:"digest"`
	Size      int64  `json:"size"`
	// Labels are those labels of the name that an import changes.
	Labels map[string]string `json:"labels,omitempty"`
}

// A NameChange is an image name with its targets before and after.
type NameChange struct {
	Name   string  `json:"name"`
	Before *Target `json:"before,omitempty"` // nil if the name did not exist
	// Set are the digests that the name was or will be set to.
	Set []string `json:"set"`
}

// BeforeNaming sets a function that is called each time before image names are created or
// changed. Its error prevents the change. The previous targets stay in containerd until
// RestoreNames.
func (s Names) BeforeNaming(note func(context.Context, []NameChange) error) {
	s.store.beforeNaming = note
}

// announce calls the function of BeforeNaming for names that will change.
func (s Names) announce(ctx context.Context, names []string, target digest.Digest) error {
	if s.store.beforeNaming == nil {
		return nil
	}
	var changes []NameChange
	for _, name := range names {
		rec, err := s.store.record(ctx, name)
		switch {
		case errdefs.IsNotFound(err):
			changes = append(changes, NameChange{Name: name, Set: []string{target.String()}})
		case err != nil:
			return fmt.Errorf("looking for image record %s: %w", name, err)
		case rec.target.Digest != target || !s.store.labelled(rec):
			before := &Target{rec.target.MediaType, rec.target.Digest.String(), rec.target.Size, managedLabels(rec.labels)}
			changes = append(changes, NameChange{Name: name, Before: before, Set: []string{target.String()}})
		}
	}
	if len(changes) == 0 {
		return nil
	}
	if err := s.store.beforeNaming(ctx, changes); err != nil {
		return err
	}
	for _, c := range changes {
		if c.Before != nil && c.Before.Digest != target.String() {
			if err := s.keep(ctx, c.Before.Digest); err != nil {
				return err
			}
		}
	}
	return nil
}

// managedLabels returns those labels of a record that an import sets.
func managedLabels(labels map[string]string) map[string]string {
	managed := map[string]string{}
	for k := range recordLabels {
		if v, ok := labels[k]; ok {
			managed[k] = v
		}
	}
	return managed
}

// keep protects a blob and everything it refers to until RestoreNames.
func (s Names) keep(ctx context.Context, dgst string) error {
	if _, err := s.store.leases.Create(ctx, leases.WithID(keptLease)); err != nil && !errdefs.IsAlreadyExists(err) {
		return fmt.Errorf("creating lease %s: %w", keptLease, err)
	}
	err := s.store.leases.AddResource(ctx, leases.Lease{ID: keptLease}, leases.Resource{ID: dgst, Type: "content"})
	if err != nil {
		return fmt.Errorf("adding %s to lease %s: %w", dgst, keptLease, err)
	}
	return nil
}

// RestoreNames restores the previous targets of image names, removes names that did not
// exist before, and waits until containerd has removed everything unused, also of killed
// imports. It does not change names that were changed since; left lists them with the
// reason. It is safe to run it again.
func (s Names) RestoreNames(ctx context.Context, changes []NameChange) (left []string, err error) {
	if left, err = s.UndoNames(ctx, changes); err != nil {
		return left, err
	}
	if err := errors.Join(s.store.dropLeases(ctx, fromEarlierBoot), s.store.dropLeases(ctx, abandoned)); err != nil {
		return left, err
	}
	// The deletion of a lease can wait for containerd's garbage collection.
	if _, err := s.store.leases.Create(ctx, leases.WithID(keptLease)); err != nil && !errdefs.IsAlreadyExists(err) {
		return left, fmt.Errorf("creating lease %s: %w", keptLease, err)
	}
	return left, s.DropKept(ctx)
}

// DropKept lets containerd remove the previous targets of image names that an import changed.
func (s Names) DropKept(ctx context.Context) error {
	return s.store.deleteLease(ctx, leases.Lease{ID: keptLease})
}

// UndoNames restores names as RestoreNames does. Previous targets of other names stay.
func (s Names) UndoNames(ctx context.Context, changes []NameChange) (left []string, err error) {
	for _, c := range changes {
		note, err := s.restoreName(ctx, c)
		if err != nil {
			return left, fmt.Errorf("restoring image name %s: %w", c.Name, err)
		}
		if note != "" {
			left = append(left, fmt.Sprintf("image name %s: %s", c.Name, note))
		}
	}
	return left, nil
}

// restoreName restores a name, or returns the reason why not.
func (s Names) restoreName(ctx context.Context, c NameChange) (left string, err error) {
	rec, err := s.store.record(ctx, c.Name)
	if errdefs.IsNotFound(err) {
		if c.Before != nil {
			return "it was removed after Airlift set it", nil
		}
		return "", nil
	}
	if err != nil {
		return "", err
	}
	now := rec.target.Digest.String()
	switch {
	case !slices.Contains(c.Set, now) && (c.Before == nil || c.Before.Digest != now):
		return fmt.Sprintf("it was changed after Airlift set it, and now points to %s", now), nil
	case c.Before == nil:
		_, err := s.store.images.Delete(ctx, &imagesapi.DeleteImageRequest{Name: c.Name})
		if err = errgrpc.ToNative(err); errdefs.IsNotFound(err) {
			err = nil
		}
		return "", err
	}
	if has, err := s.store.hasContent(ctx, digest.Digest(c.Before.Digest)); err != nil {
		return "", err
	} else if !has {
		return fmt.Sprintf("it pointed to %s, which is no longer in containerd", c.Before.Digest), nil
	}
	target := ocispec.Descriptor{MediaType: c.Before.MediaType, Digest: digest.Digest(c.Before.Digest), Size: c.Before.Size}
	return "", s.resetRecord(ctx, c.Name, target, c.Before.Labels)
}

// resetRecord sets the target of a record and the labels that an import manages. An empty
// label is removed.
func (s Names) resetRecord(ctx context.Context, name string, target ocispec.Descriptor, labels map[string]string) error {
	img := &imagesapi.Image{Name: name, Labels: map[string]string{}, Target: toAPI(target)}
	fields := []string{"target"}
	for _, label := range slices.Sorted(maps.Keys(recordLabels)) {
		img.Labels[label] = labels[label]
		fields = append(fields, "labels."+label)
	}
	_, err := s.store.images.Update(ctx, &imagesapi.UpdateImageRequest{Image: img, UpdateMask: &fieldmaskpb.FieldMask{Paths: fields}})
	return errgrpc.ToNative(err)
}
