package overview

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"airlift/scripts/fixtures/browser"
)

// TestBrowser: reports of all sizes, with hosts that are down and odd names, are as wide as the window, ask nobody for anything, and
// have no script. The screens of some are in out/screens, to be looked at.
func TestBrowser(t *testing.T) {
	b := browser.Start(t)
	file := filepath.Join(t.TempDir(), "report.html")
	shown := map[string]string{"5 hosts, 1 down, odd names false": "five", "9 hosts, 2 down, odd names true": "nine-odd", "1 hosts, 0 down, odd names false": "one"}
	all(func(name string, r *Report) {
		if err := os.WriteFile(file, r.HTML(), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, width := range browser.Widths {
			b.Open(file, width)
			var seen struct {
				Sections []string
				Hosts    int
				Scripts  int
			}
			b.Eval(`({
				Sections: [...document.querySelectorAll("section")].filter(e => e.getBoundingClientRect().height > 40).map(e => e.id),
				Hosts: document.querySelectorAll(".card h4").length,
				Scripts: document.querySelectorAll("script, img, link, iframe, object").length,
			})`, &seen)
			if got := strings.Join(seen.Sections, " "); got != strings.Join(sections, " ") {
				t.Errorf("%s, %d pixels: sections %s", name, width, got)
			}
			if n := len(r.Site.Hosts) + len(r.Site.Others); seen.Hosts != n {
				t.Errorf("%s, %d pixels: %d hosts, want %d", name, width, seen.Hosts, n)
			}
			if seen.Scripts > 0 {
				t.Errorf("%s: %d elements that a report has not", name, seen.Scripts)
			}
			if list := b.Overflow(); len(list) > 0 {
				t.Errorf("%s, %d pixels: %q", name, width, list)
			}
			if list := b.Elsewhere(); len(list) > 0 {
				t.Errorf("%s, %d pixels: requests: %q", name, width, list)
			}
			if shown[name] == "" {
				continue
			}
			for _, dark := range []bool{false, true} {
				b.Dark(dark)
				b.Screenshot("../../../..", fmt.Sprintf("report-%s-%d%s", shown[name], width, map[bool]string{true: "-dark"}[dark]))
			}
			b.Dark(false)
		}
	})
}
