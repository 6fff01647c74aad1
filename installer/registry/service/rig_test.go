package service

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"log/slog"
	"math/big"
	mathrand "math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"airlift/bundle"
	"airlift/bundle/head"
	"airlift/installer/cluster/health"
	"airlift/installer/config"
	"airlift/installer/pki"
	"airlift/installer/registry"
	"airlift/installer/registry/images"
	"airlift/installer/registry/store"
	"airlift/scripts/fixtures/testbundle"
	"airlift/scripts/fixtures/testhost"
)

// patience is for what takes moments, also on a loaded machine: an attempt that failed there is repeated after copyInterval.
const patience = copyInterval + time.Minute

// A fakeAPI answers as the API of a cluster.
type fakeAPI struct {
	mu       sync.Mutex
	nodes    []string
	tokens   []string // that are valid
	down     error
	reviews  int // calls
	gets     int
	list     *config.EmbeddedRegistry
	servers  []netip.AddrPort
	changed  chan struct{} // closed by a change
	blocking chan struct{} // if not nil, reviews wait for it
	trust    *tls.Config   // for connections to other control planes
}

// change changes the answers.
func (f *fakeAPI) change(do func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	do()
	if f.changed != nil {
		close(f.changed)
	}
	f.changed = make(chan struct{})
}

// follow calls use at the start and after each change.
func (f *fakeAPI) follow(ctx context.Context, use func(), failed func(error)) {
	for ctx.Err() == nil {
		f.mu.Lock()
		if f.changed == nil {
			f.changed = make(chan struct{})
		}
		down, changed := f.down, f.changed
		f.mu.Unlock()
		if down != nil {
			failed(down)
		} else {
			use()
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
}

func (f *fakeAPI) FollowNodes(ctx context.Context, use func([]string), failed func(error)) {
	f.follow(ctx, func() {
		f.mu.Lock()
		names := slices.Clone(f.nodes)
		f.mu.Unlock()
		use(names)
	}, failed)
}

func (f *fakeAPI) FollowConfigMap(ctx context.Context, namespace, name string, use func(map[string]string), failed func(error)) {
	f.follow(ctx, func() {
		f.mu.Lock()
		list := f.list
		f.mu.Unlock()
		if list == nil {
			use(nil)
			return
		}
		text, err := list.Encode()
		if err != nil || namespace != "kube-system" || name != "airlift-registry" {
			failed(err)
			return
		}
		use(map[string]string{"registry.yaml": string(text)})
	}, failed)
}

func (f *fakeAPI) FollowAPIServers(ctx context.Context, use func([]netip.AddrPort), failed func(error)) {
	f.follow(ctx, func() {
		f.mu.Lock()
		servers := f.servers
		f.mu.Unlock()
		if len(servers) > 0 {
			use(servers)
		}
	}, failed)
}

func (f *fakeAPI) NodeExists(_ context.Context, name string) (bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.gets++
	return slices.Contains(f.nodes, name), f.down
}

func (f *fakeAPI) ReviewToken(ctx context.Context, token string) (bool, error) {
	f.mu.Lock()
	f.reviews++
	valid, down, blocking := slices.Contains(f.tokens, token), f.down, f.blocking
	f.mu.Unlock()
	if blocking != nil {
		select {
		case <-blocking:
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
	return valid && down == nil, down
}

func (f *fakeAPI) Credentials() (*tls.Config, string, error) { return f.trust, "", nil }

// A fakeImages records what it gets.
type fakeImages struct {
	mu    sync.Mutex
	files []*bundle.File
	times int   // that Set was called
	err   error // of Set
}

func (f *fakeImages) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, "{}")
}

func (f *fakeImages) Set(files []*bundle.File) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.files = files
	f.times++
	return f.err
}

func (f *fakeImages) Served() []images.Served {
	return []images.Served{{Reference: "registry.k8s.io/app:v1", Complete: true}}
}

func (f *fakeImages) Close() {}

func (f *fakeImages) ids() (list []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, file := range f.files {
		list = append(list, file.ID())
	}
	return list
}

// An authority is a CA of a cluster, in a directory with the certificates of a control plane.
type authority struct {
	dir     string
	address string // of the control plane
	cert    *x509.Certificate
	key     crypto.Signer
}

func newAuthority(t testing.TB) *authority {
	t.Helper()
	a := &authority{dir: t.TempDir(), address: "127.0.0.1"}
	a.ensure(t)
	pair, err := tls.LoadX509KeyPair(filepath.Join(a.dir, "ca.crt"), filepath.Join(a.dir, "ca.key"))
	if err != nil {
		t.Fatal(err)
	}
	a.cert, a.key = pair.Leaf, pair.PrivateKey.(crypto.Signer)
	return a
}

// ensure writes the missing files of a control plane.
func (a *authority) ensure(t testing.TB) {
	t.Helper()
	cfg := testhost.Config(func(c *config.Config) {
		c.CertificatesDir, c.LocalAPIEndpoint.AdvertiseAddress = a.dir, a.address
	})
	made, err := pki.Ensure(cfg, os.DirFS("/"), time.Now(), "ca", "apiserver")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range made.Files {
		if err := os.WriteFile(f.Path, f.Data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// issue signs a certificate.
func (a *authority) issue(t testing.TB, commonName string, organizations []string, usage x509.ExtKeyUsage) *tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(mathrand.Int64()), Subject: pkix.Name{CommonName: commonName, Organization: organizations},
		NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{usage},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// kubelet signs the client certificate of a node.
func (a *authority) kubelet(t testing.TB, name string) *tls.Certificate {
	return a.issue(t, "system:node:"+name, []string{"system:nodes"}, x509.ExtKeyUsageClientAuth)
}

// client returns a client that trusts the CA. cert may be nil.
func (a *authority) client(t testing.TB, cert *tls.Certificate) *http.Client {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: a.trust(cert), MaxIdleConnsPerHost: 1000}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: patience, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

func (a *authority) trust(cert *tls.Certificate) *tls.Config {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	config := &tls.Config{RootCAs: pool, ServerName: health.ServerName}
	if cert != nil { // also if the server does not list its CA
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return cert, nil }
	}
	return config
}

// A rig is a running service.
type rig struct {
	*service
	*authority
	api    *fakeAPI
	images *fakeImages
	url    string
	stop   func() // waits for the end
	logged *logged
}

// A logged has the log of a service.
type logged struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

const node, token = "host1", "abcdef.0123456789abcdef"

// start runs a service that serves files to the node host1 and to the token. prepare may change it before; it may be nil.
func start(t testing.TB, prepare func(*rig), files ...string) *rig {
	t.Helper()
	r := &rig{authority: newAuthority(t), api: &fakeAPI{nodes: []string{node}, tokens: []string{token}}, images: new(fakeImages), logged: new(logged)}
	settings := &registry.Settings{Listen: "127.0.0.1:0", CertificatesDir: r.dir, Directory: t.TempDir()}
	r.service = newService(settings, r.api, r.images, slog.New(slog.NewTextHandler(r.logged, &slog.HandlerOptions{Level: slog.LevelDebug})))
	for _, path := range files {
		place(t, r.copies.store, path)
	}
	if prepare != nil {
		prepare(r)
	}
	r.run(t)
	return r
}

// run runs the service until the test ends, or stop is called.
func (r *rig) run(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ready, done := make(chan struct{}), make(chan error, 1)
	go func() {
		done <- r.service.run(ctx, func(context.Context) error { close(ready); return nil })
	}()
	r.stop = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("run: %v", err)
			}
		case <-time.After(patience):
			t.Error("run does not end")
		}
	})
	t.Cleanup(r.stop)
	select {
	case <-ready:
	case err := <-done:
		t.Fatal(err)
	case <-time.After(patience):
		t.Fatal("it is not ready")
	}
	r.url = "https://" + r.connections.Addr().String()
	eventually(t, func() bool { return r.catalog.published.Load() })
	eventually(t, func() bool {
		return r.api.down != nil || !r.state().API.Answered.IsZero() && r.state().API.Nodes == len(r.api.nodes)
	})
}

