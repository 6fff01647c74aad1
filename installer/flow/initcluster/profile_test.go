package initcluster

import (
	"bytes"
	"io/fs"
	"os"
	"path"
	"slices"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"airlift/installer/config"
	"airlift/installer/desired"
	"airlift/installer/host"
	"airlift/installer/host/ledger"
	"airlift/installer/node"
	"airlift/installer/payload"
	"airlift/installer/phases"
	"airlift/installer/pki"
	"airlift/installer/profile"
	"airlift/installer/reconfiguration"
	"airlift/installer/serving"
	"airlift/installer/workflow"
	"airlift/scripts/fixtures/rig"
	"airlift/scripts/fixtures/testhost"
)

// hardenedInit returns an Init with the profile, on an empty host with certificates.
func hardenedInit(t *testing.T) *Init {
	t.Helper()
	h, unlock, err := host.OpenLocked(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(unlock)
	cfg := testhost.Config(func(c *config.Config) {
		c.Images = map[string]string{"pause": "pause:3.9", "etcd": "etcd:3.5.16-0", "kube-apiserver": "a:1", "kube-controller-manager": "c:1", "kube-scheduler": "s:1"}
	})
	if _, err := profile.Apply(profile.Hardened, cfg); err != nil {
		t.Fatal(err)
	}
	i := New(&phases.Plan{Role: phases.FirstControlPlane, Bundle: new(payload.Bundle), Config: cfg}, phases.InitOptions{}, h, &workflow.Console{Out: new(bytes.Buffer)})
	if err := workflow.RunPhase(t.Context(), i.Console, i.Steps(), "certs"); err != nil {
		t.Fatal(err)
	}
	return i
}

// TestProfileFiles: the files are there before the API server that reads them, only root reads them and the audit log, and other
// control planes get what is on this one.
func TestProfileFiles(t *testing.T) {
	i := hardenedInit(t)
	files := profile.Files(&i.node.Config.Cluster)
	i.controlPlane.Hold = func(f pki.File) bool {
		for _, own := range files {
			if data, err := os.ReadFile(i.Host.Path(own.Path)); err != nil || !bytes.Equal(data, own.Data) {
				t.Errorf("before %s: %s: %v", f.Path, own.Path, err)
			}
		}
		return false
	}
	phase := func() {
		t.Helper()
		if err := workflow.RunPhase(t.Context(), i.Console, i.Steps(), "control-plane/apiserver"); err != nil {
			t.Fatal(err)
		}
	}
	phase()
	for file, mode := range map[string]fs.FileMode{files[0].Path: 0o600, files[1].Path: 0o600, profile.AuditDir: 0o700} {
		if info, err := os.Stat(i.Host.Path(file)); err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: %v, %v, want %v", file, info, err, mode)
		}
		if file != profile.AuditDir && !i.Host.Records().Wrote(file) {
			t.Errorf("%s is not in the ledger", file)
		}
	}
	if _, ok := i.Host.Records().Find(ledger.Dir, profile.AuditDir); !ok {
		t.Errorf("%s is not in the ledger", profile.AuditDir)
	}
	edited := []byte("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]\n")
	if _, err := i.Host.WriteFile(files[1].Path, edited, 0o600); err != nil { // by a reconfiguration
		t.Fatal(err)
	}
	i.controlPlane.Hold = func(pki.File) bool { return false }
	phase()
	if data, err := os.ReadFile(i.Host.Path(files[1].Path)); err != nil || !bytes.Equal(data, edited) {
		t.Errorf("a second run wrote %s, %v", data, err)
	}

	l, err := i.profileObjects(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	secret, ok := l.Objects[len(l.Objects)-1].(*corev1.Secret)
	if !ok || len(l.Objects) != 5+len(serving.Objects()) {
		t.Fatalf("%d objects", len(l.Objects))
	}
	key, err := os.ReadFile(i.Host.Path(path.Join(i.node.Config.CertificatesDir, "sa.key")))
	if err != nil {
		t.Fatal(err)
	}
	opened, err := reconfiguration.Open(key, secret.Data[config.FilesKey])
	if err != nil {
		t.Fatal(err)
	}
	files[1].Data = edited
	if !reconfiguration.EqualFiles(opened, files) {
		t.Errorf("the Secret has other files: %v", opened)
	}
}

// TestEtcdUser: what etcd's user needs is there before the kubelet sees the manifest, and a second run changes nothing.
func TestEtcdUser(t *testing.T) {
	rig.Root(t)
	rig.Tool(t, "systemd-sysusers")
	i := hardenedInit(t)
	seen := false
	i.Host.GuardChanges(func(file string, do func() error) error {
		if file == node.EtcdManifest {
			seen = true
			for _, needed := range []string{"/etc/kubernetes/etcd/server.key", "/etc/kubernetes/etcd/peer.key", "/etc/kubernetes/etcd/ca.crt", i.node.Config.Etcd.Local.DataDir} {
				info, err := os.Stat(i.Host.Path(needed))
				if err != nil {
					t.Fatal(err)
				}
				if info.Sys().(*syscall.Stat_t).Uid == 0 {
					t.Errorf("before the manifest, %s belongs to root", needed)
				}
			}
		}
		return do()
	})
	apply := func() {
		t.Helper()
		l, err := i.controlPlane.Etcd()
		if err == nil {
			err = i.controlPlane.ApplyEtcd(t.Context(), l, true)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	apply()
	if !seen {
		t.Error("the manifest was not written")
	}
	i.Host.GuardChanges(func(file string, do func() error) error {
		if file != i.node.Config.Etcd.Local.DataDir && file != ledger.Path { // its owner is only compared
			t.Errorf("a second run changes %s", file)
		}
		return do()
	})
	apply()
}

// TestServing: with the profile, this control plane approves the kubelets' serving certificates; without its part of the
// configuration, it does not.
func TestServing(t *testing.T) {
	i := hardenedInit(t)
	l, err := i.profileObjects(t.Context())
	if err != nil || len(l.Files) != 2 || l.Files[0].Path != serving.SettingsPath || l.Files[1].Path != serving.UnitPath {
		t.Errorf("%v, %v", l.Files, err)
	}
	args := &i.node.Config.APIServer.ExtraArgs
	*args = slices.DeleteFunc(*args, func(a config.Arg) bool { return a.Name == "kubelet-certificate-authority" })
	if l, err := i.profileObjects(t.Context()); err != nil || len(l.Files) > 0 || len(l.Objects) != 5 {
		t.Errorf("without the flag: %d files, %d objects, %v", len(l.Files), len(l.Objects), err)
	}
}

// TestNoProfile: other clusters get no files and no objects of the profile.
func TestNoProfile(t *testing.T) {
	i := initOn(t, nil)
	if l, err := i.profileObjects(t.Context()); err != nil || len(l.Objects)+len(l.Files) > 0 {
		t.Errorf("%d objects, %v", len(l.Objects), err)
	}
	if err := i.applyProfile(t.Context(), desired.List{}); err != nil { // without a connection
		t.Error(err)
	}
	s, ok := workflow.Find(i.Steps(), "control-plane/apiserver")
	if l, err := s.Desired(t.Context()); !ok || err != nil || len(l.Files) != 1 {
		t.Errorf("%d files, %v", len(l.Files), err)
	}
}

// TestKubeletFilesAreForRoot: the benchmark allows no other mode.
func TestKubeletFilesAreForRoot(t *testing.T) {
	i := hardenedInit(t)
	l, err := i.kubeletFiles(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, f := range l.Files {
		switch f.Path {
		case "/var/lib/kubelet/config.yaml", "/etc/systemd/system/kubelet.service", "/etc/systemd/system/kubelet.service.d/10-kubeadm.conf":
			if found++; f.Mode != 0o600 {
				t.Errorf("%s: %v", f.Path, f.Mode)
			}
		}
	}
	if found != 3 {
		t.Errorf("%d files", found)
	}
}
