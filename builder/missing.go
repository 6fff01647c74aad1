package builder

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"airlift/builder/fetch"
	"airlift/internal/fault"
)

// A shortage collects everything that sites and registries do not have, so that one
// error reports all of it.
type shortage struct {
	mu    sync.Mutex
	items []lack
}

type lack struct {
	name   string
	binary *binary // nil for an image
	why    *fetch.MissingError
}

// note collects err if it is a *fetch.MissingError and returns any other error. If a
// site is unreachable, denies access or fails, the file may still exist.
func (s *shortage) note(name string, bin *binary, err error) error {
	var m *fetch.MissingError
	if !errors.As(err, &m) {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.items = append(s.items, lack{name, bin, m})
	return nil
}

// shortageError returns an error with everything that is missing of a release.
func (b *build) shortageError(items []lack) error {
	if len(items) == 0 {
		return nil
	}
	var lines []string
	for _, l := range items {
		line := l.why.Error()
		if !strings.Contains(line, l.name) {
			line = l.name + ": " + line
		}
		lines = append(lines, "\n  "+line)
	}
	slices.Sort(lines)
	r := b.release
	hint := "check names and versions"
	if len(r.Assumed) > 0 {
		hint = fmt.Sprintf("%s is newer than the known versions; assumed as in %s: %s. Give others with --etcd-version, --coredns-version, --pause-version or --crictl-version",
			r.Version, r.Nearest, strings.Join(r.Assumed, ", "))
	}
	if b.Lock != nil {
		hint += "; resolve everything again with " + updateCommand
	}
	if len(b.Mirrors) > 0 {
		hint += "; if a mirror does not have them, add them to it, or remove its --mirror to use the original site"
	}
	if r.Arch != "amd64" {
		hint += "; some mirrors only have amd64"
	}
	return fault.New(fault.Failure, "missing for Kubernetes %s on linux/%s:%s",
		r.Version, r.Arch, strings.Join(lines, "")).Hint(hint)
}
