package initcluster

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"airlift/installer/backup"
	"airlift/installer/config"
	"airlift/installer/host"
	"airlift/installer/node"
	"airlift/installer/payload"
	"airlift/installer/phases"
	"airlift/installer/pki"
	"airlift/installer/snapshot"
	"airlift/installer/workflow"
	"airlift/internal/fault"
	"airlift/scripts/fixtures/testhost"
)

// restoring returns a restore onto an empty host directory.
func restoring(t *testing.T) *Restore {
	t.Helper()
	h, err := host.OpenDirectory(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	p := &phases.Plan{Role: phases.FirstControlPlane, Bundle: new(payload.Bundle), Config: testhost.Config(nil)}
	f := &snapshot.File{Backup: &backup.Backup{Manifest: backup.Manifest{CACertHash: "sha256:ab", Entries: []backup.Entry{{Name: backup.SnapshotName, SHA256: "cd"}}}}}
	return NewRestore(p, phases.InitOptions{}, f, h, &workflow.Console{Out: new(bytes.Buffer)})
}

// TestRestoreNeedsAHostWithoutCluster: only an interrupted restore of the same backup continues.
func TestRestoreNeedsAHostWithoutCluster(t *testing.T) {
	if err := restoring(t).checkFresh(t.Context()); err != nil {
		t.Errorf("an empty host: %v", err)
	}
	for _, file := range []string{node.AdminConf, node.KubeletConf, node.EtcdManifest, "/var/lib/etcd/member/x"} {
		r := restoring(t)
		put(t, r, file, "x")
		if err := r.checkFresh(t.Context()); err == nil || fault.ExitCode(err) != fault.Preflight || !strings.Contains(fault.Hint(err), "reset") {
			t.Errorf("with %s: %v", file, err)
		}
	}
	r := restoring(t)
	put(t, r, "/etc/kubernetes/pki/ca.crt", "x")
	if err := r.checkFresh(t.Context()); err == nil || !strings.Contains(err.Error(), "another cluster") {
		t.Errorf("with another CA: %v", err)
	}

	r = restoring(t)
	if err := r.restoreCerts(t.Context()); err != nil {
		t.Fatal(err)
	}
	put(t, r, node.AdminConf, "x")
	if err := r.checkFresh(t.Context()); err != nil {
		t.Errorf("interrupted: %v", err)
	}
	r.backup.Manifest.Entries[0].SHA256 = "ef"
	if err := r.checkFresh(t.Context()); err == nil || !strings.Contains(err.Error(), "another restore") {
		t.Errorf("another backup after an interruption: %v", err)
	}
	if err := r.finish(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := r.checkFresh(t.Context()); err == nil {
		t.Error("a complete restore is run again")
	}
}

func put(t *testing.T, r *Restore, file, text string) {
	t.Helper()
	path := r.Host.Path(file)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o600)); err != nil {
		t.Fatal(err)
	}
}

// TestRestoreDuringARotation: of two certificates of a rotated CA, the one that signs is restored. A
// chain of other CAs stays.
func TestRestoreDuringARotation(t *testing.T) {
	var cas, others [2][]byte
	for i := range cas {
		made, err := pki.Ensure(testhost.Config(nil), fstest.MapFS{}, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range made.Files {
			switch f.Path {
			case "/etc/kubernetes/pki/ca.crt":
				cas[i] = f.Data
			case "/etc/kubernetes/pki/etcd/ca.crt":
				others[i] = f.Data
			}
		}
	}
	r := restoring(t)
	r.backup.Files = map[string][]byte{
		"pki/ca.crt":      slices.Concat(cas[0], cas[1]),
		"pki/ca.key":      []byte("key"),
		"pki/etcd/ca.crt": slices.Concat(others[0], cas[0]),
	}
	for name := range r.backup.Files {
		r.backup.Manifest.Entries = append(r.backup.Manifest.Entries, backup.Entry{Name: name})
	}
	if err := r.restoreCerts(t.Context()); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string][]byte{"ca.crt": cas[0], "ca.key": []byte("key"), "etcd/ca.crt": slices.Concat(others[0], cas[0])} {
		if got, err := os.ReadFile(r.Host.Path("/etc/kubernetes/pki/" + file)); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %v\n%s", file, err, got)
		}
	}
	if out := r.Console.Out.(*bytes.Buffer).String(); !strings.Contains(out, "during a rotation of the CAs") {
		t.Errorf("printed %q", out)
	}
}

