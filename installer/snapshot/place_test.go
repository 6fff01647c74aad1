package snapshot

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"airlift/installer/config"
	"airlift/installer/workflow"
	"airlift/internal/fault"
	"airlift/scripts/fixtures/testhost"
)

// TestPlaceOfBackup: reset and the components on this host remove what is in their directories.
func TestPlaceOfBackup(t *testing.T) {
	h, _ := testhost.ControlPlane(t, func(c *config.Config) { c.Etcd.Local.DataDir, c.CertificatesDir = "/data/etcd", "/data/pki" })
	b := New(h, &workflow.Console{Out: new(bytes.Buffer)})
	for path, lost := range map[string]bool{
		"/var/lib/airlift/cluster.tar": true, "/var/lib/airlift/backups": true, "/data/etcd/cluster.tar": true, "/data/etcd": true, "/data/pki/cluster.tar": true,
		"/etc/kubernetes/cluster.tar": true, "/etc/kubernetes/manifests/cluster.tar": true, "/var/lib/kubelet/cluster.tar": true,
		"/root/cluster.tar": false, "/mnt/usb/cluster.tar": false, "/data/cluster.tar": false,
	} {
		err := b.checkPlace(h.Path(path))
		if lost != (err != nil) || err != nil && (fault.ExitCode(err) != fault.Usage || fault.Hint(err) == "" || !strings.Contains(err.Error(), "would be lost")) {
			t.Errorf("%s: %v", path, err)
		}
		if lost {
			if err := b.Save(t.Context(), h.Path(path), false); err == nil || !strings.Contains(err.Error(), "would be lost") {
				t.Errorf("Save to %s: %v", path, err)
			}
		}
	}
}

// TestBackupToADirectory: --force cannot help there.
func TestBackupToADirectory(t *testing.T) {
	h, _ := testhost.ControlPlane(t, nil)
	dir := t.TempDir()
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{dir, link} {
		for _, force := range []bool{false, true} {
			err := New(h, &workflow.Console{Out: new(bytes.Buffer)}).Save(t.Context(), path, force)
			if err == nil || fault.ExitCode(err) != fault.Usage || !strings.Contains(err.Error(), "is a directory") || !strings.Contains(fault.Hint(err), path+"/cluster.tar; or") {
				t.Errorf("%s, %t: %v (hint %q)", path, force, err, fault.Hint(err))
			}
		}
	}
}
