package main

import (
	"slices"
	"testing"

	"airlift/scripts/fixtures/docs"
)

// TestDocumentedFlags checks that every command and flag in the documentation
// exists.
func TestDocumentedFlags(t *testing.T) {
	pages, err := docs.Read("../..")
	if err != nil {
		t.Fatal(err)
	}
	calls, flags := docs.Calls(pages)
	root, checked := newRootCmd(), 0
	for _, c := range calls {
		if c.Name == "install" {
			checked++
			if err := docs.CheckCall(root, c); err != nil {
				t.Error(err)
			}
		}
	}
	if checked < 40 {
		t.Errorf("only %d calls found", checked)
	}
	for flag, where := range flags {
		if !docs.HasFlag(root, flag) && !slices.Contains(docs.BundleFlags, flag) && !slices.Contains(docs.OtherFlags, flag) {
			t.Errorf("%v: there is no flag --%s", where, flag)
		}
	}
}

// TestUnknownFlagsAreFound checks that CheckCall finds commands and flags that
// do not exist.
func TestUnknownFlagsAreFound(t *testing.T) {
	for _, args := range [][]string{{"init", "--no-such"}, {"verify"}, {"init", "phase", "no-such"}, {"certs", "renew", "all", "--no-such=1"}, {"--no-such"}} {
		if err := docs.CheckCall(newRootCmd(), docs.Call{Name: "install", Args: args}); err == nil {
			t.Errorf("%v is accepted", args)
		}
	}
}
