package host

import (
	"os"
	"path/filepath"
	"testing"

	"airlift/internal/fault"
)

// TestCheckTimeZone: systemd would ignore the times of a timer with a zone that the host does not have.
func TestCheckTimeZone(t *testing.T) {
	h, err := Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"Europe/Berlin", "Etc/GMT+3", "two words", "../outside"} {
		at := h.Path(filepath.Join(zoneDir, file))
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for zone, ok := range map[string]bool{
		"": true, "UTC": true, "Europe/Berlin": true, "Etc/GMT+3": true, "Europe": false, "Europe/Nowhere": false, "two words": false, "../outside": false,
		"Europe/../Europe/Berlin": false, "/Europe/Berlin": false, "Europe/Berlin\nOnBootSec=1": false,
	} {
		if err := CheckTimeZone(h, zone); (err == nil) != ok || err != nil && fault.ExitCode(err) != fault.Usage {
			t.Errorf("%q: %v", zone, err)
		}
	}
}
