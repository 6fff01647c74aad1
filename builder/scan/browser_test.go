package scan

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"airlift/scripts/fixtures/browser"
)

// TestBrowser: the page is as wide as the window, asks nobody for anything and has no script.
func TestBrowser(t *testing.T) {
	b := browser.Start(t)
	long := strings.Repeat("example.com/long-name/", 12) + "lib"
	db := writeZip(t, t.TempDir()+"/all.zip", rec("GO-2026-1", "Go", long, "1.2.4", cvss(critical98), fixture{"summary": strings.Repeat("word ", 80)}), rec("GO-2026-2", "Go", "a", "", cvss(low31)))
	vex := writeFile(t, "vex.json", document(statement("GO-2026-2", NotAffected, purls("pkg:golang/a")...)))
	c := contents([]*Item{module(long, "v1.2.3"), module("a", "v1.0.0")})
	c.Warnings = []string{"a warning"}
	file := filepath.Join(t.TempDir(), "report.html")
	if err := os.WriteFile(file, scanned(t, c, Options{Databases: []string{db}, VEX: []string{vex}, Base: &File{"old", contents(nil)}}).HTML(), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, width := range browser.Widths {
		b.Open(file, width)
		var seen struct{ Rows, Scripts int }
		b.Eval(`({Rows: document.querySelectorAll("#vulnerable tbody tr, #closed tbody tr").length, Scripts: document.querySelectorAll("script, img, link, iframe, object").length})`, &seen)
		if seen.Rows != 2 || seen.Scripts > 0 {
			t.Errorf("%d pixels: %+v", width, seen)
		}
		if list := b.Overflow(); len(list) > 0 {
			t.Errorf("%d pixels: %q", width, list)
		}
		if list := b.Elsewhere(); len(list) > 0 {
			t.Errorf("%d pixels: requests: %q", width, list)
		}
		b.Screenshot("../..", "scan-report-"+map[bool]string{true: "narrow", false: "wide"}[width < 700])
	}
}
