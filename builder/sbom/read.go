package sbom

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"

	"airlift/builder/ospackage"
	"airlift/bundle"
	"airlift/internal/fault"
	"airlift/internal/space"
)

// A Source is what a list is made from: a bundle file, or the contents of one that will be
// written.
type Source struct {
	Manifest *bundle.Manifest
	Launcher io.ReaderAt
	// Installer is the manifest's first neighbour in the file, which it does not list.
	Installer bundle.Entry
	// CopyInstaller writes the installer's content.
	CopyInstaller func(io.Writer) error
	// Each calls visit with the entries of the manifest in any order, until an error. Entries may be
	// missing if nothing can be found in them.
	Each func(visit func(bundle.Entry, io.Reader) error) error
}

// A reader collects the contents of one bundle.
type reader struct {
	Source
	spool    *spool
	contents *Contents

	binaries map[string]*goBinary   // by entry name
	layers   map[string][]layerFile // by diff ID
	packages map[string]*ospackage.Package
}

// Read lists the contents of a bundle file. It reads the payload once, one entry at a time.
// processed is called with numbers of bytes, whose sum is at most the size of all entries; it may
// be nil.
func Read(ctx context.Context, f *bundle.File, processed func(n int64)) (*Contents, error) {
	m, err := f.Manifest()
	if err != nil {
		return nil, err
	}
	c, err := List(Source{
		Manifest: m, Launcher: f.Launcher(), Installer: f.Installer(),
		CopyInstaller: func(w io.Writer) error { return f.CopyInstaller(ctx, w) },
		Each: func(visit func(bundle.Entry, io.Reader) error) error {
			wanted := func(e bundle.Entry) bool { return !strings.HasPrefix(e.Name, bundle.SBOMDir) }
			return f.Each(ctx, wanted, func(e bundle.Entry, content bundle.Content) error { return visit(e, content) })
		},
	}, processed)
	if err != nil && fault.ExitCode(err) == fault.Failure {
		err = fmt.Errorf("reading %s: %w", f.Path(), err)
	}
	return c, err
}

// List lists the software in a source. processed is as in Read.
func List(from Source, processed func(n int64)) (*Contents, error) {
	if processed == nil {
		processed = func(int64) {}
	}
	s, err := newSpool()
	if err != nil {
		return nil, err
	}
	defer s.close()
	r := &reader{Source: from, spool: s, contents: &Contents{byID: map[string]*Item{}},
		binaries: map[string]*goBinary{}, layers: map[string][]layerFile{}, packages: map[string]*ospackage.Package{}}
	if err := r.stream(processed); err != nil {
		return nil, err
	}
	r.collect()
	return r.contents.finish()
}

// stream reads the installer and every entry.
func (r *reader) stream(processed func(int64)) error {
	if r.Installer.Size <= maxBinary {
		err := r.spool.empty()
		if err == nil {
			err = r.CopyInstaller(r.spool.file)
		}
		if err != nil {
			return space.Explain(os.TempDir(), err)
		}
		if err := r.own(bundle.InstallerName, r.spool.file); err != nil {
			return err
		}
	}
	if err := r.own(launcherName, r.Launcher); err != nil {
		return err
	}

	layers := map[string]string{} // diff ID by entry name
	for _, i := range r.Manifest.Images {
		for _, l := range i.Layers {
			layers[bundle.BlobName(l.DiffID)] = l.DiffID
		}
	}
	if n := len(r.Manifest.OnlyInBase()); n > 0 {
		r.contents.Warnings = append(r.contents.Warnings, fmt.Sprintf("%d layers are only in the base, so their packages are not listed", n))
	}
	reader := &layerReader{spool: r.spool, warnings: &r.contents.Warnings}
	return r.Each(func(e bundle.Entry, content io.Reader) (err error) {
		in := counting{content, processed}
		switch {
		case strings.HasPrefix(e.Name, bundle.BinDir) || strings.HasPrefix(e.Name, bundle.CNIDir) || strings.HasPrefix(e.Name, bundle.FileDir):
			r.binaries[e.Name], err = r.spool.read(in)
			var large tooLarge
			if errors.As(err, &large) {
				reader.warn("%s: %v, so its modules are not listed", e.Name, err)
				err = nil
			}
		case strings.HasPrefix(e.Name, bundle.PackageDir):
			p, unreadable := ospackage.Read(in)
			if unreadable != nil {
				reader.warn("%s: %v, so its source is not listed", e.Name, unreadable)
			}
			r.packages[e.Name] = p
		case layers[e.Name] != "":
			diffID := layers[e.Name]
			r.layers[diffID], err = reader.read("layer "+diffID, in, e.Size)
		}
		if err != nil {
			return err
		}
		_, err = io.Copy(struct{ io.Writer }{io.Discard}, in) // for progress
		return err
	})
}

