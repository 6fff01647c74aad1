package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"airlift/bundle"
	"airlift/internal/fault"
	"airlift/scripts/fixtures/fakesites"
)

// internet makes the sites of u available over https under their real names, for a process
// with the returned environment: all connections go through a proxy, and the certificates are
// from a CA that the process trusts.
func internet(t *testing.T, u *fakesites.Upstream) (env []string, connections *atomic.Int64) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	cert := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "the internet"}, DNSNames: append([]string{"index.docker.io"}, fakesites.Hosts...),
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, cert, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o644); err != nil {
		t.Fatal(err)
	}
	to, err := url.Parse(u.URL())
	if err != nil {
		t.Fatal(err)
	}
	sites := httptest.NewUnstartedServer(&httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			host := strings.Replace(r.In.Host, "index.docker.io", "docker.io", 1)
			r.SetURL(to)
			r.Out.URL.Path = "/" + host + r.In.URL.Path
		},
		ErrorLog: log.New(io.Discard, "", 0),
	})
	sites.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
	sites.StartTLS()
	t.Cleanup(sites.Close)

	connections = &atomic.Int64{}
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodConnect {
			http.Error(w, "only CONNECT", http.StatusMethodNotAllowed)
			return
		}
		connections.Add(1)
		there, err := net.Dial("tcp", sites.Listener.Addr().String())
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		defer there.Close()
		w.WriteHeader(http.StatusOK)
		here, buffered, err := w.(http.Hijacker).Hijack()
		if err != nil {
			return
		}
		defer here.Close()
		go func() {
			io.Copy(there, buffered)
			there.Close()
		}()
		io.Copy(here, there)
	}))
	t.Cleanup(proxy.CloseClientConnections)
	t.Cleanup(proxy.Close)
	return []string{"HTTPS_PROXY=" + proxy.URL, "HTTP_PROXY=", "NO_PROXY=127.0.0.1", "SSL_CERT_FILE=" + ca, "SSL_CERT_DIR=" + t.TempDir()}, connections
}

func (s shell) runWith(env []string, args ...string) (stdout, stderr string, code fault.Code) {
	s.t.Helper()
	var out, errs bytes.Buffer
	c := s.command(args...)
	c.Env = append(c.Env, env...)
	c.Stdout, c.Stderr = &out, &errs
	if err := c.Run(); c.ProcessState == nil {
		s.t.Fatal(err)
	}
	return out.String(), errs.String(), fault.Code(c.ProcessState.ExitCode())
}

