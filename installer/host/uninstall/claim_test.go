package uninstall_test

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"testing"

	"airlift/installer/config"
	"airlift/installer/host/ledger"
	"airlift/installer/host/podnetwork"
	"airlift/installer/host/uninstall"
	"airlift/internal/fault"
	"airlift/scripts/fixtures/testhost"
)

var etcdClaim = ledger.Claim{Path: "/var/lib/etcd", Contents: ledger.EtcdData, Fix: "move it away"}

func gone(t *testing.T, root string, paths ...string) {
	t.Helper()
	for _, p := range paths {
		if _, err := os.Lstat(root + p); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s is still there (%v)", p, err)
		}
	}
}

func stays(t *testing.T, root string, paths ...string) {
	t.Helper()
	for _, p := range paths {
		if _, err := os.Lstat(root + p); err != nil {
			t.Error(err)
		}
	}
}

// reset does what the command reset does to files, with a newly opened host.
func reset(t *testing.T, root string) {
	t.Helper()
	testhost.InNetwork(t)
	h := testhost.Open(t, root)
	if err := podnetwork.RemoveInterfaces(t.Context(), h); err != nil {
		t.Fatal(err)
	}
	if _, err := podnetwork.RemoveRules(t.Context(), h); err != nil {
		t.Fatal(err)
	}
	if err := uninstall.RemoveState(t.Context(), h); err != nil {
		t.Fatal(err)
	}
	if _, err := uninstall.RemoveInstalled(t.Context(), h); err != nil {
		t.Fatal(err)
	}
}

func TestClaims(t *testing.T) {
	t.Run("a missing directory goes with all it holds", func(t *testing.T) {
		root := t.TempDir()
		for range 2 {
			if err := testhost.Open(t, root).Claim(etcdClaim); err != nil {
				t.Fatal(err)
			}
			testhost.Write(t, root+"/var/lib/etcd/member/wal/0", "x", 0o600) // the second run finds its own data
		}
		reset(t, root)
		gone(t, root, "/var/lib/etcd", ledger.StateDir)
	})
	t.Run("an empty one is emptied", func(t *testing.T) {
		root := t.TempDir()
		if err := os.MkdirAll(root+"/var/lib/etcd/lost+found", 0o700); err != nil { // a mounted disk
			t.Fatal(err)
		}
		if err := testhost.Open(t, root).Claim(etcdClaim); err != nil {
			t.Fatal(err)
		}
		testhost.Write(t, root+"/var/lib/etcd/member/wal/0", "x", 0o600)
		if err := os.Chmod(root+"/var/lib/etcd", 0o711); err != nil {
			t.Fatal(err)
		}
		reset(t, root)
		gone(t, root, "/var/lib/etcd/member")
		stays(t, root, "/var/lib/etcd/lost+found")
		if info, err := os.Stat(root + "/var/lib/etcd"); err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("its mode was 0700 and is %v, %v", info.Mode(), err)
		}
	})
	t.Run("one with another's data is refused, and never removed", func(t *testing.T) {
		root := t.TempDir()
		testhost.Write(t, root+"/var/lib/etcd/member/wal/0", "theirs", 0o600)
		h := testhost.Open(t, root)
		claimable := func(c ledger.Claim) error { _, err := h.Records().Claimable(c); return err }
		for _, try := range []func(ledger.Claim) error{claimable, h.Claim} {
			if err := try(etcdClaim); fault.ExitCode(err) != fault.Preflight || fault.Hint(err) != "move it away" || !strings.Contains(err.Error(), "/var/lib/etcd is not empty") {
				t.Errorf("%v", err)
			}
		}
		if h.Records().Used() {
			t.Error("it is in the ledger")
		}
		// The user accepts the directory, so it is used.
		if err := h.Records().Spare(etcdClaim); err != nil {
			t.Fatal(err)
		}
		if err := testhost.Open(t, root).Claim(etcdClaim); err != nil {
			t.Errorf("a second run: %v", err)
		}
		for range 2 {
			reset(t, root)
			stays(t, root, "/var/lib/etcd/member/wal/0")
		}
		gone(t, root, ledger.StateDir)
	})
	t.Run("what users put there before stays", func(t *testing.T) {
		root := t.TempDir()
		claim := ledger.Claim{Path: "/var/lib/kubelet", Allowed: []string{"config.json"}}
		testhost.Write(t, root+"/var/lib/kubelet/config.json", "credentials", 0o600)
		if err := testhost.Open(t, root).Claim(claim); err != nil {
			t.Fatal(err)
		}
		testhost.Write(t, root+"/var/lib/kubelet/config.yaml", "x", 0o600)
		plan, err := uninstall.PlanFor(testhost.Open(t, root))
		if err != nil {
			t.Fatal(err)
		}
		if left := uninstall.Left(testhost.Open(t, root), plan); len(left) != 1 || !strings.HasPrefix(left[0].String(), "/var/lib/kubelet/config.json: ") {
			t.Errorf("left: %v", left)
		}
		reset(t, root)
		gone(t, root, "/var/lib/kubelet/config.yaml")
		stays(t, root, "/var/lib/kubelet/config.json")
	})
	t.Run("a directory that Airlift has created", func(t *testing.T) {
		root := t.TempDir()
		h := testhost.Open(t, root)
		if _, err := h.WriteFile("/var/lib/kubelet/pki/kubelet.crt", []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := h.Claim(ledger.Claim{Path: config.KubeletDir}); err != nil {
			t.Fatal(err)
		}
		testhost.Write(t, root+"/var/lib/kubelet/pods/1", "x", 0o600)
		reset(t, root)
		gone(t, root, "/var/lib/kubelet")
	})
}

