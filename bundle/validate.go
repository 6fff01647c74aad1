package bundle

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"airlift/bundle/encoder"
	"airlift/bundle/head"
)

const (
	// maxEntries is the maximum number of entries. With MaxEntry it keeps the
	// sum of all sizes within an int64.
	maxEntries = 1 << 16

	// MaxEntry is the maximum size of an entry, so also of a layer.
	MaxEntry = head.MaxEntry

	// MaxDocument is the maximum size of an index, a manifest or a config, as in the
	// OCI distribution specification. Readers hold a whole document in memory.
	// maxDocuments limits their sum.
	MaxDocument  = 4 << 20
	maxDocuments = 64 << 20

	// MaxManifest is the maximum size of one of the site's manifests in bytes. Readers hold
	// it in memory. Larger ones can be divided.
	MaxManifest = 16 << 20

	// maxSBOM is the maximum size of an SBOM in bytes. Readers may hold it in memory. A bundle of
	// Kubernetes has less than 1 MB in each format.
	maxSBOM = 256 << 20

	maxName  = 255  // of an entry in bytes, as on every file system
	maxText  = 4096 // of a text in bytes, more than any usable URL
	maxLabel = 63   // of a DNS label, and so of a namespace's name
)

var (
	hex64      = regexp.MustCompile(`^[0-9a-f]{64}$`)
	fileName   = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._+-]*$`)
	platformOS = regexp.MustCompile(`^linux/[a-z0-9]+(/[a-z0-9]+)?$`)
	cniName    = regexp.MustCompile(`^[a-z0-9][a-z0-9-]*$`)
	kubeSemver = regexp.MustCompile(`^v[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?$`)
	dnsLabel   = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`)
	mode       = regexp.MustCompile(`^0[0-7]{3}$`)
	unitName   = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9:_.@-]*\.[a-z]+$`)
	// Names and versions of packages are words of command lines on hosts.
	packageName    = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9+._-]*$`)
	packageVersion = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9.+~^:_-]*$`)
	packageArch    = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]*$`)
	packageRelease = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]*-[A-Za-z0-9][A-Za-z0-9._]*$`)
	packageEntry   = regexp.MustCompile(`^[0-9a-f]{64}\.(deb|rpm)$`)
	sbomFormat     = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)
)

// Validate checks that m is consistent: names are safe as paths, digests are well formed,
// every blob of an image exists with the expected size, something uses every entry, and
// nothing is listed twice. It does not read the entries' content.
func (m *Manifest) Validate() error {
	v := &validator{entries: map[string]Entry{}, used: map[string]bool{}, inBase: map[string]int64{}, compressed: map[string]described{}}
	v.check(m.FormatVersion == FormatVersion, "formatVersion is %d, want %d", m.FormatVersion, FormatVersion)
	v.match("platform", m.Platform, platformOS)
	v.match("kubernetesVersion", m.KubernetesVersion, kubeSemver)
	v.match("cni", m.CNI, cniName)
	v.check(m.NearestKnown == "" || kubeSemver.MatchString(m.NearestKnown) && m.NearestKnown != m.KubernetesVersion,
		"nearestKnown %q is not another Kubernetes version", m.NearestKnown)
	v.checkEntries(m.Entries)
	v.checkComponents(m.Components)
	v.checkAdditional(m)
	v.checkImages(m.Images)
	if m.Base != nil {
		for _, diffID := range m.Base.Layers {
			v.check(v.inBase[diffID] != unused, "base: no image has the layer %s", diffID)
		}
	}
	v.checkSite(m)
	v.checkPackages(m.Packages)
	v.checkSBOMs(m.SBOMs)
	for _, e := range m.Entries {
		v.check(v.used[e.Name], "nothing in the bundle uses the entry %q", e.Name)
	}
	return v.err
}

type validator struct {
	entries    map[string]Entry     // by name
	used       map[string]bool      // names of entries that something uses
	inBase     map[string]int64     // sizes of the layers that only the base has, by diffID; unused before an image uses it
	compressed map[string]described // the compressed layers, by digest

	where string // what is being checked: `image "app": `
	err   error  // the first mistake
}

// check records a mistake unless ok is true, and returns ok.
func (v *validator) check(ok bool, format string, args ...any) bool {
	if !ok && v.err == nil {
		v.err = fmt.Errorf("manifest: "+v.where+format, args...)
	}
	return ok
}

// in checks something whose mistakes begin with its name.
func (v *validator) in(what, name string, check func()) {
	before := v.where
	// The name may contain a percent sign.
	v.where += strings.ReplaceAll(fmt.Sprintf("%s %q: ", what, name), "%", "%%")
	check()
	v.where = before
}

func (v *validator) match(name, value string, form *regexp.Regexp) {
	v.check(form.MatchString(value), "%s %q does not match %s", name, value, form)
}

// text accepts only printable ASCII, so that no text can send control characters to a terminal.
func (v *validator) text(what, s string) {
	v.check(s != "", "%s is empty", what)
	v.check(len(s) <= maxText, "%s is %d bytes long, more than the %d allowed", what, len(s), maxText)
	v.check(!strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' }), "%s %q is not printable ASCII", what, s)
}

func (v *validator) optional(what, s string) {
	if s != "" {
		v.text(what, s)
	}
}

func (v *validator) digest(what, digest string) bool {
	hex, ok := strings.CutPrefix(digest, "sha256:")
	return v.check(ok && hex64.MatchString(hex), "%s: %q is not sha256: and 64 lower-case hex digits", what, digest)
}

func (v *validator) label(what, s string) {
	v.check(dnsLabel.MatchString(s) && len(s) <= maxLabel, "%s %q does not match %s, or is longer than %d", what, s, dnsLabel, maxLabel)
}

var dirs = []string{BinDir, CNIDir, ManifestDir, FileDir, PackageDir, BlobDir, SBOMDir}

// checkEntries accepts only plain file names in the payload's directories, so that a reader never
// writes outside of its target directory.
func (v *validator) checkEntries(entries []Entry) {
	v.check(len(entries) <= maxEntries, "%d entries are more than the %d allowed", len(entries), maxEntries)
	for _, e := range entries {
		dir, base := path.Split(e.Name)
		named := dir == BlobDir || dir == FileDir // by their sha256
		v.check(slices.Contains(dirs, dir), "entry %q is not directly in %s", e.Name, strings.Join(dirs, ", "))
		v.check(fileName.MatchString(base) && len(e.Name) <= maxName, "entry %q is not a plain file name", e.Name)
		v.check(!named || hex64.MatchString(base), "entry %q is not named by a sha256", e.Name)
		if dir == PackageDir && v.check(packageEntry.MatchString(base), "entry %q is not named by a sha256 with the extension deb or rpm", e.Name) {
			base, named = strings.TrimSuffix(base, path.Ext(base)), true
		}
		_, twice := v.entries[e.Name]
		v.check(!twice, "entry %q is listed twice", e.Name)
		v.check(e.Size >= 0 && e.Size <= MaxEntry, "entry %q: size %d is not between 0 and %d", e.Name, e.Size, int64(MaxEntry))
		v.check(hex64.MatchString(e.SHA256), "entry %q: sha256 %q is not 64 lower-case hex digits", e.Name, e.SHA256)
		v.check(!named || base == e.SHA256, "entry %q: sha256 %q differs from the name", e.Name, e.SHA256)
		v.entries[e.Name] = e
	}
}

func (v *validator) checkComponents(components []Component) {
	last := ""
	for _, c := range components {
		v.text("component name", c.Name)
		v.check(c.Name > last, "component %q is listed twice or out of order", c.Name)
		last = c.Name
		v.in("component", c.Name, func() {
			v.text("version", c.Version)
			v.text("url", c.URL)
			v.digest("checksum", c.Checksum)
			v.optional("signedBy", c.SignedBy)
			for _, name := range c.Entries {
				e, ok := v.entries[name]
				v.check(ok, "entry %q does not exist", name)
				v.check(isBinary(e), "entry %q is not in %s or %s", name, BinDir, CNIDir)
				v.check(!v.used[name], "entry %q belongs to two components", name)
				v.used[name] = true
			}
		})
	}
}

func (v *validator) checkImages(images []Image) {
	names, references := map[string]bool{}, map[string]bool{}
	documents := int64(0)
	for _, i := range images {
		v.text("image name", i.Name)
		v.in("image", i.Name, func() { v.text("reference", i.Reference) })
		v.check(!names[i.Name] && !references[i.Reference], "image %q (%s) is listed twice", i.Name, i.Reference)
		names[i.Name], references[i.Reference] = true, true
		v.in("image", i.Name, func() {
			v.check(!i.EveryNode || i.Name != i.Reference, "everyNode is only for images of a control plane")
			v.optional("signedBy", i.SignedBy)
			v.checkDocuments(i)
			for n, l := range i.Layers {
				v.checkLayer(fmt.Sprintf("layer %d", n+1), l)
			}
		})
		for _, d := range i.Documents() {
			documents += min(d.Size, MaxDocument) // a larger one is a mistake itself
		}
	}
	v.check(documents <= maxDocuments, "the images' indexes, manifests and configs have %d bytes, more than the %d allowed", documents, maxDocuments)
}

// checkDocuments checks the descriptors of an image's indexes, manifest and config.
func (v *validator) checkDocuments(i Image) {
	list := i.Documents()
	for n, d := range list {
		what := "index"
		switch n {
		case 0:
			what = "target"
		case len(list) - 2:
			what = "manifest"
		case len(list) - 1:
			what = "config"
		}
		before := v.where
		v.where += what + ": "
		v.text("media type", d.MediaType)
		v.check(d.Size <= MaxDocument, "%d bytes are more than the %d allowed", d.Size, MaxDocument)
		v.where = before
		v.useBlob(what, d.Digest, d.Size)
	}
	v.check(i.Target.Digest != i.Manifest.Digest || i.Target == i.Manifest && len(i.Indexes) == 0,
		"target and manifest are one blob with two media types, or with indexes between them")
	_, digest, ok := strings.Cut(i.Reference, "@")
	v.check(!ok || digest == i.Target.Digest, "the reference %q has another digest than the target %s", i.Reference, i.Target.Digest)
}

// useBlob checks that the blob of the digest is in the bundle with that size.
func (v *validator) useBlob(what, digest string, size int64) {
	v.digest(what, digest)
	e, ok := v.entries[BlobName(digest)]
	v.check(ok, "%s: entry %q does not exist", what, BlobName(digest))
	v.check(e.Size == size, "%s: size is %d, the entry's is %d", what, size, e.Size)
	v.used[e.Name] = true
}

// checkLayer checks that the layer is in the bundle, or else in its base, and the description of its compressed blob.
func (v *validator) checkLayer(what string, l Layer) {
	if size, ok := v.inBase[l.DiffID]; ok {
		v.check(l.Size >= 0 && l.Size <= MaxEntry, "%s: size %d is not between 0 and %d", what, l.Size, int64(MaxEntry))
		v.check(size == unused || size == l.Size, "%s: size is %d, another image's is %d", what, l.Size, size)
		v.inBase[l.DiffID] = l.Size
	} else {
		v.useBlob(what, l.DiffID, l.Size)
	}
	c := l.Compressed
	if c == nil {
		return
	}
	what += ": compressed"
	v.digest(what, c.Digest)
	v.check(c.Digest != l.DiffID, "%s has the digest of the layer", what)
	v.check(c.Size > 0 && c.Size <= MaxEntry, "%s: size %d is not between 1 and %d", what, c.Size, int64(MaxEntry))
	here := described{*c, l.DiffID}
	other, ok := v.compressed[c.Digest]
	v.check(!ok || other == here, "%s %s has two descriptions", what, c.Digest)
	v.compressed[c.Digest] = here
	if c.Encoder == "" {
		e, kept := v.entries[BlobName(c.Digest)]
		v.check(c.Header == "", "%s has a header and no encoder", what)
		v.check(!kept || e.Size == c.Size, "%s: size is %d, the entry's is %d", what, c.Size, e.Size)
		v.used[e.Name] = true // of no entry, if it is not kept
		return
	}
	v.check(encoder.Known(c.Encoder), "%s: the encoder %q is not known", what, c.Encoder)
	if !encoder.HasHeader(c.Encoder) {
		v.check(c.Header == "", "%s: %q has a header", what, c.Encoder)
		return
	}
	header, err := hex.DecodeString(c.Header)
	if err == nil && hex.EncodeToString(header) != c.Header {
		err = fmt.Errorf("%q is not in lower case", c.Header)
	}
	if err == nil {
		err = encoder.CheckHeader(header)
	}
	v.check(err == nil, "%s: header: %w", what, err)
}

// A described is a compressed blob with the layer that it contains.
type described struct {
	Compressed
	diffID string
}

// unused is the size of a layer in validator.inBase that no image has used yet.
const unused = -1

// ContentKinds are the values of the field Only, in their order.
func ContentKinds() []string { return []string{OnlyImages, OnlyManifests} }

// checkAdditional checks what an additional bundle may have, and reads the layers of its base.
func (v *validator) checkAdditional(m *Manifest) {
	if !m.Additional() {
		v.check(m.Base == nil, "base is only for bundles with the field only")
		return
	}
	ordered := slices.DeleteFunc(ContentKinds(), func(kind string) bool { return !slices.Contains(m.Only, kind) })
	v.check(slices.Equal(m.Only, ordered), "only %q is not a list of %q in this order", m.Only, ContentKinds())
	v.check(m.CNI == "none", "a bundle of only %q has the pod network %q", m.Only, m.CNI)
	for _, other := range []struct {
		what string
		has  bool
	}{
		{"nearestKnown", m.NearestKnown != ""}, {"components", len(m.Components) > 0}, {"files", len(m.Files) > 0}, {"units", len(m.Units) > 0}, {"packages", len(m.Packages) > 0},
		{"images", len(m.Images) > 0 && !slices.Contains(m.Only, OnlyImages)},
		{"manifests", len(m.Manifests) > 0 && !slices.Contains(m.Only, OnlyManifests)},
	} {
		v.check(!other.has, "a bundle of only %q has %s", m.Only, other.what)
	}
	for _, i := range m.Images {
		v.check(i.Name == i.Reference, "image %q: the name of an image in an additional bundle is its reference", i.Name)
	}
	if m.Base == nil {
		return
	}
	v.check(hex64.MatchString(m.Base.ManifestSHA256), "base: manifestSHA256 %q is not 64 lower-case hex digits", m.Base.ManifestSHA256)
	// Together, to keep the sum of all sizes within an int64.
	n := len(m.Base.Layers) + len(m.Entries)
	v.check(n <= maxEntries, "base: %d layers and entries are more than the %d allowed", n, maxEntries)
	last := ""
	for _, diffID := range m.Base.Layers {
		v.digest("base", diffID)
		v.check(diffID > last, "base: layer %s is listed twice or out of order", diffID)
		_, here := v.entries[BlobName(diffID)]
		v.check(!here, "base: layer %s is in this bundle", diffID)
		last = diffID
		v.inBase[diffID] = unused
	}
}

func (v *validator) checkSite(m *Manifest) {
	for _, s := range m.Manifests {
		v.label("manifest name", s.Name)
		v.in("manifest", s.Name, func() {
			v.optional("chart", s.Chart)
			v.optional("addOn", s.AddOn)
		})
		v.check(s.AddOn == "" || s.Chart == "", "manifest %q has both a chart and an add-on", s.Name)
		v.in("manifest", s.Name, func() {
			v.check(s.Namespace != "default", "namespace %q is the default and must be left out", s.Namespace)
			if s.Namespace != "" {
				v.label("namespace", s.Namespace)
			}
		})
		v.check(!v.used[s.Entry()], "manifest %q is listed twice", s.Name)
		e, ok := v.entries[s.Entry()]
		v.check(ok, "manifest %q: entry %q does not exist", s.Name, s.Entry())
		v.check(e.Size <= MaxManifest, "manifest %q: %d bytes are more than the %d allowed", s.Name, e.Size, MaxManifest)
		v.used[s.Entry()] = true
	}
	files := map[string]SiteFile{}
	last := ""
	for _, f := range m.Files {
		v.text("path", f.Path)
		v.check(path.IsAbs(f.Path) && path.Clean(f.Path) == f.Path && f.Path != "/", "file %q is not a clean absolute path", f.Path)
		v.check(mode.MatchString(f.Mode), "file %q: mode %q is not four octal digits without special bits", f.Path, f.Mode)
		v.check(f.Nodes == "" || f.Nodes == ControlPlanes || f.Nodes == Workers, "file %q: nodes %q are neither %s nor %s", f.Path, f.Nodes, ControlPlanes, Workers)
		_, ok := v.entries[f.Entry]
		v.check(ok && strings.HasPrefix(f.Entry, FileDir), "file %q: entry %q does not exist in %s", f.Path, f.Entry, FileDir)
		v.check(f.Path > last, "file %q is listed twice or out of order", f.Path)
		v.used[f.Entry] = true
		last = f.Path
		files[f.Path] = f
	}
	last = ""
	for _, u := range m.Units {
		f, ok := files[UnitDir+u.Name]
		v.check(unitName.MatchString(u.Name), "unit %q is not a systemd unit's name", u.Name)
		v.check(u.Name > last, "unit %q is listed twice or out of order", u.Name)
		v.check(ok && f.Nodes == u.Nodes, "unit %q: no file %q for the same nodes", u.Name, UnitDir+u.Name)
		last = u.Name
	}
}

// checkPackages requires that the packages of a release are of one format, and that no package is there twice.
func (v *validator) checkPackages(packages []SitePackage) {
	seen, formats, last := map[string]bool{}, map[string]string{}, SitePackage{}
	for _, p := range packages {
		v.in("package", p.Name, func() {
			for _, f := range []struct {
				what, value string
				form        *regexp.Regexp
			}{{"name", p.Name, packageName}, {"version", p.Version, packageVersion}, {"arch", p.Arch, packageArch}, {"release", p.Release, packageRelease}} {
				v.match(f.what, f.value, f.form)
				v.check(len(f.value) <= maxName, "%s is %d bytes long, more than the %d allowed", f.what, len(f.value), maxName)
			}
			v.optional("signature", p.Signature)
			v.check(p.Nodes == "" || p.Nodes == ControlPlanes || p.Nodes == Workers, "nodes %q are neither %s nor %s", p.Nodes, ControlPlanes, Workers)
			_, ok := v.entries[p.Entry]
			v.check(ok && strings.HasPrefix(p.Entry, PackageDir), "entry %q does not exist in %s", p.Entry, PackageDir)
			v.check(p.Stage >= 0 && cmp.Or(cmp.Compare(last.Release, p.Release), cmp.Compare(last.Stage, p.Stage), cmp.Compare(last.Name, p.Name)) < 0,
				"it is out of order")
			key := p.Release + " " + p.Name
			v.check(!seen[key], "it is listed twice for %s", p.Release)
			v.check(formats[p.Release] == "" || formats[p.Release] == p.Format(), "%s has packages of two formats", p.Release)
			v.used[p.Entry], seen[key], formats[p.Release], last = true, true, p.Format(), p
		})
	}
}

func (v *validator) checkSBOMs(list []SBOM) {
	last := ""
	for _, s := range list {
		e, ok := v.entries[s.Entry]
		v.match("sbom format", s.Format, sbomFormat)
		v.check(s.Format > last, "sbom %q is listed twice or out of order", s.Format)
		v.in("sbom", s.Format, func() {
			v.check(ok && strings.HasPrefix(s.Entry, SBOMDir), "entry %q does not exist in %s", s.Entry, SBOMDir)
			v.check(!v.used[s.Entry], "entry %q belongs to two formats", s.Entry)
			v.check(e.Size <= maxSBOM, "%d bytes are more than the %d allowed", e.Size, maxSBOM)
		})
		v.used[s.Entry] = true
		last = s.Format
	}
}
