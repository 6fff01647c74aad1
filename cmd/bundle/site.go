package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"

	"airlift/bundle"
	"airlift/internal/progress"
)

// siteTables prints the add-ons, and the site's own manifests, files and units, a table for each.
// It prints nothing for a bundle without them.
func siteTables(out io.Writer, m *bundle.Manifest) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	size := func(entry string) string {
		e, _ := m.Entry(entry)
		return progress.Bytes(e.Size)
	}
	own := slices.DeleteFunc(slices.Clone(m.Manifests), func(s bundle.SiteManifest) bool { return s.AddOn != "" })
	if len(own) < len(m.Manifests) {
		fmt.Fprintf(w, "\nADD-ON\tVERSION\tSIZE\n")
	}
	for _, s := range m.Manifests {
		if s.AddOn != "" {
			fmt.Fprintf(w, "%s\t%s\t%s\n", s.Name, s.AddOn, size(s.Entry()))
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if len(own) > 0 {
		fmt.Fprintf(w, "\nMANIFEST\tCHART\tNAMESPACE\tSIZE\n")
	}
	for _, s := range own {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", s.Name, cmp.Or(s.Chart, "-"), cmp.Or(s.Namespace, "default"), size(s.Entry()))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if len(m.Files) > 0 {
		fmt.Fprintf(w, "\nFILE\tMODE\tNODES\tSIZE\n")
	}
	for _, f := range m.Files {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", f.Path, f.Mode, cmp.Or(f.Nodes, "all"), size(f.Entry))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if len(m.Units) > 0 {
		fmt.Fprintf(w, "\nUNIT\tNODES\n")
	}
	for _, u := range m.Units {
		fmt.Fprintf(w, "%s\t%s\n", u.Name, cmp.Or(u.Nodes, "all"))
	}
	return w.Flush()
}
