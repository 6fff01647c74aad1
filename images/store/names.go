package store

import (
	"context"
	"errors"
	"fmt"
	"slices"

	imagesapi "github.com/containerd/containerd/api/services/images/v1"
	"github.com/containerd/containerd/v2/core/leases"
	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
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
func (s *Store) BeforeNaming(note func(context.Context, []NameChange) error) {
	s.beforeNaming = note
}

// announce calls the function of BeforeNaming for names that will change.
func (s *Store) announce(ctx context.Context, names []string, target digest.Digest) error {
	if s.beforeNaming == nil {
		return nil
	}
	var changes []NameChange
	for _, name := range names {
		rec, err := s.record(ctx, name)
		switch {
		case errdefs.IsNotFound(err):
			changes = append(changes, NameChange{Name: name, Set: []string{target.String()}})
		case err != nil:
			return fmt.Errorf("looking for image record %s: %w", name, err)
		case rec.target.Digest != target || !s.labelled(rec):
			before := &Target{rec.target.MediaType, rec.target.Digest.String(), rec.target.Size, managedLabels(rec.labels)}
			changes = append(changes, NameChange{Name: name, Before: before, Set: []string{target.String()}})
		}
	}
	if len(changes) == 0 {
		return nil
	}
	if err := s.beforeNaming(ctx, changes); err != nil {
		return err
	}
	for _, c := range changes {
		if c.Before != nil && c.Before.Digest != target.String() {
			if err := s.keepTarget(ctx, c.Before.Digest); err != nil {
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

// keepTarget protects a blob and everything it refers to until RestoreNames.
func (s *Store) keepTarget(ctx context.Context, dgst string) error {
	if err := s.createKept(ctx); err != nil {
		return err
	}
	err := s.leases.AddResource(ctx, leases.Lease{ID: keptLease}, leases.Resource{ID: dgst, Type: "content"})
	if err != nil {
		return fmt.Errorf("adding %s to lease %s: %w", dgst, keptLease, err)
	}
	return nil
}

// RestoreNames restores the previous targets of image names, removes names that did not
// exist before, and waits until containerd has removed everything unused, also of killed
// imports. It does not change names that were changed since; left lists them with the
// reason. It is safe to run it again.
func (s *Store) RestoreNames(ctx context.Context, changes []NameChange) (left []string, err error) {
	if left, err = s.UndoNames(ctx, changes); err != nil {
		return left, err
	}
	if err := errors.Join(s.dropLeases(ctx, fromEarlierBoot), s.dropLeases(ctx, abandoned)); err != nil {
		return left, err
	}
	// The deletion of a lease can wait for containerd's garbage collection.
	if err := s.createKept(ctx); err != nil {
		return left, err
	}
	return left, s.DropKept(ctx)
}

func (s *Store) createKept(ctx context.Context) error {
	if _, err := s.leases.Create(ctx, leases.WithID(keptLease)); err != nil && !errdefs.IsAlreadyExists(err) {
		return fmt.Errorf("creating lease %s: %w", keptLease, err)
	}
	return nil
}

// DropKept lets containerd remove the previous targets of image names that an import changed.
func (s *Store) DropKept(ctx context.Context) error {
	return s.deleteLease(ctx, leases.Lease{ID: keptLease})
}

// UndoNames restores names as RestoreNames does. Previous targets of other names stay.
func (s *Store) UndoNames(ctx context.Context, changes []NameChange) (left []string, err error) {
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

func (s *Store) restoreName(ctx context.Context, c NameChange) (left string, err error) {
	rec, err := s.record(ctx, c.Name)
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
		_, err := s.images.Delete(ctx, &imagesapi.DeleteImageRequest{Name: c.Name})
		if err = errgrpc.ToNative(err); errdefs.IsNotFound(err) {
			err = nil
		}
		return "", err
	}
	if has, err := s.hasContent(ctx, digest.Digest(c.Before.Digest)); err != nil {
		return "", err
	} else if !has {
		return fmt.Sprintf("it pointed to %s, which is no longer in containerd", c.Before.Digest), nil
	}
	target := ocispec.Descriptor{MediaType: c.Before.MediaType, Digest: digest.Digest(c.Before.Digest), Size: c.Before.Size}
	labels := map[string]string{}
	for label := range recordLabels {
		labels[label] = c.Before.Labels[label]
	}
	return "", s.updateRecord(ctx, c.Name, target, labels, "target")
}
