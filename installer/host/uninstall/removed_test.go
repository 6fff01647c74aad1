package uninstall_test

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"airlift/installer/host"
	"airlift/installer/host/ledger"
	"airlift/installer/host/uninstall"
	"airlift/scripts/fixtures/rig"
	"airlift/scripts/fixtures/smallfs"
)

// TestRemovedByReset names the same places in each way that a user can.
func TestRemovedByReset(t *testing.T) {
	root := t.TempDir()
	h, err := host.OpenDirectory(root)
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Claim(ledger.Claim{Path: "/data/etcd", Contents: ledger.EtcdData}); err != nil {
		t.Fatal(err)
	}
	if _, err := h.WriteFile("/usr/local/bin/tool", nil, 0o755); err != nil {
		t.Fatal(err)
	}
	at := func(path string) string { return filepath.Join(root, path) }
	for _, dir := range []string{"/var/lib/airlift/sub", "/etc/kubernetes/pki", "/data/etcd/member", "/root/backups", "/srv/etcd"} {
		if err := os.MkdirAll(at(dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for link, target := range map[string]string{
		"/mnt-state": "/var/lib/airlift", "/root/backups/dangling.tar": "/data/etcd/new.tar", "/root/ok": "/root/backups",
	} {
		if err := os.Symlink(at(target), at(link)); err != nil {
			t.Fatal(err)
		}
	}
	for path, want := range map[string]string{
		"/var/lib/airlift/x.tar":                 ledger.StateDir,
		"/var/lib/airlift/sub/missing/x.tar":     ledger.StateDir,
		"/var/lib/airlift/../airlift/x.tar":      ledger.StateDir,
		"/mnt-state/x.tar":                       ledger.StateDir,
		"/mnt-state/sub/x.tar":                   ledger.StateDir,
		"/etc/kubernetes/x.tar":                  "/etc/kubernetes",
		"/etc/kubernetes/manifests/missing/x":    "/etc/kubernetes",
		"/var/lib/kubelet/x.tar":                 "/var/lib/kubelet",
		"/data/etcd/x.tar":                       "/data/etcd",
		"/data/etcd":                             "/data/etcd",
		"/root/backups/dangling.tar":             "/data/etcd",
		"/srv/etcd/x.tar":                        "/srv/etcd",
		"/usr/local/bin/tool":                    "/usr/local/bin/tool",
		"/usr/local/bin/tool.tar":                "",
		"/root/backups/x.tar":                    "",
		"/root/ok/x.tar":                         "",
		"/var/lib/airlift-backups/x.tar":         "",
		"/var/lib/airlift/../../lib/other/x.tar": "",
	} {
		if got, err := uninstall.RemovedByReset(h, at(path), "/srv/etcd"); err != nil || got != want {
			t.Errorf("%s: %q, %v; want %q", path, got, err, want)
		}
	}
}

// TestRemovedByResetThroughBindMounts: a bind mount is another name for the directory, and a drive is not.
func TestRemovedByResetThroughBindMounts(t *testing.T) {
	rig.Root(t)
	root, drive := t.TempDir(), smallfs.Small(t, 1<<20)
	h, err := host.OpenDirectory(root)
	if err != nil {
		t.Fatal(err)
	}
	at := func(path string) string { return filepath.Join(root, path) }
	for _, dir := range []string{at("/var/lib/airlift/sub"), at("/bound"), at("/deep/bound"), at("/drive"), at("/other"), filepath.Join(drive, "backups")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for to, from := range map[string]string{
		"/bound": at("/var/lib/airlift"), "/deep/bound": at("/var/lib/airlift/sub"), "/drive": filepath.Join(drive, "backups"), "/other": at("/var/lib"),
	} {
		if err := unix.Mount(from, at(to), "", unix.MS_BIND, ""); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := unix.Unmount(at(to), unix.MNT_DETACH); err != nil {
				t.Error(err)
			}
		})
	}
	for path, want := range map[string]string{
		"/bound/x.tar": ledger.StateDir, "/bound/sub/x.tar": ledger.StateDir, "/deep/bound/x.tar": ledger.StateDir,
		"/other/airlift/x.tar": ledger.StateDir, "/other/x.tar": "", "/drive/x.tar": "",
	} {
		if got, err := uninstall.RemovedByReset(h, at(path)); err != nil || got != want {
			t.Errorf("%s: %q, %v; want %q", path, got, err, want)
		}
	}
}
