package build

import (
	"slices"
	"testing"
)

// Both orders have everything, each once.
func TestOrders(t *testing.T) {
	boot, small := slices.Sorted(slices.Values(bootOrder)), slices.Sorted(slices.Values(smallOrder))
	if !slices.Equal(boot, small) || len(slices.Compact(boot)) != len(bootOrder) {
		t.Errorf("%q\n%q", boot, small)
	}
}
