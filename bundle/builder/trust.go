package builder

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"airlift/images/fetch"
)

// The values of vouchedBy: who supplied a checksum or digest.
const (
	bySite      = "site"       // the checksum that the site publishes
	byRegistry  = "registry"   // the registry resolved the tag
	byPin       = "--checksum" // the user gave it
	byReference = "reference"  // the digest in an image's own name
	byLock      = "lock"       // the lock
	byLocal     = "local"      // the archive, layout, Docker or containerd that has the image
)

// unconfirmed counts the facts that only one site or mirror supplied. A verified signature
// confirms a checksum or digest.
type unconfirmed struct{ files, tags, versions int }

// warnings returns the warnings about what was resolved.
func (inv *inventory) warnings(m *fetch.Mirrors) []string {
	return slices.Concat(inv.release.Assumptions(), inv.base.otherVersion(inv.release.Version), inv.unconfirmed(m), inv.signed.warnings(), inv.objects.warnings)
}

// unconfirmed returns a warning for each mirror, and for each site over plain http, that
// supplied checksums.
func (inv *inventory) unconfirmed(m *fetch.Mirrors) []string {
	sites := map[string]*unconfirmed{}
	vouched := func(s fetch.Source, count func(*unconfirmed)) {
		for _, site := range s.Sites() {
			if len(m.MirrorOf(site)) == 0 && !strings.HasPrefix(site, "http://") {
				continue
			}
			if sites[site] == nil {
				sites[site] = &unconfirmed{}
			}
			count(sites[site])
			return // the first site also chose the redirects
		}
	}
	if inv.release.source.Site != "" {
		vouched(inv.release.source, func(u *unconfirmed) { u.versions++ })
	}
	for _, bin := range inv.components.binaries {
		if !bin.pinned && !bin.locked && bin.signed.by == "" {
			vouched(bin.source, func(u *unconfirmed) { u.files++ })
		}
	}
	for _, i := range inv.images {
		if vouchedBy(i) == byRegistry && i.signed.by == "" {
			vouched(i.registry.Source, func(u *unconfirmed) { u.tags++ })
		}
	}
	var list []string
	for _, site := range slices.Sorted(maps.Keys(sites)) {
		list = append(list, sites[site].warning(site, m.MirrorOf(site)))
	}
	return list
}

func (u unconfirmed) warning(site string, mirrorOf []string) string {
	var what []string
	if u.files > 0 {
		what = append(what, fmt.Sprintf("the checksums of %s", plural(u.files, "file")))
	}
	if u.tags > 0 {
		what = append(what, fmt.Sprintf("the digests of %s", plural(u.tags, "image")))
	}
	if u.versions > 0 {
		what = append(what, "the newest version")
	}
	who := "site " + site
	if len(mirrorOf) > 0 {
		who = "mirror " + site + " of " + strings.Join(mirrorOf, ", ")
	}
	s := fmt.Sprintf("%s supplied %s. This detects damage, but does not prove that the contents are upstream's", who, strings.Join(what, " and "))
	if strings.HasPrefix(site, "http://") {
		s += ". It uses plain http: anyone on the network path can replace contents and checksums together"
	}
	return s + ". --checksum pins checksums that you know from another source"
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
