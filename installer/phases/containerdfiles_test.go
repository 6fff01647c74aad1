package phases

import (
	"bytes"
	"os"
	"strings"
	"testing"
	"time"

	"airlift/bundle"
	"airlift/installer/host/filesystem"
	"airlift/installer/node"
	"airlift/installer/payload"
	"airlift/installer/render"
	"airlift/installer/workflow"
	"airlift/internal/fault"
	"airlift/scripts/fixtures/rig"
	"airlift/scripts/fixtures/testhost"
)

// A file of other software with which containerd would not serve the node is refused before containerd is started or restarted, and
// before its own files change.
func TestContainerdIsNotRestartedWithABadFile(t *testing.T) {
	h := testhost.Open(t, t.TempDir())
	units := testhost.NewUnits(h, time.Now())
	binary := rig.Component(t, "v1.29.15", "containerd")
	for _, dir := range []string{"/usr/local/bin", "/etc/containerd/conf.d"} {
		if err := os.MkdirAll(h.Path(dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(binary, h.Path(node.ContainerdPath)); err != nil {
		t.Fatal(err)
	}
	const added = "/etc/containerd/conf.d/99-nvidia.toml"
	if err := os.WriteFile(h.Path(added), []byte("version = 2\n[plugins.'io.containerd.grpc.v1.cri'.cni]\nbin_dir = '/usr/lib/cni'\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	cfg := testhost.Config(nil)
	cfg.Images["pause"] = "registry.k8s.io/pause:3.10.1"
	entries := []bundle.Entry{{Name: bundle.BinDir + "containerd", SHA256: sumOf(t, binary)}}
	n := NewNode(&Plan{Role: FirstControlPlane, Config: cfg, Bundle: &payload.Bundle{Manifest: &bundle.Manifest{Entries: entries}}}, node.NewMachine(h, &workflow.Console{Out: new(bytes.Buffer)}))
	files, err := ContainerdFiles(cfg)
	if err != nil {
		t.Fatal(err)
	}
	list, err := n.firstContainerdProblems(t.Context())
	if err != nil || len(list) != 1 || list[0].File != added {
		t.Errorf("preflight: %+v, %v", list, err)
	}
	err = NewRuntimeStep(NewContent(n)).startContainerd(t.Context(), files)
	if fault.ExitCode(err) != fault.Preflight || !strings.Contains(err.Error(), added) || !strings.Contains(err.Error(), "ContainerdFiles") {
		t.Errorf("%v", err)
	}
	if len(units.Done) > 0 || node.FileExists(h, render.ContainerdConfigPath) || n.Changes > 0 {
		t.Errorf("%q, %d changes", units.Done, n.Changes)
	}
	if err := n.CheckContainerd(t.Context(), []string{"containerdfiles"}, files...); err != nil {
		t.Errorf("ignored: %v", err)
	}
	// A gate that cannot see does not open. Before that, the user sees why.
	if err := os.Remove(h.Path(node.ContainerdPath)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(h.Path(node.ContainerdPath), []byte("#!/bin/sh\necho nonsense\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	entries[0].SHA256 = sumOf(t, h.Path(node.ContainerdPath))
	if list, err := n.firstContainerdProblems(t.Context()); err != nil || len(list) != 1 || !list[0].Warning {
		t.Errorf("preflight with a binary that prints nonsense: %+v, %v", list, err)
	}
	if err := n.CheckContainerd(t.Context(), nil, files...); fault.ExitCode(err) != fault.Preflight || !strings.Contains(err.Error(), "cannot be checked") {
		t.Errorf("%v", err)
	}
	if err := n.CheckContainerd(t.Context(), []string{"containerdfiles"}, files...); err != nil {
		t.Errorf("ignored: %v", err)
	}
}

func sumOf(t *testing.T, file string) string {
	t.Helper()
	sum, err := filesystem.DigestFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return sum
}
