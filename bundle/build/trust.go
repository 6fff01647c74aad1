package build

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"airlift/bundle/fetch"
)

// Who can vouch for what is in a bundle.
const (
	bySite      = "site"       // the checksum that the site publishes
	byRegistry  = "registry"   // what the registry says that a tag means
	byPin       = "--checksum" // the user
	byReference = "reference"  // the digest in an image's own name
)

// hearsay counts what a site, or a mirror in its place, said without anyone else
// to confirm it.
type hearsay struct{ files, tags, versions int }

// warnings says what rests on a mirror's word, or on plain http: one warning for
// each site.
func (b *builder) warnings() []string {
	sites := map[string]*hearsay{}
	said := func(s fetch.Source, count func(*hearsay)) {
		for _, site := range s.Sites() {
			if !b.mirrors.IsMirror(site) && !strings.HasPrefix(site, "http://") {
				continue
			}
			if sites[site] == nil {
				sites[site] = &hearsay{}
			}
			count(sites[site])
			return // where it redirects to is its word, too
		}
	}
	if b.release.Site != "" {
		said(b.release, func(h *hearsay) { h.versions++ })
	}
	for _, bin := range b.binaries {
		if !bin.pinned && !bin.dropped {
			said(bin.source, func(h *hearsay) { h.files++ })
		}
	}
	for _, i := range b.images {
		if vouchedBy(i) == byRegistry {
			said(i.Source, func(h *hearsay) { h.tags++ })
		}
	}
	var list []string
	for _, site := range slices.Sorted(maps.Keys(sites)) {
		list = append(list, sites[site].warning(site, b.mirrors.IsMirror(site)))
	}
	return list
}

func (h hearsay) warning(site string, mirror bool) string {
	var what []string
	if h.files > 0 {
		what = append(what, fmt.Sprintf("the checksums of %s", plural(h.files, "file")))
	}
	if h.tags > 0 {
		what = append(what, fmt.Sprintf("the digests of %s", plural(h.tags, "image")))
	}
	if h.versions > 0 {
		what = append(what, "the newest version")
	}
	who := "site"
	if mirror {
		who = "mirror"
	}
	s := fmt.Sprintf("%s %s supplied %s. They show that nothing was damaged on the way, not that it is upstream's: pin what you know from elsewhere with --checksum", who, site, strings.Join(what, " and "))
	if strings.HasPrefix(site, "http://") {
		s += ". It uses plain http: anyone on the network path can replace files and checksums alike"
	}
	return s
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
