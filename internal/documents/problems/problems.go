// Package problems collects everything that is wrong with files that people write, so that they can correct it at once.
package problems

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"airlift/internal/documents"
	"airlift/internal/fault"
)

// A List has the problems of a file, and of the files that it names.
type List struct {
	File     string // for messages
	Problems []Problem
}

// A Problem is what is wrong in a line, and what to write.
type Problem struct {
	File       string // "": List.File, which comes first
	Line       int
	Text, Hint string
}

func (p Problem) String() string {
	if p.Hint == "" {
		return p.Text
	}
	return p.Text + ": " + p.Hint
}

// Add adds a problem in a line of the file. hint is what to write; it may be empty.
func (l *List) Add(line int, hint, format string, args ...any) {
	l.AddIn("", line, hint, format, args...)
}

// AddIn adds a problem in a line of another file.
func (l *List) AddIn(file string, line int, hint, format string, args ...any) {
	l.Problems = append(l.Problems, Problem{file, line, fmt.Sprintf(format, args...), hint})
}

// advice matches an error that ends with what to do.
var advice = regexp.MustCompile(`^(.*): ((?:the file is damaged|convert|copy|put|remove|start|write) .*)$`)

// AddErrors adds the errors of a stream of documents.
func (l *List) AddErrors(file string, errs []documents.Error) {
	for _, e := range errs {
		text, hint := e.Text, ""
		if m := advice.FindStringSubmatch(text); m != nil {
			text, hint = m[1], m[2]
		} else if strings.HasPrefix(text, "not YAML") {
			hint = "correct the YAML: indent with spaces, and put values with : or # in quotes"
		} else if strings.Contains(text, "is written twice") {
			hint = "remove one of them"
		}
		l.AddIn(file, e.Line, hint, "%s", text)
	}
}

// At is a place in the file for messages: "bundle.yaml:12".
func (l *List) At(line int) string { return l.AtIn("", line) }

// AtIn is a place in another file; "" is the file itself.
func (l *List) AtIn(file string, line int) string {
	return fmt.Sprintf("%s:%d", cmp.Or(file, l.File), line)
}

// Err returns the problems in the order of the lines as one error (fault.Usage); nil if there are none.
func (l *List) Err() error {
	slices.SortStableFunc(l.Problems, func(x, y Problem) int {
		return cmp.Or(cmp.Compare(x.File, y.File), cmp.Compare(x.Line, y.Line))
	})
	l.Problems = slices.Compact(l.Problems)
	switch len(l.Problems) {
	case 0:
		return nil
	case 1:
		p := l.Problems[0]
		return fault.New(fault.Usage, "%s: %s", l.AtIn(p.File, p.Line), p.Text).Hint(p.Hint)
	}
	var lines strings.Builder
	for _, p := range l.Problems {
		fmt.Fprintf(&lines, "\n  %s: %s", l.AtIn(p.File, p.Line), p.Text)
		if p.Hint != "" {
			fmt.Fprintf(&lines, "\n    (%s)", p.Hint)
		}
	}
	return fault.New(fault.Usage, "%s has %d errors:%s", l.File, len(l.Problems), lines.String())
}
