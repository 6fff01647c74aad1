package remote

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"airlift/internal/fault"
	"airlift/scripts/fixtures/seed"
)

const (
	id    = "1f3a000000000000000000000000000000000000000000000000000000000000"
	token = "abcdef.0123456789abcdef"
	piece = 256 << 10
)

// A keeper is a control plane that serves a file. net/http answers the ranges.
type keeper struct {
	*httptest.Server
	address  string
	content  []byte
	requests atomic.Int64
	opened   atomic.Int64 // connections
	sent     atomic.Int64 // bytes written to connections
	cutAfter func() int64 // how many bytes a new connection lives; nil for ever
	// serve answers instead, if it is not nil. normal is how the server would answer.
	serve func(w http.ResponseWriter, r *http.Request, normal func())
}

// start starts a keeper.
func start(t *testing.T, content []byte, change func(*keeper)) *keeper {
	t.Helper()
	k := &keeper{content: content}
	if change != nil {
		change(k)
	}
	k.listen(t, "127.0.0.1:0")
	return k
}

func (k *keeper) listen(t *testing.T, address string) {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	k.Server = httptest.NewUnstartedServer(k)
	k.Listener.Close()
	k.Listener, k.address = cuttingListener{l, k}, l.Addr().String()
	k.Config.ErrorLog = log.New(io.Discard, "", 0)
	k.StartTLS()
	t.Cleanup(func() { k.CloseClientConnections(); k.Close() })
}

func (k *keeper) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	k.requests.Add(1)
	if r.ProtoMajor != 1 {
		http.Error(w, "only HTTP/1.1", http.StatusHTTPVersionNotSupported)
		return
	}
	if r.URL.Path == "/readyz" {
		io.WriteString(w, "ok")
		return
	}
	if r.URL.Path != "/bundles/"+id {
		http.NotFound(w, r)
		return
	}
	normal := func() {
		if r.Header.Get("Authorization") != "Bearer "+token {
			http.Error(w, "no token", http.StatusUnauthorized)
			return
		}
		w.Header().Set("ETag", `"`+id+`"`)
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(k.content))
	}
	if k.serve != nil {
		k.serve(w, r, normal)
		return
	}
	normal()
}

// A cuttingListener cuts connections after some bytes, as a broken link does.
type cuttingListener struct {
	net.Listener
	k *keeper
}

func (l cuttingListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.k.opened.Add(1)
	// What the kernel has not sent is not on the link.
	_ = c.(*net.TCPConn).SetWriteBuffer(64 << 10)
	conn := &cuttingConn{Conn: c, k: l.k, left: -1}
	if l.k.cutAfter != nil {
		conn.left = l.k.cutAfter()
	}
	return conn, nil
}

type cuttingConn struct {
	net.Conn
	k    *keeper
	left int64 // bytes until the cut; negative for no cut
}

func (c *cuttingConn) Write(b []byte) (int, error) {
	if c.left >= 0 && c.left < int64(len(b)) {
		n, _ := c.Conn.Write(b[:c.left])
		c.k.sent.Add(int64(n))
		_ = c.Conn.(*net.TCPConn).SetLinger(0)
		c.Conn.Close()
		return n, errors.New("cut")
	}
	n, err := c.Conn.Write(b)
	c.k.sent.Add(int64(n))
	if c.left >= 0 {
		c.left -= int64(n)
	}
	return n, err
}

func random(size int) []byte {
	r := rand.NewChaCha8([32]byte{7})
	b := make([]byte, size)
	_, _ = r.Read(b)
	return b
}

// trust trusts the keepers.
func trust(keepers ...*keeper) *tls.Config {
	pool := x509.NewCertPool()
	for _, k := range keepers {
		pool.AddCert(k.Certificate())
	}
	return &tls.Config{RootCAs: pool, ServerName: "example.com"}
}

// reader returns a reader of a file from keepers, without long waits.
func reader(t testing.TB, size int, keepers ...*keeper) *Reader {
	t.Helper()
	var servers []string
	for _, k := range keepers {
		servers = append(servers, k.address)
	}
	r, err := Open(context.Background(), Options{ID: id, Size: int64(size), Servers: func() []string { return servers }, TLS: trust(keepers...), Token: token})
	if err != nil {
		t.Fatal(err)
	}
	r.pause = time.Millisecond
	t.Cleanup(func() { r.Close() })
	return r
}

