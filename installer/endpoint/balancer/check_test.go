package balancer

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"airlift/installer/cluster/health"
)

// An authority signs certificates of tests.
type authority struct {
	key         *ecdsa.PrivateKey
	certificate *x509.Certificate
}

func newAuthority(t testing.TB) *authority {
	t.Helper()
	a := &authority{}
	var parent *x509.Certificate
	a.certificate, a.key = sign(t, &x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}, parent, nil)
	return a
}

func sign(t testing.TB, template, parent *x509.Certificate, parentKey *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template.SerialNumber, template.NotBefore, template.NotAfter = big.NewInt(1), time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	if parent == nil {
		parent, parentKey = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, parentKey)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return certificate, key
}

// trust is the TLS option for this authority.
func (a *authority) trust() (*tls.Config, error) {
	pool := x509.NewCertPool()
	pool.AddCert(a.certificate)
	return &tls.Config{RootCAs: pool}, nil
}

// apiServer serves HTTPS with a certificate for a name.
func (a *authority) apiServer(t testing.TB, name string, h http.HandlerFunc) (*httptest.Server, netip.AddrPort) {
	t.Helper()
	certificate, key := sign(t, &x509.Certificate{DNSNames: []string{name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}, a.certificate, a.key)
	s := httptest.NewUnstartedServer(h)
	s.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{certificate.Raw}, PrivateKey: key}}}
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	t.Cleanup(s.Close)
	return s, s.Listener.Addr().(*net.TCPAddr).AddrPort()
}

// With --anonymous-auth=false, an API server answers 401 to every check.
func TestRefusedRequestMeansAlive(t *testing.T) {
	ca := newAuthority(t)
	for status, want := range map[int]string{
		200: "", 401: "", 403: "", 429: "",
		500: "checking /readyz: 500 Internal Server Error: not ready: etcd", 503: "checking /readyz: 503 Service Unavailable: not ready: etcd",
	} {
		_, address := ca.apiServer(t, health.ServerName, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/readyz" {
				t.Errorf("requested %s", r.URL)
			}
			w.WriteHeader(status)
			w.Write([]byte("[+]ping ok\n[-]etcd failed: reason withheld\nreadyz check failed\n"))
		})
		if err := NewCheck(ca.trust)(t.Context(), address); text(err) != want {
			t.Errorf("status %d: %v, want %s", status, err, want)
		}
	}
}

