package upgrade

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"airlift/bundle"
	"airlift/images/store"
	"airlift/installer/cluster/inventory"
	"airlift/installer/config"
	"airlift/installer/desired"
	"airlift/installer/host"
	"airlift/installer/host/filesystem"
	"airlift/installer/node"
	"airlift/installer/payload"
	"airlift/installer/pods"
	"airlift/installer/render"
	"airlift/installer/revision"
	"airlift/installer/workflow"
	"airlift/internal/fault"
	"airlift/scripts/fixtures/testbundle"
	"airlift/scripts/fixtures/testhost"
)

func TestKeptFlags(t *testing.T) {
	for _, c := range []struct {
		minor       int
		flags, want string
	}{
		{34, `KUBELET_KUBEADM_ARGS="--pod-infra-container-image=registry.k8s.io/pause:3.9"`, ""},
		{35, `KUBELET_KUBEADM_ARGS="--node-ip=10.1.2.3"`, ""},
		{35, `KUBELET_KUBEADM_ARGS="--pod-infra-container-image=registry.k8s.io/pause:3.9"`, `KUBELET_KUBEADM_ARGS=""`},
		{35, `KUBELET_KUBEADM_ARGS="--pod-infra-container-image=registry.k8s.io/pause:3.9 --node-ip=10.1.2.3"`, `KUBELET_KUBEADM_ARGS="--node-ip=10.1.2.3"`},
		{35, `KUBELET_KUBEADM_ARGS="--v=2 --pod-infra-container-image=registry.k8s.io/pause:3.9 --node-ip=10.1.2.3"`, `KUBELET_KUBEADM_ARGS="--v=2 --node-ip=10.1.2.3"`},
	} {
		if got := string(render.KeptKubeletFlags([]byte(c.flags), c.minor)); got != c.want {
			t.Errorf("%d, %s: %q, want %q", c.minor, c.flags, got, c.want)
		}
	}
}

