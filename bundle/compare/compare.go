// Package compare finds what is different in two bundles.
package compare

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"

	"airlift/bundle"
)

// A Report lists the differences between two bundles. All lists are sorted by name.
type Report struct {
	Different  bool     `json:"different"`
	Old        Side     `json:"old"`
	New        Side     `json:"new"`
	Components []Change `json:"components"` // versions; checksums if the versions are equal
	Images     []Change `json:"images"`     // digests, by reference
	Modules    []Binary `json:"modules"`
	Manifests  []Change `json:"manifests"` // sha256
	Files      []Change `json:"files"`     // sha256, mode and nodes
	Units      []Change `json:"units"`     // nodes
	Packages   []Change `json:"packages"`  // versions, sha256 and nodes, by release and name
	// SharedLayers is the size of the layers that both bundles have, in bytes.
	SharedLayers int64 `json:"sharedLayers"`
}

// A Side describes one of the bundles. Sizes are in bytes.
type Side struct {
	File              string `json:"file"`
	Platform          string `json:"platform"`
	KubernetesVersion string `json:"kubernetesVersion"`
	CNI               string `json:"cni"`
	Only              string `json:"only,omitempty"` // of an additional bundle: "images, manifests"
	Base              string `json:"base,omitempty"` // sha256 of the base's manifest
	Size              int64  `json:"size"`
	UnpackedSize      int64  `json:"unpackedSize"` // of the entries without the SBOM
	Layers            int64  `json:"layers"`       // of all layers in the file, uncompressed
	InstallerSHA256   string `json:"installerSHA256"`
}

// A Change is something with different values. Old or New is empty if that bundle does not
// have it.
type Change struct {
	Name string `json:"name"`
	Old  string `json:"old,omitempty"`
	New  string `json:"new,omitempty"`
}

// Files compares two bundles.
func Files(ctx context.Context, before, after *bundle.File) (*Report, error) {
	x, err := before.Manifest()
	if err != nil {
		return nil, err
	}
	y, err := after.Manifest()
	if err != nil {
		return nil, err
	}
	r := &Report{Old: side(before, x), New: side(after, y), SharedLayers: shared(x, y),
		Components: changes(components(x), components(y)), Images: changes(digests(x), digests(y)),
		Manifests: changes(manifests(x), manifests(y)), Files: changes(files(x), files(y)), Units: changes(units(x), units(y)), Packages: changes(packages(x), packages(y))}
	for _, c := range changes(checksums(x), checksums(y)) {
		// Another checksum of the same version is worth a line.
		if version := components(x)[c.Name]; version != "" && version == components(y)[c.Name] {
			r.Components = append(r.Components, c)
		}
	}
	slices.SortFunc(r.Components, func(a, b Change) int { return cmp.Compare(a.Name, b.Name) })
	if r.Modules, err = modules(ctx, before, after, x, y); err != nil {
		return nil, err
	}
	old, now := r.Old, r.New
	old.File, old.Size, now.File, now.Size = "", 0, "", 0 // another compression is not a difference
	r.Different = old != now || len(r.Components)+len(r.Images)+len(r.Manifests)+len(r.Files)+len(r.Units)+len(r.Packages)+len(r.Modules) > 0
	return r, nil
}

func side(f *bundle.File, m *bundle.Manifest) Side {
	s := Side{File: f.Path(), Platform: m.Platform, KubernetesVersion: m.KubernetesVersion, CNI: m.CNI,
		Size: f.Size(), UnpackedSize: m.UnpackedSize(), InstallerSHA256: f.Installer().SHA256, Only: strings.Join(m.Only, ", ")}
	for _, list := range m.SBOMs { // they are computed from the other contents by a release of bundle
		e, _ := m.Entry(list.Entry)
		s.UnpackedSize -= e.Size
	}
	if m.Base != nil {
		s.Base = m.Base.ManifestSHA256
	}
	for _, size := range layers(m) {
		s.Layers += size
	}
	return s
}

// layers returns the sizes of the layers in the file by their diffIDs.
func layers(m *bundle.Manifest) map[string]int64 {
	all, elsewhere := map[string]int64{}, m.OnlyInBase()
	for _, i := range m.Images {
		for _, l := range i.Layers {
			if _, ok := elsewhere[l.DiffID]; !ok {
				all[l.DiffID] = l.Size
			}
		}
	}
	return all
}

func shared(x, y *bundle.Manifest) (n int64) {
	other := layers(y)
	for id, size := range layers(x) {
		if _, ok := other[id]; ok {
			n += size
		}
	}
	return n
}

// values returns a value of each element by its name.
func values[T any](list []T, of func(T) (name, value string)) map[string]string {
	all := map[string]string{}
	for _, element := range list {
		name, value := of(element)
		all[name] = value
	}
	return all
}

func components(m *bundle.Manifest) map[string]string {
	return values(m.Components, func(c bundle.Component) (string, string) { return c.Name, c.Version })
}

func checksums(m *bundle.Manifest) map[string]string {
	return values(m.Components, func(c bundle.Component) (string, string) { return c.Name, c.Checksum })
}

func digests(m *bundle.Manifest) map[string]string {
	return values(m.Images, func(i bundle.Image) (string, string) { return i.Reference, i.Target.Digest })
}

func manifests(m *bundle.Manifest) map[string]string {
	return values(m.Manifests, func(s bundle.SiteManifest) (string, string) {
		e, _ := m.Entry(s.Entry())
		return s.Name, joined(s.Chart, s.Namespace, e.SHA256)
	})
}

func files(m *bundle.Manifest) map[string]string {
	return values(m.Files, func(f bundle.SiteFile) (string, string) {
		return f.Path, joined(f.Mode, f.Nodes, strings.TrimPrefix(f.Entry, bundle.FileDir))
	})
}

func units(m *bundle.Manifest) map[string]string {
	return values(m.Units, func(u bundle.SiteUnit) (string, string) { return u.Name, cmp.Or(u.Nodes, "all") })
}

func packages(m *bundle.Manifest) map[string]string {
	return values(m.Packages, func(p bundle.SitePackage) (string, string) {
		return p.Release + " " + p.Name, joined(p.Version, p.Arch, p.Nodes, strings.TrimPrefix(p.Entry, bundle.PackageDir))
	})
}

func joined(values ...string) string {
	return strings.Join(slices.DeleteFunc(values, func(s string) bool { return s == "" }), " ")
}

func changes(x, y map[string]string) []Change {
	list := []Change{}
	all := maps.Clone(x)
	maps.Copy(all, y)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if x[name] != y[name] {
			list = append(list, Change{name, x[name], y[name]})
		}
	}
	return list
}
