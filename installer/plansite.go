package installer

import (
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"airlift/bundle"
	"airlift/installer/host"
)

// content returns the bundle's manifest, an empty one if there is no bundle: for the names of
// the phases.
func (p *Plan) content() *bundle.Manifest {
	if p.bundle == nil || p.bundle.manifest == nil {
		return new(bundle.Manifest)
	}
	return p.bundle.manifest
}

// siteFiles returns the site's own files for this node, by the bundle's entries.
func (p *Plan) siteFiles() map[string][]host.SiteFile {
	files := map[string][]host.SiteFile{}
	sums := map[string]string{}
	for _, e := range p.content().Entries {
		sums[e.Name] = e.SHA256
	}
	for _, f := range p.content().Files {
		if p.role.gets(f.Nodes) {
			mode, _ := strconv.ParseUint(f.Mode, 8, 32) // the bundle was validated
			files[f.Entry] = append(files[f.Entry], host.SiteFile{Path: f.Path, Mode: fs.FileMode(mode), SHA256: sums[f.Entry]})
		}
	}
	return files
}

// sitePaths returns the paths of the site's own files for this node.
func (p *Plan) sitePaths() (paths []string) {
	for _, f := range p.content().Files {
		if p.role.gets(f.Nodes) {
			paths = append(paths, f.Path)
		}
	}
	return paths
}

// siteUnits returns the names of the site's systemd units for this node.
func (p *Plan) siteUnits() (names []string) {
	for _, u := range p.content().Units {
		if p.role.gets(u.Nodes) {
			names = append(names, u.Name)
		}
	}
	return names
}

// siteManifests returns the site's own manifests.
func (p *Plan) siteManifests() []bundle.SiteManifest { return p.content().Manifests }

// early returns those of the entries that precede all images in the bundle. They arrive
// before containerd runs; later entries wait for it.
func (p *Plan) early(entries map[string][]host.SiteFile) (names []string) {
	for _, e := range p.content().Entries {
		if strings.HasPrefix(e.Name, bundle.BlobDir) {
			break
		}
		if entries[e.Name] != nil {
			names = append(names, e.Name)
		}
	}
	return names
}

// gets reports whether a node of this role gets a file or unit of the site with this value
// of its field nodes.
func (r role) gets(nodes string) bool {
	switch nodes {
	case bundle.ControlPlanes:
		return r.kind == aControlPlane
	case bundle.Workers:
		return r.kind == aWorker
	}
	return true
}

// sortedEntries returns the names of entries in order.
func sortedEntries(files map[string][]host.SiteFile) (names []string) {
	for name := range files {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
