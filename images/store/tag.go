package store

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/errdefs"
	"github.com/containerd/platforms"
)

// Tag gives an existing image an additional, pinned name: for example the name of the
// sandbox image in the configuration of an existing containerd.
func (s Names) Tag(ctx context.Context, existing, name string) error {
	if err := s.tag(ctx, existing, name); err != nil {
		return fmt.Errorf("tagging image %q as %q: %w", existing, name, err)
	}
	return nil
}

func (s Names) tag(ctx context.Context, existing, name string) error {
	rec, _, err := s.resolve(ctx, existing)
	if err != nil {
		return err
	}
	config, err := images.Config(ctx, s.store.content, rec.target, platforms.Default())
	if err != nil {
		return err
	}
	names, err := recordNames(name, rec.target.Digest, config.Digest)
	if err != nil {
		return err
	}
	if err := s.store.publication().setRecords(ctx, names, rec.target, rec.labels[importedLabel]); err != nil {
		return err
	}
	return s.store.publication().awaitCRI(ctx, names)
}

// RemoveImages removes images by reference, and waits until content that no other image
// uses is removed. Other names of the same image stay. A reference that does not exist is
// not an error.
func (s Names) RemoveImages(ctx context.Context, refs []string) error {
	for _, ref := range refs {
		if err := s.removeImage(ctx, ref); err != nil {
			return fmt.Errorf("removing image %q: %w", ref, err)
		}
	}
	return nil
}

func (s Names) removeImage(ctx context.Context, ref string) error {
	rec, repository, err := s.resolve(ctx, ref)
	if errdefs.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	same, err := s.store.recordsOf(ctx, rec.target.Digest)
	if err != nil {
		return err
	}
	// The name with the digest goes with the repository's last tag; the ID goes with
	// the last of all names.
	byDigest := repository + "@" + rec.target.Digest.String()
	tags, others, ids := 0, 0, []string(nil)
	for _, r := range same {
		switch {
		case r.name == rec.name, r.name == byDigest:
		case strings.HasPrefix(r.name, "sha256:"):
			ids = append(ids, r.name)
		case strings.HasPrefix(r.name, repository+":"):
			tags++
		default:
			others++
		}
	}
	remove := []string{rec.name}
	if tags == 0 {
		remove = append(remove, byDigest)
	}
	if tags+others == 0 {
		remove = append(remove, ids...)
	}
	for _, name := range slices.Compact(remove) {
		if err := s.store.removeRecord(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

// resolve returns the record of an image reference, and the repository of the reference.
func (s Names) resolve(ctx context.Context, ref string) (record, string, error) {
	named, err := parse(ref)
	if err != nil {
		return record{}, "", err
	}
	rec, err := s.store.record(ctx, named.String())
	return rec, named.Name(), err
}