// TestResetKeepsTheUsersCertificates: a CA that the user provided before init
// stays. Files that Airlift wrote are removed without a copy, even if they were
// renewed. The plan lists both.
func TestResetKeepsTheUsersCertificates(t *testing.T) {
	root := t.TempDir()
	testhost.Write(t, root+"/etc/kubernetes/pki/ca.crt", "the site's", 0o644)
	testhost.Write(t, root+"/etc/kubernetes/manifests/kube-vip.yaml", "the site's", 0o600)
	h := testhost.Open(t, root)
	for _, path := range []string{"/etc/kubernetes/pki/apiserver.crt", "/etc/kubernetes/admin.conf", "/etc/kubernetes/manifests/etcd.yaml", "/etc/crictl.yaml"} {
		if _, err := h.WriteFile(path, []byte("Airlift's"), 0o600); err != nil {
			t.Fatal(err)
		}
		testhost.Write(t, root+path, "renewed or edited", 0o600)
	}
	plan, err := uninstall.PlanFor(h)
	if err != nil {
		t.Fatal(err)
	}
	text := ""
	for _, i := range plan {
		text += i.Act + " " + i.String() + "\n"
	}
	for _, want := range []string{"remove /etc/kubernetes/pki/apiserver.crt", "remove /etc/kubernetes/admin.conf", "remove /etc/kubernetes/manifests/etcd.yaml",
		"save /etc/crictl.yaml.airlift-saved: ", "leave /etc/kubernetes/pki/ca.crt: Airlift did not create it", "leave /etc/kubernetes/manifests/kube-vip.yaml: "} {
		if !strings.Contains(text, want) {
			t.Errorf("the plan has no %q:\n%s", want, text)
		}
	}
	reset(t, root)
	gone(t, root, "/etc/kubernetes/pki/apiserver.crt", "/etc/kubernetes/admin.conf", "/etc/kubernetes/admin.conf.airlift-saved",
		"/etc/kubernetes/manifests/etcd.yaml", "/etc/kubernetes/manifests/etcd.yaml.airlift-saved", "/etc/crictl.yaml")
	stays(t, root, "/etc/kubernetes/pki/ca.crt", "/etc/kubernetes/manifests/kube-vip.yaml", "/etc/crictl.yaml.airlift-saved")
	if left := uninstall.Left(testhost.Open(t, root), plan); len(left) != 3 {
		t.Errorf("left: %v", left)
	}
}

