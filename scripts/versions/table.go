package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"airlift/scripts/upstream/components"
)

// A result is the last run of a step.
type result struct {
	Passed  bool    `json:"passed"`
	Seconds float64 `json:"seconds"`
}

func (r result) String() string {
	if r.Seconds == 0 {
		return "not run"
	}
	word := "passed"
	if !r.Passed {
		word = "failed"
	}
	return fmt.Sprintf("%s, %.0f s", word, r.Seconds)
}

// A record has the results of a version's steps, by name.
type record map[string]result

const recordName = "results.json"

func readRecord(dir string) (record, error) {
	data, err := os.ReadFile(filepath.Join(dir, recordName))
	if errors.Is(err, fs.ErrNotExist) {
		return record{}, nil
	}
	if err != nil {
		return nil, err
	}
	r := record{}
	if err := json.Unmarshal(data, &r); err != nil {
		return nil, fmt.Errorf("reading %s: %w", filepath.Join(dir, recordName), err)
	}
	return r, nil
}

func (r record) write(dir string) error {
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return replace(filepath.Join(dir, recordName), append(data, '\n'))
}

// replace writes a file as a whole or not at all.
func replace(path string, data []byte) error {
	if err := os.WriteFile(path+".writing", data, 0o644); err != nil {
		return err
	}
	return os.Rename(path+".writing", path)
}

const page = `# Which Kubernetes versions were run?

` + "`make versions`" + ` writes this page. It builds the real components of each version, builds a
bundle, and runs the tests on isolated Debian hosts with it: ` + "`TestCluster`, `TestControlPlanes`" + `
and ` + "`TestInterop`" + ` of ` + "`e2e`" + `. Each cell has the result and the time of the last run.

Kubernetes' own conformance tests are on [another page](conformance.md).

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
		rec, err := readRecord(filepath.Join(dir, r.Kubernetes))
		if err != nil {
			return err
		}
		b.WriteString("| " + r.Kubernetes + " |")
		for _, s := range steps {
			b.WriteString(" " + rec[s.name].String() + " |")
		}
		var substitutes []string
		for module, version := range r.Substitutes() {
			substitutes = append(substitutes, module+" "+version)
		}
		slices.Sort(substitutes)
		b.WriteString(strings.TrimRight(" "+strings.Join(substitutes, ", "), " ") + " |\n")
	}
	return replace(path, []byte(b.String()))
}
