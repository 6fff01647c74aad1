package payload

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"airlift/bundle"
	"airlift/installer/host"
)

// Packages writes packages of the bundle to the host, between host.BeginPackages and host.EndPackages. It returns their paths by
// the names of the entries. Init and join read them before the rest of the file.
func (b *Bundle) Packages(ctx context.Context, h *host.Host, entries []string) (map[string]string, error) {
	s, err := b.File.Stream(ctx)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	s.Skip(func(e bundle.Entry) bool { return !slices.Contains(entries, e.Name) })
	paths := map[string]string{}
	for len(paths) < len(entries) {
		e, content, err := s.Next()
		if errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("reading packages: %d of %d are in the file", len(paths), len(entries))
		}
		if err != nil {
			return nil, err
		}
		if !slices.Contains(entries, e.Name) {
			continue
		}
		if paths[e.Name], err = h.PutPackage(ctx, e.Name, e.SHA256, content); err != nil {
			return nil, fmt.Errorf("writing a package: %w", err)
		}
	}
	return paths, nil
}
