package builder

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"airlift/bundle/fetch"
	"airlift/fault"
	"airlift/images"
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

// mayLeaveOut reports whether a binary is optional and the user did not require it.
func (b *builder) mayLeaveOut(bin *binary) bool {
	return bin.Optional && !bin.pinned && b.Lock == nil && !slices.Contains(b.Require, bin.Name)
}

func (b *builder) leaveOut(c images.Binary, why string) {
	b.leftOut = append(b.leftOut, LeftOut{c.Name, c.Version, c.URL, why})
	b.Progress.Printf("  %s %s: left out; it is optional (%s)\n", c.Name, c.Version, why)
}

// checkOptional checks --require and --without.
func (b *builder) checkOptional() error {
	known := images.Optional()
	for flag, names := range map[string][]string{"--require": b.Require, "--without": b.Without} {
		for _, name := range names {
			if !slices.Contains(known, name) {
				return fault.New(fault.Usage, "optional components: "+strings.Join(known, ", "), "%s %q: no such optional component", flag, name)
			}
		}
	}
	for _, name := range b.Require {
		if slices.Contains(b.Without, name) {
			return fault.New(fault.Usage, "use only one of the two flags", "--require and --without both name %q", name)
		}
	}
	return nil
}

// report leaves out the missing components that are optional, and returns an error
// with all others.
func (b *builder) report(s *shortage) error {
	var lines []string
	for _, l := range s.items {
		bin, ok := l.of.(*binary)
		if ok && b.mayLeaveOut(bin) && fetch.NotThere(l.why) {
			bin.dropped = true
			b.leaveOut(bin.Binary, l.why.Error())
			continue
		}
		name := ""
		if ok {
			name = label(bin)
		} else if i, ok := l.of.(images.Image); ok {
			name = i.Reference
		}
		line := l.why.Error()
		if !strings.Contains(line, name) {
			line = name + ": " + line
		}
		lines = append(lines, "\n  "+line)
	}
	if len(lines) == 0 {
		return nil
	}
	slices.Sort(lines)
	hint := "check names and versions"
	if len(b.catalog.Assumed) > 0 {
		hint = fmt.Sprintf("%s is newer than the known versions; assumed as in %s: %s. Give others with --etcd-version, --coredns-version, --pause-version or --crictl-version",
			b.catalog.Version, b.catalog.Nearest, strings.Join(b.catalog.Assumed, ", "))
	}
	if b.Lock != nil {
		hint += "; resolve everything again with " + b.updateCommand()
	}
	if len(b.Mirrors) > 0 {
		hint += "; if a mirror does not have them, add them to it, or remove its --mirror to use the original site"
	}
	if b.Arch != "amd64" {
		hint += "; some mirrors only have amd64"
	}
	return fault.New(fault.Failure, hint, "missing for Kubernetes %s on linux/%s:%s",
		b.catalog.Version, b.Arch, strings.Join(lines, ""))
}
