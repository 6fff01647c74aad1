// Package problems collects everything that is wrong with files that people write, so that they can correct it at once.
package problems

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"airlift/internal/fault"
)

// A List has the problems of a file, and of the files that it names.
type List struct {
	File string // for messages
	all  []problem
}

type problem struct {
	file       string // "": List.File, which comes first
	line       int
	text, hint string
}

// Add adds a problem in a line of the file. hint is what to write; it may be empty.
func (l *List) Add(line int, hint, format string, args ...any) {
	l.AddIn("", line, hint, format, args...)
}

// AddIn adds a problem in a line of another file.
func (l *List) AddIn(file string, line int, hint, format string, args ...any) {
	l.all = append(l.all, problem{file, line, fmt.Sprintf(format, args...), hint})
}

// Any reports whether a problem of the file itself matches.
func (l *List) Any(match func(line int, text string) bool) bool {
	return slices.ContainsFunc(l.all, func(p problem) bool { return p.file == "" && match(p.line, p.text) })
}

// Len is the number of problems.
func (l *List) Len() int { return len(l.all) }

// At is a place in the file for messages: "bundle.yaml:12".
func (l *List) At(line int) string { return l.AtIn("", line) }

// AtIn is a place in another file; "" is the file itself.
func (l *List) AtIn(file string, line int) string {
	return fmt.Sprintf("%s:%d", cmp.Or(file, l.File), line)
}

// Err returns the problems in the order of the lines as one error (fault.Usage); nil if there are none.
func (l *List) Err() error {
	slices.SortStableFunc(l.all, func(x, y problem) int {
		return cmp.Or(cmp.Compare(x.file, y.file), cmp.Compare(x.line, y.line))
	})
	l.all = slices.Compact(l.all)
	switch len(l.all) {
	case 0:
		return nil
	case 1:
		p := l.all[0]
		return fault.New(fault.Usage, "%s: %s", l.AtIn(p.file, p.line), p.text).Hint(p.hint)
	}
	var lines strings.Builder
	for _, p := range l.all {
		fmt.Fprintf(&lines, "\n  %s: %s", l.AtIn(p.file, p.line), p.text)
		if p.hint != "" {
			fmt.Fprintf(&lines, "\n    (%s)", p.hint)
		}
	}
	return fault.New(fault.Usage, "%s has %d errors:%s", l.File, len(l.all), lines.String())
}
