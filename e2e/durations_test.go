//go:build e2e

package e2e

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// durations are the times from the start of each test's hosts to their removal.
var durations = struct {
	sync.Mutex
	byTest map[string]time.Duration
}{byTest: map[string]time.Duration{}}

// measure records the duration of a test from now on.
func measure(t *testing.T) {
	started := time.Now()
	t.Cleanup(func() {
		durations.Lock()
		defer durations.Unlock()
		durations.byTest[t.Name()] += time.Since(started)
	})
}

// writeDurations writes a line for each test, the longest first. "go test" prints nothing of a
// package that passes.
func writeDurations(path string) error {
	names := slices.SortedFunc(maps.Keys(durations.byTest), func(a, b string) int {
		return cmp.Compare(durations.byTest[b], durations.byTest[a])
	})
	var lines strings.Builder
	for _, name := range names {
		fmt.Fprintf(&lines, "%6.0f s  %s\n", durations.byTest[name].Seconds(), name)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(lines.String()), 0o644)
}
