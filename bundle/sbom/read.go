package sbom

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"airlift/bundle"
)

// Size is the number of bytes that Read reports to its progress function.
func Size(f *bundle.File, m *bundle.Manifest) int64 { return f.Size() + m.UnpackedSize() }

// A reader collects the contents of one bundle.
type reader struct {
	file     *bundle.File
	manifest *bundle.Manifest
	spool    *spool
	contents *Contents

	binaries map[string]*goBinary // by entry name
	layers   map[string]*layer    // by diff ID
}

// Read lists the contents of a bundle. It reads the file once, one entry at a time.
// processed is called with numbers of bytes, by several goroutines at a time; it may be nil.
func Read(ctx context.Context, f *bundle.File, processed func(n int64)) (*Contents, error) {
	if processed == nil {
		processed = func(int64) {}
	}
	m, err := f.Manifest()
	if err != nil {
		return nil, err
	}
	s, err := newSpool()
	if err != nil {
		return nil, err
	}
	defer s.close()
	r := &reader{file: f, manifest: m, spool: s, contents: &Contents{byID: map[string]*Item{}},
		binaries: map[string]*goBinary{}, layers: map[string]*layer{}}

	var sum string
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() (err error) {
		sum, err = hash(ctx, f.Reader(), processed)
		return err
	})
	g.Go(func() error { return r.stream(ctx, processed) })
	if err := g.Wait(); err != nil {
		return nil, err
	}
	if err := r.collect(sum); err != nil {
		return nil, fmt.Errorf("reading %s: %w", f.Path(), err)
	}
	r.contents.sort()
	return r.contents, nil
}

// hash returns the sha256 of r in hex.
func hash(ctx context.Context, r io.Reader, processed func(int64)) (string, error) {
	sum := sha256.New()
	for buf := make([]byte, 1<<20); ; {
		if err := ctx.Err(); err != nil {
			return "", err
		}
		n, err := r.Read(buf)
		sum.Write(buf[:n])
		processed(int64(n))
		if err == io.EOF {
			return hex.EncodeToString(sum.Sum(nil)), nil
		}
		if err != nil {
			return "", err
		}
	}
}

// stream reads the installer and every entry.
func (r *reader) stream(ctx context.Context, processed func(int64)) error {
	if r.file.Installer().Size <= maxBinary {
		err := r.spool.empty()
		if err == nil {
			err = r.file.CopyInstaller(ctx, r.spool.file)
		}
		if err != nil {
			return err
		}
		r.binaries[bundle.InstallerName] = r.own(r.spool.file)
	}
	r.binaries[launcherName] = r.own(r.file.Launcher())

	layers := map[string]string{} // diff ID by entry name
	for _, i := range r.manifest.Images {
		for _, l := range i.Layers {
			layers[bundle.BlobName(l.DiffID)] = l.DiffID
		}
	}
	if n := len(r.manifest.OnlyInBase()); n > 0 {
		r.contents.Warnings = append(r.contents.Warnings, fmt.Sprintf("%d layers are only in the base, so their packages are not listed", n))
	}
	s, err := r.file.Stream(ctx)
	if err != nil {
		return err
	}
	defer s.Close()
	reader := &layerReader{spool: r.spool, warnings: &r.contents.Warnings}
	for {
		e, content, err := s.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		in := counting{content, processed}
		switch {
		case strings.HasPrefix(e.Name, bundle.BinDir) || strings.HasPrefix(e.Name, bundle.CNIDir) || strings.HasPrefix(e.Name, bundle.FileDir):
			r.binaries[e.Name], err = r.spool.read(in)
			var large tooLarge
			if errors.As(err, &large) {
				reader.warn("%s: %v, so its modules are not listed", e.Name, err)
				err = nil
			}
		case layers[e.Name] != "":
			diffID := layers[e.Name]
			r.layers[diffID], err = reader.read("layer "+diffID, in, e.Size)
		}
		if err != nil {
			return err
		}
		if _, err := io.Copy(struct{ io.Writer }{io.Discard}, in); err != nil { // for progress
			return err
		}
	}
}

