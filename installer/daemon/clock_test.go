package daemon

import (
	"sync"
	"testing"
	"time"
)

// TestClockOfBusyHost: however long a process waits for a processor between two readings of clocks, no time is added that the host was not
// suspended. A deadline in the future would keep an address for too long.
func TestClockOfBusyHost(t *testing.T) {
	before := suspended()
	end := time.Now().Add(2 * time.Second)
	var wg sync.WaitGroup
	for range 32 {
		wg.Go(func() {
			var longest time.Duration
			for time.Now().Before(end) {
				longest = max(longest, suspended()-before)
			}
			if longest > 10*time.Millisecond {
				t.Errorf("the clock is %s ahead", longest)
			}
		})
	}
	wg.Wait()
}
