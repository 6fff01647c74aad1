package bundle

import (
	"strings"

	"airlift/bundle/head"
)

// FormatVersion is the version of FORMAT.md that this package writes, and the
// only one it reads.
const FormatVersion = head.FormatVersion

// Manifest describes everything in a bundle. It is the payload's first entry
// and is stored as canonical JSON: fixed field order, sorted lists, no clocks.
// The same inputs give the same bytes.
type Manifest struct {
	// FormatVersion is the version of FORMAT.md the file follows.
	FormatVersion int `json:"formatVersion"`
	// Platform is what the payload runs on, in OCI's words: "linux/amd64".
	Platform string `json:"platform"`
	// KubernetesVersion is a full version with its v: "v1.29.15".
	KubernetesVersion string `json:"kubernetesVersion"`
	// CNI is the pod network the bundle brings: "flannel" or "none".
	CNI string `json:"cni"`
	// Components are the things with a version of their own, sorted by name.
	Components []Component `json:"components"`
	// Images are in boot order.
	Images []Image `json:"images"`
	// Entries are the payload's entries in the tar's order, without the
	// manifest itself and the installer, which stand before them: all programs,
	// then all blobs, each in boot order; or, to be smaller, in turns.
	Entries []Entry `json:"entries"`
}

// An Entry is one file of the payload.
type Entry struct {
	// Name is the path in the tar: "bin/kubelet", "cni/bridge",
	// "blobs/sha256/<hex>".
	Name string `json:"name"`
	// Size is in bytes, unpacked.
	Size int64 `json:"size"`
	// SHA256 of the content, lower-case hex without prefix.
	SHA256 string `json:"sha256"`
}

// Folders of the payload.
const (
	BinDir  = "bin/"          // programs for the host's PATH
	CNIDir  = "cni/"          // CNI plugins
	BlobDir = "blobs/sha256/" // image indexes, manifests, configs and uncompressed layers
)

// A Component is something the bundle carries under a version of its own:
// "kubelet", "containerd", "cni-plugins".
type Component struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	// URL is where upstream publishes a file of this name and version. The file
	// may have come through a mirror, which is not named here.
	URL string `json:"url"`
	// Checksum is "sha256:<hex>" of the file that was downloaded for URL (for an
	// archive: of the archive). The provenance file names who vouched for it.
	Checksum string `json:"checksum"`
	// Entries are the names of the entries that came from it.
	Entries []string `json:"entries"`
}

// An Image is one container image for the bundle's platform.
type Image struct {
	// Name is the component's name: "kube-apiserver", "pause", "etcd",
	// "coredns", "kube-proxy", "flannel"; for a user's image its reference.
	Name string `json:"name"`
	// Reference is the full name a pod asks for:
	// "registry.k8s.io/kube-apiserver:v1.29.15".
	Reference string `json:"reference"`
	// Target is the descriptor the reference resolved to: an index where
	// upstream has one, else a manifest.
	Target Descriptor `json:"target"`
	// Manifest is the platform's image manifest; equal to Target where
	// upstream has no index.
	Manifest Descriptor `json:"manifest"`
	// Config is the image's config blob.
	Config Descriptor `json:"config"`
	// Layers are the uncompressed layers from the bottom up, each stored at
	// "blobs/sha256/<hex of DiffID>".
	Layers []Layer `json:"layers"`
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
}

// BlobName returns the name of the entry that holds the blob of a digest
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

// UnpackedSize is the sum of the entries' sizes in bytes.
func (m *Manifest) UnpackedSize() int64 {
	var n int64
	for _, e := range m.Entries {
		n += e.Size
	}
	return n
}
