package build

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"

	"airlift/bundle/fetch"
	"airlift/fault"
	"airlift/images"
)

// A shortage collects what sites and registries do not have, so that all of
// it is reported at once.
type shortage struct {
	mu    sync.Mutex
	items []lack
}

type lack struct {
	of  any // *binary or images.Image
	why string
}

// note keeps an error that says something is missing for later, and passes on
// any other. An optional binary is missing, too, where its site cannot be
// reached; but one that is not what it should be is an error.
func (s *shortage) note(of any, err error) error {
	var m *fetch.MissingError
	var mismatch *fetch.MismatchError
	bin, ok := of.(*binary)
	switch {
	case err == nil:
		return nil
	case errors.As(err, &m):
		s.add(of, m.Error())
	case ok && bin.Optional && !errors.As(err, &mismatch) && !errors.Is(err, context.Canceled):
		s.add(of, err.Error())
	default:
		return err
	}
	return nil
}

func (s *shortage) add(of any, why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.items = append(s.items, lack{of, why})
}

// report drops missing things that are optional, saying so, and returns an
// error that lists the others.
func (b *builder) report(s *shortage) error {
	var lines []string
	for _, l := range s.items {
		bin, ok := l.of.(*binary)
		if ok && bin.Optional {
			bin.dropped = true
			b.Progress.Printf("  %s: left out, a cluster installs without it (%s)\n", label(bin), l.why)
			continue
		}
		name := ""
		if ok {
			name = label(bin)
		} else if i, ok := l.of.(images.Image); ok {
			name = i.Reference
		}
		line := l.why
		if !strings.Contains(line, name) {
			line = name + ": " + line
		}
		lines = append(lines, "\n  "+line)
	}
	if len(lines) == 0 {
		return nil
	}
	slices.Sort(lines)
	hint := "check the names and versions"
	if len(b.Mirrors) > 0 {
		hint += "; if a mirror lacks them, add them to it, or leave out its --mirror so that the original site is asked"
	}
	if b.Arch != "amd64" {
		hint += "; a mirror may carry amd64 only"
	}
	return fault.New(fault.Failure, hint, "missing for Kubernetes %s on linux/%s:%s",
		b.catalog.Version, b.Arch, strings.Join(lines, ""))
}
