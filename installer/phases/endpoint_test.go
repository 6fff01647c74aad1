package phases

import (
	"slices"
	"testing"
)

// A node that joins by a name has a balancer that knows the addresses, and no name.
func TestResolve(t *testing.T) {
	is, err := resolve(t.Context(), []string{"localhost:6443", "192.0.2.1:6443", "[2001:db8::1]:6443"})
	if err != nil || !slices.Contains(is, "127.0.0.1:6443") || !slices.Contains(is, "192.0.2.1:6443") || !slices.Contains(is, "[2001:db8::1]:6443") {
		t.Error(is, err)
	}
	if is, err := resolve(t.Context(), []string{"no-such-host.invalid:6443"}); err == nil {
		t.Error(is)
	}
}
