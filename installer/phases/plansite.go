package phases

import (
	"io/fs"
	"strconv"
	"strings"

	"airlift/bundle"
	"airlift/installer/host"
)

// Content returns the bundle's manifest, an empty one if there is no bundle: for the names of
// the phases.
func (p *Plan) Content() *bundle.Manifest {
	if p.Bundle == nil || p.Bundle.Manifest == nil {
		return new(bundle.Manifest)
	}
	return p.Bundle.Manifest
}

// SiteFiles returns the site's own files for this node, by the bundle's entries.
func (p *Plan) SiteFiles() map[string][]host.SiteFile {
	files := map[string][]host.SiteFile{}
	entries := map[string]bundle.Entry{}
	for _, e := range p.Content().Entries {
		entries[e.Name] = e
	}
	for _, f := range p.Content().Files {
		if p.Role.gets(f.Nodes) {
			mode, _ := strconv.ParseUint(f.Mode, 8, 32) // the bundle was validated
			files[f.Entry] = append(files[f.Entry], host.SiteFile{Path: f.Path, Mode: fs.FileMode(mode), SHA256: entries[f.Entry].SHA256, Size: entries[f.Entry].Size})
		}
	}
	return files
}

// sitePaths returns the paths of the site's own files for this node.
func (p *Plan) sitePaths() (paths []string) {
	for _, f := range p.Content().Files {
		if p.Role.gets(f.Nodes) {
			paths = append(paths, f.Path)
		}
	}
	return paths
}

// SiteUnits returns the names of the site's systemd units for this node.
func (p *Plan) SiteUnits() (names []string) {
	for _, u := range p.Content().Units {
		if p.Role.gets(u.Nodes) {
			names = append(names, u.Name)
		}
	}
	return names
}

// SiteManifests returns the site's own manifests.
func (p *Plan) SiteManifests() []bundle.SiteManifest { return p.Content().Manifests }

// early returns the entries that precede all images in the bundle. They arrive before containerd
// runs; later entries wait for it.
func (p *Plan) early(entries map[string][]host.SiteFile) (names []string) {
	for _, e := range p.Content().Entries {
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
func (r Role) gets(nodes string) bool {
	switch nodes {
	case bundle.ControlPlanes:
		return r.Kind == controlPlaneKind
	case bundle.Workers:
		return r.Kind == WorkerKind
	}
	return true
}
