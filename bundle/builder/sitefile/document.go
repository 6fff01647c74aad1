package sitefile

import "airlift/bundle/builder"

// Values of the fields apiVersion and kind.
const (
	APIVersion = "airlift/v1"
	Kind       = "Bundle"
)

// A document is bundle.yaml as it is written. Every field but the first two may be missing. Most
// fields are options of the builder; fields that need more than their text are listed here.
type document struct {
	APIVersion string `yaml:"apiVersion"` // APIVersion
	Kind       string `yaml:"kind"`       // Kind

	builder.Target      `yaml:",inline"`
	builder.Selection   `yaml:",inline"`
	builder.Network     `yaml:",inline"`
	builder.Trust       `yaml:",inline"`
	builder.Destination `yaml:",inline"`

	// Manifests are applied by init in this order.
	Manifests []manifest `yaml:"manifests"`
	// Files are written by init and join.
	Files []file `yaml:"files"`
	// SystemdUnits are written, enabled and started by init and join.
	SystemdUnits []unit `yaml:"systemdUnits"`
	// MirrorURLs are HOST=URL.
	MirrorURLs []string `yaml:"mirrors"`
	// Checksums are NAME=sha256:HEX.
	Checksums []string `yaml:"checksums"`
	// ChecksumFiles are files in the format of sha256sum.
	ChecksumFiles []string `yaml:"checksumFiles"`
	// Compression is fastest, default or best.
	Compression string `yaml:"compression"`
}

// A manifest has either a path or a chart.
type manifest struct {
	// Name is a DNS label. It is unique in the file.
	Name text `yaml:"name"`
	// Path is a YAML file, a directory of YAML files, or a directory with a
	// kustomization.yaml.
	Path text `yaml:"path"`
	// Chart is a Helm chart, which is rendered when the bundle is built.
	Chart *chart `yaml:"chart"`
	// Namespace is the namespace of objects that name none.
	Namespace text `yaml:"namespace"`
	// ImagePullPolicy may be IfNotPresent: then imagePullPolicy: Always is replaced.
	ImagePullPolicy text `yaml:"imagePullPolicy"`
}

// A chart is a Helm chart with its values.
type chart struct {
	// Source is a directory, an archive (.tgz), oci://REGISTRY/REPOSITORY, or the URL of a
	// chart repository.
	Source text `yaml:"source"`
	// Name is the chart's name in a chart repository.
	Name text `yaml:"name"`
	// Version is the chart's exact version. A chart from a network needs it.
	Version text `yaml:"version"`
	// Digest is the sha256 that the archive must have, sha256:HEX.
	Digest text `yaml:"digest"`
	// Release is the name of the release. By default it is the manifest's name.
	Release text `yaml:"release"`
	// Values are files with values, later ones override earlier ones.
	Values []text `yaml:"values"`
	// Set are KEY=VALUE, as helm's --set. They override Values.
	Set []text `yaml:"set"`
}

// A file is copied to the hosts.
type file struct {
	// Path is the absolute path on the host.
	Path text `yaml:"path"`
	// Source is the file on the machine that builds the bundle.
	Source text `yaml:"source"`
	// Mode is the permissions in octal digits, by default 0644.
	Mode text `yaml:"mode"`
	// Nodes are control-plane, worker or all, which is the default.
	Nodes text `yaml:"nodes"`
}

// A unit is a systemd unit.
type unit struct {
	// Source is the unit's file on the machine that builds the bundle.
	Source text `yaml:"source"`
	// Name is the unit's name, by default the name of Source.
	Name text `yaml:"name"`
	// Nodes are as in file.
	Nodes text `yaml:"nodes"`
}