// TestNetworkState: CNI state is shared, and reset removes only the state of Airlift's network.
func TestNetworkState(t *testing.T) {
	testhost.InNetwork(t)
	root := t.TempDir()
	cfg := &config.Config{CNI: "flannel"}
	testhost.Write(t, root+"/var/lib/cni/networks/other/10.90.0.2", "c2\r\neth0", 0o600)
	h := testhost.Open(t, root)
	if problems := podnetwork.Claimable(h, cfg); len(problems) > 0 {
		t.Errorf("%v", problems)
	}
	for range 2 {
		if err := podnetwork.Claim(h, cfg); err != nil {
			t.Fatal(err)
		}
		h = testhost.Open(t, root)
	}
	result := func(network, id string) string {
		file := "/var/lib/cni/results/" + network + "-" + id + "-eth0"
		testhost.Write(t, root+file, `{"kind": "cniCacheV1", "containerId": "`+id+`", "networkName": "`+network+`"}`, 0o600)
		return file
	}
	ours := []string{"/var/lib/cni/networks/cbr0", result("cbr0", "c1"), result("cni-loopback", "c1"), result("cni-loopback", "c3")}
	testhost.Write(t, root+"/var/lib/cni/networks/cbr0/10.244.0.2", "c3\r\neth0", 0o600)
	theirs := []string{"/var/lib/cni/networks/other/10.90.0.2", result("other", "c2"), result("cbr0-other", "c2"), result("cni-loopback", "c2")}
	reset(t, root)
	gone(t, root, ours...)
	stays(t, root, theirs...)

	testhost.Write(t, root+"/var/lib/cni/networks/cbr0/10.1.1.2", "c9\r\neth0", 0o600)
	testhost.Bridge(t, "cni0", nil)
	problems := podnetwork.Claimable(testhost.Open(t, root), cfg)
	if len(problems) != 2 || !strings.Contains(fault.Hint(problems[0]), "ip link delete cni0") || !strings.Contains(problems[1].Error(), "networks/cbr0") {
		t.Errorf("%v", problems)
	}
}

// TestKeptLogs: the logs of the API server are listed once.
func TestKeptLogs(t *testing.T) {
	root := t.TempDir()
	h := testhost.Open(t, root)
	for _, e := range []ledger.Entry{{Kind: ledger.Dir, Name: "/var/log/kubernetes/audit"}, {Kind: ledger.Dir, Name: "/var/log/kubernetes"}, {Kind: ledger.Unit, Name: "kubelet.service"}} {
		if err := h.Records().Record(e); err != nil {
			t.Fatal(err)
		}
	}
	testhost.Write(t, root+"/var/log/kubernetes/audit/audit.log", "x", 0o600)
	testhost.Write(t, root+"/var/log/kubernetes/other.log", "x", 0o600)
	plan, err := uninstall.PlanFor(testhost.Open(t, root))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, i := range plan {
		if strings.HasPrefix(i.Path, "/var/log/") && i.Act == uninstall.Leave {
			got = append(got, i.Path+": "+i.Reason)
		}
	}
	if text := strings.Join(got, "\n"); text != "/var/log/kubernetes/other.log: Airlift did not create it\n/var/log/kubernetes/audit: logs are kept" {
		t.Errorf("%s", text)
	}
}

// TestTraces: without a ledger, the plan contains what kubeadm reset removes.
func TestTraces(t *testing.T) {
	root := t.TempDir()
	testhost.Write(t, root+"/var/lib/etcd/member/wal/0", "x", 0o600)
	if uninstall.IsNode(testhost.Open(t, root)) {
		t.Error("a host with an etcd is taken for a node")
	}
	testhost.Write(t, root+"/etc/kubernetes/manifests/etcd.yaml", "x", 0o600)
	testhost.Write(t, root+"/etc/kubernetes/pki/ca.key", "x", 0o600)
	testhost.Write(t, root+"/etc/kubernetes/kubelet.conf", "x", 0o600)
	testhost.Write(t, root+"/etc/kubernetes/audit.yaml", "x", 0o600)
	testhost.Write(t, root+"/var/lib/kubelet/config.yaml", "x", 0o600)
	before := testhost.Tree(t, root)
	h := testhost.Open(t, root)
	if !uninstall.IsNode(h) {
		t.Error("a node is not seen")
	}
	uninstall.AssumeTraces(h, uninstall.Traces{CertificatesDir: config.CertificatesDir})
	if _, err := uninstall.PlanFor(h); err != nil {
		t.Fatal(err)
	}
	if after := testhost.Tree(t, root); len(after) != len(before) {
		t.Errorf("the plan changed the host: %v", after)
	}
	if err := h.Records().Commit(); err != nil {
		t.Fatal(err)
	}
	reset(t, root)
	gone(t, root, "/etc/kubernetes/manifests/etcd.yaml", "/etc/kubernetes/pki/ca.key", "/etc/kubernetes/kubelet.conf", "/var/lib/kubelet/config.yaml", ledger.StateDir)
	stays(t, root, "/etc/kubernetes/audit.yaml", "/var/lib/etcd/member/wal/0", "/etc/kubernetes/pki")
}
