package host_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"airlift/installer/host"
	"airlift/installer/host/filesystem"
	"airlift/installer/host/ledger"
	"airlift/installer/host/uninstall"
)

// TestNothingIsLeftOfACrashedWrite: a run that is killed while it writes a
// binary leaves a temporary file. The next run uses the same temporary file.
// Without another run, reset removes it.
func TestNothingIsLeftOfACrashedWrite(t *testing.T) {
	for _, again := range []bool{false, true} {
		root := t.TempDir()
		h, err := host.Open(root)
		if err != nil {
			t.Fatal(err)
		}
		const path = "/opt/cni/bin/bridge"
		b := host.Binary{Path: path, SHA256: filesystem.Digest([]byte("whole"))}
		// The same calls as in InstallBinary, up to the crash.
		if err := h.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := h.Records().Record(ledger.Entry{Kind: ledger.Binary, Name: path, SHA256: b.SHA256}); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filesystem.TempName(h.Path(path)), []byte("wh"), 0o600); err != nil {
			t.Fatal(err)
		}
		if h, err = host.Open(root); err != nil {
			t.Fatal(err)
		}
		if again {
			if _, err := h.InstallBinary(t.Context(), b, strings.NewReader("whole")); err != nil {
				t.Fatal(err)
			}
			if list, _ := os.ReadDir(h.Path(filepath.Dir(path))); len(list) != 1 {
				t.Errorf("next to the binary: %v", list)
			}
		}
		if _, err := uninstall.RemoveInstalled(t.Context(), h); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(h.Path("/opt")); !os.IsNotExist(err) {
			t.Errorf("again=%t: /opt is still there (%v)", again, err)
		}
	}
}
