package revision

import (
	"bytes"
	"os"
	"path"
	"strings"
	"testing"

	"airlift/installer/node"
	"airlift/installer/render"
	"airlift/installer/workflow"
	"airlift/internal/fault"
	"airlift/scripts/fixtures/rig"
	"airlift/scripts/fixtures/testhost"
)

// Undo is refused if containerd would restart with a file of other software with which it would not serve the node.
func TestUndoChecksContainerd(t *testing.T) {
	h := testhost.Open(t, t.TempDir())
	if err := h.Records().SetOwnsRuntime(); err != nil {
		t.Fatal(err)
	}
	record := &Record{Kind: Upgrade, From: "v1.37.1", To: "v1.37.2"}
	u := &Undo{Machine: node.NewMachine(h, &workflow.Console{Out: new(bytes.Buffer)}), record: record, former: record.Kept(h)}
	cfg := testhost.Config(nil)
	cfg.Images["pause"] = "registry.k8s.io/pause:3.10"
	former, err := render.ContainerdConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	write := func(file, text string) {
		t.Helper()
		if err := os.MkdirAll(path.Dir(h.Path(file)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(h.Path(file), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	binary := rig.Component(t, "v1.29.15", "containerd")
	write("/usr/local/bin/kubelet", "")
	if err := os.Symlink(binary, h.Path(node.ContainerdPath)); err != nil {
		t.Fatal(err)
	}
	write(u.former.Place(render.ContainerdConfigPath), string(former))
	write(render.ContainerdConfigPath, strings.ReplaceAll(string(former), "3.10", "3.10.1"))
	if err := u.checkContainerd(t.Context()); err != nil {
		t.Errorf("no other file: %v", err)
	}
	const added = "/etc/containerd/conf.d/a.toml"
	write(added, "version = 9\n")
	if err := u.preflight(t.Context()); fault.ExitCode(err) != fault.Preflight || !strings.Contains(err.Error(), added) {
		t.Errorf("%v", err)
	}
	if u.IgnorePreflightErrors = []string{"ContainerdFiles"}; u.checkContainerd(t.Context()) != nil {
		t.Error("the ignored check is not ignored")
	}
	// A gate that cannot see does not open: the containerd of before the upgrade cannot evaluate the files.
	write(u.former.Place(node.ContainerdPath), "#!/bin/sh\necho nonsense\n")
	if err := u.checkContainerd(t.Context()); err != nil {
		t.Errorf("ignored: %v", err)
	}
	u.IgnorePreflightErrors = nil
	err = u.preflight(t.Context())
	if fault.ExitCode(err) != fault.Preflight || !strings.Contains(err.Error(), "cannot be checked") || !strings.Contains(err.Error(), "--ignore-preflight-errors=ContainerdFiles") {
		t.Errorf("%v", err)
	}
	if err := os.Remove(h.Path(u.former.Place(node.ContainerdPath))); err != nil {
		t.Fatal(err)
	}
	write(render.ContainerdConfigPath, string(former)) // containerd is not restarted
	if err := u.checkContainerd(t.Context()); err != nil {
		t.Errorf("nothing to restore: %v", err)
	}
}
