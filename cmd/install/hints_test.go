package main

import (
	"slices"
	"strings"
	"testing"

	"airlift/scripts/fixtures/docs"
)

// TestHintsCanBeTyped looks up each command of install that a text in the source names, and each flag
// in the hints of packages that only install has.
func TestHintsCanBeTyped(t *testing.T) {
	calls, hints, err := docs.Hints("../..")
	if err != nil {
		t.Fatal(err)
	}
	root, checked := newRootCmd(), 0
	for _, c := range calls {
		if c.Name == "install" {
			checked++
			if err := docs.CheckCall(root, c); err != nil {
				t.Error(err)
			}
		}
	}
	if checked < 100 {
		t.Errorf("only %d calls found", checked)
	}
	for _, h := range hints {
		if !strings.HasPrefix(h.Page, "../../installer/") && !strings.HasPrefix(h.Page, "../../multihost/") && !strings.HasPrefix(h.Page, "../../cmd/install/") {
			continue
		}
		for _, flag := range h.Flags() {
			if !docs.HasFlag(root, flag) && !slices.Contains(docs.BundleFlags, flag) && !slices.Contains(docs.OtherFlags, flag) {
				t.Errorf("%s: there is no flag --%s: %s", h.Page, flag, h.Text)
			}
		}
	}
}
