package reset

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"airlift/installer/config"
	"airlift/installer/endpoint"
	"airlift/installer/flow/certs"
	"airlift/installer/host"
	"airlift/installer/host/filesystem"
	"airlift/installer/host/ledger"
	"airlift/installer/host/uninstall"
	"airlift/installer/node"
	"airlift/installer/render"
	"airlift/installer/revision"
	"airlift/installer/workflow"
	"airlift/internal/fault"
	"airlift/scripts/fixtures/testhost"
)

const (
	formerConf  = "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: c, user: u}}]\nclusters: [{name: c, cluster: {server: 'https://10.1.2.100:6443'}}]\nusers: [{name: u, user: {token: former}}]\n"
	changedConf = "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: c, user: u}}]\nclusters: [{name: c, cluster: {server: 'https://10.1.2.3:6443'}}]\nusers: [{name: u, user: {token: renewed}}]\n"
)

func put(t *testing.T, root, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(filepath.Join(root, path)), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, path), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// adoptedPlane returns the directory of an adopted control plane of kubeadm's.
func adoptedPlane(t *testing.T) (root string) {
	t.Helper()
	root = t.TempDir()
	sums := map[string]string{}
	for path, text := range map[string]string{
		node.APIServerManifest:                     "spec: {containers: [{command: [kube-apiserver, --client-ca-file=/etc/kubernetes/pki/ca.crt, --advertise-address=10.1.2.3]}]}\n",
		"/etc/kubernetes/pki/ca.crt":               "the CA",
		"/etc/kubernetes/pki/apiserver.crt":        "a certificate",
		node.KubeletConf:                           formerConf,
		config.KubeletConfigFile:                   "kind: KubeletConfiguration\nhealthzPort: 0\n",
		config.KubeletFlagsFile:                    "KUBELET_KUBEADM_ARGS=\"--v=2\"\n",
		"/usr/bin/kubelet":                         "adopted kubelet",
		"/usr/local/bin/crictl":                    "adopted crictl",
		"/usr/lib/systemd/system/kubelet.service":  "[Service]\nExecStart=/usr/bin/kubelet\n",
		"/etc/unrelated":                           "stays",
		"/var/lib/etcd/member/wal/0.wal":           "data",
		"/etc/kubernetes/manifests/kube-proxy.txt": "",
	} {
		put(t, root, path, text)
		sums[path] = filesystem.Digest([]byte(text))
	}
	h, unlock, err := host.OpenLocked(root)
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	if err := h.Records().Adopt(ledger.Adoption{Maker: "kubeadm", Kubernetes: "v1.29.15", Files: sums, Kubelet: ledger.AdoptedKubelet{Binary: "/usr/bin/kubelet", Config: config.KubeletConfigFile}}); err != nil {
		t.Fatal(err)
	}
	return root
}

// open opens a host as each run of reset does.
func open(t *testing.T, root string) (*host.Host, *testhost.Units, func()) {
	t.Helper()
	h, unlock, err := host.OpenLocked(root)
	if err != nil {
		t.Fatal(err)
	}
	return h, testhost.NewUnits(h, time.Now().Add(-time.Hour)), unlock
}

