package builder

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"airlift/images/fetch"
	"airlift/images/release"
	"airlift/internal/fault"
)

// A shortage collects everything that sites and registries do not have, so that one
// error reports all of it.
type shortage struct {
	mu    sync.Mutex
	items []lack
}

type lack struct {
	of  any // *binary or images.Image
	why *fetch.MissingError
}

// note collects err if it is a *fetch.MissingError and returns any other error. If a
// site is unreachable, denies access or fails, the file may still exist.
func (s *shortage) note(of any, err error) error {
	var m *fetch.MissingError
	if !errors.As(err, &m) {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.items = append(s.items, lack{of, m})
	return nil
}

// err returns an error with everything that is missing of a release. locked and mirrored report
// whether there are a lock and mirrors, which may be the reason.
func (s *shortage) err(r foundRelease, locked, mirrored bool) error {
	if len(s.items) == 0 {
		return nil
	}
	var lines []string
	for _, l := range s.items {
		name := ""
		switch of := l.of.(type) {
		case *binary:
			name = label(of)
		case release.Image:
			name = of.Reference
		}
		line := l.why.Error()
		if !strings.Contains(line, name) {
			line = name + ": " + line
		}
		lines = append(lines, "\n  "+line)
	}
	slices.Sort(lines)
	hint := "check names and versions"
	if len(r.Assumed) > 0 {
		hint = fmt.Sprintf("%s is newer than the known versions; assumed as in %s: %s. Give others with --etcd-version, --coredns-version, --pause-version or --crictl-version",
			r.Version, r.Nearest, strings.Join(r.Assumed, ", "))
	}
	if locked {
		hint += "; resolve everything again with " + updateCommand
	}
	if mirrored {
		hint += "; if a mirror does not have them, add them to it, or remove its --mirror to use the original site"
	}
	if r.Arch != "amd64" {
		hint += "; some mirrors only have amd64"
	}
	return fault.New(fault.Failure, "missing for Kubernetes %s on linux/%s:%s",
		r.Version, r.Arch, strings.Join(lines, "")).Hint(hint)
}
