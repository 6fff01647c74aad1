package builder

import (
	"path"
	"strings"

	"airlift/bundle"
	"airlift/images/release"
	"airlift/internal/fault"
)

// A Site is the site's own software.
type Site struct {
	// Manifests are in the order in which init applies them.
	Manifests []Manifest
	// Files have different paths.
	Files []File
	// Units are units of Files.
	Units []bundle.SiteUnit
	// Packages are packages of the hosts' distributions.
	Packages []PackageSource
	// ImagesFrom are paths of manifests and charts. The bundle has only their images.
	ImagesFrom []string
	// Written has the paths of sources as the user wrote them, by the path that is opened.
	Written map[string]string
}

// A Manifest is a source of Kubernetes objects: one of Path, Chart and AddOn is set.
type Manifest struct {
	// Name is the manifest's name in the bundle, a DNS label.
	Name string `json:"name"`
	// Path is a YAML file, a directory of YAML files, or a directory with a kustomization.
	Path  string `json:"path"`
	Chart *Chart `json:"chart"`
	// AddOn, if not nil, is an add-on of the catalog. Then Path and Chart are empty.
	AddOn *release.AddOn
	// Namespace is the namespace of objects that name none.
	Namespace string `json:"namespace"`
	// IfNotPresent replaces the imagePullPolicy Always.
	IfNotPresent bool
	// At is where the user wrote it, for messages: "bundle.yaml:12".
	At string
}

// A Chart is a Helm chart with its values.
type Chart struct {
	// Source is a directory, an archive (.tgz), oci://REGISTRY/REPOSITORY, or the URL of a chart
	// repository. Name is the chart's name there.
	Source string `json:"source"`
	Name   string `json:"name"`
	// Version is the chart's exact version. It is empty for a chart of this machine.
	Version string `json:"version"`
	// Digest, if not empty, is the sha256 that the archive must have: "sha256:<hex>".
	Digest string `json:"digest"`
	// Release is the name of the release. By default it is the manifest's name.
	Release string `json:"release"`
	// Values are files, Set are KEY=VALUE, as helm's --set, which override them. Later ones override earlier ones.
	Values []string `json:"values"`
	Set    []string `json:"set"`
}

// A File is a file for the hosts.
type File struct {
	// SiteFile has no Entry yet.
	bundle.SiteFile
	// Source is the path of the content on this machine.
	Source string
	// At is where the user wrote it, for messages.
	At string
}

// checkFiles refuses files that would replace the bundle's pod network.
func (b *build) checkFiles() error {
	for _, f := range b.Site.Files {
		if path.Dir(f.Path) == "/etc/cni/net.d" && b.CNI != release.NoCNI {
			return fault.New(fault.Usage, "%s: %q would replace the configuration of the pod network %s", f.At, f.Path, b.CNI).Hint("remove the file, or use --cni none")
		}
	}
	return nil
}

// checkBinaries refuses files that would replace binaries of the bundle.
func (s Site) checkBinaries(entries []bundle.Entry) error {
	paths := map[string]bool{}
	for _, e := range entries {
		if name, ok := strings.CutPrefix(e.Name, bundle.BinDir); ok {
			paths["/usr/local/bin/"+name], paths["/usr/local/sbin/"+name] = true, true
		} else if name, ok := strings.CutPrefix(e.Name, bundle.CNIDir); ok {
			paths["/opt/cni/bin/"+name] = true
		}
	}
	for _, f := range s.Files {
		if paths[path.Clean(f.Path)] {
			return fault.New(fault.Usage, "%s: %q would replace a binary of the bundle", f.At, f.Path).Hint("choose another path")
		}
	}
	return nil
}
