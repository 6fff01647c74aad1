package installer

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.etcd.io/bbolt"

	"airlift/bundle"
	"airlift/fault"
	"airlift/installer/backup"
	"airlift/installer/config"
	"airlift/installer/etcd"
	"airlift/installer/host"
	"airlift/installer/render"
)

// interrupted runs the first step of a restore. The backup has the CA that is in the host's directory.
func interrupted(t *testing.T) *Restore {
	t.Helper()
	r := restoring(t)
	r.config.Etcd.Local.DataDir = config.EtcdDataDir
	r.backup.Path = "/mnt/usb/cluster.tar"
	if err := r.restoreCerts(t.Context()); err != nil {
		t.Fatal(err)
	}
	return r
}

// TestUnfinishedRestoreRefusesOtherCommands: init would create an empty etcd with the CA of the backup.
func TestUnfinishedRestoreRefusesOtherCommands(t *testing.T) {
	r := interrupted(t)
	join := *r.config
	refuses := map[string]func() error{
		"init": func() error {
			return NewInit(r.plan, InitOptions{}, r.host, r.console).inspect(t.Context())
		},
		"init phase": func() error {
			return NewInit(r.plan, InitOptions{}, r.host, r.console).RunPhase(t.Context(), "etcd/local")
		},
		"join phase": func() error {
			return NewJoin(&Plan{role: joiningRole(&join), bundle: new(Bundle), config: &join}, r.host, r.console).RunPhase(t.Context(), "kubelet-start")
		},
		"join": func() error {
			return NewJoin(&Plan{role: joiningRole(&join), bundle: new(Bundle), config: &join}, r.host, r.console).inspect(t.Context())
		},
		"backups at intervals": func() error {
			return NewBackup(r.host, r.console).SaveInDirectory(t.Context(), t.TempDir(), "", 1)
		},
		"certs rotate-ca": func() error {
			return (&CARotation{machine: r.machine}).checkNode()
		},
		"upgrade": func() error { return unfinishedWork(r.host, r.config) },
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
	if err := UnfinishedRestore(r.host); err != nil {
		t.Errorf("after the end: %v", err)
	}
}

// otherData creates the data of a new, empty etcd cluster, as another command would.
func otherData(t *testing.T, r *Restore, token string) {
	t.Helper()
	dir := r.host.Path(config.EtcdDataDir)
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
	if err := etcd.Restore(dir, r.config.NodeRegistration.Name, render.EtcdPeerURL(r.config), token); err != nil {
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
	mark, err := readRestoreMark(r.host)
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

// TestBackupIsReplacedAfterItsCheck: what was checked is what is restored, also from a drive that another
// person has prepared.
func TestBackupIsReplacedAfterItsCheck(t *testing.T) {
	d := newBackupDir(t)
	file := filepath.Join(d.dir, "cluster.tar")
	d.put("cluster.tar", d.archive(backup.Manifest{Node: "one"}))
	f, err := OpenBackup(t.Context(), file, nil)
	if err != nil {
		t.Fatal(err)
	}
	d.put("cluster.tar", d.archive(backup.Manifest{Node: "two"}))
	r := restoring(t)
	r.backup = f
	if err := host.OutputDir(r.host.Path("/work"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := r.writeSnapshot(t.Context(), "/work"); err == nil || fault.ExitCode(err) != fault.Bundle || fault.Hint(err) == "" || !strings.Contains(err.Error(), "was changed") {
		t.Error(err)
	}
}

// TestSpaceForRestore: a snapshot that does not fit is refused before anything is written.
func TestSpaceForRestore(t *testing.T) {
	r := restoring(t)
	r.plan.bundle.manifest = &bundle.Manifest{}
	r.config.Facts.DefaultRoute = true
	bytesFor := func(size int64) uint64 {
		r.restored.Size = size
		list, err := r.diskSpace(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range list {
			if s.Path == r.config.Etcd.Local.DataDir {
				return s.Bytes
			}
		}
		t.Fatalf("etcd is not in %+v", list)
		return 0
	}
	if more := bytesFor(1<<40) - bytesFor(0); more != 2<<40 {
		t.Errorf("a snapshot of 1 TiB needs %d bytes more", more)
	}
}

// TestCompareClusterWithAnotherEtcd: the running etcd is not the one that the restore has written.
func TestCompareClusterWithAnotherEtcd(t *testing.T) {
	root := t.TempDir()
	controlPlaneEtcd(t, root)
	h, err := host.OpenDirectory(root)
	if err != nil {
		t.Fatal(err)
	}
	r := restoring(t)
	r.host, r.existing = h, h
	if err := r.ensureMark(); err != nil {
		t.Fatal(err)
	}
	err = r.compareCluster(t.Context())
	if err == nil || fault.ExitCode(err) != fault.Preflight || !strings.Contains(err.Error(), "this restore did not write") || !strings.Contains(fault.Hint(err), "./install etcd snapshot FILE") {
		t.Errorf("%v (hint %q)", err, fault.Hint(err))
	}
}
