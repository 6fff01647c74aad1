package main

import (
	"slices"
	"strings"
	"testing"

	"airlift/scripts/fixtures/docs"
)

// TestTextsCanBeTyped looks up each command of bundle that a text in the source names, and each flag in
// the texts that only bundle can print.
func TestTextsCanBeTyped(t *testing.T) {
	calls, texts, err := docs.Texts("../..")
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
	for _, x := range texts {
		if !strings.HasPrefix(x.Page, "../../builder/") && !strings.HasPrefix(x.Page, "../../cmd/bundle/") {
			continue
		}
		for _, flag := range x.Flags() {
			if !docs.HasFlag(root, flag) && !slices.Contains(docs.InstallFlags, flag) && !slices.Contains(docs.OtherFlags, flag) {
				t.Errorf("%s: there is no flag --%s: %s", x.Page, flag, x.Text)
			}
		}
	}
}
