package builder

import (
	"slices"
	"testing"
)

// Both orders have all entries exactly once.
func TestOrders(t *testing.T) {
	boot, small := slices.Sorted(slices.Values(bootOrder)), slices.Sorted(slices.Values(smallOrder))
	if !slices.Equal(boot, small) || len(slices.Compact(boot)) != len(bootOrder) {
		t.Errorf("%q\n%q", boot, small)
	}
}
