package store

import (
	"context"
	"fmt"
	"slices"

	"airlift/bundle"
)

// A LeftOut is a layer that a bundle leaves out and that containerd does not have.
type LeftOut struct {
	Image  string // the first image that needs it
	DiffID string
	Size   int64
}

// LeftOut returns the layers of the images whose content an import needs. layers are the diffIDs of
// the layers that the bundle leaves out. After an import containerd has no layers but snapshots,
// and a snapshot is a layer on top of certain others. So a layer that containerd has on top of
// other layers is needed again.
func (s *Store) LeftOut(ctx context.Context, images []bundle.Image, layers []string) (needed []LeftOut, err error) {
	for _, img := range images {
		chain := chainIDs(img)
		for i, l := range img.Layers {
			known := slices.ContainsFunc(needed, func(n LeftOut) bool { return n.DiffID == l.DiffID })
			if known || !slices.Contains(layers, l.DiffID) {
				continue
			}
			has, err := s.hasSnapshot(ctx, chain[i])
			if err != nil {
				return nil, fmt.Errorf("looking for the layers of image %s: %w", img.Reference, err)
			}
			if !has {
				needed = append(needed, LeftOut{img.Reference, l.DiffID, l.Size})
			}
		}
	}
	return needed, nil
}
