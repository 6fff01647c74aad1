package registry_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"airlift/builder/fetch"
	"airlift/builder/registry"
	"airlift/internal/fault"
)

// serverWith starts a server whose certificate is valid for hosts from one time to another, and returns what trusts it.
func serverWith(t *testing.T, from, to time.Time, hosts ...string) (*httptest.Server, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "site"}, NotBefore: from, NotAfter: to, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	for _, h := range hosts {
		if ip := net.ParseIP(h); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, h)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("{}")) }))
	s.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	t.Cleanup(s.Close)
	pool := x509.NewCertPool()
	pool.AddCert(leaf)
	return s, pool
}

// A firstByte reports the first byte that is sent: 22 for TLS.
type firstByte struct {
	net.Conn
	once sync.Once
	sent func(byte)
}

func (f *firstByte) Write(p []byte) (int, error) {
	f.once.Do(func() { f.sent(p[0]) })
	return f.Conn.Write(p)
}

// A certificate outside its dates has a hint about clocks and the certificate, at a private address as at a public name. Plain http is
// neither the hint nor tried: it would let everybody answer.
func TestCertificateOutsideItsDates(t *testing.T) {
	now := time.Now()
	for _, dates := range [][2]time.Time{{now.Add(-48 * time.Hour), now.Add(-24 * time.Hour)}, {now.Add(24 * time.Hour), now.Add(48 * time.Hour)}} {
		for _, host := range []string{"10.20.30.40:5000", "192.168.1.9", "registry.example.com", "registry.local:5000"} {
			server, pool := serverWith(t, dates[0], dates[1], "10.20.30.40", "192.168.1.9", "registry.example.com", "registry.local")
			var mu sync.Mutex
			var sent []byte
			transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
				c, err := (&net.Dialer{}).DialContext(ctx, network, server.Listener.Addr().String())
				return &firstByte{Conn: c, sent: func(b byte) { mu.Lock(); defer mu.Unlock(); sent = append(sent, b) }}, err
			}}
			rig := newSiteRig(t)
			mirrors, err := fetch.NewMirrors(transport, nil)
			if err != nil {
				t.Fatal(err)
			}
			_, err = rig.pull(registry.New(fetch.New(rig.cache, mirrors), mirrors, "amd64"), host+"/team/app:1")
			if err == nil || !strings.Contains(err.Error(), "certificate has expired or is not yet valid") {
				t.Fatalf("%s: %v", host, err)
			}
			hint := fault.Hint(err)
			if !strings.Contains(hint, "clock (date -u)") || !strings.Contains(hint, host+" needs a new certificate") || strings.Contains(hint, "http") {
				t.Errorf("%s: hint %q", host, hint)
			}
			_, err = (&http.Client{Transport: transport}).Get("https://" + host + "/file")
			if site := fetch.CertificateHint(err, "the site", "trust it"); !strings.Contains(site, "clock (date -u)") || strings.Contains(site, "http") {
				t.Errorf("%s: %v has the hint %q", host, err, site)
			}
			mu.Lock()
			if len(sent) < 2 || strings.Trim(string(sent), "\x16") != "" {
				t.Errorf("%s: the connections began with %q, and TLS begins with \\x16", host, sent)
			}
			mu.Unlock()
		}
	}
}
