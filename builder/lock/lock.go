// Package lock is the file bundle.lock: what the versions, tags and sources of a bundle
// resolved to, so that a later build resolves nothing again. docs/lock.md describes it.
package lock

import (
	"cmp"
	"slices"
)

// Versions of the format: of a file for one platform, which is a Lock, and of a file for several.
const (
	FormatVersion        = 1
	SeveralFormatVersion = 2
)

// A Lock lists the exact contents that a build for one platform resolved. All lists are sorted, and
// there are no times.
type Lock struct {
	FormatVersion int `json:"formatVersion,omitempty"` // not of one of several
	// Platform, KubernetesVersion, CNI and Only are as in the manifest of a bundle.
	Platform          string   `json:"platform"`
	KubernetesVersion string   `json:"kubernetesVersion"`
	CNI               string   `json:"cni"`
	Only              []string `json:"only,omitempty"`
	// Base is the sha256 of the manifest of the base, lower-case hex.
	Base       string      `json:"base,omitempty"`
	Components []Component `json:"components"` // by name
	// LeftOut are optional components that their sites did not have.
	LeftOut []Absent `json:"leftOut,omitempty"` // by name
	Images  []Image  `json:"images"`            // by reference
	// Charts are the charts that were downloaded, also as dependencies of others.
	Charts    []Chart    `json:"charts,omitempty"`    // by source, name and wanted
	Manifests []Manifest `json:"manifests,omitempty"` // by name
	// Sources are files of the user: values of charts, archives of charts, files and
	// systemd units for the hosts.
	Sources []Source `json:"sources,omitempty"` // by path
}

// A Component is a published file.
type Component struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	URL     string `json:"url"`    // upstream's
	SHA256  string `json:"sha256"` // of the published file, lower-case hex
	// SignedBy is as in the manifest of a bundle.
	SignedBy string `json:"signedBy,omitempty"`
}

// Absent is an optional component that is not in the bundle.
type Absent struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	URL     string `json:"url"`
}

// An Image is an image with the digest of its index, or of its manifest if it has no index.
type Image struct {
	Reference string `json:"reference"`
	Digest    string `json:"digest"` // "sha256:<hex>"
	// SignedBy is as in the manifest of a bundle.
	SignedBy string `json:"signedBy,omitempty"`
}

// A Chart is a chart of a repository or a registry.
type Chart struct {
	Source string `json:"source"`         // URL of the repository, or "oci://REGISTRY/REPOSITORY"
	Name   string `json:"name,omitempty"` // in a repository
	// Wanted is the version, or the range of versions, that Version was chosen for.
	Wanted  string `json:"wanted"`
	Version string `json:"version"`
	URL     string `json:"url"`    // of the archive
	Digest  string `json:"digest"` // of the archive: "sha256:<hex>"
}

// A Manifest is a manifest of the bundle.
type Manifest struct {
	Name string `json:"name"`
	// SHA256 is the sha256 of the objects as stored in the bundle, in lower-case hex. It depends on
	// all sources of the manifest, but not on their comments or field order.
	SHA256 string `json:"sha256"`
}

// A Source is a file of the user.
type Source struct {
	Path   string `json:"path"`   // as in bundle.yaml
	SHA256 string `json:"sha256"` // lower-case hex
}

// Sort puts all lists in their order and removes what is listed twice.
func (l *Lock) Sort() {
	sortBy(&l.Components, func(c Component) string { return c.Name })
	sortBy(&l.LeftOut, func(a Absent) string { return a.Name })
	sortBy(&l.Images, func(i Image) string { return i.Reference })
	sortBy(&l.Charts, func(c Chart) string { return c.Source + "\x00" + c.Name + "\x00" + c.Wanted })
	sortBy(&l.Manifests, func(m Manifest) string { return m.Name })
	sortBy(&l.Sources, func(s Source) string { return s.Path })
}

func sortBy[T comparable](list *[]T, key func(T) string) {
	*list = slices.Clone(*list)
	slices.SortStableFunc(*list, func(x, y T) int { return cmp.Compare(key(x), key(y)) })
	*list = slices.Compact(*list)
}

// normal returns the lock in the form in which it is written.
func (l Lock) normal() Lock {
	l.Sort()
	if l.Components == nil {
		l.Components = []Component{}
	}
	if l.Images == nil {
		l.Images = []Image{}
	}
	return l
}

// Component returns the component called name, or nil.
func (l *Lock) Component(name string) *Component {
	return find(l.Components, func(c Component) bool { return c.Name == name })
}

// Absent reports whether the file at url was left out.
func (l *Lock) Absent(url string) bool {
	return find(l.LeftOut, func(a Absent) bool { return a.URL == url }) != nil
}

// Image returns the image with this reference, or nil.
func (l *Lock) Image(reference string) *Image {
	return find(l.Images, func(i Image) bool { return i.Reference == reference })
}

func find[T any](list []T, match func(T) bool) *T {
	if n := slices.IndexFunc(list, match); n >= 0 {
		return &list[n]
	}
	return nil
}