// contents are the files and directories of a host with what is in them.
func contents(t *testing.T, root string) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		name := strings.TrimPrefix(path, root)
		if err != nil || strings.HasPrefix(name, "/run") {
			return err
		}
		found[name] = "directory"
		if !d.IsDir() {
			data, err := os.ReadFile(path)
			found[name] = string(data)
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func sameContents(t *testing.T, want, got map[string]string) {
	t.Helper()
	for name, text := range want {
		if got[name] != text {
			t.Errorf("%s is %q, and was %q", name, got[name], text)
		}
	}
	for name := range got {
		if _, was := want[name]; !was {
			t.Errorf("%s is left: %q", name, got[name])
		}
	}
}

// changes are what commands do on an adopted node, and that reset takes back.
func changes(t *testing.T, h *host.Host) {
	t.Helper()
	if _, err := h.EnsureTimer(t.Context(), certs.Timer); err != nil {
		t.Fatal(err)
	}
	fileChanges(t, h)
	if err := h.Records().RecordImageNames(ledger.ImageName{Socket: "/run/c.sock", Name: "pause:1", Set: []string{"ours"}}); err != nil {
		t.Fatal(err)
	}
}

// fileChanges are the changes without a timer, which would have a copy of the test binary, and without images.
func fileChanges(t *testing.T, h *host.Host) {
	t.Helper()
	write := func(path, text string) {
		t.Helper()
		if _, err := h.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := h.InstallBinary(t.Context(), host.Binary{Path: "/usr/local/bin/crictl", SHA256: filesystem.Digest([]byte("new"))}, strings.NewReader("new")); err != nil {
		t.Fatal(err)
	}
	write(node.BackupRecordPath, "{}")
	write("/etc/airlift-backup-recipients", "age1")
	write(config.KubeletFlagsFile, "KUBELET_KUBEADM_ARGS=\"--v=4\"\n")
	write(node.KubeletConf, changedConf)
	if err := h.Claim(ledger.Claim{Path: "/var/lib/airlift/bundles", Contents: "the kept bundles"}); err != nil {
		t.Fatal(err)
	}
	put(t, h.Path("/"), "/var/lib/airlift/bundles/x/install", "a bundle")
}

// TestResetOfAnAdoptedNode: the node is as it was adopted. Its certificates, pods and data stay, and the kubelet restarts once.
func TestResetOfAnAdoptedNode(t *testing.T) {
	root := adoptedPlane(t)
	before := contents(t, root)
	h, _, unlock := open(t, root)
	changes(t, h)
	put(t, root, "/etc/kubernetes/pki/apiserver.crt", "renewed")
	before["/etc/kubernetes/pki/apiserver.crt"] = "renewed"
	unlock()

	h, units, unlock := open(t, root)
	defer unlock()
	var printed strings.Builder
	r, err := New(config.Reset{}, "", h, &workflow.Console{Out: &printed})
	if err != nil || r.Empty() || !strings.Contains(r.Question(), "The node and its pods stay") {
		t.Fatalf("%v, %s", err, r.Question())
	}
	if text := r.Describe(); !strings.Contains(text, "/etc/kubernetes/kubelet.conf: it stays renewed; only the API server in it is restored") || strings.Contains(text, "pki") {
		t.Errorf("the plan:\n%s", text)
	}
	if err := r.DryRun(t.Context()); err != nil || strings.Contains(printed.String(), "would fail") || !strings.Contains(printed.String(), "restart the kubelet, if its files changed") {
		t.Errorf("dry run: %v\n%s", err, printed.String())
	}
	if err := r.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	after := contents(t, root)
	if conf := after[node.KubeletConf]; !strings.Contains(conf, "https://10.1.2.100:6443") || !strings.Contains(conf, "token: renewed") {
		t.Errorf("kubelet.conf: %s", conf)
	}
	after[node.KubeletConf] = before[node.KubeletConf]
	sameContents(t, before, after)
	if got := slices.DeleteFunc(slices.Clone(units.Done), func(d string) bool { return !strings.HasSuffix(d, "kubelet.service") }); !slices.Equal(got, []string{"restart kubelet.service"}) {
		t.Errorf("systemd: %q", units.Done)
	}
	if !strings.Contains(printed.String(), "This node is as it was adopted") {
		t.Errorf("printed:\n%s", printed.String())
	}

	units.Done = nil
	if r, err = New(config.Reset{}, "", h, &workflow.Console{Out: io.Discard}); err == nil {
		err = r.Run(t.Context())
	}
	if err != nil || len(units.Done) > 0 {
		t.Errorf("a second time: %v, %q", err, units.Done)
	}
}

// TestInterruptedResetOfAnAdoptedNode: the kubelet restarts also if a reset was interrupted between its files and the restart.
func TestInterruptedResetOfAnAdoptedNode(t *testing.T) {
	root := adoptedPlane(t)
	h, units, unlock := open(t, root)
	defer unlock()
	changes(t, h)
	r, err := New(config.Reset{}, "", h, &workflow.Console{Out: io.Discard})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range r.steps() {
		if s.Name != "kubelet" {
			if err := s.Run(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	units.Done = nil
	if r, err = New(config.Reset{}, "", h, &workflow.Console{Out: io.Discard}); err == nil {
		err = r.Run(t.Context())
	}
	if err != nil || !slices.Equal(units.Done, []string{"restart kubelet.service"}) || h.Records().HasEntries() {
		t.Errorf("%v, %q", err, units.Done)
	}
}

// TestRefusedResetOfAnAdoptedNode: what cannot be taken back is refused, with all that the user may do instead.
func TestRefusedResetOfAnAdoptedNode(t *testing.T) {
	write := func(t *testing.T, h *host.Host, path, text string) {
		t.Helper()
		if _, err := h.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		change     func(t *testing.T, h *host.Host)
		want, hint string
	}{
		"an upgrade": {func(t *testing.T, h *host.Host) {
			if err := (&revision.Record{Kind: revision.Upgrade, From: "v1.29.15", To: "v1.30.4", Finished: true}).Write(h); err != nil {
				t.Fatal(err)
			}
		}, "was upgraded from v1.29.15 to v1.30.4", "./install upgrade undo"},
		"a reconfiguration": {func(t *testing.T, h *host.Host) {
			if err := (&revision.Record{Kind: revision.Reconfigure, From: "v1.29.15", To: "v1.29.15", Change: "ab", Finished: true}).Write(h); err != nil {
				t.Fatal(err)
			}
		}, "was reconfigured after it was adopted", "./install reconfigure undo"},
		"an upgrade and a reconfiguration": {func(t *testing.T, h *host.Host) {
			upgrade := (&revision.Record{Kind: revision.Upgrade, From: "v1.29.15", To: "v1.30.4", Finished: true}).Write(h)
			if err := errors.Join(upgrade, (&revision.Record{Kind: revision.Reconfigure, From: "v1.30.4", To: "v1.30.4", Change: "ab"}).Write(h)); err != nil {
				t.Fatal(err)
			}
		}, "was reconfigured after it was adopted", "./install reconfigure undo"},
		"an upgrade without a state": {func(t *testing.T, h *host.Host) {
			write(t, h, node.APIServerManifest, "spec: {containers: [{command: [kube-apiserver, --client-ca-file=/etc/kubernetes/pki/ca.crt, --new]}]}\n")
		}, "v1.29.15: these files differ: /etc/kubernetes/manifests/kube-apiserver.yaml", "./install disown"},
		"another kubelet": {func(t *testing.T, h *host.Host) {
			if _, err := h.InstallBinary(t.Context(), host.Binary{Path: kubeletBinary, SHA256: filesystem.Digest([]byte("new"))}, strings.NewReader("new")); err != nil {
				t.Fatal(err)
			}
		}, "these files differ: /usr/local/bin/kubelet", "./install disown"},
		"the endpoint": {func(t *testing.T, h *host.Host) { write(t, h, endpoint.SettingsPath, "x") }, "Airlift's endpoint serves this node", "./install endpoint undo"},
		"new CAs":      {func(t *testing.T, h *host.Host) { put(t, h.Path("/"), "/etc/kubernetes/pki/ca.crt", "another CA") }, "the CAs were rotated", "./install disown"},
		"a rotation":   {func(t *testing.T, h *host.Host) { put(t, h.Path("/"), "/etc/kubernetes/pki/rotation/x", "") }, "are being rotated", "rotate-ca"},
	} {
		t.Run(name, func(t *testing.T) {
			root := adoptedPlane(t)
			h, units, unlock := open(t, root)
			defer unlock()
			changes(t, h)
			c.change(t, h)
			units.Done = nil
			before := contents(t, root)
			r, err := New(config.Reset{Force: true}, "", h, &workflow.Console{Out: io.Discard})
			if err != nil {
				t.Fatal(err)
			}
			err = r.Run(t.Context())
			if fault.ExitCode(err) != fault.Preflight || !strings.Contains(err.Error(), c.want) || !strings.Contains(fault.Hint(err), c.hint) {
				t.Errorf("%v, hint %q", err, fault.Hint(err))
			}
			sameContents(t, before, contents(t, root))
			if len(units.Done) > 0 {
				t.Errorf("systemd: %q", units.Done)
			}
			for _, err := range []error{r.RunPhase(t.Context(), "stop-kubelet"), r.DryRunPhase("stop-kubelet")} {
				if fault.ExitCode(err) != fault.Preflight || !strings.Contains(fault.Hint(err), "--remove-node") {
					t.Errorf("a phase: %v", err)
				}
			}
		})
	}
}

// TestRemovalOfAnAdoptedNode: with its flag, reset removes the node: what kubeadm reset removes, and what Airlift installed. The
// ledger records it from the first change on, so that an interrupted removal continues without the flag.
func TestRemovalOfAnAdoptedNode(t *testing.T) {
	root := adoptedPlane(t)
	h, _, unlock := open(t, root)
	changes(t, h)
	if _, err := h.WriteFile(node.APIServerManifest, []byte("spec: {containers: [{command: [kube-apiserver, --new]}]}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := h.WriteFile(render.KubeletUnitPath, []byte("new"), 0o600); err != nil {
		t.Fatal(err)
	}
	unlock()
	h, _, unlock = open(t, root)
	r, err := New(config.Reset{RemoveNode: true}, "", h, &workflow.Console{Out: io.Discard})
	if err != nil || !strings.Contains(r.Question(), "removes the Kubernetes node") {
		t.Fatal(err)
	}
	text := r.Describe()
	for _, want := range []string{"/etc/kubernetes/manifests: it contains static pods", "/var/lib/kubelet: it contains", "/etc/kubernetes/pki: it contains", "/etc/kubernetes/kubelet.conf", "airlift-certs-renew.timer", "/etc/systemd/system/kubelet.service"} {
		if !strings.Contains(text, want) {
			t.Errorf("the plan has no %q:\n%s", want, text)
		}
	}
	unlock() // not confirmed
	h, _, unlock = open(t, root)
	if h.Records().Adopted() == nil || h.Records().IsClaimed(config.KubeletDir) {
		t.Error("the question ended the adoption")
	}
	if _, err = New(config.Reset{RemoveNode: true}, "", h, &workflow.Console{Out: io.Discard}); err != nil {
		t.Fatal(err)
	}
	if err := h.Records().BeginReset(ledger.Identity{}); err != nil { // and then killed
		t.Fatal(err)
	}
	unlock()
	h, _, unlock = open(t, root)
	defer unlock()
	if r, err = New(config.Reset{}, "", h, &workflow.Console{Out: io.Discard}); err != nil || r.isAdopted() {
		t.Fatalf("after an interruption: %v", err)
	}
	if err := errors.Join(uninstall.RemoveState(t.Context(), h), h.Records().ForgetImageNames(h.Records().ImageNames()...), h.Records().Forget(ledger.Interface, "kube-ipvs0")); err != nil {
		t.Fatal(err)
	}
	if _, err := uninstall.RemoveInstalled(t.Context(), h); err != nil {
		t.Fatal(err)
	}
	after := contents(t, root)
	for name := range after {
		gone := strings.HasPrefix(name, config.ManifestsDir+"/") || strings.HasPrefix(name, config.KubeletDir+"/") || strings.HasPrefix(name, config.CertificatesDir+"/") || strings.HasPrefix(name, ledger.StateDir) || strings.HasSuffix(name, ".conf")
		if gone || name == render.KubeletUnitPath {
			t.Errorf("%s is left: %s", name, after[name])
		}
	}
	if after["/usr/local/bin/crictl"] != "adopted crictl" || after["/etc/unrelated"] != "stays" || after["/usr/bin/kubelet"] == "" {
		t.Errorf("removed too much: %q", after)
	}
}

// Files of the site next to a CA of clients, and next to kubeadm's certificates outside /etc/kubernetes, are not this node's.
func TestRemoveAdoptedKeepsFilesOfSite(t *testing.T) {
	for name, c := range map[string]struct {
		flags         string
		removed, kept []string
	}{
		"client CA elsewhere": {
			"--client-ca-file=/etc/pki/tls/certs/ca.crt, --tls-cert-file=/etc/kubernetes/pki/apiserver.crt, --service-account-signing-key-file=/etc/kubernetes/pki/sa.key",
			[]string{"/etc/kubernetes/pki/ca.crt", "/etc/kubernetes/pki/apiserver.crt"}, []string{"/etc/pki/tls/certs/ca.crt", "/etc/pki/tls/certs/postfix.pem"},
		},
		"certificates among files of the site": {
			"--client-ca-file=/etc/pki/tls/certs/ca.crt, --tls-cert-file=/etc/pki/tls/certs/apiserver.crt, --service-account-signing-key-file=/etc/pki/tls/certs/sa.key",
			[]string{"/etc/pki/tls/certs/ca.crt", "/etc/pki/tls/certs/etcd/server.key"}, []string{"/etc/pki/tls/certs/postfix.pem"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			root := adoptedPlane(t)
			put(t, root, node.APIServerManifest, "spec: {containers: [{command: [kube-apiserver, --advertise-address=10.1.2.3, "+c.flags+"]}]}\n")
			for _, file := range []string{"/etc/pki/tls/certs/ca.crt", "/etc/pki/tls/certs/postfix.pem", "/etc/pki/tls/certs/etcd/server.key"} {
				put(t, root, file, "text")
			}
			h, _, unlock := open(t, root)
			defer unlock()
			r, err := New(config.Reset{RemoveNode: true, Force: true, SkipPhases: ofThisMachine}, "", h, &workflow.Console{Out: io.Discard})
			if err != nil {
				t.Fatal(err)
			}
			if err := r.Run(t.Context()); err != nil {
				t.Fatal(err)
			}
			for _, file := range c.removed {
				if node.FileExists(h, file) {
					t.Errorf("%s was not removed", file)
				}
			}
			for _, file := range c.kept {
				if !node.FileExists(h, file) {
					t.Errorf("%s was removed", file)
				}
			}
		})
	}
}
