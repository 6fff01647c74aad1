package main

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"airlift/cmd/install/certscmd"
	"airlift/installer/config"
	"airlift/installer/host"
	"airlift/installer/host/uninstall"
	"airlift/installer/pki"
	"airlift/scripts/fixtures/rig"
	"airlift/scripts/oracle"
)

// certsFile is the kubeadm configuration of the node in the tests below.
const certsFile = `apiVersion: kubeadm.k8s.io/v1beta4
kind: InitConfiguration
localAPIEndpoint: {advertiseAddress: 10.0.0.11}
nodeRegistration: {name: n1, criSocket: "unix:///run/containerd/containerd.sock"}
---
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
kubernetesVersion: v1.37.1
controlPlaneEndpoint: k8s.example.com:8443
encryptionAlgorithm: ECDSA-P256
`

// controlPlane creates a directory with a control plane's files, as init writes
// them, and a configuration file next to them.
func controlPlane(t *testing.T, now time.Time, change ...func(*config.Config)) (root, file string) {
	t.Helper()
	root = t.TempDir()
	file = filepath.Join(root, "kubeadm.yaml")
	if err := os.WriteFile(file, []byte(certsFile), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg := &config.Config{}
	cfg.KubernetesVersion, cfg.NodeRegistration.Name, cfg.ControlPlaneEndpoint = "v1.37.1", "n1", "k8s.example.com:8443"
	cfg.LocalAPIEndpoint.AdvertiseAddress = "10.0.0.11"
	cfg.CompleteInit()
	for _, c := range change {
		c(cfg)
	}
	h, err := host.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, build := range []func() (pki.Result, error){
		func() (pki.Result, error) { return pki.Ensure(cfg, os.DirFS(root), now) },
		func() (pki.Result, error) { return pki.Kubeconfigs(cfg, os.DirFS(root), now) },
	} {
		made, err := build()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range made.Files {
			if _, err := h.WriteFile(f.Path, f.Data, f.Mode); err != nil {
				t.Fatal(err)
			}
		}
	}
	return root, file
}

const pkiDir = "/etc/kubernetes/pki/"

func readFile(t *testing.T, elem ...string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(elem...))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func certificateIn(t *testing.T, data []byte) *x509.Certificate {
	t.Helper()
	block, _ := pem.Decode(data)
	if block == nil {
		t.Fatalf("no PEM in %q", data)
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

// The output has the same words in the same positions as kubeadm's.
func TestCheckExpirationIsKubeadms(t *testing.T) {
	root, file := controlPlane(t, time.Now())
	if err := os.Remove(filepath.Join(root, pkiDir, "etcd/ca.key")); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(root, "/etc/kubernetes/super-admin.conf")); err != nil {
		t.Fatal(err)
	}
	kubeadm := func(format string) []byte {
		cmd := exec.Command(oracle.Kubeadm(t, "v1.37.1"), "--rootfs", root, "certs", "check-expiration", "--config", "/kubeadm.yaml", "-o", format)
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("kubeadm: %v\n%s", err, out)
		}
		return out
	}
	ours := func(format string) []byte {
		stdout, stderr, code := install(t, "certs", "check-expiration", "--rootfs", root, "--config", file, "-o", format)
		if code != 0 || stderr != "" {
			t.Fatalf("exit code %d: %s", code, stderr)
		}
		return []byte(stdout)
	}
	seconds := regexp.MustCompile(`("?residualTime"?): \d+`)
	for _, format := range []string{"json", "yaml"} {
		want, got := seconds.ReplaceAll(kubeadm(format), []byte("$1: N")), seconds.ReplaceAll(ours(format), []byte("$1: N"))
		if diff := cmp.Diff(strings.TrimSpace(string(want)), strings.TrimSpace(string(got))); diff != "" {
			t.Errorf("%s (-kubeadm +ours):\n%s", format, diff)
		}
	}
	lines := func(data []byte) (list []string) {
		for line := range strings.Lines(string(data)) {
			list = append(list, strings.TrimRight(line, " \n"))
		}
		return list
	}
	if diff := cmp.Diff(lines(kubeadm("text")), lines(ours("text"))); diff != "" {
		t.Errorf("text (-kubeadm +ours):\n%s", diff)
	}
	var info certscmd.Expirations
	if err := json.Unmarshal(ours("json"), &info); err != nil || info.Certificates[0].ResidualTime < 364*24*3600 {
		t.Errorf("%v: %+v", err, info)
	}
}

func TestRenew(t *testing.T) {
	root, file := controlPlane(t, time.Now().Add(-2*config.CertificateValidity))
	stdout, _, code := install(t, "certs", "check-expiration", "--rootfs", root, "--config", file)
	if code != 0 || strings.Count(stdout, "<expired>") != 11 {
		t.Errorf("before: exit code %d\n%s", code, stdout)
	}
	if _, stderr, code := install(t, "certs", "check-expiration", "--rootfs", root, "--config", file, "--detailed-exitcode"); code != 5 || stderr != "" {
		t.Errorf("with --detailed-exitcode: exit code %d\n%s", code, stderr)
	}
	// The user has moved one of the files elsewhere and changed the mode of
	// another.
	elsewhere := filepath.Join(root, "elsewhere")
	if err := os.Rename(filepath.Join(root, "/etc/kubernetes/admin.conf"), elsewhere); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(elsewhere, filepath.Join(root, "/etc/kubernetes/admin.conf")); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(root, pkiDir, "apiserver.key"), 0o640); err != nil {
		t.Fatal(err)
	}

	stdout, stderr, code := install(t, "certs", "renew", "all", "--rootfs", root, "--config", file)
	if code != 0 {
		t.Fatalf("exit code %d\n%s%s", code, stdout, stderr)
	}
	for _, want := range append(pki.RenewableNames(), "etcd, kube-apiserver, kube-controller-manager, kube-scheduler", "~/.kube/config") {
		if !strings.Contains(stdout, want) {
			t.Errorf("it does not say %q:\n%s", want, stdout)
		}
	}
	if stdout, _, _ := install(t, "certs", "check-expiration", "--rootfs", root, "--config", file); strings.Contains(stdout, "<expired>") || strings.Count(stdout, " 364d ") != 11 {
		t.Errorf("after:\n%s", stdout)
	}
	t.Run("openssl verifies it", func(t *testing.T) {
		out, err := exec.Command(rig.Tool(t, "openssl"), "verify", "-x509_strict", "-purpose", "sslserver", "-verify_hostname", "k8s.example.com",
			"-CAfile", filepath.Join(root, pkiDir, "ca.crt"), filepath.Join(root, pkiDir, "apiserver.crt")).CombinedOutput()
		if err != nil {
			t.Errorf("openssl: %v\n%s", err, out)
		}
	})
	if info, err := os.Stat(filepath.Join(root, pkiDir, "apiserver.key")); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("the key's mode: %v %v", info.Mode(), err)
	}

	h, err := host.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	if runs, err := h.Records().Runs(); err != nil || len(runs) != 1 || runs[0].Command != "certs renew" || !runs[0].Ended() || *runs[0].ExitCode != 0 {
		t.Errorf("the recorded runs: %+v (%v)", runs, err)
	}

	// Reset removes the renewed files and leaves no key behind.
	if _, err := uninstall.RemoveInstalled(context.Background(), h); err != nil {
		t.Fatal(err)
	}
	err = filepath.WalkDir(filepath.Join(root, "etc"), func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && !strings.HasPrefix(filepath.Base(path), "admin.conf") {
			t.Errorf("reset leaves %s", path)
		}
		return err
	})
	if err != nil && !os.IsNotExist(err) {
		t.Error(err)
	}
}

