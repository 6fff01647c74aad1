package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

type trace struct {
	TraceEvents []struct {
		Name, Ph string
	}
	OtherData map[string]string
}

func readTrace(t *testing.T, data []byte) trace {
	t.Helper()
	var tr trace
	if err := json.Unmarshal(data, &tr); err != nil {
		t.Fatalf("%s\n%s", err, data)
	}
	return tr
}

// TestTimelineFile: this program has no payload, so every run fails after the
// timeline has started.
func TestTimelineFile(t *testing.T) {
	secret := "abcdef.0123456789abcdef"
	dir := t.TempDir()
	file := filepath.Join(dir, "init.json")
	for _, command := range [][]string{
		{"init"}, {"join", "192.0.2.1:6443", "--discovery-token-unsafe-skip-ca-verification"},
		{"init", "phase", "bootstrap-token"}, {"join", "phase", "kubelet-start"}, {"init", "--dry-run"},
	} {
		args := append(command, "--token", secret, "--timeline", file)
		stdout, stderr, code := install(t, args...)
		if code != 4 || !strings.Contains(stdout, file) {
			t.Fatalf("%q: exit code %d\n%s%s", args, code, stdout, stderr)
		}
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		tr := readTrace(t, data)
		if tr.OtherData["outcome"] != "failed" || !strings.HasPrefix(tr.OtherData["command"], "install "+command[0]+" ") ||
			!strings.Contains(tr.OtherData["command"], "--token=…") {
			t.Errorf("about: %q", tr.OtherData)
		}
		if strings.Contains(string(data), secret) || strings.Contains(string(data), "abcdef") {
			t.Errorf("the token is in the file:\n%s", data)
		}
		if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o644 {
			t.Errorf("mode %v (%v)", info.Mode(), err)
		}
		if files, _ := os.ReadDir(dir); len(files) != 1 {
			t.Errorf("left behind: %v", files)
		}
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
	}
	stdout, stderr, code := install(t, "init", "--timeline", "-")
	if code != 4 {
		t.Fatalf("exit code %d\n%s", code, stderr)
	}
	if tr := readTrace(t, []byte(stdout)); tr.OtherData["outcome"] != "failed" {
		t.Errorf("about: %q", tr.OtherData)
	}
	// A usage error writes no timeline.
	if _, _, code := install(t, "init", "--config", "/nonexistent.yaml", "--token", secret, "--timeline", file); code != 2 {
		t.Errorf("exit code %d", code)
	}
	if _, err := os.Stat(file); err == nil {
		t.Error("a file was written")
	}
}