// readAll reads the content piece by piece, each compared with the content.
func readAll(r *Reader, content []byte) error {
	got := make([]byte, piece)
	for at := 0; at < len(content); at += piece {
		want := content[at:min(at+piece, len(content))]
		matches := func(b []byte) bool { return bytes.Equal(b, want) }
		if err := r.ReadVerified(context.Background(), got[:len(want)], int64(at), matches); err != nil {
			return err
		}
		if !bytes.Equal(got[:len(want)], want) {
			return fmt.Errorf("other bytes at %d", at)
		}
	}
	return nil
}

func TestReadsTheWholeFile(t *testing.T) {
	content := random(3*chunk + 12345)
	k := start(t, content, nil)
	r := reader(t, len(content), k)
	if err := r.Probe(t.Context()); err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(io.NewSectionReader(r, 0, int64(len(content))))
	if err != nil || !bytes.Equal(got, content) {
		t.Fatalf("%d bytes, %v", len(got), err)
	}
	if k.requests.Load() != 1+4 || k.opened.Load() != 1 { // the probe, and one for each chunk
		t.Errorf("%d requests in %d connections", k.requests.Load(), k.opened.Load())
	}
	// TLS and HTTP add less than a thousandth.
	if extra := k.sent.Load() - int64(len(content)); extra > int64(len(content))/100 {
		t.Errorf("%d bytes more than the file were sent", extra)
	}
}

// ReadAt answers as bytes.Reader does, for any range.
func TestReadsAnyRange(t *testing.T) {
	content := random(chunk + 1000)
	r := reader(t, len(content), start(t, content, nil))
	rapid.Check(t, func(t *rapid.T) {
		at := rapid.Int64Range(0, int64(len(content))+5).Draw(t, "at")
		got := make([]byte, rapid.IntRange(0, 2*piece).Draw(t, "size"))
		want := make([]byte, len(got))
		n, err := r.ReadAt(got, at)
		m, wantErr := bytes.NewReader(content).ReadAt(want, at)
		if n != m || !errors.Is(err, wantErr) && len(got) > 0 || !bytes.Equal(got, want) {
			t.Fatalf("%d bytes at %d: %d and %v, want %d and %v", len(got), at, n, err, m, wantErr)
		}
	})
	if _, err := r.ReadAt(make([]byte, 1), -1); err == nil {
		t.Error("a negative offset was read")
	}
}

// A cut continues where it was: at most 1 MiB is sent again for each.
func TestCuts(t *testing.T) {
	content := random(20<<20 + 4321)
	rapid.Check(t, func(rt *rapid.T) {
		lives := rapid.SliceOfN(rapid.Int64Range(100_000, 8<<20), 1, 12).Draw(rt, "bytes until each cut")
		slow := rapid.Bool().Draw(rt, "slow reader")
		var cuts atomic.Int64
		var mu sync.Mutex
		cutAfter := func() int64 {
			mu.Lock()
			defer mu.Unlock()
			if len(lives) == 0 {
				return -1
			}
			next := lives[0]
			lives = lives[1:]
			cuts.Add(1)
			return next
		}
		one := start(t, content, func(k *keeper) { k.cutAfter = cutAfter })
		two := start(t, content, func(k *keeper) { k.cutAfter = cutAfter })
		r := reader(t, len(content), one, two)
		for at := 0; at < len(content); at += piece {
			got := make([]byte, min(piece, len(content)-at))
			if _, err := r.ReadAt(got, int64(at)); err != nil || !bytes.Equal(got, content[at:at+len(got)]) {
				rt.Fatalf("at %d: %v", at, err)
			}
			if slow && at%(16*piece) == 0 {
				time.Sleep(5 * time.Millisecond) // so that the server fills all buffers
			}
		}
		r.Close()
		// TLS adds about 0.2 %, and 5 kB for each handshake.
		sent := one.sent.Load() + two.sent.Load()
		if most := int64(len(content)) + cuts.Load()*(1<<20) + int64(len(content))/200 + 64<<10; sent > most {
			rt.Fatalf("%d bytes were sent for a file of %d with %d cuts", sent, len(content), cuts.Load())
		}
		one.Close()
		two.Close()
	})
}

