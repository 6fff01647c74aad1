package local

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"airlift/images/release"
	"airlift/internal/fault"
)

// Kinds of sources, with skopeo's names. Skopeo has no name for containerd.
const (
	OCI           = "oci"
	OCIArchive    = "oci-archive"
	DockerArchive = "docker-archive"
	DockerDaemon  = "docker-daemon"
	Containerd    = "containerd"
)

var kinds = []string{OCI, OCIArchive, DockerArchive, DockerDaemon, Containerd}

// A Spec names images of one source.
type Spec struct {
	Kind string
	// Path is the directory or the file. It is empty for Docker and containerd.
	Path string
	// Select chooses an image: a tag, a reference, or @N for the one at position N, from 0. If it
	// is empty, it chooses all images of the source.
	Select string
	// Reference is the name that pods use. If it is empty, the source must have it.
	Reference string
	// Named reports that the user wrote =NAME.
	Named bool
}

// imageID matches what docker accepts in place of a name.
var imageID = regexp.MustCompile(`^(sha256:)?[0-9a-f]{12,64}$`)

// Parse parses KIND:…. If s does not begin with a kind of source, local is false, and s is
// an image in a registry. Errors are usage errors.
func Parse(s string) (spec Spec, local bool, err error) {
	if name, isURL := strings.CutPrefix(s, "oci://"); isURL {
		return Spec{}, true, fault.New(fault.Usage, "image %q is the URL of a registry", s).Hint("for an image: --image " + name + "; list a chart in bundle.yaml, with this URL")
	}
	kind, rest, ok := strings.Cut(s, ":")
	if !ok || !slices.Contains(kinds, kind) {
		return Spec{}, false, unsupported(s)
	}
	spec.Kind = kind
	bad := func(err error) (Spec, bool, error) {
		return Spec{}, true, fault.New(fault.Usage, "image %q: %w", s, err).Hint("write it as " + form[kind])
	}
	// A reference contains no =, so the last one precedes it.
	if n := strings.LastIndex(rest, "="); n >= 0 {
		if spec.Reference, err = release.Normalize(rest[n+1:]); err != nil {
			return bad(fmt.Errorf("reading the name after =: %w", err))
		}
		rest, spec.Named = rest[:n], true
	}
	if kind == DockerDaemon || kind == Containerd {
		spec.Select = rest
		if err := spec.nameOfRuntime(); err != nil {
			return bad(err)
		}
		return spec, true, nil
	}
	spec.Path, spec.Select, _ = strings.Cut(rest, ":")
	if spec.Path == "" {
		return bad(fmt.Errorf("it has no path"))
	}
	return spec, true, nil
}

var form = map[string]string{
	OCI:           "oci:DIR:TAG=registry.example/app:1; TAG and =NAME may be omitted",
	OCIArchive:    "oci-archive:FILE:TAG=registry.example/app:1; TAG and =NAME may be omitted",
	DockerArchive: "docker-archive:FILE:app:1=registry.example/app:1; the image and =NAME may be omitted",
	DockerDaemon:  "docker-daemon:app:1=registry.example/app:1; =NAME may be omitted",
	Containerd:    "containerd:registry.example/app:1=registry.example/other:1; =NAME may be omitted",
}

// nameOfRuntime completes the spec of an image in Docker or containerd.
func (s *Spec) nameOfRuntime() error {
	if s.Kind == DockerDaemon && imageID.MatchString(s.Select) {
		if s.Reference == "" {
			return errors.New("an image ID is not a name that pods can use; add =NAME")
		}
		return nil
	}
	full, err := release.Normalize(s.Select)
	if err != nil {
		return err
	}
	if s.Kind == Containerd {
		s.Select = full // containerd knows only full names
	}
	if !s.Named {
		s.Reference = full
	}
	return nil
}

// unsupported returns an error for other names that skopeo knows.
func unsupported(s string) error {
	for _, prefix := range []string{"containers-storage:", "dir:/", "dir:."} {
		if strings.HasPrefix(s, prefix) {
			return fault.New(fault.Usage, "image %q: %s is not supported", s, strings.TrimRight(prefix, "/.")).
				Hint("write the image to a file, for example skopeo copy " + s + " oci-archive:app.tar:registry.example/app:1, and use --image oci-archive:app.tar")
		}
	}
	return nil
}

// String returns the spec as the user writes it.
func (s Spec) String() string {
	t := s.Kind + ":" + s.Path
	if s.Path != "" && s.Select != "" {
		t += ":"
	}
	return t + s.Select
}
