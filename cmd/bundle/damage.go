package main

import (
	"context"
	"fmt"
	"io"
	"slices"

	"airlift/bundle"
	"airlift/bundle/repair"
	"airlift/internal/progress"
)

// printDamage lists all damaged sections of a file, and the entries that they hold. It
// returns false if there is nothing to list.
func printDamage(ctx context.Context, out io.Writer, display *progress.Display, c repair.Copy) bool {
	item := display.Item("looking for damage in "+c.Name, repair.ScanSize(c))
	report, err := repair.Scan(ctx, c, item.Add)
	item.Failed()
	display.Close()
	if err != nil || len(report.Ranges) == 0 {
		return false // the error that led here has everything
	}
	f, err := bundle.OpenAt(c, c.Size, c.Name)
	if err != nil {
		f = nil // a frame around the payload is damaged, so entries are not known
	}
	fmt.Fprintf(out, "%s: %d bytes in %d section(s) are damaged, %d of %d pieces of the payload:\n", c.Name, report.Bytes(), len(report.Ranges), report.Pieces, report.Of)
	first := map[string]string{} // the entry where a part becomes unreadable
	for _, r := range report.Ranges {
		fmt.Fprintf(out, "  %s\n", r)
		if f == nil || r.What != "payload" {
			continue
		}
		for _, p := range f.Parts() {
			if r.First < p.Offset+p.Size && r.Last >= p.Offset {
				fmt.Fprintf(out, "    %s\n", describe(ctx, f, p, r, first))
			}
		}
	}
	if report.DigestsDamaged {
		fmt.Fprintf(out, "The digests of the payload are damaged, so the listed pieces may be intact.\n")
	}
	return true
}

// describe returns what a damaged range contains of a part.
func describe(ctx context.Context, f *bundle.File, p bundle.Part, r repair.Range, first map[string]string) string {
	if entry, ok := first[p.Name]; ok {
		return fmt.Sprintf("part %q, after %s", p.Name, entry)
	}
	e, at, err := f.EntryAt(ctx, p, max(r.First, p.Offset))
	if err != nil {
		return fmt.Sprintf("part %q; the manifest cannot be read", p.Name)
	}
	first[p.Name] = e.Name
	return fmt.Sprintf("part %q, from byte %d of %s%s on: nothing after that in this part can be unpacked", p.Name, at, e.Name, imageOf(f, e))
}

// imageOf names the first image that an entry belongs to: " (registry.k8s.io/pause:3.9)".
func imageOf(f *bundle.File, e bundle.Entry) string {
	m, err := f.Manifest()
	if err != nil {
		return ""
	}
	for _, i := range m.Images {
		if slices.ContainsFunc(i.Documents(), func(d bundle.Descriptor) bool { return bundle.BlobName(d.Digest) == e.Name }) ||
			slices.ContainsFunc(i.Layers, func(l bundle.Layer) bool { return bundle.BlobName(l.DiffID) == e.Name }) {
			return " (" + i.Reference + ")"
		}
	}
	return ""
}
