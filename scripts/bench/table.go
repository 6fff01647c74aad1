package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"airlift/internal/fault"
	"airlift/scripts/bench/measure"
	"airlift/scripts/lab"
)

// A table collects measurements by row and way.
type table struct {
	Version string    `json:"kubernetes"`
	Cores   int       `json:"cores"` // of the machine with the lab
	Started time.Time `json:"started"`
	Runs    int       `json:"runs"`
	Ways    [2]string `json:"ways"` // their names, in the order of the columns
	Rows    []*line   `json:"rows"`

	notes  []string
	images string // the images in containerd after an import
}

// A line is a row with its measurements.
type line struct {
	Name    string    `json:"name"`
	Unit    string    `json:"unit"`
	Counted string    `json:"counted"`
	First   []float64 `json:"first,omitempty"`
	Second  []float64 `json:"second,omitempty"`
	Ratio   float64   `json:"ratio,omitempty"` // of the medians
	of      *row
}

func newTable(version string, runs int, first, second way) *table {
	t := &table{Version: version, Cores: runtime.NumCPU(), Started: time.Now().UTC(), Runs: runs, Ways: [2]string{first.name(), second.name()}}
	for _, r := range rows {
		t.Rows = append(t.Rows, &line{Name: r.name, Unit: r.unit, Counted: strings.ReplaceAll(r.counted, "\n", " "), of: r})
	}
	return t
}

func (t *table) tell(notes ...string) { t.notes = append(t.notes, notes...) }

func (t *table) add(r *row, w way, value float64) {
	l := t.Rows[slices.Index(rows, r)]
	if w.name() == t.Ways[0] {
		l.First = append(l.First, value)
	} else {
		l.Second = append(l.Second, value)
	}
	if len(l.Second) > 0 && len(l.First) > 0 && r.ratio {
		l.Ratio = median(l.Second) / median(l.First)
	}
	say("  %s, %s: %s", w.name(), r.name, r.show(value))
}

func (t *table) seconds(r *row, w way, d time.Duration) { t.add(r, w, d.Seconds()) }
func (t *table) bytes(r *row, w way, n int64)           { t.add(r, w, float64(n)/1e6) }
func (t *table) count(r *row, w way, n int)             { t.add(r, w, float64(n)) }

// memory adds the largest memory of the commands on a host since the last call.
func (t *table) memory(r *row, w way, h *lab.Host) error {
	list, err := measure.Usages(h)
	if err != nil {
		return err
	}
	var most int64
	for _, u := range list {
		most = max(most, u.Memory)
	}
	t.bytes(r, w, most)
	return nil
}

// sameImages checks that every import creates the same images.
func (t *table) sameImages(list string) error {
	var names []string
	for line := range strings.Lines(list) {
		name, _, _ := strings.Cut(line, " ")
		// Some ways of importing also list digests and IDs.
		if strings.Contains(name, ":") && !strings.Contains(name, "sha256:") {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	all := strings.Join(names, " ")
	if t.images == "" {
		t.images = all
	}
	if all != t.images || all == "" {
		return fault.New(fault.Failure, "an import created %s, but another one created %s", all, t.images)
	}
	return nil
}

func (t *table) print(out io.Writer) {
	fmt.Fprintf(out, "Kubernetes %s on a machine with %d cores; median of %d alternating runs (least to most); rows without a range: one run\n\n",
		t.Version, t.Cores, t.Runs)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "\t%s\t%s\tratio\n", t.Ways[0], t.Ways[1])
	for _, l := range t.Rows {
		if len(l.First)+len(l.Second) == 0 {
			continue
		}
		ratio := ""
		if l.Ratio != 0 {
			ratio = fmt.Sprintf("%.2f", l.Ratio)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", l.Name, l.of.spread(l.First), l.of.spread(l.Second), ratio)
	}
	_ = w.Flush() // to standard output
	fmt.Fprintln(out, "\nWhat is measured")
	for _, l := range t.Rows {
		if len(l.First)+len(l.Second) > 0 {
			fmt.Fprintf(out, "- %s: %s\n", l.Name, strings.ReplaceAll(l.of.counted, "\n", "\n  "))
		}
	}
	for _, note := range t.notes {
		fmt.Fprintf(out, "\n%s\n", note)
	}
}

// end prints the table, and writes it to the file of --json.
func (t *table) end(o options) error {
	t.print(os.Stdout)
	if o.json != "" {
		return t.write(o.json)
	}
	return nil
}

func (t *table) write(file string) error { return writeJSON(file, t) }

func writeJSON(file string, v any) error {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(data, '\n'), 0o644)
}

// show formats one measurement with its unit.
func (r *row) show(value float64) string {
	switch r.unit {
	case "s", "MB", "%":
		return fmt.Sprintf("%.1f %s", value, r.unit)
	}
	return fmt.Sprintf("%.0f", value)
}

// spread formats the median and, with several measurements, the range.
func (r *row) spread(list []float64) string {
	if len(list) == 0 {
		return ""
	}
	least, most := slices.Min(list), slices.Max(list)
	if r.show(least) == r.show(most) {
		return r.show(least)
	}
	number := func(v float64) string { text, _, _ := strings.Cut(r.show(v), " "); return text }
	return fmt.Sprintf("%s (%s to %s)", r.show(median(list)), number(least), number(most))
}

func median(list []float64) float64 {
	list = slices.Sorted(slices.Values(list))
	return (list[(len(list)-1)/2] + list[len(list)/2]) / 2
}