// faults are answers that must not be used. After a final one of every server, the reader gives up at once.
var faults = map[string]struct {
	serve func(w http.ResponseWriter, r *http.Request, normal func())
	want  string
	final bool
}{
	"not found": {func(w http.ResponseWriter, r *http.Request, _ func()) { http.NotFound(w, r) }, "does not have this bundle (404", true},
	"other bundle": {func(w http.ResponseWriter, _ *http.Request, _ func()) { w.WriteHeader(http.StatusPreconditionFailed) },
		"another bundle (412", true},
	"another ETag": {func(w http.ResponseWriter, r *http.Request, _ func()) {
		r.Header.Del("If-Match")
		w.Header().Set("ETag", `"other"`)
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(make([]byte, 2<<20)))
	}, `another file: ETag "other"`, true},
	"no credential": {func(w http.ResponseWriter, _ *http.Request, _ func()) { w.WriteHeader(http.StatusUnauthorized) },
		"does not accept this host's credential (401", true},
	"a redirect": {func(w http.ResponseWriter, r *http.Request, _ func()) {
		http.Redirect(w, r, "https://example.com/", http.StatusTemporaryRedirect)
	}, "it returned 307", true},
	"the whole file": {func(w http.ResponseWriter, r *http.Request, normal func()) { r.Header.Del("Range"); normal() }, "it returned 200", true},
	"another size": {func(w http.ResponseWriter, r *http.Request, _ func()) {
		w.Header().Set("ETag", `"`+id+`"`)
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(make([]byte, 5<<20)))
	}, `instead of "bytes 0-2097151/2097152"`, true},
	"compressed": {func(w http.ResponseWriter, _ *http.Request, normal func()) {
		w.Header().Set("Content-Encoding", "gzip")
		normal()
	}, `content encoding "gzip"`, true},
	"no length": {func(w http.ResponseWriter, r *http.Request, _ func()) {
		w.Header().Set("ETag", `"`+id+`"`)
		w.Header().Set("Content-Range", fmt.Sprintf("bytes %s/%d", strings.TrimPrefix(r.Header.Get("Range"), "bytes="), 2<<20))
		w.WriteHeader(http.StatusPartialContent)
		w.(http.Flusher).Flush()
		w.Write(make([]byte, 3<<20)) // too many bytes
	}, "announced -1 bytes", true},
	"damaged": {func(w http.ResponseWriter, r *http.Request, _ func()) {
		w.Header().Set("ETag", `"`+id+`"`)
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(make([]byte, 2<<20)))
	}, "bytes 0 to 262143 do not match their sha256", true},
	"broken": {func(w http.ResponseWriter, _ *http.Request, _ func()) { w.WriteHeader(http.StatusInternalServerError) }, "it returned 500", false},
	"busy":   {func(w http.ResponseWriter, _ *http.Request, _ func()) { w.WriteHeader(http.StatusServiceUnavailable) }, "it returned 503", false},
	"too few bytes": {func(w http.ResponseWriter, r *http.Request, _ func()) {
		w.Header().Set("ETag", `"`+id+`"`)
		w.Header().Set("Content-Length", "2097152")
		w.Header().Set("Content-Range", fmt.Sprintf("bytes %s/%d", strings.TrimPrefix(r.Header.Get("Range"), "bytes="), 2<<20))
		w.WriteHeader(http.StatusPartialContent)
	}, "EOF", false},
}

// Nothing but another token helps a host whose token has expired.
func TestHintOfRefusedToken(t *testing.T) {
	content := random(1000)
	bad := start(t, content, func(k *keeper) {
		k.serve = func(w http.ResponseWriter, _ *http.Request, _ func()) { w.WriteHeader(http.StatusUnauthorized) }
	})
	for token, want := range map[string]string{"abcdef.0123456789abcdef": "./install token create", "": "registry enable"} {
		r := reader(t, len(content), bad)
		r.options.Token = token
		if err := r.Probe(t.Context()); !strings.Contains(fault.Hint(err), want) {
			t.Errorf("token %q: %v, hint %q", token, err, fault.Hint(err))
		}
	}
}