// own reads the build information of one of Airlift's own binaries.
func (r *reader) own(b io.ReaderAt) *goBinary {
	if info := readBuildInfo(b); info != nil {
		return &goBinary{info: info}
	}
	return nil
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

// collect makes the list from what was read. sum is the file's sha256.
func (r *reader) collect(sum string) error {
	m := r.manifest
	name := "airlift-kubernetes"
	if m.Additional() {
		name = "airlift-additional"
	}
	r.contents.Root = &Item{ID: "bundle", Kind: Bundle, Name: name + "-" + strings.ReplaceAll(m.Platform, "/", "-"), Version: m.KubernetesVersion, SHA256: sum,
		PURL:       purl("generic", "", name, m.KubernetesVersion, map[string]string{"checksum": "sha256:" + sum, "platform": m.Platform}),
		Properties: []Property{{"platform", m.Platform}, {"cni", m.CNI}}}
	for _, w := range r.contents.Warnings {
		r.contents.Root.Properties = append(r.contents.Root.Properties, Property{"incomplete", w})
	}
	if m.Base != nil {
		r.contents.Root.Properties = append(r.contents.Root.Properties, Property{"baseManifestSHA256", m.Base.ManifestSHA256})
	}
	for _, step := range []func() error{r.airlift, r.components, r.images, r.manifests, r.files} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// top adds an item that the bundle contains.
func (r *reader) top(key string, item Item) (*Item, error) {
	i, err := r.contents.add(key, item)
	if err == nil {
		r.contents.Root.Contains = append(r.contents.Root.Contains, i.ID)
	}
	return i, err
}

// airlift adds the launcher and the installer.
func (r *reader) airlift() error {
	for _, name := range []string{launcherName, bundle.InstallerName} {
		item := Item{Kind: Binary, Name: "airlift " + name, PURL: purl("generic", "airlift", name, "", nil)}
		if name == bundle.InstallerName {
			item.SHA256 = r.file.Installer().SHA256
		}
		i, err := r.top(name, item)
		if err == nil {
			err = r.modules(i, r.binaries[name])
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (r *reader) components() error {
	for _, c := range r.manifest.Components {
		component, err := r.top("component/"+c.Name, Item{Kind: Component, Name: c.Name, Version: c.Version, URL: c.URL,
			PURL:       purl("generic", "", c.Name, c.Version, map[string]string{"checksum": c.Checksum, "download_url": c.URL}),
			Properties: []Property{{"downloadChecksum", c.Checksum}}})
		if err != nil {
			return err
		}
		for _, name := range c.Entries {
			e, _ := r.manifest.Entry(name)
			item := Item{Kind: Binary, Name: path.Base(name), Version: c.Version, SHA256: e.SHA256,
				PURL:       purl("generic", c.Name, path.Base(name), c.Version, map[string]string{"checksum": "sha256:" + e.SHA256}),
				Properties: []Property{{"entry", name}}}
			binary, err := r.contents.add(name, item)
			if err != nil {
				return err
			}
			component.Contains = append(component.Contains, binary.ID)
			if err := r.modules(binary, r.binaries[name]); err != nil {
				return err
			}
		}
	}
	return nil
}

// modules adds the modules of a binary, which is nil if Go did not build it.
func (r *reader) modules(binary *Item, b *goBinary) error {
	if b == nil || len(binary.DependsOn) > 0 {
		return nil
	}
	binary.Properties = append(binary.Properties, Property{"goVersion", printable(b.info.GoVersion)}, Property{"goPackage", printable(b.info.Path)})
	for _, m := range modules(b.info) {
		key := m.PURL
		for _, p := range m.Properties {
			key += " " + p.Name + " " + p.Value
		}
		i, err := r.contents.add(key, m)
		if err != nil {
			return err
		}
		binary.DependsOn = append(binary.DependsOn, i.ID)
	}
	return nil
}

func (r *reader) images() error {
	arch := strings.Split(r.manifest.Platform, "/")[1]
	for _, i := range r.manifest.Images {
		repository, tag := repositoryOf(i.Reference)
		image, err := r.top("image/"+i.Reference, Item{Kind: Image, Name: i.Reference, Version: i.Target.Digest,
			SHA256: strings.TrimPrefix(i.Target.Digest, "sha256:"),
			PURL: purl("oci", "", strings.ToLower(path.Base(repository)), i.Target.Digest,
				map[string]string{"arch": arch, "repository_url": repository, "tag": tag}),
			Properties: []Property{{"manifestDigest", i.Manifest.Digest}, {"configDigest", i.Config.Digest}}})
		if err != nil {
			return err
		}
		root := newRootfs()
		for _, l := range i.Layers {
			item, err := r.contents.add(l.DiffID, Item{Kind: Layer, Name: l.DiffID, SHA256: strings.TrimPrefix(l.DiffID, "sha256:")})
			if err != nil {
				return err
			}
			image.Contains = append(image.Contains, item.ID)
			if read := r.layers[l.DiffID]; read != nil {
				root.apply(l.DiffID, read)
			}
		}
		if err := r.rootfs(image, root); err != nil {
			return fmt.Errorf("image %s: %w", i.Reference, err)
		}
	}
	return nil
}

// rootfs adds the packages and binaries in an image's file system.
func (r *reader) rootfs(image *Item, root *rootfs) error {
	distribution := root.release()
	for p, at := range root.files {
		if at.binary != nil {
			b, err := r.contents.add(at.layer+"/"+p, Item{Kind: Binary, Name: "/" + p, SHA256: at.binary.sha256,
				Version:    strings.TrimSuffix(strings.TrimPrefix(at.binary.info.Main.Version, "(devel)"), "+dirty"),
				Properties: []Property{{"layer", at.layer}}})
			if err == nil {
				err = r.modules(b, at.binary)
			}
			if err != nil {
				return err
			}
			image.Contains = append(image.Contains, b.ID)
		}
		if at.db == nil || at.db.kind != databaseKind(p) {
			continue
		}
		for _, d := range at.db.packages {
			item := d.item(at.db.kind, distribution)
			i, err := r.contents.add(item.PURL, item)
			if err != nil {
				return err
			}
			image.Contains = append(image.Contains, i.ID)
		}
	}
	return nil
}

// manifests adds the site's manifests and charts.
func (r *reader) manifests() error {
	for _, s := range r.manifest.Manifests {
		e, _ := r.manifest.Entry(s.Entry())
		item := Item{Kind: Manifest, Name: s.Entry(), SHA256: e.SHA256,
			PURL: purl("generic", "", s.Name, "", map[string]string{"checksum": "sha256:" + e.SHA256})}
		manifest, err := r.top(s.Entry(), item)
		if err != nil || s.Chart == "" {
			if err != nil {
				return err
			}
			continue
		}
		name, version, _ := strings.Cut(s.Chart, " ")
		chart, err := r.top("chart/"+s.Chart, Item{Kind: Chart, Name: name, Version: version, PURL: purl("generic", "", name, version, nil)})
		if err != nil {
			return err
		}
		if !slices.Contains(manifest.DependsOn, chart.ID) {
			manifest.DependsOn = append(manifest.DependsOn, chart.ID)
		}
	}
	return nil
}

// files adds the site's files.
func (r *reader) files() error {
	for _, s := range r.manifest.Files {
		e, _ := r.manifest.Entry(s.Entry)
		i, err := r.top("file"+s.Path, Item{Kind: File, Name: s.Path, SHA256: e.SHA256,
			PURL:       purl("generic", "", path.Base(s.Path), "", map[string]string{"checksum": "sha256:" + e.SHA256}),
			Properties: []Property{{"mode", s.Mode}, {"nodes", cmp.Or(s.Nodes, "all")}}})
		if err == nil {
			err = r.modules(i, r.binaries[s.Entry])
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// repositoryOf splits an image reference: "registry.k8s.io/pause", "3.9".
func repositoryOf(reference string) (repository, tag string) {
	repository, _, _ = strings.Cut(reference, "@")
	if n := strings.LastIndexByte(repository, ':'); n > strings.LastIndexByte(repository, '/') {
		repository, tag = repository[:n], repository[n+1:]
	}
	return repository, tag
}
