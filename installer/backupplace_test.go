package installer

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"airlift/fault"
	"airlift/installer/config"
	"airlift/installer/host"
)

// TestPlaceOfBackup: reset and the components on this host remove what is in their directories.
func TestPlaceOfBackup(t *testing.T) {
	n := hostWith(t, func(c *config.Config) { c.Etcd.Local.DataDir, c.CertificatesDir = "/data/etcd", "/data/pki" })
	b := NewBackup(n.host, &Console{Out: new(bytes.Buffer)})
	for path, lost := range map[string]bool{
		"/var/lib/airlift/cluster.tar": true, "/var/lib/airlift/backups": true, "/data/etcd/cluster.tar": true, "/data/etcd": true, "/data/pki/cluster.tar": true,
		"/etc/kubernetes/cluster.tar": true, "/etc/kubernetes/manifests/cluster.tar": true, "/var/lib/kubelet/cluster.tar": true,
		"/root/cluster.tar": false, "/mnt/usb/cluster.tar": false, "/data/cluster.tar": false,
	} {
		err := b.checkPlace(n.host.Path(path))
		if lost != (err != nil) || err != nil && (fault.ExitCode(err) != fault.Usage || fault.Hint(err) == "" || !strings.Contains(err.Error(), "would be lost")) {
			t.Errorf("%s: %v", path, err)
		}
		if lost {
			if err := b.Save(t.Context(), n.host.Path(path), false); err == nil || !strings.Contains(err.Error(), "would be lost") {
				t.Errorf("Save to %s: %v", path, err)
			}
		}
	}
}

// TestBackupToADirectory: --force cannot help there.
func TestBackupToADirectory(t *testing.T) {
	n := hostWith(t, func(*config.Config) {})
	dir := t.TempDir()
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{dir, link} {
		for _, force := range []bool{false, true} {
			err := NewBackup(n.host, &Console{Out: new(bytes.Buffer)}).Save(t.Context(), path, force)
			if err == nil || fault.ExitCode(err) != fault.Usage || !strings.Contains(err.Error(), "is a directory") || !strings.Contains(fault.Hint(err), path+"/cluster.tar; or") {
				t.Errorf("%s, %t: %v (hint %q)", path, force, err, fault.Hint(err))
			}
		}
	}
}

// TestResetKeepsTheLastBackup: an older installer has written it below a directory that reset removes.
func TestResetKeepsTheLastBackup(t *testing.T) {
	root := t.TempDir()
	h, err := host.OpenDirectory(root)
	if err != nil {
		t.Fatal(err)
	}
	for path, lost := range map[string]bool{host.StateDir + "/cluster.tar": true, host.StateDir + "/my backup.tar": true, "/root/cluster.tar": false, host.StateDir + "/missing.tar": false} {
		if !strings.HasSuffix(path, "missing.tar") {
			if err := os.MkdirAll(h.Path(filepath.Dir(path)), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(h.Path(path), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := writeRecord(h, backupRecordPath, BackupRecord{Path: path}); err != nil {
			t.Fatal(err)
		}
		_, err := PlanReset(config.Reset{Force: true}, "", h, &Console{Out: new(bytes.Buffer)})
		if lost != (err != nil) || err != nil && (fault.ExitCode(err) != fault.Preflight || !strings.Contains(fault.Hint(err), "mv "+fault.Word(path)+" /root/")) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// TestResetAfterARefusedBackup: what a failed backup names is not a backup.
func TestResetAfterARefusedBackup(t *testing.T) {
	h, err := host.OpenDirectory(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := writeRecord(h, backupRecordPath, BackupRecord{Path: host.StateDir, Error: "it would be lost"}); err != nil {
		t.Fatal(err)
	}
	if err := keepBackup(h); err != nil {
		t.Error(err)
	}
}

// TestRestoreFromAPlaceThatResetRemoves: the hints of restore name reset.
func TestRestoreFromAPlaceThatResetRemoves(t *testing.T) {
	r := restoring(t)
	r.backup.Path = r.host.Path("/etc/kubernetes/cluster.tar")
	put(t, r, "/etc/kubernetes/cluster.tar", "x")
	if err := r.checkFresh(t.Context()); err == nil || !strings.Contains(fault.Hint(err), "mv ") {
		t.Error(err)
	}
}