func TestFaultyServers(t *testing.T) {
	content := random(2 << 20)
	for name, f := range faults {
		t.Run(name, func(t *testing.T) {
			bad := start(t, content, func(k *keeper) { k.serve = f.serve })
			good := start(t, content, nil)
			if err := readAll(reader(t, len(content), bad, good), content); err != nil {
				t.Errorf("with another server: %v", err)
			}
			before := bad.requests.Load()
			err := readAll(reader(t, len(content), bad), content)
			if err == nil || !strings.Contains(err.Error(), bad.address+": ") || !strings.Contains(err.Error(), f.want) || fault.Hint(err) == "" {
				t.Errorf("alone: %v", err)
			}
			if tries := bad.requests.Load() - before; f.final && tries != 1 || !f.final && tries < 2 || tries > 2*rounds {
				t.Errorf("alone: %d requests", tries)
			}
		})
	}
}

// Each of two servers has a damaged disk, at different places.
func TestDamageAtTwoServers(t *testing.T) {
	content := random(10 << 20)
	places := rand.New(rand.NewPCG(seed.Value(t), 0))
	var keepers []*keeper
	for n := range 2 {
		damaged := bytes.Clone(content)
		for at := n * piece; at < len(damaged); at += 2 * piece {
			damaged[at+places.IntN(min(piece, len(damaged)-at))] ^= 8
		}
		keepers = append(keepers, start(t, damaged, nil))
	}
	if err := readAll(reader(t, len(content), keepers...), content); err != nil {
		t.Error(err)
	}
}

// A server sends a damaged half of a piece and is cut, and an intact one sends the rest.
func TestPieceFromTwoServers(t *testing.T) {
	content := random(1 << 20)
	damaged := bytes.Clone(content)
	damaged[100] ^= 1
	bad := start(t, damaged, func(k *keeper) { k.cutAfter = func() int64 { return 100_000 } })
	good := start(t, content, nil)
	if err := readAll(reader(t, len(content), bad, good), content); err != nil {
		t.Error(err)
	}
}

func TestServerThatStalls(t *testing.T) {
	content := random(2 << 20)
	stalls := func(w http.ResponseWriter, r *http.Request, normal func()) {
		w.Header().Set("ETag", `"`+id+`"`)
		w.Header().Set("Content-Length", "2097152")
		w.Header().Set("Content-Range", fmt.Sprintf("bytes %s/%d", strings.TrimPrefix(r.Header.Get("Range"), "bytes="), 2<<20))
		w.WriteHeader(http.StatusPartialContent)
		w.Write(content[:300_000])
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}
	bad := start(t, content, func(k *keeper) { k.serve = stalls })
	r := reader(t, len(content), bad, start(t, content, nil))
	r.stall = 300 * time.Millisecond
	if err := readAll(r, content); err != nil {
		t.Error(err)
	}

	// The caller need not wait for the limit.
	r = reader(t, len(content), bad)
	ctx, cancel := context.WithCancel(t.Context())
	errs := make(chan error)
	go func() {
		errs <- r.ReadVerified(ctx, make([]byte, 400_000), 0, func([]byte) bool { return true })
	}()
	for bad.requests.Load() < 2 {
		time.Sleep(time.Millisecond)
	}
	cancel()
	if err := <-errs; !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	// Nor does one that waits for its turn, and Close ends all.
	go func() { _, err := r.ReadAt(make([]byte, 400_000), 0); errs <- err }()
	go func() { _, err := r.ReadAt(make([]byte, 400_000), 0); errs <- err }()
	for bad.requests.Load() < 3 {
		time.Sleep(time.Millisecond)
	}
	r.cancel()
	for range 2 {
		if err := <-errs; !errors.Is(err, context.Canceled) {
			t.Errorf("closed: %v", err)
		}
	}
}

// One of two servers ends for ever in the middle.
func TestServerThatDies(t *testing.T) {
	content := random(12 << 20)
	dying, other := start(t, content, nil), start(t, content, nil)
	r := reader(t, len(content), dying, other)
	got := make([]byte, 3<<20)
	if _, err := r.ReadAt(got, 0); err != nil || other.requests.Load() > 0 {
		t.Fatal(err)
	}
	dying.CloseClientConnections()
	dying.Close()
	if err := readAll(r, content); err != nil {
		t.Error(err)
	}
	var lines []string
	r.options.Report = func(line string) { lines = append(lines, line) }
	other.CloseClientConnections()
	other.Close()
	_, err := r.ReadAt(make([]byte, 10), 5)
	for _, k := range []*keeper{dying, other} {
		if err == nil || !strings.Contains(err.Error(), k.address+": ") || !strings.Contains(err.Error(), "refused") {
			t.Errorf("without servers: %v", err)
		}
	}
	if len(lines) != 2*rounds-1 {
		t.Errorf("reported: %q", lines)
	}
}