// After a build through a mirror, a build without it requests everything from the sites, and
// has their contents.
func TestPlainBuildAfterOneThroughAMirror(t *testing.T) {
	const kubelet = "dl.k8s.io/release/v1.29.15/bin/linux/amd64/kubelet"
	sites, mirror := fakesites.New(t, "v1.29.15"), fakesites.New(t, "v1.29.15")
	mirror.Put(kubelet, []byte("\x7fELF compiled here"))
	mirror.Put(kubelet+".sha256", fmt.Appendf(nil, "%x", sha256.Sum256(mirror.Get(kubelet))))
	s := newShell(t)
	env, connections := internet(t, sites)
	sites.Forget()

	if _, errs, code := s.runWith(env, buildArgs(mirror)...); code != 0 {
		t.Fatalf("through the mirror: %d\n%s", code, errs)
	}
	if n := connections.Load(); n > 0 {
		t.Fatalf("%d connections to the sites", n)
	}
	plain := []string{"build", "--version", "v1.29.15", "--arch", "amd64", "--launcher", "stub", "--installer", "stub", "--output", "plain"}
	out, errs, code := s.runWith(env, plain...)
	if code != 0 {
		t.Fatalf("without the mirror: %d\n%s", code, errs)
	}
	if len(sites.Requests()) == 0 {
		t.Error("nothing was asked of the sites")
	}
	f, err := bundle.Open(filepath.Join(s.dir, "plain"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	m, err := f.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("%x", sha256.Sum256(sites.Get(kubelet)))
	if e, _ := m.Entry("bin/kubelet"); e.SHA256 != want {
		t.Errorf("kubelet is %s, the site has %s", e.SHA256, want)
	}
	// Checksums from the sites themselves over https need no warning.
	if strings.Contains(errs, "warning:") || !strings.Contains(out, "plain.provenance.json") {
		t.Errorf("%s%s", out, errs)
	}
	p, err := os.ReadFile(filepath.Join(s.dir, "plain.provenance.json"))
	if err != nil || !strings.Contains(string(p), `"url": "https://`+kubelet+`.sha256"`) || strings.Contains(string(p), "127.0.0.1") {
		t.Errorf("%v\n%s", err, p)
	}
	// A second build requests nothing.
	before := connections.Load()
	if _, errs, code := s.runWith(env, plain...); code != 0 || connections.Load() > before {
		t.Errorf("the second build: %d, %d connections\n%s", code, connections.Load()-before, errs)
	}
}

func TestMirrorsPinsAndOptionalComponents(t *testing.T) {
	const kubelet = "dl.k8s.io/release/v1.29.15/bin/linux/amd64/kubelet"
	u := fakesites.New(t, "v1.29.15")
	s := newShell(t)
	out, errs, code := s.run(buildArgs(u)...)
	if code != 0 {
		t.Fatalf("%d\n%s", code, errs)
	}
	if n := strings.Count(errs, "\nwarning: mirror "+u.URL()); n != 4 { // dl.k8s.io, github.com, registry.k8s.io, ghcr.io
		t.Errorf("%d warnings\n%s", n, errs)
	}
	if !strings.Contains(out, "install.provenance.json") || strings.Contains(out, "left out") || strings.Contains(out, "pinned") {
		t.Error(out)
	}

	sums := fmt.Sprintf("%x  kubelet\n%s  kubeadm\n", sha256.Sum256(u.Get(kubelet)), strings.Repeat("a", 64))
	if err := os.WriteFile(filepath.Join(s.dir, "SHA256SUMS"), []byte(sums), 0o644); err != nil {
		t.Fatal(err)
	}
	out, errs, code = s.run(buildArgs(u, "--checksums", "SHA256SUMS", "--without", "crictl")...)
	if code != 0 || !strings.Contains(out, "\nleft out: crictl v1.28.0 (--without crictl)\n") || !strings.Contains(out, "\npinned: kubelet\n") {
		t.Errorf("%d\n%s%s", code, out, errs)
	}

	wrong := strings.Repeat("b", 64)
	_, errs, code = s.run(buildArgs(u, "--checksum", "kubelet=sha256:"+wrong, "--output", "other")...)
	if code != fault.Failure || !strings.Contains(errs, wrong) || !strings.Contains(errs, "pinned by --checksum") {
		t.Errorf("%d\n%s", code, errs)
	}
	if left, err := filepath.Glob(filepath.Join(s.dir, "*other*")); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--checksum", "kubelet"}, "NAME=sha256:HEX"},
		{[]string{"--checksum", "kublet=sha256:" + wrong}, "did you mean kubelet?"},
		{[]string{"--checksums", "none"}, "none"},
		{[]string{"--checksums", "stub"}, "line 1"},
		{[]string{"--without", "kubelet"}, "optional components: crictl"},
		{[]string{"--require", "nothing"}, "optional components: crictl"},
		{[]string{"--require", "crictl", "--without", "crictl"}, "crictl"},
	} {
		if _, errs, code := s.run(buildArgs(u, c.args...)...); code != fault.Usage || !strings.Contains(errs, c.want) || !strings.HasPrefix(lastLines(errs, 2), "error: ") {
			t.Errorf("%v: %d\n%s", c.args, code, errs)
		}
	}
	u.Remove("github.com/kubernetes-sigs/cri-tools/releases/download/v1.28.0/crictl-v1.28.0-linux-amd64.tar.gz")
	u.Remove("github.com/kubernetes-sigs/cri-tools/releases/download/v1.28.0/crictl-v1.28.0-linux-amd64.tar.gz.sha256")
	if _, errs, code := s.run(buildArgs(u, "--refresh", "--require", "crictl")...); code != fault.Failure || !strings.Contains(errs, "crictl v1.28.0") {
		t.Errorf("--require crictl: %d\n%s", code, errs)
	}
	if out, errs, code := s.run(buildArgs(u, "--refresh")...); code != 0 || !strings.Contains(out, "left out: crictl v1.28.0 (not found: https://github.com/") {
		t.Errorf("%d\n%s%s", code, out, errs)
	}
}

// --registry-ca trusts a CA for all sites and registries, also through a proxy.
func TestBuildWithAPrivateCA(t *testing.T) {
	u := fakesites.New(t, "v1.29.15")
	env, connections := internet(t, u)
	var ca string
	for n, v := range env {
		if path, ok := strings.CutPrefix(v, "SSL_CERT_FILE="); ok {
			ca, env[n] = path, "SSL_CERT_FILE=/dev/null"
		}
	}
	s := newShell(t)
	build := []string{"build", "--version", "v1.29.15", "--arch", "amd64", "--launcher", "stub", "--installer", "stub"}
	_, errs, code := s.runWith(env, build...)
	if code != fault.Failure || !strings.Contains(errs, "unknown authority") || !strings.Contains(lastLines(errs, 1), "--registry-ca ") {
		t.Errorf("without the CA: exit code %d: %s", code, errs)
	}
	_, errs, code = s.runWith(env, append(build, "--registry-ca", ca)...)
	if code != 0 || connections.Load() == 0 {
		t.Errorf("exit code %d, %d connections: %s", code, connections.Load(), errs)
	}
	for _, value := range []string{"absent.pem", "=" + ca, filepath.Join(s.dir, "stub")} {
		if _, errs, code = s.runWith(env, append(build, "--registry-ca", value)...); code != fault.Usage || !strings.Contains(errs, "--registry-ca") {
			t.Errorf("%s: exit code %d: %s", value, code, errs)
		}
	}
}

// TestEmptyChecks: a flag that requires a check, with the value of an unset variable, is not the same
// as no flag.
func TestEmptyChecks(t *testing.T) {
	for _, args := range [][]string{
		{"verify", "install", "--key", ""}, {"verify", "install", "--require-version="}, {"verify", "install", "--key", "x", "--signature", ""},
		{"build", "--sign-key", ""}, {"patch", "a", "b", "--key", ""}, {"sign", "install", "--key", ""},
	} {
		if _, err := command(t, args...); fault.ExitCode(err) != fault.Usage || fault.Hint(err) == "" || !strings.Contains(err.Error(), " is empty") {
			t.Errorf("%q: %v", args, err)
		}
	}
}
