package oracle

import (
	"slices"
	"testing"
)

// Without the variable, the tests compare with both versions: an empty list compares nothing and passes.
func TestVersionsAreNeverEmpty(t *testing.T) {
	for value, want := range map[string][]string{"": {Version, Newest}, " \t": {Version, Newest}, "v1.33.1": {"v1.33.1"}, "v1.33.1 v1.34.0": {"v1.33.1", "v1.34.0"}} {
		t.Setenv(VersionsVariable, value)
		if got := versions(); !slices.Equal(got, want) {
			t.Errorf("%s=%q: %q, want %q", VersionsVariable, value, got, want)
		}
	}
}
