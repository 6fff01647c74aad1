package store

import (
	"context"
	"fmt"

	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/platforms"
)

// Tag gives an existing image an additional, pinned name: for example the name of the
// sandbox image in the configuration of an existing containerd.
func (s *Store) Tag(ctx context.Context, existing, name string) error {
	if err := s.tag(ctx, existing, name); err != nil {
		return fmt.Errorf("tagging image %q as %q: %w", existing, name, err)
	}
	return nil
}

func (s *Store) tag(ctx context.Context, existing, name string) error {
	rec, _, err := s.resolve(ctx, existing)
	if err != nil {
		return err
	}
	names, err := s.namesAs(ctx, rec, name)
	if err != nil {
		return err
	}
	if err := s.setRecords(ctx, names, rec.target, rec.labels[importedLabel]); err != nil {
		return err
	}
	return s.awaitCRI(ctx, names)
}

// namesAs returns the names under which a pull records the image of a record, with the reference.
func (s *Store) namesAs(ctx context.Context, rec record, ref string) ([]string, error) {
	config, err := images.Config(ctx, s.content, rec.target, platforms.Default())
	if err != nil {
		return nil, err
	}
	return recordNames(ref, rec.target.Digest, config.Digest)
}

// resolve returns the record of an image reference, and the repository of the reference.
func (s *Store) resolve(ctx context.Context, ref string) (record, string, error) {
	named, err := parse(ref)
	if err != nil {
		return record{}, "", err
	}
	rec, err := s.record(ctx, named.String())
	return rec, named.Name(), err
}
