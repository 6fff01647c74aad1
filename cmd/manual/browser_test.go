package manual

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"airlift/scripts/fixtures/browser"
)

// TestBrowser shows the HTML page in a real browser: at no width does a page scroll sideways or request anything, and
// the search has the results of docs --search.
func TestBrowser(t *testing.T) {
	b := browser.Start(t)
	var page bytes.Buffer
	if err := HTML(&page); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "manual.html")
	if err := os.WriteFile(file, page.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, width := range browser.Widths {
		b.Open(file, width)
		for _, p := range Pages() {
			b.Eval(fmt.Sprintf("location.hash = %q; show()", p.Name()), nil)
			for _, element := range b.Overflow() {
				t.Errorf("%s at %d pixels: %s", p.Name(), width, element)
			}
			var visible []string
			b.Eval(`[...document.querySelectorAll(".page")].filter(e => e.offsetHeight > 0).map(e => e.id)`, &visible)
			if !slices.Equal(visible, []string{p.Name()}) {
				t.Errorf("%s: these pages are visible: %v", p.Name(), visible)
			}
		}
		for _, p := range []string{"multi-host", "recipes"} {
			for _, dark := range []bool{false, true} {
				b.Dark(dark)
				b.Open(file+"#"+p, width)
				b.Screenshot("../..", fmt.Sprintf("manual-%s-%d%s", p, width, map[bool]string{true: "-dark"}[dark]))
			}
		}
		b.Dark(false)
		b.Eval(`document.getElementById("menu").click()`, nil)
		b.Screenshot("../..", fmt.Sprintf("manual-menu-%d", width))
		b.Open(file, width)
		b.Eval(`input.value = "replace control plane"; find()`, nil)
		for _, element := range b.Overflow() {
			t.Errorf("search at %d pixels: %s", width, element)
		}
		b.Screenshot("../..", fmt.Sprintf("manual-search-%d", width))
		b.Eval(`location.hash = "multi-host"; show()`, nil)
		var scrolls bool
		if b.Eval(`[...document.querySelectorAll(".page.on .table")].some(e => e.scrollWidth > e.clientWidth)`, &scrolls); width < 400 && !scrolls {
			t.Error("no table scrolls on a phone")
		}
		if urls := b.Elsewhere(); len(urls) > 0 {
			t.Errorf("the page requests %v", urls)
		}
	}
	for _, q := range questions {
		var here []string
		b.Eval(fmt.Sprintf(`input.value = %q; find(); [...results.querySelectorAll("a")].slice(0, 8).map(a => a.hash.slice(1) + ": " + a.querySelector("p").textContent)`, q.words), &here)
		results, err := Search(q.words)
		if err != nil {
			t.Fatal(err)
		}
		var there []string
		for _, r := range results[:min(8, len(results))] {
			there = append(there, r.Anchor+": "+r.Line)
		}
		if !slices.Equal(here, there) {
			t.Errorf("%q: the page finds\n%q\nand docs --search\n%q", q.words, here, there)
		}
	}
}
