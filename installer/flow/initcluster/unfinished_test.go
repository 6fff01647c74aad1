package initcluster

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.etcd.io/bbolt"

	"airlift/installer/backup"
	"airlift/installer/config"
	"airlift/installer/etcd"
	"airlift/installer/host"
	"airlift/installer/host/filesystem"
	"airlift/installer/node"
	"airlift/installer/phases"
	"airlift/installer/render"
	"airlift/installer/snapshot"
	"airlift/internal/fault"
	"airlift/scripts/fixtures/testhost"
)

// interrupted runs the first step of a restore. The backup has the CA that is in the host's directory.
func interrupted(t *testing.T) *Restore {
	t.Helper()
	r := restoring(t)
	r.node.Config.Etcd.Local.DataDir = config.EtcdDataDir
	r.backup.Path = "/mnt/usb/cluster.tar"
	if err := r.restoreCerts(t.Context()); err != nil {
		t.Fatal(err)
	}
	return r
}

// TestUnfinishedRestoreRefusesInit: it would create an empty etcd with the CA of the backup.
func TestUnfinishedRestoreRefusesInit(t *testing.T) {
	r := interrupted(t)
	refuses := map[string]func() error{
		"init": func() error {
			return New(r.node.Plan, phases.InitOptions{}, r.Host, r.Console).node.Inspect(t.Context())
		},
		"init phase": func() error {
			return New(r.node.Plan, phases.InitOptions{}, r.Host, r.Console).RunPhase(t.Context(), "etcd/local")
		},
	}
	for name, run := range refuses {
		err := run()
		if err == nil || fault.ExitCode(err) != fault.Preflight || !strings.Contains(err.Error(), "a restore on this host is not finished") ||
			!strings.Contains(fault.Hint(err), "./install etcd restore /mnt/usb/cluster.tar") || !strings.Contains(fault.Hint(err), "./install reset") {
			t.Errorf("%s: %v (hint %q)", name, err, fault.Hint(err))
		}
	}
	if err := r.checkFresh(t.Context()); err != nil {
		t.Errorf("the same restore: %v", err)
	}
	if err := r.finish(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := node.UnfinishedRestore(r.Host); err != nil {
		t.Errorf("after the end: %v", err)
	}
}

// otherData creates the data of a new, empty etcd cluster, as another command would.
func otherData(t *testing.T, r *Restore, token string) {
	t.Helper()
	dir := r.Host.Path(config.EtcdDataDir)
	if err := os.MkdirAll(filepath.Dir(etcd.DatabasePath(dir)), 0o700); err != nil {
		t.Fatal(err)
	}
	db, err := bbolt.Open(etcd.DatabasePath(dir), 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		for _, bucket := range []string{"key", "meta", "members", "members_removed"} {
			if _, err := tx.CreateBucket([]byte(bucket)); err != nil {
				return err
			}
		}
		return nil
	})
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	if err := etcd.Restore(dir, r.node.Config.NodeRegistration.Name, render.EtcdPeerURL(r.node.Config), token); err != nil {
		t.Fatal(err)
	}
}

// TestRestoreComparesEtcdsData: an earlier run of the same restore is not the only source of etcd's data.
func TestRestoreComparesEtcdsData(t *testing.T) {
	r := interrupted(t)
	otherData(t, r, "etcd-cluster")
	err := r.checkFresh(t.Context())
	if err == nil || fault.ExitCode(err) != fault.Preflight || !strings.Contains(err.Error(), "this restore did not write") || !strings.Contains(fault.Hint(err), "./install reset") {
		t.Errorf("data of another cluster: %v (hint %q)", err, fault.Hint(err))
	}

	r = interrupted(t)
	mark, err := node.ReadRestoreMark(r.Host)
	if err != nil {
		t.Fatal(err)
	}
	otherData(t, r, mark.Token)
	if err := r.checkFresh(t.Context()); err != nil {
		t.Errorf("data of the same restore: %v", err)
	}

	r = interrupted(t)
	put(t, r, config.EtcdDataDir+"/member/x", "x")
	if err := r.checkFresh(t.Context()); err == nil || !strings.Contains(fault.Hint(err), "./install reset") {
		t.Errorf("data that cannot be read: %v", err)
	}
}

// writeBackup writes a backup to a file.
func writeBackup(t *testing.T, file string, m backup.Manifest, data []byte) {
	t.Helper()
	saved := filepath.Join(t.TempDir(), "snapshot.db")
	if err := os.WriteFile(saved, data, 0o600); err != nil {
		t.Fatal(err)
	}
	var archive bytes.Buffer
	m.Snapshot.Size = int64(len(data))
	if err := backup.Write(&archive, m, saved, []backup.File{{Name: backup.ConfigName}, {Name: backup.PKIDir + "ca.crt"}}); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, archive.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestBackupIsReplacedAfterItsCheck: what was checked is what is restored, also from a drive that another
// person has prepared.
func TestBackupIsReplacedAfterItsCheck(t *testing.T) {
	file := filepath.Join(t.TempDir(), "cluster.tar")
	writeBackup(t, file, backup.Manifest{Node: "one"}, []byte("data"))
	f, err := snapshot.Open(t.Context(), file, nil)
	if err != nil {
		t.Fatal(err)
	}
	writeBackup(t, file, backup.Manifest{Node: "two"}, []byte("data"))
	r := restoring(t)
	r.backup = f
	if err := filesystem.OutputDir(r.Host.Path("/work"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := r.writeSnapshot(t.Context(), "/work"); err == nil || fault.ExitCode(err) != fault.Bundle || fault.Hint(err) == "" || !strings.Contains(err.Error(), "was changed") {
		t.Error(err)
	}
}

// TestRestoreNeedsSpaceForItsSnapshot: the preflight checks count the snapshot in the backup.
func TestRestoreNeedsSpaceForItsSnapshot(t *testing.T) {
	r := restoring(t)
	r.backup.Manifest.Snapshot.Size = 1 << 40
	r = NewRestore(r.node.Plan, phases.InitOptions{}, r.backup, r.Host, r.Console)
	if got := r.node.Restored; got == nil || got.Size != 1<<40 {
		t.Errorf("the checks count %+v", got)
	}
}

// TestCompareClusterWithAnotherEtcd: the running etcd is not the one that the restore has written.
func TestCompareClusterWithAnotherEtcd(t *testing.T) {
	root := t.TempDir()
	testhost.RunEtcd(t, root, "the value of a Secret")
	h, err := host.OpenDirectory(root)
	if err != nil {
		t.Fatal(err)
	}
	r := restoring(t)
	r.Host, r.Existing = h, h
	if err := r.ensureMark(); err != nil {
		t.Fatal(err)
	}
	err = r.compareCluster(t.Context())
	if err == nil || fault.ExitCode(err) != fault.Preflight || !strings.Contains(err.Error(), "this restore did not write") || !strings.Contains(fault.Hint(err), "./install etcd snapshot FILE") {
		t.Errorf("%v (hint %q)", err, fault.Hint(err))
	}
}
