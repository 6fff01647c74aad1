package upgrade

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"airlift/bundle"
	"airlift/installer/config"
	"airlift/installer/host"
	"airlift/installer/node"
	"airlift/installer/payload"
	"airlift/installer/phases"
)

// An upgrade leaves a containerd that existed before Airlift alone, in any place: its binaries are not
// compared, and neither the plan nor the run has its files.
func TestUpgradeKeepsExistingRuntime(t *testing.T) {
	for _, place := range []string{"/usr/local/bin/containerd", "/usr/bin/containerd"} {
		root := t.TempDir()
		for _, file := range []string{place, "/etc/containerd/config.toml"} {
			if err := os.MkdirAll(filepath.Dir(root+file), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(root+file, []byte("existing"), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		h, err := host.Open(root)
		if err != nil {
			t.Fatal(err)
		}
		var entries []bundle.Entry
		for _, name := range []string{"runc", "containerd", "containerd-shim-runc-v2", "ctr", "kubelet"} {
			entries = append(entries, bundle.Entry{Name: bundle.BinDir + name, SHA256: "00"})
		}
		p := &phases.Plan{Config: &config.Config{}, Role: phases.Worker, Bundle: &payload.Bundle{Manifest: &bundle.Manifest{Entries: entries}}}
		u := newUpgrade(p, Options{Node: true}, node.NewMachine(h, nil))
		u.Observed = node.Observe(u.Existing)

		pending, err := u.pending(all)
		if err != nil {
			t.Fatalf("containerd in %s: %v", place, err)
		}
		var paths []string
		for _, b := range pending {
			paths = append(paths, b.Path)
		}
		if want := []string{"/usr/local/bin/kubelet"}; !slices.Equal(paths, want) {
			t.Errorf("containerd in %s: an upgrade would install %q, want %q", place, paths, want)
		}
		if l, err := u.runtimeFiles(t.Context()); err != nil || len(l.Files)+len(l.Binaries) > 0 {
			t.Errorf("containerd in %s: an upgrade would write %v, %v", place, l, err)
		}
	}
}
