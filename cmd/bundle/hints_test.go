package main

import (
	"strings"
	"testing"

	"airlift/scripts/fixtures/docs"
)

// TestHintsCanBeTyped looks up each command of bundle that a text in the source names, and each flag in
// the hints of packages that only bundle has.
func TestHintsCanBeTyped(t *testing.T) {
	calls, hints, err := docs.Hints("../..")
	if err != nil {
		t.Fatal(err)
	}
	root, checked := newRootCmd(), 0
	for _, c := range calls {
		if c.Name == "bundle" {
			checked++
			if err := docs.CheckCall(root, c); err != nil {
				t.Error(err)
			}
		}
	}
	if checked < 40 {
		t.Errorf("only %d calls found", checked)
	}
	for _, h := range hints {
		if !strings.HasPrefix(h.Page, "../../bundle/") && !strings.HasPrefix(h.Page, "../../cmd/bundle/") {
			continue
		}
		for _, flag := range h.Flags() {
			if !docs.HasFlag(root, flag) {
				t.Errorf("%s: there is no flag --%s: %s", h.Page, flag, h.Text)
			}
		}
	}
}
