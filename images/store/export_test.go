package store

import (
	"context"
	"fmt"
	"slices"
	"strings"

	imagesapi "github.com/containerd/containerd/api/services/images/v1"
	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"github.com/opencontainers/go-digest"
)

// RemoveImages removes images by reference, and waits until content that no other image
// uses is removed. Other names of the same image stay. A reference that does not exist is
// not an error.
func (s *Store) RemoveImages(ctx context.Context, refs []string) error {
	for _, ref := range refs {
		if err := s.removeImage(ctx, ref); err != nil {
			return fmt.Errorf("removing image %q: %w", ref, err)
		}
	}
	return nil
}

func (s *Store) removeImage(ctx context.Context, ref string) error {
	rec, repository, err := s.resolve(ctx, ref)
	if errdefs.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	same, err := s.recordsOf(ctx, rec.target.Digest)
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
		if err := s.removeRecord(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) recordsOf(ctx context.Context, target digest.Digest) ([]record, error) {
	resp, err := s.images.List(ctx, &imagesapi.ListImagesRequest{Filters: []string{fmt.Sprintf("target.digest==%q", target)}})
	if err != nil {
		return nil, errgrpc.ToNative(err)
	}
	var records []record
	for _, img := range resp.Images {
		records = append(records, fromAPI(img))
	}
	return records, nil
}
