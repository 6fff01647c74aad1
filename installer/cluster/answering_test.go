package cluster

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"airlift/internal/fault"
)

// A signed is a certificate with its key.
type signed struct {
	*x509.Certificate
	key *ecdsa.PrivateKey
}

// issue makes a certificate that a CA signs, or itself without a CA.
func issue(t *testing.T, by *signed, from, to time.Time, name string) *signed {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, NotBefore: from, NotAfter: to,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: by == nil, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	if name == "other" {
		template.IPAddresses = []net.IP{net.IPv4(192, 0, 2, 9)}
	}
	parent, signer := template, key
	if by != nil {
		parent, signer = by.Certificate, by.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	c, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &signed{c, key}
}

func (s *signed) pem(t *testing.T) (cert, key []byte) {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(s.key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Raw}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}

// TestAnswering: the cause of a failed connection is named, with certificates of a real server.
func TestAnswering(t *testing.T) {
	now := time.Now()
	year := 365 * 24 * time.Hour
	ca, other := issue(t, nil, now.Add(-3*year), now.Add(year), "ca"), issue(t, nil, now.Add(-3*year), now.Add(year), "another ca")
	old := issue(t, nil, now.Add(-3*year), now.Add(-year), "ca")
	valid := func(by *signed, name string) *signed { return issue(t, by, now.Add(-time.Hour), now.Add(year), name) }
	ended := func(name string) *signed { return issue(t, ca, now.Add(-2*year), now.Add(-year), name) }
	for title, c := range map[string]struct {
		server, client *signed
		status         int
		want           string // of the error and its hint; "" if there is none
	}{
		"it answers":          {valid(ca, "s"), valid(ca, "c"), http.StatusOK, ""},
		"it forbids":          {valid(ca, "s"), valid(ca, "c"), http.StatusForbidden, ""},
		"it has an error":     {valid(ca, "s"), valid(ca, "c"), http.StatusInternalServerError, ""},
		"it ended":            {ended("s"), valid(ca, "c"), http.StatusOK, "ended on " + now.Add(-year).UTC().Format("2006-01-02") + "|kubeadm certs renew all"},
		"its CA ended":        {valid(old, "s"), valid(ca, "c"), http.StatusOK, "the CA of the API server at |ended on|new CA"},
		"it begins later":     {issue(t, ca, now.Add(24*time.Hour), now.Add(year), "s"), valid(ca, "c"), http.StatusOK, "begins on " + now.Add(24*time.Hour).UTC().Format("2006-01-02") + "|clock"},
		"another CA":          {valid(other, "s"), valid(ca, "c"), http.StatusOK, "not signed by the CA in the kubeconfig"},
		"another name":        {valid(ca, "other"), valid(ca, "c"), http.StatusOK, "for other names|192.0.2.9"},
		"the client's ended":  {valid(ca, "s"), ended("system:node:one"), http.StatusUnauthorized, "refuses this client|system:node:one, ended on"},
		"the client's begins": {valid(ca, "s"), issue(t, ca, now.Add(time.Hour), now.Add(year), "c"), http.StatusUnauthorized, "begins on|clock"},
		"other credentials":   {valid(ca, "s"), valid(ca, "c"), http.StatusUnauthorized, "does not accept the credentials"},
		"nobody":              {nil, valid(ca, "c"), 0, "does not answer|refused"},
	} {
		t.Run(title, func(t *testing.T) {
			address := "https://127.0.0.1:1"
			if c.server != nil {
				s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					w.Header().Set("Content-Type", "application/json")
					w.WriteHeader(c.status)
					fmt.Fprint(w, `{"kind": "Status", "apiVersion": "v1", "status": "Failure"}`)
				}))
				s.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{c.server.Raw}, PrivateKey: c.server.key}}, ClientAuth: tls.RequestClientCert}
				s.StartTLS()
				defer s.Close()
				address = s.URL
			}
			root, _ := ca.pem(t)
			if title == "its CA ended" {
				root, _ = old.pem(t)
			}
			cert, key := c.client.pem(t)
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "pem"), append(cert, key...), 0o600); err != nil { // as the kubelet's
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, "conf"), kubeconfigOf(address, root, filepath.Join(dir, "pem")), 0o600); err != nil {
				t.Fatal(err)
			}
			client, err := Load(filepath.Join(dir, "conf"), "")
			if err != nil {
				t.Fatal(err)
			}
			err = Answering(t.Context(), client, fault.Preflight)
			if c.want == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if fault.ExitCode(err) != fault.Preflight || fault.Hint(err) == "" {
				t.Fatalf("%v (exit code %d)", err, fault.ExitCode(err))
			}
			for want := range strings.SplitSeq(c.want, "|") {
				if text := err.Error() + " " + fault.Hint(err); !strings.Contains(text, want) {
					t.Errorf("no %q: %s", want, text)
				}
			}
		})
	}
}

func kubeconfigOf(server string, ca []byte, pair string) []byte {
	return fmt.Appendf(nil, `{"apiVersion": "v1", "kind": "Config", "current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
"clusters": [{"name": "c", "cluster": {"server": %q, "certificate-authority-data": %q}}], "users": [{"name": "u", "user": {"client-certificate": %q, "client-key": %q}}]}`,
		server, base64.StdEncoding.EncodeToString(ca), pair, pair)
}
