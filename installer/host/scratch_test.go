package host_test

import (
	"os"
	"testing"

	"airlift/installer/host"
	"airlift/installer/host/ledger"
)

// TestScratchLeavesNothing: the file has no name, and can be opened again.
func TestScratchLeavesNothing(t *testing.T) {
	h, err := host.OpenDirectory(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	s, err := h.CreateScratch()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.WriteString("secret"); err != nil {
		t.Fatal(err)
	}
	if data, err := os.ReadFile(s.Name()); err != nil || string(data) != "secret" {
		t.Errorf("%q, %v", data, err)
	}
	if list, err := os.ReadDir(h.Path(ledger.StateDir)); err != nil || len(list) != 0 {
		t.Errorf("%v, %v", list, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(h.Path(ledger.StateDir)); err == nil {
		t.Error("the directory is left on a host that Airlift did not install")
	}
}
