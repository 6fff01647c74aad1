package agent

import (
	"errors"
	"testing"

	"pgregory.net/rapid"
)

// TestFailureIsNew: an error is logged if it is not the result of the attempt before, with another time or without, so also when it comes back after a success.
func TestFailureIsNew(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var f failure
		last := ""
		for _, text := range rapid.SliceOf(rapid.SampledFrom([]string{"", "a at 10:00", "a at 9:07", "b"})).Draw(t, "results of attempts, empty for a success") {
			var err error
			if text != "" {
				err = errors.New(text)
			}
			if got, want := f.isNew(err), text != "" && text[:1] != (last + " ")[:1]; got != want {
				t.Fatalf("%q after %q: %t", text, last, got)
			}
			last = text
		}
	})
}