// On a node that kubeadm created, only the renewed files change, and kubeadm
// still works.
func TestRenewOnKubeadmsNode(t *testing.T) {
	root := t.TempDir()
	file := filepath.Join(root, "kubeadm.yaml")
	if err := os.WriteFile(file, []byte(certsFile), 0o600); err != nil {
		t.Fatal(err)
	}
	kubeadm := func(args ...string) {
		t.Helper()
		out, err := exec.Command(oracle.Kubeadm(t, "v1.37.1"), append([]string{"--rootfs", root}, args...)...).CombinedOutput()
		if err != nil {
			t.Fatalf("kubeadm %q: %v\n%s", args, err, out)
		}
	}
	phases := func() {
		t.Helper()
		kubeadm("init", "phase", "certs", "all", "--config", "/kubeadm.yaml")
		kubeadm("init", "phase", "kubeconfig", "all", "--config", "/kubeadm.yaml")
	}
	phases()
	list := func() (files []string) {
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if info, statErr := d.Info(); statErr == nil {
				files = append(files, info.Mode().String()+" "+path)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return files
	}
	before, old := list(), readFile(t, root, pkiDir, "apiserver.crt")
	if stdout, stderr, code := install(t, "certs", "renew", "all", "--rootfs", root, "--config", file); code != 0 {
		t.Fatalf("exit code %d\n%s%s", code, stdout, stderr)
	}
	if diff := cmp.Diff(before, list()); diff != "" {
		t.Errorf("other files than before:\n%s", diff)
	}
	renewed := readFile(t, root, pkiDir, "apiserver.crt")
	if bytes.Equal(old, renewed) {
		t.Error("it was not renewed")
	}
	phases() // kubeadm verifies and keeps the existing files
	if !bytes.Equal(renewed, readFile(t, root, pkiDir, "apiserver.crt")) {
		t.Error("kubeadm made another")
	}
}

func TestRenewWarnsOfAnEndingCA(t *testing.T) {
	root, file := controlPlane(t, time.Now(), func(c *config.Config) { c.CACertificateValidityPeriod = 48 * time.Hour })
	stdout, stderr, code := install(t, "certs", "renew", "etcd-peer", "--rootfs", root, "--config", file)
	if code != 0 || strings.Count(stderr, "warning: ") != 1 || !strings.Contains(stderr, "the CA "+pkiDir+"etcd/ca.crt expires on") {
		t.Errorf("exit code %d\n%s%s", code, stdout, stderr)
	}
}

func TestRenewSome(t *testing.T) {
	root, file := controlPlane(t, time.Now().Add(-time.Hour))
	before, began := readFile(t, root, pkiDir, "etcd/peer.crt"), time.Now().Truncate(time.Second)
	stdout, stderr, code := install(t, "certs", "renew", "apiserver", "scheduler.conf", "--rootfs", root, "--config", file)
	if code != 0 || !strings.Contains(stdout, "apiserver renewed: "+pkiDir+"apiserver.crt") || !strings.Contains(stdout, "kube-apiserver, kube-scheduler") || strings.Contains(stdout, "etcd") {
		t.Errorf("exit code %d\n%s%s", code, stdout, stderr)
	}
	if !bytes.Equal(before, readFile(t, root, pkiDir, "etcd/peer.crt")) {
		t.Error("etcd's certificate was renewed")
	}
	if made := certificateIn(t, readFile(t, root, pkiDir, "apiserver.crt")).NotAfter.Add(-config.CertificateValidity); made.Before(began) {
		t.Errorf("the new one is from %s, the renewal began at %s", made, began)
	}
}

func TestRenewWithExternalCA(t *testing.T) {
	root, file := controlPlane(t, time.Now())
	if err := os.Remove(filepath.Join(root, pkiDir, "ca.key")); err != nil {
		t.Fatal(err)
	}
	before := readFile(t, root, pkiDir, "apiserver.crt")
	stdout, stderr, code := install(t, "certs", "renew", "apiserver", "--rootfs", root, "--config", file)
	if code != 1 || !strings.Contains(stderr, "it is managed externally") || !strings.Contains(stderr, "hint: ") {
		t.Errorf("one: exit code %d\n%s%s", code, stdout, stderr)
	}
	stdout, stderr, code = install(t, "certs", "renew", "all", "--rootfs", root, "--config", file)
	if code != 0 || strings.Contains(stdout, "apiserver renewed") || !strings.Contains(stdout, "etcd-server renewed") ||
		!strings.Contains(stderr, pkiDir+"apiserver.crt is managed externally") {
		t.Errorf("all: exit code %d\n%s%s", code, stdout, stderr)
	}
	if !bytes.Equal(before, readFile(t, root, pkiDir, "apiserver.crt")) {
		t.Error("it was replaced")
	}
	for _, key := range []string{"etcd/ca.key", "front-proxy-ca.key"} {
		if err := os.Remove(filepath.Join(root, pkiDir, key)); err != nil {
			t.Fatal(err)
		}
	}
	if stdout, stderr, code = install(t, "certs", "renew", "all", "--rootfs", root, "--config", file); code != 1 || !strings.Contains(stderr, "no certificate in this directory can be renewed") {
		t.Errorf("nothing: exit code %d\n%s%s", code, stdout, stderr)
	}
}

// Renewal must not wait for a cluster that is down.
func TestRenewOnADeadCluster(t *testing.T) {
	root, _ := controlPlane(t, time.Now())
	conf := filepath.Join(root, "/etc/kubernetes/admin.conf")
	if err := os.WriteFile(conf, bytes.Replace(readFile(t, conf), []byte("https://k8s.example.com:8443"), []byte("https://127.0.0.1:1"), 1), 0o600); err != nil {
		t.Fatal(err)
	}
	stdout, stderr, code := install(t, "certs", "renew", "all", "--rootfs", root)
	if code != 0 || !strings.Contains(stderr, "because the cluster's configuration cannot be read") || !strings.Contains(stdout, "apiserver renewed") {
		t.Errorf("exit code %d\n%s%s", code, stdout, stderr)
	}
}

// While the cluster is down, the static pods show where the certificates are, and that etcd's are
// elsewhere.
func TestRenewElsewhereOnADeadCluster(t *testing.T) {
	const pkiDir = "/etc/site/pki/"
	root, _ := controlPlane(t, time.Now(), func(c *config.Config) { c.Cluster.CertificatesDir = "/etc/site/pki" })
	conf := filepath.Join(root, "/etc/kubernetes/admin.conf")
	manifest := filepath.Join(root, config.ManifestsDir, "kube-apiserver.yaml")
	for file, data := range map[string][]byte{
		conf:     bytes.Replace(readFile(t, conf), []byte("https://k8s.example.com:8443"), []byte("https://127.0.0.1:1"), 1),
		manifest: []byte("spec: {containers: [{command: [kube-apiserver, --client-ca-file=" + pkiDir + "ca.crt, '--etcd-servers=https://etcd.example.com:2379', --etcd-cafile=/etc/etcd/ca.crt]}]}\n"),
	} {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, etcd := range []bool{true, false} { // its manifest may be moved away
		if !etcd {
			if err := os.RemoveAll(filepath.Join(root, pkiDir, "etcd")); err != nil {
				t.Fatal(err)
			}
		}
		stdout, stderr, code := install(t, "certs", "renew", "all", "--rootfs", root)
		if code != 0 || !strings.Contains(stderr, "the flags of this host's static pods") ||
			!strings.Contains(stdout, "apiserver renewed: "+pkiDir+"apiserver.crt") || strings.Contains(stdout, "apiserver-etcd-client renewed") != etcd {
			t.Errorf("etcd's certificates %t: exit code %d\n%s%s", etcd, code, stdout, stderr)
		}
	}
	stdout, stderr, code := install(t, "kubeconfig", "user", "--rootfs", root, "--client-name", "jane")
	if code != 0 || !strings.Contains(stdout, "client-certificate-data") {
		t.Errorf("a user's kubeconfig: exit code %d\n%s", code, stderr)
	}
}

func TestGenerateCSR(t *testing.T) {
	root, d := t.TempDir(), t.TempDir()
	file := filepath.Join(d, "kubeadm.yaml")
	if err := os.WriteFile(file, []byte(certsFile), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"certs", "generate-csr", "--rootfs", root, "--config", file, "--cert-dir", "/a/pki", "--kubeconfig-dir", "/a"}
	stdout, stderr, code := install(t, args...)
	if code != 0 || len(strings.Fields(stdout)) != 2*7+2*5 {
		t.Fatalf("exit code %d\n%s%s", code, stdout, stderr)
	}
	for _, path := range strings.Fields(stdout) {
		if info, err := os.Stat(filepath.Join(root, path)); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v", path, err)
		}
	}
	if _, stderr, code := install(t, args...); code != 1 || !strings.Contains(stderr, "/a/pki/apiserver.key already exists") {
		t.Errorf("again: exit code %d\n%s", code, stderr)
	}
}

func TestKubeconfigUser(t *testing.T) {
	root, file := controlPlane(t, time.Now())
	for name, args := range map[string][]string{"by admin.conf": nil, "by --config": {"--config", file}} {
		began := time.Now().Truncate(time.Second)
		stdout, stderr, code := install(t, append([]string{"kubeconfig", "user", "--rootfs", root, "--client-name", "jane", "--org", "dev,ops", "--validity-period", "24h"}, args...)...)
		if code != 0 || stderr != "" {
			t.Fatalf("%s: exit code %d\n%s", name, code, stderr)
		}
		rest, err := clientcmd.RESTConfigFromKubeConfig([]byte(stdout))
		if err != nil {
			t.Fatal(err)
		}
		cert := certificateIn(t, rest.CertData)
		if rest.Host != "https://k8s.example.com:8443" || cert.Subject.String() != "CN=jane,O=dev+O=ops" || !bytes.Equal(rest.CAData, readFile(t, root, pkiDir, "ca.crt")) {
			t.Errorf("%s: %s for %s", name, rest.Host, cert.Subject)
		}
		if made := cert.NotAfter.Add(-24 * time.Hour); made.Before(began) || made.After(time.Now()) {
			t.Errorf("%s: valid until %s", name, cert.NotAfter)
		}
		var k struct{ Clusters []struct{ Name string } }
		if err := yaml.Unmarshal([]byte(stdout), &k); err != nil || k.Clusters[0].Name != "kubernetes" {
			t.Errorf("%s: %v %v", name, err, k)
		}
	}
}

func TestCertsCommandLine(t *testing.T) {
	root, file := controlPlane(t, time.Now())
	if err := os.Remove(filepath.Join(root, pkiDir, "ca.key")); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		args   []string
		code   int
		stderr string
	}{
		{[]string{"certs", "renew"}, 2, "requires 'all' or names"},
		{[]string{"certs", "renew", "ca"}, 2, `unknown certificate "ca"`},
		{[]string{"certs", "renew", "all", "apiserver"}, 2, `unknown certificate "all"`},
		{[]string{"certs", "frobnicate"}, 2, `"frobnicate"`},
		{[]string{"certs", "check-expiration", "-o", "xml"}, 2, `unknown output format "xml"`},
		{[]string{"certs", "check-expiration", "--config", "/nonexistent.yaml"}, 2, "/nonexistent.yaml"},
		{[]string{"certs", "certificate-key", "now"}, 2, `"now"`},
		{[]string{"kubeconfig", "user"}, 2, "--client-name is missing"},
		{[]string{"kubeconfig", "user", "--client-name", "x", "--validity-period", "0s"}, 2, "--validity-period 0s"},
		{[]string{"kubeconfig", "user", "--client-name", "x", "--token", "t", "--org", "o"}, 2, "--org has no effect with --token"},
		{[]string{"kubeconfig", "user", "--client-name", "x", "--rootfs", root, "--config", file}, 1, "is not on this host"},
		{[]string{"kubeconfig", "user", "--client-name", "x", "--rootfs", root, "--config", file, "--token", "t"}, 0, ""},
	} {
		stdout, stderr, code := install(t, tt.args...)
		if code != tt.code || !strings.Contains(stderr, tt.stderr) {
			t.Errorf("%q: exit code %d, want %d and %q\n%s%s", tt.args, code, tt.code, tt.stderr, stdout, stderr)
		}
		if code != 0 && !strings.Contains(stderr, "hint: ") {
			t.Errorf("%q: no hint\n%s", tt.args, stderr)
		}
	}
	a, _, _ := install(t, "certs", "certificate-key")
	b, _, _ := install(t, "certs", "certificate-key")
	if !regexp.MustCompile(`^[0-9a-f]{64}\n$`).MatchString(a) || a == b {
		t.Errorf("certificate keys %q and %q", a, b)
	}
}
