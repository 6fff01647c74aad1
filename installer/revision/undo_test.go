package revision

import (
	"encoding/base64"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"airlift/installer/cluster"
	"airlift/installer/cluster/inventory"
	"airlift/installer/host"
	"airlift/installer/node"
	"airlift/installer/render"
	"airlift/installer/workflow"
	"airlift/internal/fault"
	"airlift/scripts/fixtures/testhost"
)

// TestUndoOfEtcd refuses to go back to an older minor version of etcd.
func TestUndoOfEtcd(t *testing.T) {
	for _, c := range []struct {
		from, to string
		refused  bool
	}{
		{"3.5.16-0", "3.5.24-0", false},
		{"3.5.24-0", "3.6.5-0", true},
	} {
		root := t.TempDir()
		h, _, err := host.OpenLocked(root)
		if err != nil {
			t.Fatal(err)
		}
		pod := func(tag string) []byte {
			return []byte("spec: {containers: [{image: 'registry.k8s.io/etcd:" + tag + "'}]}\n")
		}
		if _, err := h.WriteFile(node.EtcdManifest, pod(c.from), 0o600); err != nil {
			t.Fatal(err)
		}
		s := &Record{Kind: Upgrade, From: "v1.33.1", To: "v1.34.1", Backup: "/the/backup.tar"}
		if err := s.Write(h); err != nil {
			t.Fatal(err)
		}
		if err := h.Upgrades().Kept(s.FormerName()).Keep(node.EtcdManifest); err != nil {
			t.Fatal(err)
		}
		if _, err := NewUndo(Upgrade, h, &workflow.Console{}); err != nil {
			t.Errorf("before etcd was replaced: %v", err)
		}
		if _, err := h.WriteFile(node.EtcdManifest, pod(c.to), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err = NewUndo(Upgrade, h, &workflow.Console{})
		switch {
		case !c.refused && err != nil:
			t.Error(err)
		case c.refused && (err == nil || fault.ExitCode(err) != fault.Preflight || !strings.Contains(fault.Hint(err), "/the/backup.tar")):
			t.Errorf("%v, hint %q", err, fault.Hint(err))
		}
		if read, err := Read(h, Upgrade); err != nil || read.From != s.From || read.Backup != s.Backup {
			t.Errorf("%+v, %v", read, err)
		}
		if err := os.WriteFile(filepath.Join(root, host.UpgradeDir, "state.json"), []byte("{"), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := NewUndo(Upgrade, h, &workflow.Console{}); err == nil {
			t.Error("a damaged state is accepted")
		}
	}
}

// TestUndoRemovesAUnitsFile: a file of the kubelet's unit that was missing before the upgrade is removed,
// also by a second run.
func TestUndoRemovesAUnitsFile(t *testing.T) {
	h, unlock, err := host.OpenLocked(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	const file = render.KubeletDropInPath
	testhost.NewUnits(h, time.Now()).Active = "inactive"
	former := h.Upgrades().Kept("former-v1.37.2")
	if err := former.Keep(file); err != nil {
		t.Fatal(err)
	}
	if _, err := h.WriteFile(file, []byte("[Service]\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		u := &Undo{Machine: node.NewMachine(h, &workflow.Console{Out: io.Discard}), record: &Record{Kind: Upgrade}, former: former}
		if u.paths, err = former.Paths(); err != nil || len(u.paths) != 1 {
			t.Fatal(u.paths, err)
		}
		if err := u.restoreNode(t.Context()); err != nil {
			t.Error(err)
		}
		if u.Exists(file) {
			t.Errorf("%s is left", file)
		}
	}
}

// TestUndoKeepsRotatedCAs: between an upgrade and its undo, the CAs were rotated. kubelet.conf gets its former
// server, and keeps the new CA.
func TestUndoKeepsRotatedCAs(t *testing.T) {
	h, unlock, err := host.OpenLocked(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	write := func(server, ca string) {
		data, err := cluster.WithServersOf([]byte(`{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c, user: u}}], clusters: [{name: c, cluster: {server: "`+server+`", certificate-authority-data: `+
			base64.StdEncoding.EncodeToString([]byte(ca))+`}}], users: [{name: u, user: {client-certificate: /var/lib/kubelet/pki/kubelet-client-current.pem}}]}`), []byte("{}"))
		if err == nil {
			_, err = h.WriteFile(node.KubeletConf, data, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	write("https://endpoint:6443", "former CA")
	former := h.Upgrades().Kept("former-v1.33.1")
	if err := former.Keep(node.KubeletConf); err != nil {
		t.Fatal(err)
	}
	write("https://192.0.2.1:6443", "new CA")
	u := &Undo{Machine: node.NewMachine(h, &workflow.Console{Out: io.Discard}), record: &Record{Kind: Upgrade}, former: former}
	for run := range 2 {
		changed, err := u.restore(t.Context(), node.KubeletConf)
		if err != nil || changed != (run == 0) {
			t.Errorf("run %d: %t, %v", run, changed, err)
		}
		got, err := os.ReadFile(h.Path(node.KubeletConf))
		if err != nil || !strings.Contains(string(got), "server: https://endpoint:6443\n") || !strings.Contains(string(got), base64.StdEncoding.EncodeToString([]byte("new CA"))) {
			t.Errorf("run %d: %s, %v", run, got, err)
		}
	}
}

// TestUndoKeepsAChangedKubelet: between an upgrade and its undo, the endpoint was changed. The former one may be gone.
func TestUndoKeepsAChangedKubelet(t *testing.T) {
	h, _ := testhost.ControlPlane(t, nil)
	write := func(server string) {
		data := "current-context: c\ncontexts: [{name: c, context: {cluster: c, user: u}}]\nclusters: [{name: c, cluster: {server: " + server + "}}]\nusers: [{name: u, user: {token: t}}]\n"
		if _, err := h.WriteFile(node.KubeletConf, []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("https://former.example:6443")
	former := h.Upgrades().Kept("former-v1.33.1")
	if err := former.Keep(node.KubeletConf); err != nil {
		t.Fatal(err)
	}
	u := &Undo{Machine: node.NewMachine(h, &workflow.Console{Out: io.Discard}), record: &Record{Kind: Upgrade}, former: former}
	for server, restores := range map[string]bool{"https://127.0.0.1:7443": false, node.OwnAPIServer(h): true} {
		write(server)
		if changed, err := u.restore(t.Context(), node.KubeletConf); err != nil || changed != restores {
			t.Errorf("%s: %t, %v", server, changed, err)
		}
	}
}

func TestNewerWorkers(t *testing.T) {
	nodes := []inventory.Node{
		{Name: "self", KubeletVersion: "v1.30.4", ControlPlane: true}, {Name: "other", KubeletVersion: "v1.30.4", ControlPlane: true},
		{Name: "old", KubeletVersion: "v1.29.1"}, {Name: "patch", KubeletVersion: "v1.29.99"}, {Name: "new", KubeletVersion: "v1.30.0"},
	}
	if got := newerWorkers(nodes, "v1.29.15"); len(got) != 1 || got[0] != "new" {
		t.Errorf("%q", got)
	}
}

// TestUndoAfterAReconfiguration: an upgrade can be undone unless a reconfiguration followed it. A record that cannot be read has a
// command that helps.
func TestUndoAfterAReconfiguration(t *testing.T) {
	for name, c := range map[string]struct {
		to, bundle string
		finished   bool // the upgrade
		refused    bool
	}{
		"it was changed after the upgrade":                         {"v1.37.2", "new", true, true},
		"it was changed with another file after the upgrade":       {"v1.37.2", "other", true, true},
		"the upgrade was repeated since":                           {"v1.37.2", "new", false, true},
		"the upgrade is not finished, and was to the same version": {"v1.37.2", "former", false, false},
		"the upgrade is not finished, and was to a newer version":  {"v1.37.1", "former", false, false},
	} {
		h, unlock, err := host.OpenLocked(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		defer unlock()
		for _, s := range []*Record{
			{Kind: Upgrade, From: "v1.37.1", To: "v1.37.2", Bundle: "new", Finished: c.finished},
			{Kind: Reconfigure, From: c.to, To: c.to, Bundle: c.bundle, Change: "0123456789abcdef", Finished: true},
		} {
			if err := s.Write(h); err != nil {
				t.Fatal(err)
			}
		}
		_, err = NewUndo(Upgrade, h, &workflow.Console{Out: io.Discard})
		if refused := err != nil && strings.Contains(fault.Hint(err), "./install reconfigure undo"); refused != c.refused || err != nil && !refused {
			t.Errorf("%s: %v, hint %q", name, err, fault.Hint(err))
		}
	}
}

// TestKubeconfigOfUndo: on a worker, undo reaches the cluster with the user's kubeconfig.
func TestKubeconfigOfUndo(t *testing.T) {
	h, unlock, err := host.OpenLocked(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	admin := filepath.Join(t.TempDir(), "admin.conf")
	for file, server := range map[string]string{h.Path(node.KubeletConf): "https://192.0.2.1:6443", admin: "https://192.0.2.2:6443"} {
		data := "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: c, user: u}}]\nclusters: [{name: c, cluster: {server: '" + server + "'}}]\nusers: [{name: u, user: {token: t}}]\n"
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(data), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	for kubeconfig, server := range map[string]string{"": "https://192.0.2.1:6443", admin: "https://192.0.2.2:6443"} {
		u := &Undo{Machine: node.NewMachine(h, &workflow.Console{Out: io.Discard}), Kubeconfig: kubeconfig}
		if client, err := u.client(); err != nil || client.Server != server {
			t.Errorf("%q: %v, %v", kubeconfig, client, err)
		}
	}
}
