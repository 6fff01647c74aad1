package local

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/distribution/reference"

	"airlift/images/release"
	"airlift/internal/fault"
)

// An entry is one image of a source with all of its names.
type entry struct {
	full []string // full references
	tags []string // other names
}

func (e entry) is(name string) bool {
	if slices.Contains(e.tags, name) || slices.Contains(e.full, name) {
		return true
	}
	full, err := release.Normalize(name)
	return err == nil && slices.Contains(e.full, full)
}

func (e entry) names() []string { return append(slices.Clone(e.full), e.tags...) }

// A choice is an entry, by its position, and a reference for it.
type choice struct {
	entry     int
	reference string
}

// choose returns the entries that spec names, each with a reference. An entry with several
// references is chosen for each.
func choose(entries []entry, spec Spec) ([]choice, error) {
	var found []int
	position, err := strconv.Atoi(strings.TrimPrefix(spec.Select, "@"))
	for n, e := range entries {
		switch {
		case spec.Select == "", e.is(spec.Select),
			strings.HasPrefix(spec.Select, "@") && err == nil && n == position:
			found = append(found, n)
		}
	}
	if len(entries) == 0 {
		return nil, fault.New(fault.Usage, "it has no images").Hint("write it again, with the image's name: docker save -o app.tar IMAGE")
	}
	if len(found) == 0 {
		return nil, fault.New(fault.Usage, "it has no image %q", spec.Select).Hint("images there: " + listNames(entries))
	}
	if len(found) > 1 && spec.Reference != "" {
		return nil, fault.New(fault.Usage, "%q names one image, but the source has %d", spec.Reference, len(found)).Hint("name one of them: " + listNames(entries))
	}
	if len(found) > 1 && spec.Select != "" {
		return nil, fault.New(fault.Usage, "%d images have the name %q", len(found), spec.Select).Hint("use a full name: " + listNames(entries))
	}
	if spec.Reference != "" {
		return []choice{{found[0], spec.Reference}}, nil
	}
	var choices []choice
	for _, n := range found {
		e := entries[n]
		if len(e.full) == 0 {
			example := spec
			if example.Select = fmt.Sprintf("@%d", n); len(e.tags) > 0 {
				example.Select = e.tags[0]
			}
			return nil, fault.New(fault.Usage, "image %s has no name that pods can use", example.Select).
				Hint("add the name that pods use: --image " + example.String() + "=registry.example/app:1")
		}
		for _, full := range e.full {
			if spec.Select == "" || !e.is(spec.Select) || slices.Contains(e.tags, spec.Select) || (entry{full: []string{full}}).is(spec.Select) {
				choices = append(choices, choice{n, full})
			}
		}
	}
	return choices, nil
}

func listNames(entries []entry) string {
	var list []string
	for n, e := range entries {
		names := e.names()
		if len(names) == 0 {
			names = []string{fmt.Sprintf("@%d", n)}
		}
		list = append(list, names...)
	}
	slices.Sort(list)
	if list = slices.Compact(list); len(list) > 20 {
		list = append(list[:20], "…")
	}
	if len(list) == 0 {
		return "none"
	}
	return strings.Join(list, ", ")
}

// fullName returns the reference in a layout's annotation if it has a registry, and a tag or a
// digest. Other texts, such as a plain tag, are not full names.
func fullName(s string) (string, bool) {
	ref, err := reference.Parse(s)
	if err != nil {
		return "", false
	}
	named, ok := ref.(reference.Named)
	if !ok || reference.IsNameOnly(named) {
		return "", false
	}
	host, _, ok := strings.Cut(named.Name(), "/")
	if !ok || host != "localhost" && !strings.ContainsAny(host, ".:") {
		return "", false
	}
	full, err := release.Normalize(s)
	return full, err == nil
}
