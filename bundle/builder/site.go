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
	// ImagesFrom are paths of manifests and charts. The bundle has only their images.
	ImagesFrom []string
	// Written has the paths of sources as the user wrote them, by the path that is opened.
	Written map[string]string
}

// A Manifest is a source of Kubernetes objects: one of Path, Chart and AddOn is set.
type Manifest struct {
	// Name is the manifest's name in the bundle, a DNS label.
	Name string
	// Path is a YAML file, a directory of YAML files, or a directory with a kustomization.
	Path  string
	Chart *Chart
	// AddOn, if not nil, is an add-on of the catalog. Then Path and Chart are empty.
	AddOn *release.AddOn
	// Namespace is the namespace of objects that name none.
	Namespace string
	// IfNotPresent replaces the imagePullPolicy Always.
	IfNotPresent bool
	// At is where the user wrote it, for messages: "bundle.yaml:12".
	At string
}

// A Chart is a Helm chart with its values.
type Chart struct {
	// Source is a directory, an archive, oci://REGISTRY/REPOSITORY, or the URL of a chart
	// repository. Name is the chart's name there.
	Source, Name string
	// Version is the chart's version. It is empty for a chart of this machine.
	Version string
	// Digest, if not empty, is the sha256 that the archive must have: "sha256:<hex>".
	Digest string
	// Release is the name of the release.
	Release string
	// Values are files, Set are KEY=VALUE.
	Values, Set []string
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

// cniConfigDir is the directory of the pod network's configuration on the hosts.
const cniConfigDir = "/etc/cni/net.d"

// checkFiles refuses files that would replace the bundle's pod network.
func (s Site) checkFiles(cni string) error {
	for _, f := range s.Files {
		if path.Dir(f.Path) == cniConfigDir && cni != release.NoCNI {
			return fault.New(fault.Usage, "%s: %q would replace the configuration of the pod network %s", f.At, f.Path, cni).Hint("remove the file, or use --cni none")
		}
	}
	return nil
}

// checkBinaries refuses files that would replace binaries of the bundle.
func (s Site) checkBinaries(entries []bundle.Entry) error {
	for _, e := range entries {
		var dirs []string
		switch dir, _ := path.Split(e.Name); dir {
		case bundle.BinDir:
			dirs = []string{"/usr/local/bin", "/usr/local/sbin"}
		case bundle.CNIDir:
			dirs = []string{"/opt/cni/bin"}
		}
		for _, f := range s.Files {
			dir, name := path.Split(f.Path)
			for _, d := range dirs {
				if strings.TrimSuffix(dir, "/") == d && name == path.Base(e.Name) {
					return fault.New(fault.Usage, "%s: %q would replace a binary of the bundle", f.At, f.Path).Hint("choose another path")
				}
			}
		}
	}
	return nil
}
