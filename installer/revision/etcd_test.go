package revision

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"airlift/bundle"
	"airlift/images/store"
	"airlift/installer/backup"
	"airlift/installer/config"
	"airlift/installer/etcd"
	"airlift/installer/host"
	"airlift/installer/host/filesystem"
	"airlift/installer/host/ledger"
	"airlift/installer/host/uninstall"
	"airlift/installer/node"
	"airlift/installer/payload"
	"airlift/installer/phases"
	"airlift/installer/pods"
	"airlift/installer/workflow"
	"airlift/internal/fault"
)

// etcdManifestOf returns a manifest of etcd with a tag.
func etcdManifestOf(tag string) []byte {
	return []byte("spec: {containers: [{image: 'registry.k8s.io/etcd:" + tag + "'}]}\n")
}

// newVersion is a Change to another version, of nothing else.
type newVersion struct{ Change }

func (newVersion) ReadersOf(string) []string                     { return nil }
func (newVersion) KubeletInstance(_, own []byte) ([]byte, error) { return own, nil }
func (newVersion) KubeletFlags([]byte) ([]byte, error)           { return nil, nil }

// etcdUpgrade returns an upgrade of a host whose etcd never becomes healthy: its runtime has no
// containers.
func etcdUpgrade(t *testing.T, h *host.Host, to string) *Revision {
	t.Helper()
	b := &payload.Bundle{File: new(bundle.File), Manifest: &bundle.Manifest{KubernetesVersion: "v1.34.1"}}
	u := New(&phases.Plan{Config: &config.Config{}, Bundle: b, OnePhase: true}, Options{Kind: Upgrade}, node.NewMachine(h, &workflow.Console{Out: io.Discard}))
	u.Change, u.Goal.From, u.Config, u.Watch.Containerd = newVersion{}, "v1.33.1", &config.Config{}, &store.Store{}
	u.Plans = map[string][]byte{node.EtcdPod: etcdManifestOf(to)}
	u.Pods = pods.WithWatch(u.Watch, u.Config.Timeouts)
	u.Pods.Timeout, u.Pods.Starts, u.Pods.IgnoresEtcd = time.Millisecond, u.recordEtcd, true
	var err error
	if u.Record, err = Read(h, Upgrade); err != nil {
		t.Fatal(err)
	}
	return u
}

