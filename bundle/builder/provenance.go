package builder

import (
	"bytes"
	"cmp"
	"encoding/json"
	"os"
	"slices"
	"strings"

	"airlift/bundle"
	"airlift/images/fetch"
	"airlift/internal/fault"
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

func vouchedBy(i *image) string {
	switch {
	case i.local != nil && !i.pinned:
		return byLocal
	case i.local != nil:
		return byPin
	case i.locked:
		return byLock
	case i.registry.Source.Site != "":
		return byRegistry
	case strings.Contains(i.Reference, "@"):
		return byReference
	}
	return byPin
}

// provenance describes the written bundle, whose contents came from these sites.
func (inv *inventory) provenance(m *bundle.Manifest, s bundle.Summary, from *sites) Provenance {
	p := Provenance{
		FormatVersion: 1, BundleSHA256: s.SHA256, BundleSize: s.Size,
		Platform: m.Platform, KubernetesVersion: m.KubernetesVersion,
		Only: m.Only, Base: inv.base.sha256,
		NearestKnown: m.NearestKnown, Assumed: inv.release.Assumed,
		Mirrors: []ProvenanceMirror{}, Components: []ProvenanceComponent{}, Images: []ProvenanceImage{},
		LeftOut: append([]LeftOut{}, inv.components.leftOut...), Charts: inv.objects.charts,
	}
	if inv.signed != nil {
		p.VerifySignatures, p.TrustedRoot = inv.signed.mode, inv.signed.root
	}
	if inv.release.source.Site != "" {
		p.Release = &inv.release.source
	}
	for _, m := range from.given {
		p.Mirrors = append(p.Mirrors, ProvenanceMirror{m.Host, m.URL.String()})
	}
	for _, bin := range inv.components.binaries {
		c := ProvenanceComponent{Name: bin.Name, Version: bin.Version, URL: bin.URL,
			FetchedFrom: from.of(bin.URL), Checksum: "sha256:" + bin.sum, VouchedBy: byPin,
			SignedBy: bin.signed.by, Signature: bin.signed.where}
		if bin.locked {
			c.VouchedBy = byLock
		} else if !bin.pinned {
			c.VouchedBy, c.Source = bySite, &bin.source
		}
		p.Components = append(p.Components, c)
	}
	for _, img := range inv.images {
		i := ProvenanceImage{Name: img.Name, Reference: img.Reference, FetchedFrom: img.site(),
			Digest: img.Target.Digest, VouchedBy: vouchedBy(img),
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
	return p
}

func (p Provenance) encode() ([]byte, error) {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	err := e.Encode(p)
	return out.Bytes(), err
}

// checkProvenance finds an unusable path before the downloads start.
func checkProvenance(output string) error {
	path := ProvenancePath(output)
	if i, err := os.Lstat(path); err == nil && !i.Mode().IsRegular() {
		return fault.New(fault.Usage, "cannot write the provenance: %q is not a regular file", path).Hint("remove it, or choose another --output")
	}
	return nil
}
