package sitefile

import "airlift/builder"

// Values of the fields apiVersion and kind, and the command that writes an example.
const (
	APIVersion = "airlift/v1"
	Kind       = "Bundle"
	example    = "bundle init"
)

// A document is bundle.yaml as it is written. Every field but apiVersion and kind may be missing. Most
// fields are options of the builder; fields that need more than their text are listed here.
type document struct {
	builder.Target
	builder.Selection
	builder.Network
	builder.Trust
	builder.Destination

	// Manifests are applied by init in this order.
	Manifests []manifest `json:"manifests"`
	// Files are written by init and join.
	Files []file `json:"files"`
	// SystemdUnits are written, enabled and started by init and join.
	SystemdUnits []unit `json:"systemdUnits"`
	// Packages are installed by init and join.
	Packages []packages `json:"packages"`
	// MirrorURLs are HOST=URL.
	MirrorURLs []string `json:"mirrors"`
	// Checksums are NAME=sha256:HEX.
	Checksums []string `json:"checksums"`
	// ChecksumFiles are files in the format of sha256sum.
	ChecksumFiles []string `json:"checksumFiles"`
	// Compression is fastest, default or best.
	Compression string `json:"compression"`
}

// A manifest has either a path or a chart. Its name is unique in the file.
type manifest struct {
	builder.Manifest
	// ImagePullPolicy may be IfNotPresent: then imagePullPolicy: Always is replaced.
	ImagePullPolicy string `json:"imagePullPolicy"`
}

// A file is copied to the hosts.
type file struct {
	// Path is the absolute path on the host.
	Path string `json:"path"`
	// Source is the file on the machine that builds the bundle.
	Source string `json:"source"`
	// Mode is the permissions in octal digits, by default 0644.
	Mode string `json:"mode"`
	// Nodes are control-plane, worker or all, which is the default.
	Nodes string `json:"nodes"`
}

// A unit is a systemd unit.
type unit struct {
	// Source is the unit's file on the machine that builds the bundle.
	Source string `json:"source"`
	// Name is the unit's name, by default the name of Source.
	Name string `json:"name"`
	// Nodes are as in file.
	Nodes string `json:"nodes"`
}

// packages are packages of a distribution for the hosts.
type packages struct {
	// Source is a .deb, a .rpm, or a directory of packages, on the machine that builds the bundle.
	Source string `json:"source"`
	// Release is the release of the hosts: debian-12.
	Release string `json:"release"`
	// Nodes are as in file.
	Nodes string `json:"nodes"`
	// Installed is a list of what such a host has.
	Installed string `json:"installed"`
}
