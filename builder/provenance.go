package builder

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"airlift/builder/fetch"
)

// ProvenancePath returns the path of the provenance for the bundle at path.
func ProvenancePath(path string) string { return path + ".provenance.json" }

// A Provenance records who supplied the checksums of a bundle's contents. It is a
// separate file, so that a build through an honest mirror gives the same bytes as one
// without a mirror.
type Provenance struct {
	FormatVersion     int    `json:"formatVersion"` // 1
	BundleSHA256      string `json:"bundleSHA256"`
	BundleSize        int64  `json:"bundleSize"`
	Platform          string `json:"platform"`
	KubernetesVersion string `json:"kubernetesVersion"`
	// Only and Base are as in the manifest of an additional bundle. Base is the sha256 of
	// the base's manifest.
	Only []string `json:"only,omitempty"`
	Base string   `json:"base,omitempty"`
	// NearestKnown is the manifest's field. Assumed lists the components with an assumed version,
	// which is NearestKnown's version: "etcd 3.6.8-0".
	NearestKnown string   `json:"nearestKnown,omitempty"`
	Assumed      []string `json:"assumed,omitempty"`
	// Release is the source of the newest version, if it was requested.
	Release *fetch.Source `json:"release,omitempty"`
	// VerifySignatures is as in the options, if it is not VerifyOff.
	VerifySignatures string `json:"verifySignatures,omitempty"`
	// TrustedRoot is the sha256 of the file Options.TrustedRoot, if there is one.
	TrustedRoot string                `json:"trustedRoot,omitempty"`
	Mirrors     []ProvenanceMirror    `json:"mirrors"`    // sorted by host
	Components  []ProvenanceComponent `json:"components"` // sorted by name
	Images      []ProvenanceImage     `json:"images"`     // sorted by reference
	LeftOut     []LeftOut             `json:"leftOut"`    // sorted by name
	// Charts are the charts of the bundle's manifests, in their order.
	Charts []ProvenanceChart `json:"charts,omitempty"`
}

// A ProvenanceChart is a Helm chart that was rendered.
type ProvenanceChart struct {
	Manifest string `json:"manifest"` // name in the bundle
	Chart    string `json:"chart"`
	Version  string `json:"version"`
	URL      string `json:"url,omitempty"`    // of the archive, if it was downloaded
	Digest   string `json:"digest,omitempty"` // of the archive: "sha256:<hex>"
}

// A ProvenanceMirror is the value of a --mirror flag.
type ProvenanceMirror struct {
	Host string `json:"host"`
	URL  string `json:"url"`
}

// A ProvenanceComponent is a published file.
type ProvenanceComponent struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	URL     string `json:"url"` // upstream's URL
	// FetchedFrom is the site or mirror of this file in this build. The file may
	// also have been in the cache already, with the same checksum.
	FetchedFrom string        `json:"fetchedFrom"`
	Checksum    string        `json:"checksum"`
	VouchedBy   string        `json:"vouchedBy"`        // "site", "lock" or "--checksum"
	Source      *fetch.Source `json:"source,omitempty"` // of the checksum, if VouchedBy is "site"
	// SignedBy is as in the manifest. Signature is upstream's URL of the signature.
	SignedBy  string `json:"signedBy,omitempty"`
	Signature string `json:"signature,omitempty"`
}

// A ProvenanceImage is an image of the bundle.
type ProvenanceImage struct {
	Name      string `json:"name"`
	Reference string `json:"reference"`
	// FetchedFrom is a registry or its mirror, or the kind of a local source:
	// "oci-archive". The path of a local source is not recorded.
	FetchedFrom string        `json:"fetchedFrom"`
	Digest      string        `json:"digest"`           // that the reference resolved to
	VouchedBy   string        `json:"vouchedBy"`        // "registry", "lock", "--checksum", "reference" or "local"
	Source      *fetch.Source `json:"source,omitempty"` // of the digest, if VouchedBy is "registry"
	// SignedBy is as in the manifest. Signature is the repository that has the signature.
	SignedBy  string `json:"signedBy,omitempty"`
	Signature string `json:"signature,omitempty"`
}

// LeftOut is an optional component that is not in the bundle.
type LeftOut struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	URL     string `json:"url"`
	Why     string `json:"why"`
}

// The values of vouchedBy: who supplied a checksum or digest.
const (
	bySite      = "site"       // the checksum that the site publishes
	byRegistry  = "registry"   // the registry resolved the tag
	byPin       = "--checksum" // the user gave it
	byReference = "reference"  // the digest in an image's own name
	byLock      = "lock"       // the lock
	byLocal     = "local"      // the archive, layout, Docker or containerd that has the image
)

