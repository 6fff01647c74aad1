package kubeletcheck

import (
	_ "embed"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	"airlift/internal/fault"
)

//go:embed facts.txt
var factsFile string

// A fact is a property that a feature gate, a flag or a field has since a minor version.
type fact struct {
	since int
	is    string // "beta on" of a gate, "int32 deprecated" of a flag, "bool" of a field; "removed"
	of    string // the field that a flag sets, the gates that a gate needs
}

// has reports whether a fact contains a word.
func (f fact) has(word string) bool { return slices.Contains(strings.Fields(f.is), word) }

// history has the facts of each name, the oldest first.
type history map[string][]fact

// facts are the histories of gates, flags and fields. A line of the file is
//
//	1.30 gate beta on: ContainerCheckpoint ContextualLogging
//
// and a name is followed by = if the fact refers to another name.
var facts = sync.OnceValue(func() map[string]history {
	all := map[string]history{"gate": {}, "flag": {}, "field": {}}
	for line := range strings.Lines(factsFile) {
		head, names, _ := strings.Cut(line, ": ")
		version, head, _ := strings.Cut(head, " ")
		kind, is, _ := strings.Cut(head, " ")
		minor := minorOf(version)
		for _, name := range strings.Fields(names) {
			name, of, _ := strings.Cut(name, "=")
			all[kind][name] = append(all[kind][name], fact{minor, is, of})
		}
	}
	return all
})

// at returns the fact for a name in a minor version.
func (h history) at(name string, minor int) (fact, bool) {
	for _, f := range slices.Backward(h[name]) {
		if f.since <= minor {
			return f, f.is != "removed"
		}
	}
	return fact{}, false
}

// hint helps with an unknown name: it exists in another minor version, or is
// similar to a known one.
func (h history) hint(name string, minor int) string {
	if known := h[name]; len(known) > 0 && known[0].since > minor {
		return "; it was added in v1." + strconv.Itoa(known[0].since)
	} else if len(known) > 0 {
		return "; v1." + strconv.Itoa(known[len(known)-1].since-1) + " was the last version with it"
	}
	similar := fault.Nearest(name, slices.DeleteFunc(slices.Sorted(maps.Keys(h)), func(known string) bool {
		_, ok := h.at(known, minor)
		return !ok
	}))
	if similar == "" {
		return ""
	}
	return "; did you mean " + similar + "?"
}
