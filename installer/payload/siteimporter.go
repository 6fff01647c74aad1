package payload

import (
	"context"
	"fmt"
	"io"
	"slices"
	"sync"

	"airlift/bundle"
	"airlift/installer/host"
	"airlift/installer/timeline"
)

// A SiteRequest lists the site's own content that a run needs.
type SiteRequest struct {
	Files     map[string][]host.SiteFile // by entry
	Manifests []string                   // entries
}

// A siteImporter writes the site's files to the host, and keeps its manifests in memory, as
// they arrive in the stream.
type siteImporter struct {
	SiteRequest
	arrivals *arrivals
	host     *host.Host
	missing  map[string][]host.SiteFile // files that the stream still has to write, by entry

	mu        sync.Mutex
	documents map[string][]byte // manifests by entry
	written   []string          // paths
	warnings  []string
}

func newSiteImporter(r SiteRequest, a *arrivals, h *host.Host) *siteImporter {
	for _, name := range SortedEntries(r.Files) {
		a.expect(name)
	}
	for _, name := range r.Manifests {
		a.expect(name)
	}
	return &siteImporter{SiteRequest: r, arrivals: a, host: h, missing: map[string][]host.SiteFile{}, documents: map[string][]byte{}}
}

// look finds the files that are missing on the host, or have other content.
func (s *siteImporter) look() error {
	for _, name := range SortedEntries(s.Files) {
		for _, f := range s.Files[name] {
			has, err := s.host.HasSiteFile(f)
			if err != nil {
				return err
			}
			if !has {
				s.missing[name] = append(s.missing[name], f)
			}
		}
		if s.missing[name] == nil {
			s.arrivals.announce(name)
		}
	}
	return nil
}

// wants reports whether the stream has to read an entry.
func (s *siteImporter) wants(entry string) bool {
	return s.missing[entry] != nil || s.wantsManifest(entry)
}

func (s *siteImporter) wantsManifest(entry string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Contains(s.Manifests, entry) && s.documents[entry] == nil
}

// complete reports whether the importer needs nothing more from the stream.
func (s *siteImporter) complete() bool {
	return len(s.missing) == 0 && !slices.ContainsFunc(s.Manifests, s.wantsManifest)
}

// take reads an entry.
func (s *siteImporter) take(ctx context.Context, e bundle.Entry, r io.Reader) error {
	ctx, span := timeline.Start(ctx, timeline.Bundle, e.Name)
	defer span.End()
	span.Set("bytes", e.Size)
	if s.wantsManifest(e.Name) {
		data := make([]byte, e.Size)
		if _, err := io.ReadFull(r, data); err != nil {
			return fmt.Errorf("reading %s: %w", e.Name, err)
		}
		s.mu.Lock()
		s.documents[e.Name] = data
		s.mu.Unlock()
		s.arrivals.announce(e.Name)
		return nil
	}
	files := s.missing[e.Name]
	if err := s.host.InstallSiteFile(ctx, files[0], r, s.warn); err != nil {
		return err
	}
	for _, f := range files[1:] {
		if err := s.host.CopySiteFile(ctx, f, files[0], s.warn); err != nil {
			return err
		}
	}
	s.mu.Lock()
	for _, f := range files {
		s.written = append(s.written, f.Path)
		s.arrivals.Changed.Add(1)
	}
	s.mu.Unlock()
	delete(s.missing, e.Name)
	s.arrivals.announce(e.Name)
	return nil
}

// warn keeps a warning for the step that waits for the files.
func (s *siteImporter) warn(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.warnings = append(s.warnings, fmt.Sprintf(format, args...))
}

// News returns the files that were written since the last call, and the warnings.
func (s *siteImporter) News() (written, warnings []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	written, warnings = s.written, s.warnings
	s.written, s.warnings = nil, nil
	return written, warnings
}

// Document returns a manifest that has arrived.
func (s *siteImporter) Document(entry string) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.documents[entry]
}

// SortedEntries returns the names of entries in order.
func SortedEntries(files map[string][]host.SiteFile) (names []string) {
	for name := range files {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