// provenance returns the file that describes the written bundle.
func (b *build) provenance() ([]byte, error) {
	m, s := b.manifest, b.draft.Summary
	p := Provenance{
		FormatVersion: 1, BundleSHA256: s.SHA256, BundleSize: s.Size,
		Platform: m.Platform, KubernetesVersion: m.KubernetesVersion,
		Only: m.Only, Base: b.base.sha256,
		NearestKnown: m.NearestKnown, Assumed: b.release.Assumed,
		Mirrors: []ProvenanceMirror{}, Components: []ProvenanceComponent{}, Images: []ProvenanceImage{},
		LeftOut: append([]LeftOut{}, b.leftOut...), Charts: b.objects.charts,
	}
	if b.signed != nil {
		p.VerifySignatures, p.TrustedRoot = b.VerifySignatures, b.rootSHA256
	}
	if b.release.source.Site != "" {
		p.Release = &b.release.source
	}
	for _, m := range b.Mirrors {
		p.Mirrors = append(p.Mirrors, ProvenanceMirror{m.Host, m.URL.String()})
	}
	for _, bin := range b.binaries {
		c := ProvenanceComponent{Name: bin.Name, Version: bin.Version, URL: bin.URL,
			FetchedFrom: b.siteOf(bin.URL), Checksum: "sha256:" + bin.sum, VouchedBy: byPin,
			SignedBy: bin.signed.by, Signature: bin.signed.where}
		if bin.locked {
			c.VouchedBy = byLock
		} else if !bin.pinned {
			c.VouchedBy, c.Source = bySite, &bin.source
		}
		p.Components = append(p.Components, c)
	}
	for _, img := range b.images {
		i := ProvenanceImage{Name: img.Name, Reference: img.Reference, FetchedFrom: img.site(),
			Digest: img.Target.Digest, VouchedBy: img.vouchedBy(),
			SignedBy: img.signed.by, Signature: img.signed.where}
		if i.VouchedBy == byRegistry {
			i.Source = &img.registry.Source
		}
		p.Images = append(p.Images, i)
	}
	slices.SortFunc(p.Mirrors, func(x, y ProvenanceMirror) int { return cmp.Compare(x.Host, y.Host) })
	slices.SortFunc(p.Components, func(x, y ProvenanceComponent) int { return cmp.Compare(x.Name, y.Name) })
	slices.SortFunc(p.Images, func(x, y ProvenanceImage) int { return cmp.Compare(x.Reference, y.Reference) })
	slices.SortFunc(p.LeftOut, func(x, y LeftOut) int { return cmp.Compare(x.Name, y.Name) })
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	err := e.Encode(p)
	return out.Bytes(), err
}

// unconfirmed counts the facts that only one site or mirror supplied. A verified signature
// confirms a checksum or digest.
type unconfirmed struct{ files, tags, versions int }

// warnings returns the warnings about what was resolved.
func (b *build) warnings() []string {
	list := slices.Concat(b.release.Assumptions(), b.otherVersion(), b.unconfirmed())
	if b.signed != nil {
		for _, m := range b.signed.Missing {
			list = append(list, "the signature was not verified: "+m)
		}
	}
	return append(list, b.objects.warnings...)
}

// unconfirmed returns a warning for each mirror, and for each site over plain http, that
// supplied checksums.
func (b *build) unconfirmed() (list []string) {
	sites := map[string]*unconfirmed{}
	vouched := func(s fetch.Source, count func(*unconfirmed)) {
		for _, site := range s.Sites() {
			if len(b.mirrors.MirrorOf(site)) == 0 && !strings.HasPrefix(site, "http://") {
				continue
			}
			if sites[site] == nil {
				sites[site] = &unconfirmed{}
			}
			count(sites[site])
			return // the first site also chose the redirects
		}
	}
	if b.release.source.Site != "" {
		vouched(b.release.source, func(u *unconfirmed) { u.versions++ })
	}
	for _, bin := range b.binaries {
		if !bin.pinned && !bin.locked && bin.signed.by == "" {
			vouched(bin.source, func(u *unconfirmed) { u.files++ })
		}
	}
	for _, i := range b.images {
		if i.vouchedBy() == byRegistry && i.signed.by == "" {
			vouched(i.registry.Source, func(u *unconfirmed) { u.tags++ })
		}
	}
	for _, site := range slices.Sorted(maps.Keys(sites)) {
		list = append(list, sites[site].warning(site, b.mirrors.MirrorOf(site)))
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
