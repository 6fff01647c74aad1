//go:build e2e

package e2e

import (
	"archive/tar"
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"airlift/scripts/lab"
	"airlift/scripts/lab/site"
	"airlift/scripts/oracle/upstream/components"
)

// The pod runs an image that only the site's registry has, with a runtime from the user's file.
const registryPod = `
apiVersion: node.k8s.io/v1
kind: RuntimeClass
metadata: {name: site}
handler: site
---
apiVersion: v1
kind: Pod
metadata: {name: %[1]s}
spec:
  nodeName: %[1]s
  runtimeClassName: site
  terminationGracePeriodSeconds: 1
  containers:
  - {name: pause, image: "team.example/tools/pause:1"}
`

const siteRuntime = `version = 3
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.site]
  runtime_type = "io.containerd.runc.v2"
`

// TestRegistries: pods on two hosts pull from a registry with a CA and a password of the site,
// and run with a runtime from the user's file. Both survive a second init. Edited files are
// kept, "registry mirrors" changes a running node, and reset leaves the user's files.
func TestRegistries(t *testing.T) {
	s := up(t, lab.Options{Name: "e2e-registries", Hosts: 2})
	control, worker := s.Hosts[0], s.Hosts[1]
	bare := untouched(t, worker)
	address, ca := serveRegistry(t, control)
	auth := fmt.Sprintf(`{"auths": {"%s": {"auth": "%s"}}}`, address, base64.StdEncoding.EncodeToString([]byte(registryUser+":"+registryPassword)))
	for _, h := range s.Hosts {
		for path, text := range map[string]string{"/root/ca.pem": ca, "/root/auth.json": auth, "/etc/containerd/conf.d/site.toml": siteRuntime} {
			local := filepath.Join(t.TempDir(), "file")
			if err := os.WriteFile(local, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := h.CopyIn(t.Context(), local, path, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	flags := []string{"--registry-mirror", "team.example=https://" + address, "--registry-ca", "/root/ca.pem", "--registry-auth", "/root/auth.json"}
	out := install(t, control, 0, append([]string{"init"}, flags...)...)
	join, err := site.JoinArgs(out)
	if err != nil {
		t.Fatal(err)
	}
	install(t, worker, 0, append(join, flags...)...)
	for _, h := range s.Hosts {
		pulls(t, s, h)
		if out := run(t, h, "stat", "-c", "%a %U", "/etc/containerd/certs.d/team.example/hosts.toml"); strings.TrimSpace(out) != "600 root" {
			t.Errorf("hosts.toml with a password: %s", out)
		}
	}

	// The user edits files, and runs init again: first without the flags, then with them.
	const edited = "/etc/containerd/config.toml"
	const hosts = "/etc/containerd/certs.d/team.example/hosts.toml"
	run(t, control, "sh", "-c", "echo '# mine' >>"+edited+"; echo '# mine' >>"+hosts)
	contains(t, install(t, control, 0, "init"), "warning: "+edited+" was edited", "saved as "+edited+".airlift-saved")
	contains(t, run(t, control, "cat", hosts), "# mine")
	contains(t, install(t, control, 0, append([]string{"init"}, flags...)...), "warning: "+hosts+" was edited", "saved as "+hosts+".airlift-saved")
	contains(t, run(t, control, "cat", edited+".airlift-saved"), "# mine")
	contains(t, run(t, control, "cat", hosts+".airlift-saved"), "# mine", base64.StdEncoding.EncodeToString([]byte(registryUser+":"+registryPassword)))
	if again := install(t, control, 0, append([]string{"init"}, flags...)...); strings.Contains(again, "was edited") {
		t.Errorf("a warning without an edit:\n%s", again)
	}
	kubectl(t, s, "delete", "pod", "--all", "--wait", "--force")
	run(t, control, "sh", "-c", "ctr -n k8s.io images rm $(ctr -n k8s.io images ls -q | grep team.example)")
	pulls(t, s, control)

	// On a running node, the set goes and comes back, and containerd does not restart.
	before := run(t, worker, "systemctl", "show", "-p", "MainPID", "containerd")
	contains(t, install(t, worker, 0, "registry", "mirrors", "--off", "--dry-run"), "remove "+hosts)
	contains(t, install(t, worker, 0, "registry", "mirrors", "--off"), "no mirrors, CAs or credentials of the site")
	if out := run(t, worker, "ls", "/etc/containerd/certs.d"); strings.TrimSpace(out) != "" {
		t.Errorf("without registries, there is %s", out)
	}
	contains(t, install(t, worker, 0, append([]string{"registry", "mirrors"}, flags...)...), "team.example: https://"+address, "credentials for "+address)
	contains(t, install(t, worker, 0, append([]string{"registry", "mirrors"}, flags...)...), "Nothing was changed")
	run(t, worker, "sh", "-c", "ctr -n k8s.io images rm $(ctr -n k8s.io images ls -q | grep team.example)")
	pulls(t, s, worker)
	if after := run(t, worker, "systemctl", "show", "-p", "MainPID", "containerd"); after != before {
		t.Errorf("containerd was restarted: %s, %s", before, after)
	}

	left := install(t, control, 0, "reset", "--force")
	contains(t, left, "left: "+edited+".airlift-saved: ", "left: "+hosts+".airlift-saved: ")
	contains(t, run(t, control, "cat", "/etc/containerd/conf.d/site.toml"), "runtimes.site")
	install(t, worker, 0, "reset", "--force")
	contains(t, run(t, worker, "cat", "/etc/containerd/conf.d/site.toml"), "runtimes.site")
	run(t, worker, "rm", "-r", "/etc/containerd")
	same(t, bare, untouched(t, worker))
}

// pulls starts the pod on a host.
func pulls(t *testing.T, s *site.Site, h *lab.Host) {
	t.Helper()
	node := strings.TrimSpace(run(t, h, "hostname"))
	if err := s.Apply(t.Context(), fmt.Sprintf(registryPod, node)); err != nil {
		t.Fatal(err)
	}
	eventually(t, time.Minute, func() string {
		if phase := kubectl(t, s, "get", "pod", node, "-o", "jsonpath={.status.phase}"); phase != "Running" {
			return phase + "\n" + kubectl(t, s, "describe", "pod", node)
		}
		return ""
	})
}

const registryUser, registryPassword = "site", "correct horse"

// serveRegistry serves an image on a host's address, and returns the address and the
// registry's CA.
func serveRegistry(t *testing.T, h *lab.Host) (address, ca string) {
	t.Helper()
	reg := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	push := httptest.NewServer(reg)
	defer push.Close()
	ref, err := name.ParseReference(push.Listener.Addr().String()+"/tools/pause:1", name.Insecure)
	if err == nil {
		err = remote.Write(ref, pauseImage(t))
	}
	if err != nil {
		t.Fatal(err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "registry"}, IPAddresses: []net.IP{h.Addr.AsSlice()},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := h.Listen(t.Context(), "tcp", net.JoinHostPort(h.Addr.String(), "5000"))
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}},
		ErrorLog:  log.New(io.Discard, "", 0),
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if user, password, _ := r.BasicAuth(); user != registryUser || password != registryPassword {
				w.Header().Set("WWW-Authenticate", `Basic realm="site"`)
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			reg.ServeHTTP(w, r)
		}),
	}
	go server.ServeTLS(listener, "", "")
	t.Cleanup(func() { server.Close() })
	return listener.Addr().String(), string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

// pauseImage is an image with Kubernetes' pause as its only file.
func pauseImage(t *testing.T) v1.Image {
	t.Helper()
	path, err := components.Path(version, "pause")
	if err != nil {
		t.Fatal(err)
	}
	pause, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	if err := w.WriteHeader(&tar.Header{Name: "pause", Mode: 0o755, Size: int64(len(pause))}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(pause); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	l, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(layer.Bytes())), nil })
	if err != nil {
		t.Fatal(err)
	}
	img, err := mutate.AppendLayers(empty.Image, l)
	if err != nil {
		t.Fatal(err)
	}
	file, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	file = file.DeepCopy()
	file.OS, file.Architecture, file.Config.Entrypoint = "linux", runtime.GOARCH, []string{"/pause"}
	if img, err = mutate.ConfigFile(img, file); err != nil {
		t.Fatal(err)
	}
	return img
}