func TestOverlay(t *testing.T) {
	got, err := render.OverlayKubeletConfig([]byte("a: 1\nb: 2\n"), []byte("kind: KubeletConfiguration\nb: 3\n"))
	if err != nil || string(got) != "a: 1\nb: 3\n" {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := render.OverlayKubeletConfig([]byte("a: 1\n"), []byte("{")); err == nil {
		t.Error("no error")
	}
}

// TestUpgradeDuringARotation: neither undo nor the phase control-plane writes a controller manager that
// signs with a ca.crt of two certificates.
func TestUpgradeDuringARotation(t *testing.T) {
	h, unlock, err := host.OpenLocked(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	const pod = "spec: {containers: [{command: [kube-apiserver, --client-ca-file=/etc/site/pki/ca.crt]}]}\n"
	if _, err := h.WriteFile(node.APIServerManifest, []byte(pod), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := (&revision.Record{Kind: revision.Upgrade, From: "v1.37.1", To: "v1.37.2", Finished: true}).Write(h); err != nil {
		t.Fatal(err)
	}
	if _, err := revision.NewUndo(revision.Upgrade, h, &workflow.Console{Out: io.Discard}); err != nil {
		t.Errorf("without a rotation: %v", err)
	}
	if err := os.MkdirAll(h.Path("/etc/site/pki/rotation/former"), 0o700); err != nil {
		t.Fatal(err)
	}
	_, undoing := revision.NewUndo(revision.Upgrade, h, &workflow.Console{Out: io.Discard})
	u := New(&payload.Bundle{Manifest: &bundle.Manifest{}}, Options{}, true, h, &workflow.Console{Out: io.Discard})
	u.Config = &config.Config{Cluster: config.Cluster{CertificatesDir: "/etc/site/pki"}}
	u.Pods = pods.WithWatch(u.Watch, u.Config.Timeouts)
	for name, err := range map[string]error{"undo": undoing, "the phase control-plane": u.ReplacePods(t.Context(), desired.List{})} {
		if err == nil || fault.ExitCode(err) != fault.Preflight || !strings.Contains(err.Error(), "are being rotated: /etc/site/pki/rotation exists") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Only the last control plane waits at its end for the kube-proxies of the others.
func TestWorkersAreNext(t *testing.T) {
	node := func(name, version string, controlPlane bool) inventory.Node {
		return inventory.Node{Name: name, KubeletVersion: version, ControlPlane: controlPlane}
	}
	const before, now = "v1.29.15", "v1.30.4"
	self := node("self", before, true) // its kubelet has not reported the new version yet
	for name, tc := range map[string]struct {
		others []inventory.Node
		want   bool
	}{
		"alone":                        {nil, false},
		"a worker is next":             {[]inventory.Node{node("cp", now, true), node("worker", before, false)}, true},
		"a control plane is next":      {[]inventory.Node{node("worker", before, false), node("cp", before, true)}, false},
		"the workers have the version": {[]inventory.Node{node("worker", now, false)}, false},
	} {
		if got := inventory.WorkersAreNext(append(tc.others, self), "self", now); got != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestUpgradeKeepsImageNames: undo gets the names that had another image, once each.
func TestUpgradeKeepsImageNames(t *testing.T) {
	h, unlock, err := host.OpenLocked(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	s := &revision.Record{Kind: revision.Upgrade, From: "v1.37.1", To: "v1.37.2"}
	before := &store.Target{Digest: "sha256:a"}
	for range 2 { // the second run of an interrupted upgrade
		err := s.KeepNames([]store.NameChange{
			{Name: "app:latest", Before: before, Set: []string{"sha256:b"}},
			{Name: "new:1", Set: []string{"sha256:c"}},
			{Name: "labelled:1", Before: before, Set: []string{before.Digest}},
		}, h)
		if err != nil {
			t.Fatal(err)
		}
		before = &store.Target{Digest: "sha256:b"}
	}
	read, err := revision.Read(h, revision.Upgrade)
	if err != nil {
		t.Fatal(err)
	}
	if n := read.ImageNames; len(n) != 1 || n[0].Name != "app:latest" || n[0].Before.Digest != "sha256:a" {
		t.Errorf("recorded: %+v", n)
	}
}

// TestUpgradeOfTheCommand: a node has the command airlift of the new file after an upgrade, which its units run, and after undo what it
// had before: an older one, the one of a former build, or none.
func TestUpgradeOfTheCommand(t *testing.T) {
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	m := &bundle.Manifest{FormatVersion: bundle.FormatVersion, Platform: "linux/amd64", KubernetesVersion: "v1.37.2", CNI: "none",
		Entries:    []bundle.Entry{{Name: "bin/runc", Size: 4, SHA256: testbundle.Sum([]byte("runc"))}},
		Components: []bundle.Component{{Name: "runc", Version: "v1.0.0", URL: "https://example.com/runc", Checksum: "sha256:" + testbundle.Sum(nil), Entries: []string{"bin/runc"}}},
	}
	b := testbundle.Write(t, "bundle", self, m, map[string][]byte{"bin/runc": []byte("runc")})
	const unit = "/etc/systemd/system/airlift-certs-renew.service"
	for _, had := range []string{host.CommandPath, host.FormerCommand, ""} {
		root := t.TempDir()
		h, unlock, err := host.OpenLocked(root)
		if err != nil {
			t.Fatal(err)
		}
		defer unlock()
		testhost.NewUnits(h, time.Now())
		if had != "" {
			_, binaryErr := h.InstallBinary(t.Context(), host.Binary{Path: had, SHA256: testbundle.Sum([]byte("old"))}, strings.NewReader("old"))
			_, unitErr := h.WriteFile(unit, []byte("ExecStart="+had+" certs renew all\n"), 0o644)
			if err := errors.Join(binaryErr, unitErr); err != nil {
				t.Fatal(err)
			}
		}
		files := func() string {
			var list []string
			for _, file := range []string{host.CommandPath, host.FormerCommand, unit} {
				data, _ := os.ReadFile(h.Path(file))
				list = append(list, fmt.Sprintf("%d %.50q", len(data), data))
			}
			return strings.Join(list, ", ")
		}
		before := files()
		u := New(b, Options{Node: true}, true, h, &workflow.Console{Out: io.Discard})
		u.Goal.From = "v1.37.1"
		for run := range 2 {
			l, err := u.Command(t.Context())
			if err != nil || (len(l.Binaries) > 0) != (run == 0) || (len(l.Files) > 0) != (run == 0 && had == host.FormerCommand) {
				t.Fatalf("%q, run %d: %+v, %v", had, run, l, err)
			}
			if err := u.InstallCommand(t.Context(), l); err != nil || u.Changes > 1 {
				t.Errorf("%q, run %d: %d changes: %v", had, run, u.Changes, err)
			}
			now, _ := os.ReadFile(h.Path(host.CommandPath))
			service, _ := os.ReadFile(h.Path(unit))
			if string(now) != string(self) || filesystem.Exists(h.Path(host.FormerCommand)) || had != "" && string(service) != "ExecStart="+host.CommandPath+" certs renew all\n" {
				t.Errorf("%q, run %d: %s", had, run, files())
			}
		}
		if err := u.Finish(); err != nil {
			t.Fatal(err)
		}
		if err := undoFiles(h); err != nil || files() != before {
			t.Errorf("%q: after undo %s, want %s: %v", had, files(), before, err)
		}
	}
}

// TestEndReconfiguration: after an upgrade with another file, also of the same version, undo of a reconfiguration would restore
// manifests of the former one.
func TestEndReconfiguration(t *testing.T) {
	for name, c := range map[string]struct {
		to, bundle string
		stays      bool
	}{
		"the same file": {"v1.37.1", "", true}, "another file": {"v1.37.1", "another", false}, "another version": {"v1.36.3", "", false},
	} {
		h, unlock, err := host.OpenLocked(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		defer unlock()
		u := New(&payload.Bundle{File: new(bundle.File), Manifest: &bundle.Manifest{KubernetesVersion: "v1.37.1"}}, Options{}, true, h, &workflow.Console{Out: io.Discard})
		s := &revision.Record{Kind: revision.Reconfigure, From: c.to, To: c.to, Bundle: c.bundle + u.Bundle.ID(), Change: "0123456789abcdef", Finished: true}
		if err := s.Write(h); err != nil {
			t.Fatal(err)
		}
		if err := u.endReconfiguration(); err != nil {
			t.Fatal(err)
		}
		if left, err := revision.Read(h, revision.Reconfigure); err != nil || (left != nil) != c.stays {
			t.Errorf("%s: %+v, %v", name, left, err)
		}
	}
}
