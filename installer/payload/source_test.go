package payload_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	cryptorand "crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"airlift/bundle"
	"airlift/installer/cluster/health"
	"airlift/installer/host"
	"airlift/installer/node"
	"airlift/installer/payload"
	"airlift/installer/pki"
	"airlift/installer/workflow"
	"airlift/internal/dialer"
	"airlift/internal/fault"
	"airlift/scripts/fixtures/testbundle"
)

const token = "abcdef.0123456789abcdef"

// thin returns a bundle of an image, whole and thin.
func thin(t *testing.T) (whole *payload.Bundle, content map[string][]byte, small *payload.Bundle) {
	t.Helper()
	noise := make([]byte, 3<<20)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(noise)
	images := testbundle.NewImages(bundle.OnlyImages)
	images.Add(t, "example.com/app:1", "example.com/app:1", nil, testbundle.Layer(t, "noise", string(noise)))
	whole = images.Write(t, "more")
	path := filepath.Join(t.TempDir(), "thin")
	if _, err := bundle.WriteThin(t.Context(), whole.File, path); err != nil {
		t.Fatal(err)
	}
	f, err := bundle.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	if small, err = payload.OpenBundle(f); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(small.Close)
	return whole, images.Content, small
}

// A site is a cluster's API server at example.com:6443 that lists API servers at 127.0.0.1 and ::1, and the services
// of control planes that keep a bundle, by address. The certificate of httptest is for all three names.
type site struct {
	api       *httptest.Server
	forbidden bool
	keepers   map[string]*httptest.Server
	requests  map[string]*atomic.Int64
}

// certificate is the certificate of an API server, with its CA.
var certificate = sync.OnceValues(func() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), cryptorand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), DNSNames: []string{"example.com", health.ServerName},
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(cryptorand.Reader, template, template, key.Public(), key)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
})

// serve starts a server with the certificate of an API server.
func serve(t *testing.T, handler http.Handler) *httptest.Server {
	t.Helper()
	pair, err := certificate()
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(handler)
	s.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{keepers: map[string]*httptest.Server{}, requests: map[string]*atomic.Int64{}}
	s.api = serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if s.forbidden || r.URL.Path != "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices" || r.Header.Get("Authorization") != "Bearer "+token {
			w.WriteHeader(http.StatusForbidden)
			io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403}`)
			return
		}
		list := ""
		for n, address := range []string{"127.0.0.1", "::1"} {
			list += fmt.Sprintf(`%s{"addressType":"IPv4","endpoints":[{"addresses":["%s"]}],"ports":[{"name":"https","port":6443}]}`, strings.Repeat(",", n), address)
		}
		io.WriteString(w, `{"kind":"EndpointSliceList","apiVersion":"discovery.k8s.io/v1","items":[`+list+`]}`)
	}))
	return s
}

// keep starts the service of a control plane. content is nil for one that does not have the bundle.
func (s *site) keep(t *testing.T, address, id string, content []byte) {
	t.Helper()
	s.requests[address] = new(atomic.Int64)
	k := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.requests[address].Add(1)
		if r.URL.Path == "/bundles/"+id && r.Header.Get("Authorization") == "Bearer "+token && content != nil {
			w.Header().Set("ETag", `"`+id+`"`)
			http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
			return
		}
		http.NotFound(w, r)
	}))
	s.keepers[address] = k
}

// network returns a context in which the site has its addresses.
func (s *site) network(t *testing.T) context.Context {
	return dialer.With(t.Context(), func(ctx context.Context, network, address string) (net.Conn, error) {
		to := s.keepers[address]
		if address == "example.com:6443" {
			to = s.api
		}
		if to == nil {
			return nil, errors.New("connection refused by " + address)
		}
		return new(net.Dialer).DialContext(ctx, network, to.Listener.Addr().String())
	})
}

func (s *site) kubeconfig() []byte {
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.api.Certificate().Raw})
	return pki.BootstrapKubeconfig("https://example.com:6443", ca, token)
}

func console() (*workflow.Console, *bytes.Buffer) {
	var out bytes.Buffer
	return &workflow.Console{Out: &out}, &out
}

func read(b *payload.Bundle, content map[string][]byte) error {
	for name, want := range content {
		if got, err := b.Document(context.Background(), name); err != nil || !bytes.Equal(got, want) {
			return fmt.Errorf("%s: %d bytes, %w", name, len(got), err)
		}
	}
	return nil
}

func TestAttach(t *testing.T) {
	whole, content, b := thin(t)
	file, err := os.ReadFile(whole.File.Path())
	if err != nil {
		t.Fatal(err)
	}
	id := whole.File.ID()
	if err := b.NeedsSource(); fault.ExitCode(err) != fault.Usage {
		t.Errorf("before: %v", err)
	}
	c, _ := console()
	s := newSite(t)
	err = b.Attach(s.network(t), s.kubeconfig(), c)
	for _, want := range []string{"finding the bundle " + id, "127.0.0.1:7444: connection refused", "[::1]:7444: connection refused", "example.com:7444: connection refused"} {
		if fault.ExitCode(err) != fault.Preflight || !strings.Contains(err.Error(), want) || !strings.Contains(fault.Hint(err), "registry enable") {
			t.Errorf("nobody serves it: %v, not %q; hint %q", err, want, fault.Hint(err))
		}
	}

	s.keep(t, "127.0.0.1:7444", id, nil)
	s.keep(t, "[::1]:7444", id, file)
	if err := b.Attach(s.network(t), s.kubeconfig(), c); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(b.NeedsSource(), read(b, content)); err != nil {
		t.Error(err)
	}
	before := s.requests["[::1]:7444"].Load()
	if err := errors.Join(b.Attach(s.network(t), s.kubeconfig(), c), whole.Attach(t.Context(), nil, c)); err != nil || s.requests["[::1]:7444"].Load() != before {
		t.Errorf("again, and for a whole file: %v", err)
	}
}

// A token that may not read the list still has the address at which the cluster was found.
func TestAttachAtTheEndpoint(t *testing.T) {
	whole, content, b := thin(t)
	file, err := os.ReadFile(whole.File.Path())
	if err != nil {
		t.Fatal(err)
	}
	s := newSite(t)
	s.forbidden = true
	s.keep(t, "example.com:7444", whole.File.ID(), file)
	c, _ := console()
	if err := b.Attach(s.network(t), s.kubeconfig(), c); err != nil {
		t.Fatal(err)
	}
	if err := read(b, content); err != nil {
		t.Error(err)
	}
	// A server that ends is reported.
	if b.Close(); read(b, content) == nil {
		t.Error("the closed source can be read")
	}
}

func TestAttachNode(t *testing.T) {
	whole, content, b := thin(t)
	file, err := os.ReadFile(whole.File.Path())
	if err != nil {
		t.Fatal(err)
	}
	s := newSite(t)
	s.keep(t, "127.0.0.1:7444", whole.File.ID(), file)
	root := t.TempDir()
	h, err := host.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	c, _ := console()
	if err := b.AttachNode(s.network(t), h, c); fault.ExitCode(err) != fault.Preflight || !strings.Contains(err.Error(), "is not a node of a cluster") || fault.Hint(err) == "" {
		t.Errorf("not a node: %v", err)
	}
	path := filepath.Join(root, node.KubeletConf)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, s.kubeconfig(), 0o600)); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(b.AttachNode(s.network(t), h, c), read(b, content)); err != nil {
		t.Error(err)
	}
	if err := whole.AttachNode(t.Context(), h, c); err != nil {
		t.Errorf("a whole file: %v", err)
	}
}
