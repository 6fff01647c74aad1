package bundle

import (
	"path"
	"slices"
	"strings"

	"airlift/bundle/head"
)

// FormatVersion is the version of FORMAT.md that this package writes, and the only one
// that it reads.
const FormatVersion = head.FormatVersion

// Manifest describes everything in a bundle. It is the payload's first entry, encoded
// as canonical JSON: fixed field order, sorted lists, no timestamps. The same inputs
// give the same bytes.
type Manifest struct {
	// FormatVersion is the version of FORMAT.md that the file follows.
	FormatVersion int `json:"formatVersion"`
	// Platform is the platform of the hosts, as in OCI: "linux/amd64".
	Platform string `json:"platform"`
	// KubernetesVersion is a full version with its v: "v1.29.15".
	KubernetesVersion string `json:"kubernetesVersion"`
	// NearestKnown is the nearest release that the writer knew, if KubernetesVersion is
	// newer than all of them. Otherwise it is empty.
	NearestKnown string `json:"nearestKnown,omitempty"`
	// CNI is the pod network in the bundle: "flannel" or "none".
	CNI string `json:"cni"`
	// Only lists the content of an additional bundle, which has no Kubernetes and is for
	// existing nodes: OnlyImages, OnlyManifests or both, in this order. It is empty for a
	// bundle that installs nodes.
	Only []string `json:"only,omitempty"`
	// Base is the bundle whose layers an additional bundle leaves out. It is nil if all
	// layers are in this bundle.
	Base *Base `json:"base,omitempty"`
	// Components are sorted by name.
	Components []Component `json:"components"`
	// Images are in boot order.
	Images []Image `json:"images"`
	// Manifests are the add-ons' manifests, then the site's own, in the order in which init applies
	// them.
	Manifests []SiteManifest `json:"manifests,omitempty"`
	// Files are the site's own files for the hosts, sorted by path.
	Files []SiteFile `json:"files,omitempty"`
	// Units are the systemd units of Files that are enabled and started, sorted by name.
	Units []SiteUnit `json:"units,omitempty"`
	// Packages are packages of the hosts' distributions, for each release in the order in which they are installed.
	Packages []SitePackage `json:"packages,omitempty"`
	// SBOMs are lists of the software in the bundle, sorted by format.
	SBOMs []SBOM `json:"sboms,omitempty"`
	// Entries are the payload's entries in the tar's order, without the manifest and
	// the installer, which precede them. Binaries and then blobs are in boot order; at
	// the level Best they alternate. Packages, manifests and small files precede the blobs, large
	// files follow them. The SBOMs are last.
	Entries []Entry `json:"entries"`
}

// Values of the field Only.
const (
	OnlyImages    = "images"
	OnlyManifests = "manifests"
)

// Additional reports whether the bundle has no Kubernetes.
func (m *Manifest) Additional() bool { return len(m.Only) > 0 }

// OnlyInBase returns the layers that are not in an additional bundle, but in its base: their
// sizes by diffID.
func (m *Manifest) OnlyInBase() map[string]int64 {
	sizes := map[string]int64{}
	if m.Base == nil {
		return sizes
	}
	for _, i := range m.Images {
		for _, l := range i.Layers {
			if _, ok := slices.BinarySearch(m.Base.Layers, l.DiffID); ok {
				sizes[l.DiffID] = l.Size
			}
		}
	}
	return sizes
}

// A Base identifies another bundle by its manifest.
type Base struct {
	// ManifestSHA256 is the sha256 of the base's manifest, lower-case hex.
	ManifestSHA256 string `json:"manifestSHA256"`
	// Layers are the diffIDs of layers of Images that are only in the base, sorted.
	Layers []string `json:"layers"`
}

// Arch is the architecture of the hosts: "amd64".
func (m *Manifest) Arch() string { return strings.Split(m.Platform, "/")[1] }

// An Entry is one file of the payload.
type Entry struct {
	// Name is the path in the tar: "bin/kubelet", "cni/bridge",
	// "blobs/sha256/<hex>".
	Name string `json:"name"`
	// Size is the uncompressed size in bytes.
	Size int64 `json:"size"`
	// SHA256 of the content, lower-case hex without prefix.
	SHA256 string `json:"sha256"`
}

