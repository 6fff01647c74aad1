package sbom

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"airlift/bundle"
	"airlift/internal/fault"
)

// Embedded returns the list in a format that the file contains, or nil if it contains none.
func Embedded(ctx context.Context, f *bundle.File, format Format) ([]byte, error) {
	m, err := f.Manifest()
	if err != nil {
		return nil, err
	}
	entry, ok := m.SBOM(string(format))
	if !ok {
		return nil, nil
	}
	return f.Read(ctx, entry)
}

// Compare compares the lists in the file with the contents of the file. The error has
// fault.Bundle, and counts what is different.
func (c *Contents) Compare(ctx context.Context, f *bundle.File) error {
	m, err := f.Manifest()
	if err != nil {
		return err
	}
	if len(m.SBOMs) == 0 {
		return fault.New(fault.Bundle, "%q contains no SBOM", f.Path()).Hint("build it again with this bundle command")
	}
	for _, s := range m.SBOMs {
		format, err := ParseFormat(s.Format)
		if err != nil {
			return err
		}
		found, err := Embedded(ctx, f, format)
		if err != nil {
			return err
		}
		why := c.compare(format, found)
		if why != "" {
			return fault.New(fault.Bundle, "the SBOM %s in %q does not match the contents: %s", s.Entry, f.Path(), why).Hint("check it with the release of bundle that built the file; if it differs then too, build the file again")
		}
	}
	return nil
}

// compare returns why a list does not match the contents, or "".
func (c *Contents) compare(format Format, found []byte) string {
	created, err := CreatedIn(format, found)
	if err != nil {
		return "it cannot be read: " + err.Error()
	}
	want, err := c.Encode(format, created)
	if err != nil {
		return err.Error()
	}
	if bytes.Equal(want, found) {
		return ""
	}
	has, should := names(found), names(want)
	missing := slices.DeleteFunc(slices.Clone(should), func(n string) bool { return slices.Contains(has, n) })
	more := slices.DeleteFunc(has, func(n string) bool { return slices.Contains(should, n) })
	var parts []string
	for _, p := range []struct {
		names []string
		what  string
	}{{missing, "does not list"}, {more, "lists"}} {
		if len(p.names) > 0 {
			parts = append(parts, fmt.Sprintf("it %s %d items, for example %q", p.what, len(p.names), p.names[0]))
		}
	}
	if parts == nil {
		return "it lists the same items with different fields"
	}
	if len(more) > 0 {
		parts[len(parts)-1] += " that are not in the contents"
	}
	return strings.Join(parts, "; ")
}

// names returns the names of the items in a list, with versions.
func names(list []byte) (all []string) {
	var doc struct {
		Packages   []struct{ Name, VersionInfo string }
		Components []struct{ Name, Version string }
	}
	if json.Unmarshal(list, &doc) != nil {
		return nil
	}
	for _, p := range doc.Packages {
		all = append(all, strings.TrimSpace(p.Name+" "+p.VersionInfo))
	}
	for _, c := range doc.Components {
		all = append(all, strings.TrimSpace(c.Name+" "+c.Version))
	}
	return all
}
