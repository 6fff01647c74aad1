// Package desired describes the desired state of a host and its cluster. Each step of a command
// computes its List from the plan and the facts about the host and the cluster, without side
// effects. Everything else reads these lists: the step applies its own, a dry run writes them into
// a directory, upgrade plan and upgrade diff compare them with the current state, and preflight
// checks the space for them.
package desired

import (
	"k8s.io/apimachinery/pkg/runtime"

	"airlift/bundle"
	"airlift/installer/host"
	"airlift/installer/host/ledger"
	"airlift/installer/host/ospackages"
	"airlift/installer/pki"
)

// A List is the desired state that one step creates.
type List struct {
	Files     []pki.File        // with their content
	Binaries  []host.Binary     // from the bundle
	SiteFiles []host.SiteFile   // the site's own files, from the bundle
	Images    []bundle.Image    // in the container runtime
	Packages  []ospackages.Item // of the distribution, that are not installed
	Claims    []ledger.Claim    // directories that others fill, and that reset removes
	Objects   []runtime.Object  // of the cluster, in the order in which they are applied
	Documents []Document        // manifests of the bundle, applied unchanged
}

// A Document is a manifest of the bundle.
type Document struct {
	Name string // in bundle.yaml
	Data []byte // YAML
}

// Add returns the list with the items of another one behind its own.
func (l List) Add(o List) List {
	return List{
		Files: append(l.Files, o.Files...), Binaries: append(l.Binaries, o.Binaries...), SiteFiles: append(l.SiteFiles, o.SiteFiles...),
		Images: append(l.Images, o.Images...), Packages: append(l.Packages, o.Packages...), Claims: append(l.Claims, o.Claims...),
		Objects: append(l.Objects, o.Objects...), Documents: append(l.Documents, o.Documents...),
	}
}
