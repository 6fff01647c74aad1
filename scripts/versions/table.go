package main

import (
	"path/filepath"
	"slices"
	"strings"

	"airlift/scripts/results"
	"airlift/scripts/upstream/components"
)

const page = `# Which Kubernetes versions were run?

` + "`make versions`" + ` writes this page. It builds the real components of each version, builds a
bundle, and runs the tests on isolated Debian hosts with it: ` + "`TestCluster`, `TestControlPlanes`" + `
and ` + "`TestInterop`" + ` of ` + "`e2e`" + `. Each cell has the result and the time of the last run.

`

// writeTable writes the page from the results of all versions below dir.
func writeTable(path, dir string, steps []step) error {
	var b strings.Builder
	b.WriteString(page)
	b.WriteString("| version |")
	for _, s := range steps {
		b.WriteString(" " + s.heading + " |")
	}
	b.WriteString(" modules of another patch |\n|" + strings.Repeat("---|", len(steps)+2) + "\n")
	for _, r := range components.Releases() {
		rec, err := results.Open(filepath.Join(dir, r.Kubernetes))
		if err != nil {
			return err
		}
		b.WriteString("| " + r.Kubernetes + " |")
		for _, s := range steps {
			b.WriteString(" " + rec.Of(s.name).String() + " |")
		}
		var substitutes []string
		for module, version := range r.Substitutes() {
			substitutes = append(substitutes, module+" "+version)
		}
		slices.Sort(substitutes)
		b.WriteString(strings.TrimRight(" "+strings.Join(substitutes, ", "), " ") + " |\n")
	}
	return results.Replace(path, []byte(b.String()))
}
