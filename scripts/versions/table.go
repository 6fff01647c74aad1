package main

import (
	"slices"
	"strings"

	"airlift/scripts/results"
	"airlift/scripts/upstream/components"
)

var page = strings.ReplaceAll(`# Which Kubernetes versions were run?

'make versions' writes this page. It builds the real components of each version, compares
the files and objects of the packages pki and render with those of its kubeadm,
builds a bundle, and runs the tests on isolated Debian hosts with it: 'TestCluster',
'TestControlPlanes' and 'TestInterop' of 'e2e'. Each cell has the result and the time of the
last run.

The conformance tests of Kubernetes are on [another page](conformance.md).

`, "'", "`")

// writeTable writes the page from the results of all versions.
func writeTable(path string, record *results.Record, steps []step) error {
	var b strings.Builder
	b.WriteString(page)
	b.WriteString("| version |")
	for _, s := range steps {
		b.WriteString(" " + s.heading + " |")
	}
	b.WriteString(" modules of another patch |\n|" + strings.Repeat("---|", len(steps)+2) + "\n")
	for _, r := range components.Releases() {
		b.WriteString("| " + r.Kubernetes + " |")
		for _, s := range steps {
			b.WriteString(" " + record.Of(resultName(r, s)).String() + " |")
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
