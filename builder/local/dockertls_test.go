package local_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"airlift/scripts/fixtures/fakesites"
)

// A Docker at DOCKER_HOST=tcp://… with certificates, as the docker command uses it.
func TestDockerWithTLS(t *testing.T) {
	r := newRig(t)
	file := r.dockerArchive("app.tar", map[string]v1.Image{"app:1": fakesites.Image(t, "amd64", "app")})
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "docker"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	dir := t.TempDir()
	for name, content := range map[string][]byte{"ca.pem": cert, "cert.pem": cert, "key.pem": pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) { http.ServeFile(w, q, file) }))
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(cert)
	s.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool}
	s.StartTLS()
	t.Cleanup(s.Close)

	t.Setenv("DOCKER_HOST", strings.Replace(s.URL, "https", "tcp", 1))
	t.Setenv("DOCKER_TLS_VERIFY", "1")
	t.Setenv("DOCKER_CERT_PATH", dir)
	if got := r.one("amd64", "docker-daemon:app:1"); got.Reference != "docker.io/library/app:1" {
		t.Errorf("%+v", got)
	}
	t.Setenv("DOCKER_CERT_PATH", t.TempDir())
	if _, err := r.read("amd64", "docker-daemon:app:1"); err == nil || !strings.Contains(err.Error(), "reading docker's certificates") {
		t.Errorf("err = %v", err)
	}
	t.Setenv("DOCKER_TLS_VERIFY", "")
	if _, err := r.read("amd64", "docker-daemon:app:1"); err == nil {
		t.Error("plain http reached a Docker with TLS")
	}
}
