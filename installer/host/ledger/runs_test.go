package ledger_test

import (
	"os"
	"testing"
	"time"

	"airlift/installer/host"
	"airlift/installer/host/ledger"
	"airlift/installer/host/uninstall"
)

// TestRuns: a run is recorded with the ledger, also if it is killed, and a run that installs
// nothing leaves nothing.
func TestRuns(t *testing.T) {
	root := t.TempDir()
	h, unlock, err := host.OpenLocked(root)
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	const most = 20 // runs that are kept
	began := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	begin := func(name string) {
		began = began.Add(time.Hour)
		h.Records().BeginRun(ledger.Run{Command: name, Began: began})
	}
	runs := func() []ledger.Run {
		t.Helper()
		list, err := h.Records().Runs()
		if err != nil {
			t.Fatal(err)
		}
		return list
	}
	begin("init")
	h.Records().EndRun(began.Add(time.Second), 3, "refused")
	if _, err := os.Stat(h.Path(ledger.StateDir)); err == nil || len(runs()) != 0 {
		t.Errorf("a refused run left %v", runs())
	}

	begin("init")
	if _, err := h.WriteFile("/etc/kubernetes/x", []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if list := runs(); len(list) != 1 || list[0].Ended() || list[0].Command != "init" {
		t.Errorf("while it runs, or after it was killed: %+v", list)
	}
	h.Records().EndRun(began.Add(90*time.Second), 0, "")
	if list := runs(); len(list) != 1 || !list[0].Ended() || *list[0].ExitCode != 0 || list[0].Seconds != 90 {
		t.Errorf("after its end: %+v", list)
	}
	for range most + 3 {
		begin("import")
		h.Records().EndRun(began.Add(time.Second), 1, "no space")
	}
	if list := runs(); len(list) != most || list[0].Command != "init" || list[1].Command != "import" || list[most-1].Error != "no space" {
		t.Errorf("%d runs: %+v", len(list), list)
	}

	begin("reset")
	if _, err := uninstall.RemoveInstalled(t.Context(), h); err != nil {
		t.Fatal(err)
	}
	h.Records().EndRun(began.Add(time.Second), 0, "")
	if _, err := os.Stat(h.Path(ledger.StateDir)); err == nil {
		t.Errorf("after reset: %s exists", ledger.StateDir)
	}
}
