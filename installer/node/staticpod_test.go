package node

import (
	"os"
	"path/filepath"
	"testing"

	"airlift/installer/config"
	"airlift/installer/host"
)

// TestHealthURL: join asks a component for its health where its static pod listens, also
// after the user's arguments or patches moved it.
func TestHealthURL(t *testing.T) {
	root := t.TempDir()
	h, err := host.OpenDirectory(root)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(root, config.ManifestsDir)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for command, want := range map[string]string{
		"[kube-scheduler, --bind-address=127.0.0.1]":              "https://127.0.0.1:10259/healthz",
		"[kube-scheduler]":                                        "https://127.0.0.1:10259/healthz",
		"[kube-scheduler, --bind-address=::1, --secure-port=999]": "https://[::1]:999/healthz",
	} {
		pod := "apiVersion: v1\nkind: Pod\nspec:\n  containers:\n  - name: kube-scheduler\n    command: " + command + "\n"
		if err := os.WriteFile(filepath.Join(dir, "kube-scheduler.yaml"), []byte(pod), 0o600); err != nil {
			t.Fatal(err)
		}
		if url, err := HealthURL(h, "kube-scheduler", config.SchedulerPort); err != nil || url != want {
			t.Errorf("%s: %q, %v, want %q", command, url, err, want)
		}
	}
	if url, err := HealthURL(h, "kube-controller-manager", config.ControllerManagerPort); err == nil {
		t.Errorf("without a static pod: %q", url)
	}
}
