package host_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"airlift/installer/host"
	"airlift/installer/host/filesystem"
	"airlift/installer/host/ledger"
	"airlift/installer/host/uninstall"
)

// TestUpgradeKeepsAndRestores replaces a binary, a file and a missing file, twice, and goes back.
func TestUpgradeKeepsAndRestores(t *testing.T) {
	ctx := context.Background()
	h, _, err := host.OpenLocked(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	const kubelet, conf, added = "/usr/local/bin/kubelet", "/etc/kubernetes/a.yaml", "/var/lib/kubelet/new.yaml"
	binary := func(content string) host.Binary {
		return host.Binary{Path: kubelet, SHA256: filesystem.Digest([]byte(content))}
	}
	if _, err := h.InstallBinary(ctx, binary("old"), strings.NewReader("old")); err != nil {
		t.Fatal(err)
	}
	if _, err := h.WriteFile(conf, []byte("old"), 0o640); err != nil {
		t.Fatal(err)
	}
	stage := func(content string) {
		t.Helper()
		if err := h.Upgrades().PrepareUpgrade(kubelet); err != nil {
			t.Fatal(err)
		}
		b := binary(content)
		b.Path = host.StagedPath(kubelet)
		if _, err := h.InstallBinary(ctx, b, strings.NewReader(content)); err != nil {
			t.Fatal(err)
		}
	}
	stage("new")
	former := h.Upgrades().Kept("former-v1.37.2")
	for range 2 { // an interrupted run is repeated
		if _, err := h.Upgrades().InstallStaged(ctx, binary("new"), former); err != nil {
			t.Fatal(err)
		}
		for _, f := range []string{conf, added} {
			if err := former.Keep(f); err != nil {
				t.Fatal(err)
			}
			if _, err := h.WriteFile(f, []byte("new"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	if data, _ := os.ReadFile(h.Path(kubelet)); string(data) != "new" {
		t.Errorf("the kubelet is %q", data)
	}
	if data, err := former.Read(conf); err != nil || string(data) != "old" {
		t.Errorf("%q, %v", data, err)
	}
	if err := h.Upgrades().RemoveStaged(); err != nil {
		t.Fatal(err)
	}
	if filesystem.Exists(h.Path(host.StagedPath(kubelet))) || h.Records().Wrote(host.StagedPath(kubelet)) {
		t.Error("the staged binary is still there")
	}
	paths, err := former.Paths()
	slices.Sort(paths)
	if want := []string{conf, kubelet, added}; err != nil || !slices.Equal(paths, want) {
		t.Errorf("former %q, want %q: %v", paths, want, err)
	}
	for i := range 2 {
		for _, f := range paths {
			if changed, err := former.Restore(ctx, f); err != nil || changed != (i == 0) {
				t.Errorf("%s, time %d: %v, %v", f, i, changed, err)
			}
		}
	}
	for f, want := range map[string]string{kubelet: "old", conf: "old", added: ""} {
		if data, _ := os.ReadFile(h.Path(f)); string(data) != want {
			t.Errorf("%s is %q, want %q", f, data, want)
		}
	}
	if info, err := os.Stat(h.Path(conf)); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("%v, %v", info, err)
	}
	if err := h.Upgrades().RemoveUpgrade(); err != nil {
		t.Fatal(err)
	}
	if names, _ := os.ReadDir(h.Path(host.UpgradeDir)); len(names) != 0 {
		t.Errorf("left: %v", names)
	}
	// Reset removes what the upgrade made.
	if _, err := uninstall.RemoveInstalled(ctx, h); err != nil {
		t.Fatal(err)
	}
	if names, err := filepath.Glob(h.Path("/*/*/*")); err != nil || len(names) != 0 {
		t.Errorf("after reset: %q, %v", names, err)
	}
}

// TestResetEndsAnUpgrade: an entry of a skipped phase stays in the ledger, and with it the state directory. The
// next node on this host must not be "undone" to the files of this one.
func TestResetEndsAnUpgrade(t *testing.T) {
	h, unlock, err := host.OpenLocked(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	const conf = "/etc/kubernetes/a.yaml"
	if _, err := h.WriteFile(conf, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	former := h.Upgrades().Kept("former-v1.37.2")
	if err := former.Keep(conf); err != nil {
		t.Fatal(err)
	}
	staged := host.Binary{Path: host.StagedPath("/usr/local/bin/kubelet"), SHA256: filesystem.Digest([]byte("new"))}
	if err := h.Upgrades().PrepareUpgrade("/usr/local/bin/kubelet"); err != nil {
		t.Fatal(err)
	}
	if _, err := h.InstallBinary(t.Context(), staged, strings.NewReader("new")); err != nil {
		t.Fatal(err)
	}
	if err := h.Upgrades().WriteState([]byte("{}")); err != nil {
		t.Fatal(err)
	}
	if err := h.Records().RecordImageNames(ledger.ImageName{Socket: "/run/c.sock", Name: "a"}); err != nil {
		t.Fatal(err)
	}
	if kept, err := uninstall.RemoveInstalled(t.Context(), h); err != nil || len(kept) != 0 {
		t.Fatal(kept, err)
	}
	if filesystem.Exists(h.Path(host.UpgradeDir)) || filesystem.Exists(h.Path(conf)) {
		t.Error("files of the upgrade are left")
	}
	if !filesystem.Exists(h.Path(ledger.Path)) || len(h.Records().Entries(ledger.Image)) != 1 || len(h.Records().Entries(ledger.Binary)) != 0 {
		t.Errorf("the ledger has %+v", h.Records())
	}
}
