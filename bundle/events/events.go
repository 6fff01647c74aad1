// Package events writes what a build does as a stream for other software: one JSON object on
// each line. The types of this package are all events, with all their fields.
package events

import (
	"encoding/json"
	"io"
	"sync"
	"time"
)

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
	LeftOut           []string `json:"leftOut"` // optional components: "crictl v1.28.0"
	// Other files that were written, or used. They are missing if there are none.
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

// A Stream writes events. Several goroutines may use it. A nil *Stream writes nothing.
type Stream struct {
	out      *output
	platform string
}

type output struct {
	mu  sync.Mutex
	w   io.Writer
	err error
	now func() time.Time
}

// New returns a stream that writes to w.
func New(w io.Writer) *Stream { return &Stream{out: &output{w: w, now: time.Now}} }

// On returns the same stream for the events of one platform.
func (s *Stream) On(platform string) *Stream {
	if s == nil {
		return nil
	}
	return &Stream{s.out, platform}
}

// Err returns the first error of writing.
func (s *Stream) Err() error {
	if s == nil {
		return nil
	}
	s.out.mu.Lock()
	defer s.out.mu.Unlock()
	return s.out.err
}

// write writes one line. fill gets the head of the event.
func (s *Stream) write(name string, fill func(Head) any) {
	if s == nil {
		return
	}
	s.out.mu.Lock()
	defer s.out.mu.Unlock()
	if s.out.err != nil {
		return
	}
	e := json.NewEncoder(s.out.w) // it writes each value at once, with a newline
	e.SetEscapeHTML(false)
	s.out.err = e.Encode(fill(Head{name, s.out.now().UTC().Format("2006-01-02T15:04:05.000Z"), s.platform}))
}

// Start writes that a build for these platforms begins.
func (s *Stream) Start(platforms []string) {
	s.write(EventStart, func(h Head) any { return Start{h, FormatVersion, platforms} })
}

// Phase writes that a phase begins.
func (s *Stream) Phase(phase string) {
	s.write(EventPhase, func(h Head) any { return Phase{h, phase} })
}

// DownloadStarted writes that a download begins. It sets the head of d.
func (s *Stream) DownloadStarted(d DownloadStarted) {
	s.write(EventDownloadStarted, func(h Head) any { d.Head = h; return d })
}

// DownloadFinished writes that content is there. It sets the head of d.
func (s *Stream) DownloadFinished(d DownloadFinished) {
	s.write(EventDownloadFinished, func(h Head) any { d.Head = h; return d })
}

// Note writes text for people.
func (s *Stream) Note(text string) {
	s.write(EventNote, func(h Head) any { return Message{h, text} })
}

// Warning writes a warning.
func (s *Stream) Warning(text string) {
	s.write(EventWarning, func(h Head) any { return Message{h, text} })
}

// Result writes the result for one platform. It sets the head of r.
func (s *Stream) Result(r Result) {
	s.write(EventResult, func(h Head) any { r.Head = h; return r })
}

// Error writes the end of a build that failed. It sets the head of e.
func (s *Stream) Error(e Error) {
	s.write(EventError, func(h Head) any { e.Head = h; return e })
}
