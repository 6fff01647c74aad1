package store

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/errdefs"
	"github.com/distribution/reference"
)

// Tag gives an image that is there one more name, pinned as well: the name
// that a containerd configured by somebody else starts its sandboxes with, for
// example.
func (s *Store) Tag(ctx context.Context, existing, name string) error {
	if err := s.tag(ctx, existing, name); err != nil {
		return fmt.Errorf("tagging image %q as %q: %w", existing, name, err)
	}
	return nil
}

func (s *Store) tag(ctx context.Context, existing, name string) error {
	full, err := fullName(existing)
	if err != nil {
		return err
	}
	img, err := s.client.GetImage(ctx, full)
	if err != nil {
		return err
	}
	config, err := img.Config(ctx)
	if err != nil {
		return err
	}
	names, err := recordNames(name, img.Target().Digest, config.Digest)
	if err != nil {
		return err
	}
	for _, n := range names {
		if err := s.record(ctx, n, img.Target()); err != nil {
			return err
		}
	}
	return s.awaitCRI(ctx, names)
}

// RemoveImages removes images by reference. Content that no other image uses
// is gone when it returns; other names of the same image stay. A reference
// that is not there is no error.
func (s *Store) RemoveImages(ctx context.Context, refs []string) error {
	for _, ref := range refs {
		if err := s.removeImage(ctx, ref); err != nil {
			return fmt.Errorf("removing image %q: %w", ref, err)
		}
	}
	return nil
}

func (s *Store) removeImage(ctx context.Context, ref string) error {
	name, err := fullName(ref)
	if err != nil {
		return err
	}
	img, err := s.client.GetImage(ctx, name)
	if errdefs.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	config, err := img.Config(ctx)
	if err != nil {
		return err
	}
	names, err := recordNames(ref, img.Target().Digest, config.Digest)
	if err != nil {
		return err
	}
	id, byDigest := names[0], names[1]
	same, err := s.client.ImageService().List(ctx, fmt.Sprintf("target.digest==%q", img.Target().Digest))
	if err != nil {
		return err
	}
	// The name by digest goes with the repository's last tag, the ID with the
	// last name of all.
	repository, _, _ := strings.Cut(byDigest, "@")
	tags, others := 0, 0
	for _, record := range same {
		switch {
		case slices.Contains(names, record.Name):
		case strings.HasPrefix(record.Name, repository+":"):
			tags++
		default:
			others++
		}
	}
	remove := []string{name}
	if tags == 0 {
		remove = append(remove, byDigest)
	}
	if tags+others == 0 {
		remove = append(remove, id)
	}
	for _, n := range remove {
		err := s.client.ImageService().Delete(ctx, n, images.SynchronousDelete())
		if err != nil && !errdefs.IsNotFound(err) {
			return err
		}
	}
	return nil
}

// fullName returns the name that the CRI records ref under.
func fullName(ref string) (string, error) {
	named, err := reference.ParseDockerRef(ref)
	if err != nil {
		return "", fmt.Errorf("parsing image reference %q: %w", ref, err)
	}
	return named.String(), nil
}
