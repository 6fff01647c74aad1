package builder

import (
	"time"

	"airlift/builder/events"
	"airlift/builder/fetch"
	"airlift/builder/lock"
	"airlift/builder/sbom"
	"airlift/bundle"
	"airlift/bundle/signature"
	"airlift/images/release"
)

// Options are the options of a build, grouped by the steps that need them. The tags are the names of
// the fields in a bundle.yaml, which package sitefile decodes; "-" is not such a field.
type Options struct {
	Target
	Selection
	Network
	Trust
	Destination
	// Report gets the progress and warnings.
	Report events.Reporter
	// Resolved, if set, gets what was resolved, when the bundles of all architectures are
	// complete, right before the first replaces its output. After an error, none is replaced.
	Resolved func(*lock.Lock) error
}

// A Target describes the clusters and hosts that a bundle is for.
type Target struct {
	// Version is a full version ("v1.29.15"), a minor version ("v1.29") or
	// "stable". A minor version and "stable" mean the newest release.
	Version string `json:"kubernetesVersion"`
	// Versions are component versions, for a release that the catalog does not know yet.
	Versions release.Versions `json:"componentVersions"`
	Arch     string           // "amd64" or "arm64"
	// Arches are the architectures of all bundles of one command: a pin may be for another of
	// them. It may be empty for a single one.
	Arches []string `json:"architectures"`
	CNI    string   `json:"cni"` // "flannel" or "none"
	// Only lists the kinds of content of an additional bundle, which has no Kubernetes:
	// bundle.OnlyImages, bundle.OnlyManifests or both. It is empty for a bundle that
	// installs nodes.
	Only []string `json:"only"`
	// Base is the path of the bundle whose layers an additional bundle leaves out, if all
	// nodes have them.
	Base string `json:"base"`
}

// A Selection is what the user adds to the catalog and leaves out of it.
type Selection struct {
	// Images are the user's own images, as typed: in a registry, or in a source of
	// package local. Every bundle also has the images of the catalog.
	Images []string `json:"images"`
	// Namespace is containerd's namespace, for images of a local containerd.
	Namespace string
	// AddOns are names of optional add-ons of the catalog.
	AddOns []string `json:"addons"`
	// Site is the site's own software.
	Site Site
	// Require lists optional components without which the build fails.
	Require []string `json:"require"`
	// Without lists optional components that are left out.
	Without []string `json:"without"`
	// KeepCompressed also puts the compressed layers into the bundle that no encoder gives.
	KeepCompressed bool `json:"keepCompressedLayers"`
}

// A Network is how sites and registries are reached, and where downloads are kept.
type Network struct {
	CacheDir string
	Mirrors  []fetch.Mirror
	// CAs are the values of --registry-ca: FILE, HOST=FILE, or a directory as docker's
	// certs.d. They hold for all sites.
	CAs []string `json:"registryCAs"`
	// AuthFile has the credentials for registries. If it is empty, they are in the files
	// of docker and podman.
	AuthFile string
	// Refresh requests facts again instead of using the cached ones.
	Refresh bool
	// RetryWait is the wait after the first failure of a request; 0 means half a second. The next
	// waits are longer.
	RetryWait time.Duration
}

// A Trust has the values to compare checksums, digests and signatures with.
type Trust struct {
	// Pins are checksums that the user knows from another source.
	Pins []Pin
	// VerifySignatures is VerifyOff, VerifyIfPresent or VerifyRequire; empty is VerifyOff.
	VerifySignatures string `json:"verifySignatures"`
	// TrustedRoot is the path of sigstore's trusted root. If it is empty, the public one is
	// downloaded.
	TrustedRoot string `json:"trustedRoot"`
	// Lock pins what an earlier build resolved; nil pins nothing. LockPath is its path, for
	// messages.
	Lock     *lock.Lock
	LockPath string
}

// A Destination is what is written.
type Destination struct {
	// Output is the file to write.
	Output string `json:"output"`
	// Executables are the launcher and the installer for the architecture of the Target.
	Executables bundle.Executables
	// Level is the compression level; the zero value is the default.
	Level bundle.Level
	// SBOM lists the formats in which the list of the software is also written next to the
	// bundle, which contains all formats.
	SBOM []sbom.Format
	// Key signs the bundle; nil leaves it unsigned.
	Key *signature.SecretKey
}

// A Result describes the bundle that was written.
type Result struct {
	bundle.Summary
	Path     string
	Manifest *bundle.Manifest
	// Base is the path of the base, if the bundle has one.
	Base string
	// Provenance is the path of the provenance file.
	Provenance string
	// Signature is the path of the signature, if the bundle is signed.
	Signature string
	// SBOMs are the paths of the lists of the software.
	SBOMs   []string
	LeftOut []LeftOut
	Pinned  []string // names of contents that match the user's checksums
	// Signatures reports which signatures of upstream were verified, and what was only compared
	// with a checksum. It is nil if none were to be verified.
	Signatures *Signatures
	// Complete is the result of the check that no pod of the manifests needs an image that
	// is not in the bundle. It is empty without manifests.
	Complete string
	// Warnings report what was assumed, which checksums only a mirror supplied, and which
	// images the manifests may need as well.
	Warnings []string
	// UnusedMirrors are mirrored hosts that received no request, in a build that
	// had to download something.
	UnusedMirrors []string
	// Downloaded is the number of bytes of components and layers that this build downloaded, still
	// compressed. What an interrupted build left in the cache does not count.
	Downloaded int64
}