// own reads the build information of one of Airlift's own binaries.
func (r *reader) own(name string, b io.ReaderAt) error {
	info, err := readBuildInfo(b)
	if info != nil {
		r.binaries[name] = &goBinary{info: info}
	}
	return err
}

type counting struct {
	r         io.Reader
	processed func(int64)
}

func (c counting) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.processed(int64(n))
	return n, err
}

const launcherName = "launch"

// collect makes the list from what was read. It cannot have the file's sha256, because the file
// contains the list.
func (r *reader) collect() {
	m := r.Manifest
	name := "airlift-kubernetes"
	if m.Additional() {
		name = "airlift-additional"
	}
	r.contents.Root = &Item{ID: "bundle", Kind: Bundle, Name: name + "-" + strings.ReplaceAll(m.Platform, "/", "-"), Version: m.KubernetesVersion,
		PURL:       purl("generic", "", name, m.KubernetesVersion, map[string]string{"platform": m.Platform}),
		Properties: []Property{{"platform", m.Platform}, {"cni", m.CNI}, {"entriesSHA256", entriesSum(m)}}}
	for _, w := range r.contents.Warnings {
		r.contents.Root.Properties = append(r.contents.Root.Properties, Property{"incomplete", w})
	}
	if m.Base != nil {
		r.contents.Root.Properties = append(r.contents.Root.Properties, Property{"baseManifestSHA256", m.Base.ManifestSHA256})
	}
	r.airlift()
	r.components()
	r.images()
	r.manifests()
	r.files()
	r.hostPackages()
}

