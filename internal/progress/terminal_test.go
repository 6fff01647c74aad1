package progress

import (
	"strings"
	"testing"
	"time"
)

// The colors of a diff follow the first character of a line, but for the names of the files.
func TestColoredDiff(t *testing.T) {
	diff := "--- /a\n+++ /a now\n@@ -1,2 +1,2 @@\n same\n-old\n+new\nno end"
	want := Bold + "--- /a" + Plain + "\n" + Bold + "+++ /a now" + Plain + "\n" + Cyan + "@@ -1,2 +1,2 @@" + Plain + "\n same\n" + Red + "-old" + Plain + "\n" + Green + "+new" + Plain + "\nno end"
	if got := ColoredDiff(diff); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	var b strings.Builder
	if WriteDiff(&b, diff); b.String() != diff {
		t.Errorf("%q where there is no terminal", b.String())
	}
}

func TestSpan(t *testing.T) {
	for d, want := range map[time.Duration]string{0: "0 s", time.Millisecond: "1 s", 99 * time.Second: "99 s", 100 * time.Second: "2 min", 99 * time.Minute: "99 min", 100 * time.Minute: "2 h", 48 * time.Hour: "48 h"} {
		if got := Span(d); got != want {
			t.Errorf("%s: %q, want %q", d, got, want)
		}
	}
}
