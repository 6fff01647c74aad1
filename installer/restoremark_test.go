package installer

import (
	"io"
	"strings"
	"testing"

	"airlift/fault"
	"airlift/installer/config"
	"airlift/installer/host"
)

// TestRemovedMark: somebody has removed the mark while a restore runs.
func TestRemovedMark(t *testing.T) {
	h, err := host.OpenDirectory(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	r := &Restore{Init: NewInit(&Plan{role: firstControlPlane, bundle: new(Bundle), config: &config.Config{}}, InitOptions{}, h, &Console{Out: io.Discard})}
	if m, err := r.ownMark(); m != nil || err == nil || fault.Hint(err) == "" || !strings.Contains(err.Error(), restoreMarkPath+" was removed") {
		t.Errorf("%v, %v", m, err)
	}
}