func TestOnlyAnAPIServerOfTheClusterIsReady(t *testing.T) {
	ca, other := newAuthority(t), newAuthority(t)
	ok := func(w http.ResponseWriter, r *http.Request) {}
	_, ours := ca.apiServer(t, health.ServerName, ok)
	_, kubelet := ca.apiServer(t, "node1", ok)
	_, foreign := other.apiServer(t, health.ServerName, ok)
	plain := serve(t, "127.0.0.1:0", echo)
	check := NewCheck(ca.trust)
	for address, want := range map[netip.AddrPort]string{
		ours:          "",
		kubelet:       "certificate is valid for node1, not " + health.ServerName,
		foreign:       "certificate signed by unknown authority",
		plain.address: "tls: ",
		unused():      "connection refused",
	} {
		if err := check(t.Context(), address); want == "" && err != nil || !strings.Contains(text(err), want) {
			t.Errorf("%s: %v, want %q", address, err, want)
		}
	}
	b := start(t, Options{Seeds: []netip.AddrPort{ours, foreign}, TLS: ca.trust}, nil)
	becomes(t, b, ours, Ready)
	becomes(t, b, foreign, Down)
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestChecksKeepTheirConnectionAndSeeARestart(t *testing.T) {
	ca := newAuthority(t)
	var connections atomic.Int32
	s, address := ca.apiServer(t, health.ServerName, func(http.ResponseWriter, *http.Request) {})
	var trusted atomic.Int32
	check := NewCheck(func() (*tls.Config, error) { trusted.Add(1); connections.Add(1); return ca.trust() })
	for range 5 {
		if err := check(t.Context(), address); err != nil {
			t.Fatal(err)
		}
	}
	if n := connections.Load(); n != 1 {
		t.Errorf("%d connections for 5 checks", n)
	}
	s.CloseClientConnections()
	eventually(t, "a check succeeds after its connection was closed", func() bool { return check(t.Context(), address) == nil })
	if trusted.Load() < 2 {
		t.Error("the CA was not read again for the new connection")
	}
}

// A stopped process: the kernel accepts connections, nobody answers.
func TestConnectionsOfAHungAPIServerAreClosed(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	var hang atomic.Bool
	stopped := make(chan struct{})
	slow, bad := ca.apiServer(t, health.ServerName, func(w http.ResponseWriter, r *http.Request) {
		if hang.Load() {
			<-stopped
		}
	})
	_, good := ca.apiServer(t, health.ServerName, func(http.ResponseWriter, *http.Request) {})
	t.Cleanup(func() { close(stopped); slow.CloseClientConnections() })
	b := start(t, Options{Seeds: []netip.AddrPort{bad, good}, TLS: ca.trust}, nil)
	becomes(t, b, bad, Ready)
	becomes(t, b, good, Ready)
	var clients []*net.TCPConn
	for range 10 {
		clients = append(clients, connect(t, b))
	}
	eventually(t, "both have connections", func() bool {
		s := b.Status()
		return s.of(bad).Connections > 0 && s.of(good).Connections > 0 && s.of(bad).Connections+s.of(good).Connections == len(clients)
	})
	hanging := b.Status().of(bad).Connections
	hang.Store(true)
	becomes(t, b, bad, Down)
	closed := make(chan struct{}, len(clients))
	for _, c := range clients {
		go func() {
			c.Read(make([]byte, 1))
			closed <- struct{}{}
		}()
	}
	for range hanging {
		select {
		case <-closed:
		case <-time.After(patienceOfTests):
			t.Fatal("connections stay open")
		}
	}
	if s := b.Status(); s.of(bad).Connections != 0 || s.of(good).Connections != len(clients)-hanging {
		t.Errorf("%+v", s)
	}
	hang.Store(false)
	becomes(t, b, bad, Ready)
}

func TestAHungCheckEndsWithTheBalancer(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	silent := serve(t, "127.0.0.1:0", func(*net.TCPConn) {})
	done := make(chan error)
	go func() { done <- NewCheck(newAuthority(t).trust)(ctx, silent.address) }()
	cancel()
	select {
	case <-done:
	case <-time.After(patienceOfTests):
		t.Error("the check does not end")
	}
}

// A slow API server gets one connection, not one for each check that has no answer in time.
func TestChecksOfASlowAPIServerShareAConnection(t *testing.T) {
	ca := newAuthority(t)
	for name, slow := range map[string]struct{ handshake, answer time.Duration }{
		"handshake": {handshake: 400 * time.Millisecond}, "answer": {answer: 400 * time.Millisecond},
		"a handshake that takes longer than a connect may": {handshake: dialTimeout + 400*time.Millisecond},
	} {
		var connections atomic.Int64
		var requests atomic.Int64
		server, _ := ca.apiServer(t, health.ServerName, func(http.ResponseWriter, *http.Request) {
			requests.Add(1)
			time.Sleep(slow.answer)
		})
		certificates := server.TLS.Certificates
		s := httptest.NewUnstartedServer(server.Config.Handler)
		s.EnableHTTP2 = true // as an API server does
		s.TLS = &tls.Config{Certificates: certificates, GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			connections.Add(1)
			time.Sleep(slow.handshake)
			return nil, nil
		}}
		s.Config.ErrorLog = log.New(io.Discard, "", 0)
		s.StartTLS()
		t.Cleanup(s.Close)
		check := NewCheck(ca.trust)
		late := 0
		for n := 0; n < 10 || requests.Load() == 0 && n < 100; n++ {
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			if check(ctx, s.Listener.Addr().(*net.TCPAddr).AddrPort()) != nil {
				late++
			}
			cancel()
		}
		if connections.Load() != 1 || requests.Load() == 0 || late == 0 {
			t.Errorf("%s: %d connections and %d requests, %d checks were late", name, connections.Load(), requests.Load(), late)
		}
	}
}