// TestLateEtcd: an etcd of a new minor version that is not healthy in time keeps its manifest, because
// it may have changed its data. The next run continues with it, and undo is refused, with a way back.
func TestLateEtcd(t *testing.T) {
	for _, c := range []struct {
		from, to string
		stays    bool
	}{
		{"3.5.16-0", "3.5.24-0", false},
		{"3.5.24-0", "3.6.5-0", true},
		{"3.6.5-0", "site", true},
		{"3.6.5-0@sha256:" + strings.Repeat("a", 64), "3.6.8-0", false},
	} {
		h, unlock, err := host.OpenLocked(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		defer unlock()
		if _, err := h.WriteFile(node.EtcdManifest, etcdManifestOf(c.from), 0o600); err != nil {
			t.Fatal(err)
		}
		for run := range 2 {
			u := etcdUpgrade(t, h, c.to)
			_, err := u.replace(t.Context(), node.EtcdPod)
			err = u.Explain(err)
			is, _ := os.ReadFile(h.Path(node.EtcdManifest))
			if want := c.from; err == nil || !c.stays && !bytes.Equal(is, etcdManifestOf(want)) || c.stays && !bytes.Equal(is, etcdManifestOf(c.to)) {
				t.Errorf("%s to %s, run %d: %s\n%v", c.from, c.to, run, is, err)
			}
			if stays := strings.Contains(err.Error(), "is not restored: the new etcd may have changed"); stays != c.stays {
				t.Errorf("%s to %s, run %d: %v", c.from, c.to, run, err)
			}
			if !strings.Contains(fault.Hint(err), "run the same command again") || strings.Contains(fault.Hint(err), "upgrade undo") == c.stays || strings.Contains(fault.Hint(err), "./FILE etcd restore") != c.stays {
				t.Errorf("%s to %s, run %d: hint %q", c.from, c.to, run, fault.Hint(err))
			}
		}
		if _, err := NewUndo(Upgrade, h, &workflow.Console{Out: io.Discard}); (err != nil) != c.stays {
			t.Errorf("undo of %s to %s: %v", c.from, c.to, err)
		}
	}
}

// TestEtcdIsRecordedFirst: without the record on the disk, the new etcd does not start.
func TestEtcdIsRecordedFirst(t *testing.T) {
	h, unlock, err := host.OpenLocked(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	if _, err := h.WriteFile(node.EtcdManifest, etcdManifestOf("3.5.24-0"), 0o600); err != nil {
		t.Fatal(err)
	}
	u := etcdUpgrade(t, h, "3.6.5-0")
	if err := u.Begin(); err != nil {
		t.Fatal(err)
	}
	state := h.Path(host.RevisionState)
	for _, err := range []error{os.Remove(state), os.MkdirAll(filepath.Join(state, "no file"), 0o755)} { // as on a full disk
		if err != nil {
			t.Fatal(err)
		}
	}
	_, err = u.replace(t.Context(), node.EtcdPod)
	if err = u.Explain(err); err == nil || !strings.Contains(err.Error(), host.RevisionState) || strings.Contains(err.Error(), "is not restored") || !strings.Contains(fault.Hint(err), "upgrade undo") {
		t.Errorf("%v, hint %q", err, fault.Hint(err))
	}
	if is, _ := os.ReadFile(h.Path(node.EtcdManifest)); !bytes.Equal(is, etcdManifestOf("3.5.24-0")) {
		t.Errorf("etcd's manifest: %s", is)
	}
}

// TestUndoAfterAPowerFailure: the manifest of the new etcd was lost, and the new etcd has run.
func TestUndoAfterAPowerFailure(t *testing.T) {
	h, unlock, err := host.OpenLocked(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	if _, err := h.WriteFile(node.EtcdManifest, etcdManifestOf("3.5.24-0"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := &Record{Kind: Upgrade, From: "v1.33.1", To: "v1.34.1", EtcdStarted: "registry.k8s.io/etcd:3.6.5-0"}
	if err := h.Upgrades().Kept(s.FormerName()).Keep(node.EtcdManifest); err != nil {
		t.Fatal(err)
	}
	if err := s.Write(h); err != nil {
		t.Fatal(err)
	}
	if _, err := NewUndo(Upgrade, h, &workflow.Console{Out: io.Discard}); fault.ExitCode(err) != fault.Preflight || !strings.Contains(err.Error(), "registry.k8s.io/etcd:3.6.5-0") {
		t.Errorf("%v", err)
	}
}

// TestWayBack: the hint names only a backup that exists and has the version from before the upgrade.
func TestWayBack(t *testing.T) {
	h, unlock, err := host.OpenLocked(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	file := BackupPath(h, "v1.34.1", time.Date(2026, 11, 26, 10, 0, 0, 0, time.UTC))
	if file != "/var/lib/airlift-backups/before-v1.34.1-20261126T100000Z.tar" {
		t.Error(file)
	}
	save := func(version string) {
		t.Helper()
		snapshot := filepath.Join(t.TempDir(), "snapshot.db")
		if err := os.WriteFile(snapshot, []byte("data"), 0o600); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		if err := backup.Write(&out, backup.Manifest{KubernetesVersion: version, Snapshot: etcd.Snapshot{Size: 4}}, snapshot, []backup.File{{Name: backup.ConfigName}, {Name: backup.PKIDir + "ca.crt"}}); err != nil {
			t.Fatal(err)
		}
		if err := h.Upgrades().PrepareBackups(); err != nil {
			t.Fatal(err)
		}
		if err := filesystem.WriteOutput(h.Path(file), out.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s := &Record{Kind: Upgrade, From: "v1.33.1", To: "v1.34.1"}
	for _, c := range []struct {
		name   string
		before func()
		want   string
	}{
		{"no backup", func() {}, "./FILE etcd restore BACKUP, with a backup from before the upgrade; then"},
		{"a missing file", func() { s.Backup = file }, "cannot be used: open"},
		{"the version before", func() { save("v1.33.1") }, "on each control plane: ./FILE reset --force; then here: ./FILE etcd restore " + file + "; then"},
		{"of the second control plane", func() { save("v1.34.1") }, "of the control plane where 'upgrade apply' ran"},
		{"two runs", func() {
			save("v1.33.1")
			file = host.UpgradeBackups + "/before-v1.34.1-20261125T100000Z.tar"
			save("v1.33.1")
			file = s.Backup
		}, "then here: ./FILE etcd restore " + file + " (earlier backups are in the same directory); then"},
		{"only the earlier run's is usable", func() {
			if err := os.WriteFile(h.Path(file), make([]byte, 5000), 0o600); err != nil {
				t.Fatal(err)
			}
		}, "then here: ./FILE etcd restore " + host.UpgradeBackups + "/before-v1.34.1-20261125T100000Z.tar (" + file + " cannot be used: it is not an Airlift backup"},
		{"a later run, after the cluster had the new version", func() {
			s.To = "v1.33.2"
			file = host.UpgradeBackups + "/before-v1.33.2-20261125T100000Z.tar"
			save("v1.33.1")
			s.Backup = host.UpgradeBackups + "/before-v1.33.2-20261126T100000Z.tar"
			file = s.Backup
			save("v1.33.2")
		}, "then here: ./FILE etcd restore " + host.UpgradeBackups + "/before-v1.33.2-20261125T100000Z.tar; then"},
		{"damaged", func() {
			s.To, s.Backup = "v1.34.1", host.UpgradeBackups+"/before-v1.34.1-20261126T100000Z.tar"
			file = s.Backup
			if err := os.Remove(h.Path(host.UpgradeBackups + "/before-v1.34.1-20261125T100000Z.tar")); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(h.Path(file), make([]byte, 5000), 0o600); err != nil {
				t.Fatal(err)
			}
		}, "cannot be used: it is not an Airlift backup"},
	} {
		c.before()
		if got := wayBack(h, s); !strings.Contains(got, c.want) || !strings.Contains(got, "with the file of v1.33.1") {
			t.Errorf("%s: %s", c.name, got)
		}
	}
	if next := BackupPath(h, "v1.34.1", time.Date(2026, 11, 26, 10, 0, 0, 0, time.UTC)); next == file {
		t.Errorf("%s would be replaced", file)
	}
	// Reset keeps it, and names it. It removes what an interrupted run has left.
	unfinished := host.UpgradeBackups + "/.airlift-before-v1.34.1.tar"
	if err := os.WriteFile(h.Path(unfinished), []byte("keys"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := h.WriteFile("/etc/kubernetes/made", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	plan, err := uninstall.PlanFor(h)
	if err != nil || !slices.ContainsFunc(plan.Of(uninstall.Leave), func(i uninstall.Item) bool { return i.Path == host.UpgradeBackups }) {
		t.Errorf("%v, %v", plan, err)
	}
	if _, err := uninstall.RemoveInstalled(t.Context(), h); err != nil || !node.FileExists(h, file) || node.FileExists(h, unfinished) || node.FileExists(h, ledger.StateDir) {
		t.Errorf("after reset: %v", err)
	}
}