// Directories of the payload.
const (
	BinDir      = "bin/"          // binaries for the host's PATH
	CNIDir      = "cni/"          // CNI plugins
	ManifestDir = "manifests/"    // the site's own manifests, as NAME.yaml
	FileDir     = "files/"        // the site's own files, each named by its sha256
	PackageDir  = "packages/"     // packages of distributions, each named by its sha256, with the extension of its format
	BlobDir     = "blobs/sha256/" // image indexes, manifests, configs and uncompressed layers
	SBOMDir     = "sbom/"         // lists of the software in the bundle
)

// A Component is upstream software with its own version: "kubelet", "containerd",
// "cni-plugins".
type Component struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	// URL is where upstream publishes this file. The download may have come from a
	// mirror, which is not named here.
	URL string `json:"url"`
	// Checksum is "sha256:<hex>" of the downloaded file (for an archive, of the
	// archive). The provenance file names the source of the checksum.
	Checksum string `json:"checksum"`
	// SignedBy is the account that signed the downloaded file, "NAME (ISSUER)", if the build
	// verified its signature. Otherwise it is empty.
	SignedBy string `json:"signedBy,omitempty"`
	// Entries are the names of the component's entries.
	Entries []string `json:"entries"`
}

// An Image is one container image for the bundle's platform.
type Image struct {
	// Name is the component's name: "kube-apiserver", "pause", "etcd",
	// "coredns", "kube-proxy", "flannel"; for a user's image its reference.
	Name string `json:"name"`
	// Reference is the full name that pods use:
	// "registry.k8s.io/kube-apiserver:v1.29.15".
	Reference string `json:"reference"`
	// EveryNode is set if the user also named this image, and workers have no use for
	// it otherwise: an image of a control plane.
	EveryNode bool `json:"everyNode,omitempty"`
	// SignedBy is as in Component, for the signature of Target.
	SignedBy string `json:"signedBy,omitempty"`
	// Target is the descriptor that the reference resolved to: an index, or a manifest
	// if upstream has no index.
	Target Descriptor `json:"target"`
	// Indexes lead from Target to Manifest, if Target lists it only in other indexes. They are in
	// this order.
	Indexes []Descriptor `json:"indexes,omitempty"`
	// Manifest is the platform's image manifest. It equals Target if upstream has no
	// index.
	Manifest Descriptor `json:"manifest"`
	// Config is the image's config blob.
	Config Descriptor `json:"config"`
	// Layers are the uncompressed layers, the lowest first. Each is stored at
	// "blobs/sha256/<hex of DiffID>".
	Layers []Layer `json:"layers"`
}

// Documents lists the image's documents, from its target to its config. Target and Manifest may be
// the same.
func (i Image) Documents() []Descriptor {
	return append(append([]Descriptor{i.Target}, i.Indexes...), i.Manifest, i.Config)
}

// Untagged returns an image's reference, or its name, without its tag and digest.
func Untagged(name string) string {
	name, _, _ = strings.Cut(name, "@")
	if colon := strings.LastIndexByte(name, ':'); colon > strings.LastIndexByte(name, '/') {
		name = name[:colon]
	}
	return name
}

// A Descriptor names one blob, stored as upstream's exact bytes.
type Descriptor struct {
	MediaType string `json:"mediaType"`
	Digest    string `json:"digest"` // "sha256:<hex>"
	Size      int64  `json:"size"`
}

// A Layer is an uncompressed layer tar.
type Layer struct {
	DiffID string `json:"diffID"` // "sha256:<hex>" of the uncompressed tar
	Size   int64  `json:"size"`   // of the uncompressed tar, in bytes
	// Compressed is upstream's blob of the layer. It is nil if upstream's blob is the tar
	// itself, or if the writer did not have it: the layer is in the base.
	Compressed *Compressed `json:"compressed,omitempty"`
}

// A SiteManifest is a YAML file with Kubernetes objects that init applies.
type SiteManifest struct {
	// Name is unique in the bundle: "calico". The entry is "manifests/calico.yaml".
	Name string `json:"name"`
	// Chart is the Helm chart from which the objects were rendered, with its version:
	// "ingress-nginx 4.13.2". It is empty for a manifest.
	Chart string `json:"chart,omitempty"`
	// AddOn is the version of the optional add-on whose objects these are: "v0.9.0". The
	// manifest has the add-on's name. It is empty for the site's own manifests.
	AddOn string `json:"addOn,omitempty"`
	// Namespace is the namespace of objects that name none. It is created if it does
	// not exist. Empty means "default".
	Namespace string `json:"namespace,omitempty"`
}

