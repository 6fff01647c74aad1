package fault

import (
	"fmt"
	"io"
	"strings"
	"unicode"
)

// Print writes err for a user: an "error:" line, or the word of an outcome that is no failure, and, if the error has a hint,
// a "hint:" line. It prints nothing for a nil err, and for Work: the plan has said what there is to do.
func Print(w io.Writer, err error) {
	if err == nil || ExitCode(err) == Work {
		return
	}
	fmt.Fprintf(w, "%s: %s\n", ExitCode(err).Word(), Printable(err.Error()))
	if hint := Hint(err); hint != "" {
		fmt.Fprintf(w, "hint: %s\n", Printable(hint))
	}
}

// Printable returns a text of other hosts and files for a terminal: what could move its cursor, hide text or change its
// direction becomes "?". Lines and tabs stay.
func Printable(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n', r == '\t', r == '\u00a0', unicode.IsPrint(r) && r != unicode.ReplacementChar:
			return r
		case r == '\r':
			return -1
		}
		return '?'
	}, text)
}