// TestRestoreWasKilledAfterTheData: the next run removes the copy of the snapshot, which has all
// secrets of the cluster.
func TestRestoreWasKilledAfterTheData(t *testing.T) {
	r := restoring(t)
	r.node.Config.Etcd.Local.DataDir = "/var/lib/etcd"
	put(t, r, "/var/lib/etcd/member/snap/db", "x")
	put(t, r, "/var/lib/etcd/.airlift-restore/snapshot.db", "x")
	if err := r.restoreEtcd(t.Context()); err != nil {
		t.Fatal(err)
	}
	list, err := os.ReadDir(r.Host.Path("/var/lib/etcd"))
	if err != nil || len(list) != 1 || list[0].Name() != "member" {
		t.Errorf("left in etcd's data directory: %v, %v", list, err)
	}
}

// TestRestoreFilesOfComponents: a restore writes the files that the flags of the control plane name, where no file is.
func TestRestoreFilesOfComponents(t *testing.T) {
	const keys, policy, plugin = "/etc/site/keys.yaml", "/srv/audit.yaml", "/etc/kubernetes/pki/plugin.yaml"
	r := restoring(t)
	c := r.node.Config
	c.APIServer.ExtraVolumes = []config.HostPathMount{
		{Name: "site", HostPath: "/etc/site", MountPath: "/conf"},
		{Name: "audit", HostPath: policy, MountPath: "/audit/policy.yaml"},
		{Name: "log", HostPath: "/var/log/audit", MountPath: "/log"},
	}
	c.APIServer.ExtraArgs = []config.Arg{
		{Name: "encryption-provider-config", Value: "/conf/keys.yaml"},
		{Name: "audit-policy-file", Value: "/audit/policy.yaml"},
		{Name: "audit-log-path", Value: "/log/audit.log"},
		{Name: "admission-control-config-file", Value: plugin},
		{Name: "service-account-key-file", Value: "/etc/kubernetes/pki/sa.pub"},
		{Name: "tls-cert-file", Value: "/conf/../../etc/shadow"},
	}
	r.backup.Files = map[string][]byte{
		"files/etc/passwd": []byte("no flag names it"),
		"files" + keys:     []byte(keys),
		"files" + policy:   []byte(policy),
		"files" + plugin:   []byte(plugin),
	}
	put(t, r, policy, "the user's")
	if err := r.restoreFiles(t.Context()); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{keys: keys, plugin: plugin, policy: "the user's"} {
		info, err := os.Stat(r.Host.Path(file))
		if err != nil {
			t.Fatal(err)
		}
		if data, err := os.ReadFile(r.Host.Path(file)); err != nil || string(data) != want || file == keys && info.Mode() != 0o600 {
			t.Errorf("%s: %q, mode %v, %v", file, data, info.Mode(), err)
		}
	}
	if _, err := os.Stat(r.Host.Path("/etc/passwd")); err == nil {
		t.Error("a file was restored that no flag names")
	}
	if out := r.Console.Out.(*bytes.Buffer).String(); !strings.Contains(out, policy+" exists and differs") {
		t.Errorf("printed %q", out)
	}
}

// TestRestoreFromAPlaceThatResetRemoves: the hints of restore name reset.
func TestRestoreFromAPlaceThatResetRemoves(t *testing.T) {
	r := restoring(t)
	r.backup.Path = r.Host.Path("/etc/kubernetes/cluster.tar")
	put(t, r, "/etc/kubernetes/cluster.tar", "x")
	if err := r.checkFresh(t.Context()); err == nil || !strings.Contains(fault.Hint(err), "mv ") {
		t.Error(err)
	}
}