// entriesSum identifies all other contents of the bundle: the sha256 of a text with a line
// for each entry, as sha256sum prints it, in the order of the manifest.
func entriesSum(m *bundle.Manifest) string {
	sum := sha256.New()
	for _, e := range m.Entries {
		if !strings.HasPrefix(e.Name, bundle.SBOMDir) {
			fmt.Fprintf(sum, "%s  %s\n", e.SHA256, e.Name)
		}
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// top adds an item that the bundle contains.
func (r *reader) top(key string, item Item) *Item {
	i := r.contents.add(key, item)
	r.contents.Root.Contains = append(r.contents.Root.Contains, i.ID)
	return i
}

// airlift adds the launcher and the installer.
func (r *reader) airlift() {
	for _, name := range []string{launcherName, bundle.InstallerName} {
		item := Item{Kind: Binary, Name: "airlift " + name, PURL: purl("generic", "airlift", name, "", nil)}
		if name == bundle.InstallerName {
			item.SHA256 = r.Installer.SHA256
		}
		r.contents.modules(r.top(name, item), r.binaries[name])
	}
}

func (r *reader) components() {
	for _, c := range r.Manifest.Components {
		component := r.top("component/"+c.Name, Item{Kind: Component, Name: c.Name, Version: c.Version, URL: c.URL,
			PURL:       purl("generic", "", c.Name, c.Version, map[string]string{"checksum": c.Checksum, "download_url": c.URL}),
			Properties: []Property{{"downloadChecksum", c.Checksum}}})
		for _, name := range c.Entries {
			e, _ := r.Manifest.Entry(name)
			binary := r.contents.add(name, Item{Kind: Binary, Name: path.Base(name), Version: c.Version, SHA256: e.SHA256,
				PURL:       purl("generic", c.Name, path.Base(name), c.Version, map[string]string{"checksum": "sha256:" + e.SHA256}),
				Properties: []Property{{"entry", name}}})
			component.Contains = append(component.Contains, binary.ID)
			r.contents.modules(binary, r.binaries[name])
		}
	}
}

func (r *reader) images() {
	arch := strings.Split(r.Manifest.Platform, "/")[1]
	for _, i := range r.Manifest.Images {
		repository, tag := repositoryOf(i.Reference)
		image := r.top("image/"+i.Reference, Item{Kind: Image, Name: i.Reference, Version: i.Target.Digest,
			SHA256: strings.TrimPrefix(i.Target.Digest, "sha256:"),
			PURL: purl("oci", "", strings.ToLower(path.Base(repository)), i.Target.Digest,
				map[string]string{"arch": arch, "repository_url": repository, "tag": tag}),
			Properties: []Property{{"manifestDigest", i.Manifest.Digest}, {"configDigest", i.Config.Digest}}})
		if r.contents.full {
			return
		}
		root := newRootfs()
		for _, l := range i.Layers {
			item := r.contents.add(l.DiffID, Item{Kind: Layer, Name: l.DiffID, SHA256: strings.TrimPrefix(l.DiffID, "sha256:")})
			image.Contains = append(image.Contains, item.ID)
			root.apply(l.DiffID, r.layers[l.DiffID])
		}
		r.rootfs(image, root)
	}
}

// rootfs adds the packages and binaries in an image's file system.
func (r *reader) rootfs(image *Item, root *rootfs) {
	distribution := root.release()
	for p, at := range root.files {
		if at.binary != nil {
			b := r.contents.add(at.layer+"/"+p, Item{Kind: Binary, Name: "/" + p, SHA256: at.binary.sha256,
				Version:    strings.TrimSuffix(strings.TrimPrefix(at.binary.info.Main.Version, "(devel)"), "+dirty"),
				Properties: []Property{{"layer", at.layer}}})
			r.contents.modules(b, at.binary)
			image.Contains = append(image.Contains, b.ID)
		}
		if at.db == nil || at.db.kind != databaseKind(p) {
			continue
		}
		for _, d := range at.db.packages {
			item := d.item(at.db.kind, distribution)
			image.Contains = append(image.Contains, r.contents.add(item.PURL, item).ID)
		}
	}
}

func (r *reader) manifests() {
	for _, s := range r.Manifest.Manifests {
		e, _ := r.Manifest.Entry(s.Entry())
		manifest := r.top(s.Entry(), Item{Kind: Manifest, Name: s.Entry(), SHA256: e.SHA256,
			PURL: purl("generic", "", s.Name, "", map[string]string{"checksum": "sha256:" + e.SHA256})})
		if s.Chart == "" {
			continue
		}
		name, version, _ := strings.Cut(s.Chart, " ")
		chart := r.top("chart/"+s.Chart, Item{Kind: Chart, Name: name, Version: version, PURL: purl("generic", "", name, version, nil)})
		manifest.DependsOn = append(manifest.DependsOn, chart.ID)
	}
}

func (r *reader) files() {
	for _, s := range r.Manifest.Files {
		e, _ := r.Manifest.Entry(s.Entry)
		i := r.top("file"+s.Path, Item{Kind: File, Name: s.Path, SHA256: e.SHA256,
			PURL:       purl("generic", "", path.Base(s.Path), "", map[string]string{"checksum": "sha256:" + e.SHA256}),
			Properties: []Property{{"mode", s.Mode}, {"nodes", cmp.Or(s.Nodes, "all")}}})
		r.contents.modules(i, r.binaries[s.Entry])
	}
}

// hostPackages adds the packages of distributions for the hosts. Packages of a distribution in images have no sha256, because only
// their files are there.
func (r *reader) hostPackages() {
	for _, p := range r.Manifest.Packages {
		e, _ := r.Manifest.Entry(p.Entry)
		id, _, _ := strings.Cut(p.Release, "-")
		qualifiers := map[string]string{"arch": p.Arch, "distro": p.Release}
		version := p.Version
		if epoch, rest, ok := strings.Cut(version, ":"); ok && Kind(p.Format()) == RPM {
			version, qualifiers["epoch"] = rest, epoch
		}
		item := Item{Kind: Kind(p.Format()), Name: p.Name, Version: p.Version, SHA256: e.SHA256,
			Properties: []Property{{"architecture", p.Arch}, {"nodes", cmp.Or(p.Nodes, "all")}, {"signature", cmp.Or(p.Signature, "none")}}}
		if read := r.packages[p.Entry]; read != nil {
			item.Properties = append(item.Properties, Property{"sourcePackage", read.Source}, Property{"sourceVersion", read.SourceVersion})
			if read.Source != p.Name || read.SourceVersion != p.Version {
				qualifiers["upstream"] = read.Source + "@" + read.SourceVersion
			}
		}
		item.PURL = purl(p.Format(), id, p.Name, version, qualifiers)
		r.top("package/"+p.Release+"/"+p.Name, item)
	}
}

// repositoryOf splits an image reference: "registry.k8s.io/pause", "3.9".
func repositoryOf(reference string) (repository, tag string) {
	repository, _, _ = strings.Cut(reference, "@")
	if n := strings.LastIndexByte(repository, ':'); n > strings.LastIndexByte(repository, '/') {
		repository, tag = repository[:n], repository[n+1:]
	}
	return repository, tag
}