func TestNewServersAreUsed(t *testing.T) {
	content := random(1 << 20)
	gone, added := start(t, content, func(k *keeper) {
		k.serve = func(w http.ResponseWriter, _ *http.Request, _ func()) { w.WriteHeader(http.StatusServiceUnavailable) }
	}), start(t, content, nil)
	r := reader(t, len(content), gone, added)
	r.servers = r.servers[:1]
	if err := readAll(r, content); err != nil {
		t.Error(err)
	}
}

// The token is sent only to a server whose certificate the cluster's CA signed.
func TestTokenIsNotSentToAnImpostor(t *testing.T) {
	content := random(1000)
	impostor := start(t, content, nil)
	r, err := Open(t.Context(), Options{ID: id, Size: 1000, Servers: func() []string { return []string{impostor.address} }, TLS: &tls.Config{RootCAs: x509.NewCertPool(), ServerName: "example.com"}, Token: token})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for name, err := range map[string]error{"probe": r.Probe(t.Context()), "read": func() error { _, err := r.ReadAt(make([]byte, 10), 0); return err }()} {
		if err == nil || !strings.Contains(err.Error(), "its certificate is not one of this cluster") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n := impostor.requests.Load(); n > 0 {
		t.Errorf("%d requests reached the impostor", n)
	}
	for name, trust := range map[string]*tls.Config{"no TLS": nil, "unverified TLS": {InsecureSkipVerify: true}, "any name": {RootCAs: x509.NewCertPool()}} {
		if _, err := Open(t.Context(), Options{ID: id, Size: 1000, Servers: func() []string { return []string{impostor.address} }, TLS: trust}); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
	if _, err := Open(t.Context(), Options{ID: id, Size: 1000, Servers: func() []string { return nil }, TLS: &tls.Config{ServerName: "example.com"}}); fault.Hint(err) == "" {
		t.Errorf("without servers: %v", err)
	}
}

func TestProbe(t *testing.T) {
	content := random(1000)
	without := start(t, content, func(k *keeper) {
		k.serve = func(w http.ResponseWriter, r *http.Request, _ func()) { http.NotFound(w, r) }
	})
	other := start(t, content[:999], nil)
	good := start(t, content, nil)
	r := reader(t, len(content), without, other, good)
	if err := r.Probe(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := r.ReadAt(make([]byte, 10), 0); err != nil || without.requests.Load() != 1 || other.requests.Load() != 1 {
		t.Errorf("it does not read where the bundle was found: %v", err)
	}
	err := reader(t, len(content), without, other).Probe(t.Context())
	for _, want := range []string{"finding the bundle " + id, without.address + ": it does not have this bundle (404", other.address + ": its file has 999 bytes instead of 1000"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not contain %q", err, want)
		}
	}
	if err := Answers(t.Context(), good.address); err != nil {
		t.Error(err)
	}
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	if err := Answers(t.Context(), closed.Addr().String()); err == nil {
		t.Error("a closed port answers")
	}
}

func TestIPv6(t *testing.T) {
	content := random(1 << 20)
	k := &keeper{content: content}
	k.listen(t, "[::1]:0")
	if err := readAll(reader(t, len(content), k), content); err != nil {
		t.Error(err)
	}
}

// Several goroutines read at once, each its own ranges, with cuts.
func TestConcurrentReads(t *testing.T) {
	content := random(4 << 20)
	var n atomic.Int64
	k := start(t, content, func(k *keeper) {
		k.cutAfter = func() int64 {
			if n.Add(1)%3 == 0 {
				return 400_000
			}
			return -1
		}
	})
	r := reader(t, len(content), k)
	var group sync.WaitGroup
	for g := range 8 {
		group.Go(func() {
			random := rand.New(rand.NewPCG(uint64(g), 1))
			for range 20 {
				at := random.IntN(len(content))
				got := make([]byte, random.IntN(min(piece, len(content)-at)))
				if m, err := r.ReadAt(got, int64(at)); err != nil || !bytes.Equal(got[:m], content[at:at+len(got)]) {
					t.Errorf("%d bytes at %d: %v", len(got), at, err)
				}
			}
		})
	}
	group.Wait()
}
