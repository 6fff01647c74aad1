package bundle

import (
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

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

	// maxName is the maximum length of an entry name in bytes, as on every file
	// system.
	maxName = 255

	// maxText is the maximum length of a text in bytes, more than any usable URL.
	maxText = 4096
)

var (
	hex64      = regexp.MustCompile(`^[0-9a-f]{64}$`)
	fileName   = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._+-]*$`)
	platformOS = regexp.MustCompile(`^linux/[a-z0-9]+(/[a-z0-9]+)?$`)
	cniName    = regexp.MustCompile(`^[a-z0-9][a-z0-9-]*$`)
	kubeSemver = regexp.MustCompile(`^v[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?$`)
)

// Validate checks that m is consistent: names are safe as paths, digests are well formed,
// every blob of an image exists with the expected size, something uses every entry, and
// nothing is listed twice. It does not read the entries' content.
func (m *Manifest) Validate() error {
	if m.FormatVersion != FormatVersion {
		return fmt.Errorf("manifest: formatVersion is %d, want %d", m.FormatVersion, FormatVersion)
	}
	for _, f := range []struct {
		name, value string
		form        *regexp.Regexp
	}{
		{"platform", m.Platform, platformOS},
		{"kubernetesVersion", m.KubernetesVersion, kubeSemver},
		{"cni", m.CNI, cniName},
	} {
		if !f.form.MatchString(f.value) {
			return fmt.Errorf("manifest: %s %q does not match %s", f.name, f.value, f.form)
		}
	}
	if m.NearestKnown != "" && (!kubeSemver.MatchString(m.NearestKnown) || m.NearestKnown == m.KubernetesVersion) {
		return fmt.Errorf("manifest: nearestKnown %q is not another Kubernetes version", m.NearestKnown)
	}
	v := validator{entries: map[string]Entry{}, used: map[string]bool{}, inBase: map[string]int64{}, compressed: map[string]described{}}
	if err := v.checkEntries(m.Entries); err != nil {
		return fmt.Errorf("manifest: %w", err)
	}
	if err := v.checkComponents(m.Components); err != nil {
		return fmt.Errorf("manifest: %w", err)
	}
	if err := v.checkAdditional(m); err != nil {
		return fmt.Errorf("manifest: %w", err)
	}
	if err := v.checkImages(m.Images); err != nil {
		return fmt.Errorf("manifest: %w", err)
	}
	if err := v.checkBase(m.Base); err != nil {
		return fmt.Errorf("manifest: %w", err)
	}
	if err := v.checkSite(m); err != nil {
		return fmt.Errorf("manifest: %w", err)
	}
	if err := v.checkSBOMs(m.SBOMs); err != nil {
		return fmt.Errorf("manifest: %w", err)
	}
	for _, e := range m.Entries {
		if !v.used[e.Name] {
			return fmt.Errorf("manifest: nothing in the bundle uses the entry %q", e.Name)
		}
	}
	return nil
}

type validator struct {
	entries map[string]Entry // by name
	used    map[string]bool  // names of entries that something uses
	inBase  map[string]int64 // sizes of the layers that only the base has, by diffID; unused before an image uses it
	// compressed are the compressed layers, by digest.
	compressed map[string]described
}

func (v validator) checkEntries(entries []Entry) error {
	if len(entries) > maxEntries {
		return fmt.Errorf("%d entries are more than the %d allowed", len(entries), maxEntries)
	}
	for _, e := range entries {
		if err := checkEntryName(e.Name); err != nil {
			return err
		}
		if _, ok := v.entries[e.Name]; ok {
			return fmt.Errorf("entry %q is listed twice", e.Name)
		}
		if e.Size < 0 || e.Size > MaxEntry {
			return fmt.Errorf("entry %q: size %d is not between 0 and %d", e.Name, e.Size, int64(MaxEntry))
		}
		if !hex64.MatchString(e.SHA256) {
			return fmt.Errorf("entry %q: sha256 %q is not 64 lower-case hex digits", e.Name, e.SHA256)
		}
		if dir, base := path.Split(e.Name); named(dir) && base != e.SHA256 {
			return fmt.Errorf("entry %q: sha256 %q differs from the name", e.Name, e.SHA256)
		}
		v.entries[e.Name] = e
	}
	return nil
}

// checkEntryName accepts only a plain file name in one of the payload's directories, so
// that a reader never writes outside of its target directory.
func checkEntryName(name string) error {
	dir, base := path.Split(name)
	switch {
	case !slices.Contains(dirs, dir):
		return fmt.Errorf("entry %q is not directly in %s", name, strings.Join(dirs, ", "))
	case !fileName.MatchString(base) || len(name) > maxName:
		return fmt.Errorf("entry %q is not a plain file name", name)
	case named(dir) && !hex64.MatchString(base):
		return fmt.Errorf("entry %q is not named by a sha256", name)
	}
	return nil
}

var dirs = []string{BinDir, CNIDir, ManifestDir, FileDir, BlobDir, SBOMDir}

// named reports whether the entries of dir are named by their sha256.
func named(dir string) bool { return dir == BlobDir || dir == FileDir }

func (v validator) checkComponents(components []Component) error {
	last := ""
	for _, c := range components {
		if err := checkText("component name", c.Name); err != nil {
			return err
		}
		if c.Name <= last {
			return fmt.Errorf("component %q is listed twice or out of order", c.Name)
		}
		last = c.Name
		if err := checkText("version", c.Version); err != nil {
			return fmt.Errorf("component %q: %w", c.Name, err)
		}
		if err := checkText("url", c.URL); err != nil {
			return fmt.Errorf("component %q: %w", c.Name, err)
		}
		if err := checkDigest("checksum", c.Checksum); err != nil {
			return fmt.Errorf("component %q: %w", c.Name, err)
		}
		if err := checkSigner(c.SignedBy); err != nil {
			return fmt.Errorf("component %q: %w", c.Name, err)
		}
		for _, name := range c.Entries {
			if _, ok := v.entries[name]; !ok {
				return fmt.Errorf("component %q: entry %q does not exist", c.Name, name)
			}
			if !isBinary(v.entries[name]) {
				return fmt.Errorf("component %q: entry %q is not in %s or %s", c.Name, name, BinDir, CNIDir)
			}
			if v.used[name] {
				return fmt.Errorf("component %q: entry %q belongs to two components", c.Name, name)
			}
			v.used[name] = true
		}
	}
	return nil
}

func (v validator) checkImages(images []Image) error {
	names, references := map[string]bool{}, map[string]bool{}
	documents := int64(0)
	for _, i := range images {
		if err := checkText("image name", i.Name); err != nil {
			return err
		}
		if err := checkText("reference", i.Reference); err != nil {
			return fmt.Errorf("image %q: %w", i.Name, err)
		}
		if names[i.Name] || references[i.Reference] {
			return fmt.Errorf("image %q (%s) is listed twice", i.Name, i.Reference)
		}
		names[i.Name], references[i.Reference] = true, true
		if i.EveryNode && i.Name == i.Reference {
			return fmt.Errorf("image %q: everyNode is only for images of a control plane", i.Name)
		}
		if err := checkSigner(i.SignedBy); err != nil {
			return fmt.Errorf("image %q: %w", i.Name, err)
		}

		if err := v.checkDocuments(i); err != nil {
			return fmt.Errorf("image %q: %w", i.Name, err)
		}
		for _, d := range i.Documents() {
			documents += d.Size
		}
		for n, l := range i.Layers {
			if err := v.useLayer(fmt.Sprintf("layer %d", n+1), l); err != nil {
				return fmt.Errorf("image %q: %w", i.Name, err)
			}
			if err := v.checkCompressed(fmt.Sprintf("layer %d", n+1), l); err != nil {
				return fmt.Errorf("image %q: %w", i.Name, err)
			}
		}
	}
	if documents > maxDocuments {
		return fmt.Errorf("the images' indexes, manifests and configs have %d bytes, more than the %d allowed", documents, maxDocuments)
	}
	return nil
}

// checkDocuments checks the descriptors of an image's indexes, manifest and config.
func (v validator) checkDocuments(i Image) error {
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
		if err := checkText("media type", d.MediaType); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		if d.Size > MaxDocument {
			return fmt.Errorf("%s: %d bytes are more than the %d allowed", what, d.Size, MaxDocument)
		}
		if err := v.useBlob(what, d.Digest, d.Size); err != nil {
			return err
		}
	}
	if i.Target.Digest == i.Manifest.Digest && (i.Target != i.Manifest || len(i.Indexes) > 0) {
		return errors.New("target and manifest are one blob with two media types, or with indexes between them")
	}
	if _, digest, ok := strings.Cut(i.Reference, "@"); ok && digest != i.Target.Digest {
		return fmt.Errorf("the reference %q has another digest than the target %s", i.Reference, i.Target.Digest)
	}
	return nil
}

// useBlob checks that the blob of the digest is in the bundle with that size.
func (v validator) useBlob(what, digest string, size int64) error {
	if err := checkDigest(what, digest); err != nil {
		return err
	}
	e, ok := v.entries[BlobName(digest)]
	if !ok {
		return fmt.Errorf("%s: entry %q does not exist", what, BlobName(digest))
	}
	if e.Size != size {
		return fmt.Errorf("%s: size is %d, the entry's is %d", what, size, e.Size)
	}
	v.used[e.Name] = true
	return nil
}

func checkDigest(what, digest string) error {
	if hex, ok := strings.CutPrefix(digest, "sha256:"); !ok || !hex64.MatchString(hex) {
		return fmt.Errorf("%s: %q is not sha256: and 64 lower-case hex digits", what, digest)
	}
	return nil
}

// checkSigner accepts no signer, or the text of one.
func checkSigner(s string) error {
	if s == "" {
		return nil
	}
	return checkText("signedBy", s)
}

// checkText accepts only printable ASCII, so that no text can send control characters to
// a terminal.
func checkText(what, s string) error {
	if s == "" {
		return fmt.Errorf("%s is empty", what)
	}
	if len(s) > maxText {
		return fmt.Errorf("%s is %d bytes long, more than the %d allowed", what, len(s), maxText)
	}
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return fmt.Errorf("%s %q is not printable ASCII", what, s)
		}
	}
	return nil
}
