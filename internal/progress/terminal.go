package progress

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/term"
)

// Columns returns the width of the terminal w; 0 if it is none, or cannot draw.
func Columns(w io.Writer) int {
	f, ok := w.(interface{ Fd() uintptr })
	if !ok || !term.IsTerminal(int(f.Fd())) || os.Getenv("TERM") == "dumb" {
		return 0
	}
	width, _, err := term.GetSize(int(f.Fd()))
	if err != nil || width <= 0 {
		return 80
	}
	return width
}

// Colors of ECMA-48.
const (
	Red    = "\x1b[31m"
	Green  = "\x1b[32m"
	Yellow = "\x1b[33m"
	Cyan   = "\x1b[36m"
	Bold   = "\x1b[1m"
	Plain  = "\x1b[0m"
)

// HasColors reports whether texts on w have colors: on a terminal, unless the user set NO_COLOR.
func HasColors(w io.Writer) bool { return Columns(w) > 0 && os.Getenv("NO_COLOR") == "" }

// ColoredDiff colors the lines of a unified diff.
func ColoredDiff(diff string) string {
	var b strings.Builder
	for line := range strings.Lines(diff) {
		color := ""
		switch {
		case strings.HasPrefix(line, "--- "), strings.HasPrefix(line, "+++ "):
			color = Bold
		case strings.HasPrefix(line, "@@"):
			color = Cyan
		case strings.HasPrefix(line, "+"):
			color = Green
		case strings.HasPrefix(line, "-"):
			color = Red
		}
		if body := strings.TrimSuffix(line, "\n"); color != "" {
			line = color + body + Plain + line[len(body):]
		}
		b.WriteString(line)
	}
	return b.String()
}

// Span formats a time that is not known exactly: "45 s", "3 min", "2 h".
func Span(d time.Duration) string {
	seconds := int64((d + time.Second - 1) / time.Second)
	switch {
	case seconds < 100:
		return fmt.Sprintf("%d s", seconds)
	case seconds < 100*60:
		return fmt.Sprintf("%d min", (seconds+59)/60)
	}
	return fmt.Sprintf("%d h", (seconds+3599)/3600)
}

// WriteDiff writes a unified diff, on a terminal with colors. The diff must be printable: what it compares may be from another host.
func WriteDiff(w io.Writer, diff string) {
	if HasColors(w) {
		w, diff = Raw(w), ColoredDiff(diff)
	}
	_, _ = io.WriteString(w, diff) // a lost output cancels the command
}
