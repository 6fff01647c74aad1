// Package events reports what a build does: as text for people, or as a stream for other software, one
// JSON object on each line. The types of this package are all events, with all their fields.
package events

// FormatVersion is the version of the stream. Another field or event makes no new version; a
// field that is removed or means something else does.
const FormatVersion = 1

// The values of Head.Event.
const (
	EventStart            = "start"
	EventPhase            = "phase"
	EventDownloadStarted  = "downloadStarted"
	EventDownloadFinished = "downloadFinished"
	EventNote             = "note"
	EventWarning          = "warning"
	EventResult           = "result"
	EventError            = "error"
)

// Head has the fields of every event.
type Head struct {
	Event string `json:"event"`
	Time  string `json:"time"` // RFC 3339, UTC, with milliseconds
	// Platform is "linux/amd64". Start and Error have none.
	Platform string `json:"platform,omitempty"`
}

func (h *Head) head() *Head { return h }

// An Event is a pointer to one of the types of this package.
type Event interface{ head() *Head }

// Start is the first event, unless the options are wrong.
type Start struct {
	Head
	FormatVersion int      `json:"formatVersion"`
	Platforms     []string `json:"platforms"` // a Result follows for each, unless the build fails
}

// The values of Phase.Phase, in the order of a build.
const (
	Resolve  = "resolve"  // read the site's sources; find versions, checksums and digests
	Download = "download" // download what is not in the cache
	List     = "list"     // list the software, for the SBOM
	Write    = "write"    // compress and write the file
	Verify   = "verify"   // read the file again
	Sign     = "sign"     // sign the file
)

// Phase is the start of a phase, and the end of the one before it.
type Phase struct {
	Head
	Phase string `json:"phase"`
}

// The values of Kind.
const (
	Component = "component"
	Image     = "image"
	Chart     = "chart"
)

// DownloadStarted is the start of a download.
type DownloadStarted struct {
	Head
	Kind   string `json:"kind"`   // Component, Image or Chart
	Name   string `json:"name"`   // "kubelet v1.29.15", an image's reference, or a chart's source
	Source string `json:"source"` // site, registry or mirror
	// Size is the number of bytes to download; of an image, of the layers that are missing
	// here. It is 0 if the site does not report it before the end.
	Size int64 `json:"size"`
}

// The values of DownloadFinished.From.
const (
	Network = "network" // downloaded in this build
	Cache   = "cache"   // all of it was in the cache
	Base    = "base"    // all layers are in the base, so the file does not have them
	Local   = "local"   // from an archive, a directory, Docker or containerd of this machine
)

// DownloadFinished reports that content is there and has its digest. A DownloadStarted with the
// same kind and name precedes it if From is Network.
type DownloadFinished struct {
	Head
	Kind   string `json:"kind"`
	Name   string `json:"name"`
	Source string `json:"source"`
	From   string `json:"from"`
	// Size is the number of bytes that were downloaded, or that the cache has.
	Size int64 `json:"size"`
	// Digest is "sha256:HEX" of the published file, of the image's index or manifest, or of
	// the chart's archive.
	Digest string `json:"digest"`
}

// Message is a note or a warning: text for people.
type Message struct {
	Head
	Message string `json:"message"`
}

// Result is the last event of one file.
type Result struct {
	Head
	Path              string   `json:"path"`
	Size              int64    `json:"size"`
	SHA256            string   `json:"sha256"`
	UnpackedSize      int64    `json:"unpackedSize"`
	KubernetesVersion string   `json:"kubernetesVersion"`
	Downloaded        int64    `json:"downloaded"` // bytes of components and layers in this build
	Components        int      `json:"components"` // numbers of each
	Images            int      `json:"images"`
	Manifests         int      `json:"manifests"`
	Files             int      `json:"files"`
	Units             int      `json:"units"`
	Packages          int      `json:"packages"`
	LeftOut           []string `json:"leftOut"` // optional components: "crictl v1.28.0"
	// Other files that were written or used. A field is omitted if there is no such file.
	Provenance string   `json:"provenance"`
	Signature  string   `json:"signature,omitempty"`
	SBOMs      []string `json:"sboms,omitempty"`
	Lock       string   `json:"lock,omitempty"`
	Base       string   `json:"base,omitempty"`
}

// Error is the last event of a build that failed.
type Error struct {
	Head
	Message  string `json:"message"`
	Hint     string `json:"hint,omitempty"`
	ExitCode int    `json:"exitCode"` // of the process
}