// A SiteFile is a file that init and join write to the host.
type SiteFile struct {
	// Path is absolute.
	Path string `json:"path"`
	// Mode is the permissions as four octal digits: "0644".
	Mode string `json:"mode"`
	// Nodes are the nodes that get the file: ControlPlanes, Workers, or all if empty.
	Nodes string `json:"nodes,omitempty"`
	// Entry is the name of the file's entry: "files/<hex>".
	Entry string `json:"entry"`
}

// A SiteUnit is a systemd unit that init and join enable and start.
type SiteUnit struct {
	// Name is the unit's file name: "exporter.service". The bundle has the file
	// UnitDir + Name for the same nodes.
	Name string `json:"name"`
	// Nodes are as in SiteFile.
	Nodes string `json:"nodes,omitempty"`
}

// A SitePackage is a package of a distribution that init and join install before they check the host.
type SitePackage struct {
	// Name and Version are the package's own; Version is whole, with the epoch: "1:2.6.2-4".
	Name    string `json:"name"`
	Version string `json:"version"`
	// Arch is the architecture as the distribution names it: "amd64", "all", "x86_64", "noarch".
	Arch string `json:"arch"`
	// Release is the release that the package is for, ID-VERSION_ID of os-release(5): "debian-12".
	Release string `json:"release"`
	// Nodes are as in SiteFile.
	Nodes string `json:"nodes,omitempty"`
	// Stage is higher than the stages of packages that must be configured before dpkg unpacks this one. Most are 0.
	Stage int `json:"stage,omitempty"`
	// Signature names the key of the signature in the package, "key 0123456789ABCDEF". It is empty if there is none.
	Signature string `json:"signature,omitempty"`
	// Entry is the name of the package's entry: "packages/<hex>.deb".
	Entry string `json:"entry"`
}

// ReleaseFits reports whether packages for a release fit hosts of another one: those for rhel-9 fit rhel-9.4.
func ReleaseFits(release, host string) bool {
	return host == release || strings.HasPrefix(host, release+".")
}

// Format is the format of the package: "deb" or "rpm".
func (p SitePackage) Format() string { return strings.TrimPrefix(path.Ext(p.Entry), ".") }

// PackageName returns the name of the entry for a package of a format with this sha256 in lower-case hex.
func PackageName(hex, format string) string { return PackageDir + hex + "." + format }

// Values of the field Nodes of a SiteFile, SiteUnit or SitePackage.
const (
	ControlPlanes = "control-plane"
	Workers       = "worker"
)

// An SBOM is a list of the software in the bundle.
type SBOM struct {
	// Format is the format: "cyclonedx-json" or "spdx-json".
	Format string `json:"format"`
	// Entry is the name of the list's entry: "sbom/bundle.spdx.json".
	Entry string `json:"entry"`
}

// SBOM returns the name of the entry with the list in a format.
func (m *Manifest) SBOM(format string) (entry string, ok bool) {
	for _, s := range m.SBOMs {
		if s.Format == format {
			return s.Entry, true
		}
	}
	return "", false
}

// UnitDir is the directory of systemd units on the hosts.
const UnitDir = "/etc/systemd/system/"

// Entry returns the name of the manifest's entry.
func (s SiteManifest) Entry() string { return ManifestDir + s.Name + ".yaml" }

// FileName returns the name of the entry for a file with this sha256 in lower-case hex.
func FileName(hex string) string { return FileDir + hex }

// BlobName returns the name of the entry for the blob with this digest,
// "sha256:<hex>".
func BlobName(digest string) string {
	return BlobDir + strings.TrimPrefix(digest, "sha256:")
}

// Entry returns the entry called name.
func (m *Manifest) Entry(name string) (Entry, bool) {
	for _, e := range m.Entries {
		if e.Name == name {
			return e, true
		}
	}
	return Entry{}, false
}

// HasAddOn reports whether the bundle has an optional add-on.
func (m *Manifest) HasAddOn(name string) bool {
	return slices.ContainsFunc(m.Manifests, func(s SiteManifest) bool { return s.AddOn != "" && s.Name == name })
}

// UnpackedSize is the sum of the entries' sizes in bytes.
func (m *Manifest) UnpackedSize() int64 {
	var n int64
	for _, e := range m.Entries {
		n += e.Size
	}
	return n
}
