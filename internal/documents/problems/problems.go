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
	File  string `json:"file"` // "": List.File, which comes first
	Line  int    `json:"line"`
	Field string `json:"field,omitempty"` // "hosts[2].ssh.port", "" if it is not known
	Text  string `json:"message"`
	Hint  string `json:"hint,omitempty"`
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
	l.Problems = append(l.Problems, Problem{File: file, Line: line, Text: fmt.Sprintf(format, args...), Hint: hint})
}

// Has reports whether a problem is at a field, in it, or at what it is in: then another one may only follow from that.
func (l *List) Has(field string) bool {
	return slices.ContainsFunc(l.Problems, func(p Problem) bool { return within(p.Field, field) || within(field, p.Field) })
}

func within(field, of string) bool {
	rest, ok := strings.CutPrefix(field, of)
	return ok && of != "" && (rest == "" || rest[0] == '.' || rest[0] == '[')
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

// Wrong is an error that has problems.
type Wrong struct {
	Problems []Problem // in the order of the lines, each with its file
	Text     string
}

func (w *Wrong) Error() string { return w.Text }

// Err returns the problems in the order of the lines as one error (fault.Usage), a Wrong; nil if there are none.
func (l *List) Err() error {
	seen := map[Problem]bool{}
	l.Problems = slices.DeleteFunc(l.Problems, func(p Problem) bool {
		p.Field = ""
		twice := seen[p]
		seen[p] = true
		return twice
	})
	slices.SortStableFunc(l.Problems, func(x, y Problem) int {
		return cmp.Or(cmp.Compare(x.File, y.File), cmp.Compare(x.Line, y.Line))
	})
	wrong := &Wrong{Problems: slices.Clone(l.Problems)}
	for i := range wrong.Problems {
		wrong.Problems[i].File = cmp.Or(wrong.Problems[i].File, l.File)
	}
	switch len(l.Problems) {
	case 0:
		return nil
	case 1:
		p := l.Problems[0]
		wrong.Text = l.AtIn(p.File, p.Line) + ": " + p.Text
		return fault.Wrap(wrong, fault.Usage, p.Hint)
	}
	var lines strings.Builder
	for _, p := range l.Problems {
		fmt.Fprintf(&lines, "\n  %s: %s", l.AtIn(p.File, p.Line), p.Text)
		if p.Hint != "" {
			fmt.Fprintf(&lines, "\n    (%s)", p.Hint)
		}
	}
	wrong.Text = fmt.Sprintf("%s has %d errors:%s", l.File, len(l.Problems), lines.String())
	return fault.Wrap(wrong, fault.Usage, "")
}