// eventually waits until a condition holds.
func eventually(t testing.TB, is func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it did not happen")
		}
	}
}

// place puts a file into a store.
func place(t testing.TB, s *store.Store, path string) {
	t.Helper()
	f, err := bundle.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := s.Keep(context.Background(), f, nil); err != nil {
		t.Fatal(err)
	}
}

// sample writes a bundle with some pieces. It returns its path, its bytes, and its ID.
func sample(t testing.TB, seed byte) (path string, data []byte, id string) {
	t.Helper()
	random := make([]byte, 5*head.PieceSize)
	_, _ = mathrand.NewChaCha8([32]byte{seed}).Read(random)
	path = filepath.Join(t.TempDir(), "install")
	m := &bundle.Manifest{FormatVersion: bundle.FormatVersion, Platform: "linux/amd64", KubernetesVersion: "v1.37.1", CNI: "none"}
	testbundle.WriteFile(t, path, bundle.Executables{Launcher: random[:100_000], Installer: random}, m, bundle.Fastest, nil)
	f, err := bundle.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if data, err = os.ReadFile(path); err != nil {
		t.Fatal(err)
	}
	return path, data, f.ID()
}

// A sending is a request.
type sending struct {
	method, path string
	header       map[string]string
}

// send sends a request and returns the response with its body.
func (r *rig) send(t testing.TB, client *http.Client, s sending) (*http.Response, []byte, error) {
	t.Helper()
	if s.method == "" {
		s.method = http.MethodGet
	}
	req, err := http.NewRequestWithContext(context.Background(), s.method, r.url+s.path, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range s.header {
		req.Header.Set(name, value)
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return resp, body, err
}

// status is send for the status alone.
func (r *rig) status(t testing.TB, client *http.Client, s sending) int {
	t.Helper()
	resp, _, err := r.send(t, client, s)
	if err != nil {
		t.Fatalf("%+v: %v", s, err)
	}
	return resp.StatusCode
}

// addAuthority appends another CA to ca.crt, as a rotation does.
func (a *authority) addAuthority(t testing.TB, other *authority) {
	t.Helper()
	var all []byte
	for _, c := range []*x509.Certificate{a.cert, other.cert} {
		all = append(all, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})...)
	}
	if err := replace(filepath.Join(a.dir, "ca.crt"), all); err != nil {
		t.Fatal(err)
	}
}

// replace writes a new file, as the installer does.
func replace(path string, data []byte) error {
	return errors.Join(os.WriteFile(path+".new", data, 0o600), os.Rename(path+".new", path))
}

// serveBytes runs a control plane that serves any bytes as a bundle.
func serveBytes(t *testing.T, a *authority, id string, data []byte) netip.AddrPort {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(filepath.Join(a.dir, "apiserver.crt"), filepath.Join(a.dir, "apiserver.key"))
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", `"`+id+`"`)
		http.ServeContent(w, r, "bundle", time.Time{}, bytes.NewReader(data))
	}))
	server.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
	server.StartTLS()
	t.Cleanup(server.Close)
	return netip.MustParseAddrPort(server.Listener.Addr().String())
}
