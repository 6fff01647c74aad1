package service

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"airlift/bundle"
	"airlift/bundle/head"
	_ "airlift/scripts/fixtures/seed"
)

// flip changes one byte of a file in place.
func flip(t *testing.T, path string, at int64) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 1)
	_, err = f.ReadAt(b, at)
	b[0] ^= 1
	if _, write := f.WriteAt(b, at); errors.Join(err, write, f.Close()) != nil {
		t.Fatal(err, write)
	}
}

func TestFile(t *testing.T) {
	path, data, id := sample(t, 1)
	r := start(t, nil, path)
	client, size := r.client(t, r.kubelet(t, node)), len(data)
	for _, c := range []struct {
		name   string
		header map[string]string
		status int
		body   []byte // nil: any
	}{
		{"whole", nil, 200, data},
		{"from the start", map[string]string{"Range": "bytes=0-"}, 206, data},
		{"a range", map[string]string{"Range": "bytes=1000-1999"}, 206, data[1000:2000]},
		{"an open range", map[string]string{"Range": fmt.Sprintf("bytes=%d-", size-10)}, 206, data[size-10:]},
		{"the end", map[string]string{"Range": "bytes=-232"}, 206, data[size-232:]},
		{"more than the file has", map[string]string{"Range": "bytes=-999999999999"}, 206, data},
		{"beyond the end", map[string]string{"Range": fmt.Sprintf("bytes=%d-", size)}, 416, nil},
		{"an offset that overflows", map[string]string{"Range": "bytes=99999999999999999999-"}, 416, nil},
		{"an end that overflows", map[string]string{"Range": "bytes=0-99999999999999999999"}, 416, nil},
		{"the largest offset", map[string]string{"Range": "bytes=9223372036854775807-"}, 416, nil},
		{"an end of the largest offset", map[string]string{"Range": fmt.Sprintf("bytes=%d-9223372036854775807", size-1)}, 206, data[size-1:]},
		{"a negative offset", map[string]string{"Range": "bytes=--1"}, 416, nil},
		{"the end before the start", map[string]string{"Range": "bytes=10-5"}, 416, nil},
		{"another unit", map[string]string{"Range": "pieces=0-1"}, 416, nil},
		{"no numbers", map[string]string{"Range": "bytes=a-b"}, 416, nil},
		{"two ranges", map[string]string{"Range": "bytes=0-0,2-2"}, 416, nil},
		{"many ranges", map[string]string{"Range": "bytes=" + strings.Repeat("0-,", 2000) + "0-"}, 416, nil},
		{"this file", map[string]string{"If-Match": `"` + id + `"`, "Range": "bytes=0-0"}, 206, data[:1]},
		{"any file", map[string]string{"If-Match": "*"}, 200, data},
		{"another file", map[string]string{"If-Match": `"` + strings.Repeat("0", 64) + `"`}, 412, nil},
		{"a weak ETag", map[string]string{"If-Match": `W/"` + id + `"`}, 412, nil},
		{"a file that is known", map[string]string{"If-None-Match": `"` + id + `"`}, 304, []byte{}},
		{"if it is this file", map[string]string{"If-Range": `"` + id + `"`, "Range": "bytes=0-0"}, 206, data[:1]},
		{"if it is another file", map[string]string{"If-Range": `"x"`, "Range": "bytes=0-0"}, 200, data},
		{"compressed", map[string]string{"Accept-Encoding": "gzip, zstd"}, 200, data},
	} {
		resp, body, err := r.send(t, client, sending{path: "/bundles/" + id, header: c.header})
		if err != nil || resp.StatusCode != c.status || c.body != nil && !bytes.Equal(body, c.body) {
			t.Errorf("%s: %v with %d bytes, %v; want %d with %d", c.name, resp, len(body), err, c.status, len(c.body))
			continue
		}
		if is := resp.Header.Get("ETag"); c.status < 300 && is != `"`+id+`"` || resp.Header.Get("Content-Encoding") != "" {
			t.Errorf("%s: ETag %s", c.name, is)
		}
		if (c.name == "beyond the end" || strings.Contains(c.name, "ranges")) && resp.Header.Get("Content-Range") != fmt.Sprintf("bytes */%d", size) {
			t.Errorf("%s: Content-Range %q", c.name, resp.Header.Get("Content-Range"))
		}
		head, body, err := r.send(t, client, sending{http.MethodHead, "/bundles/" + id, c.header})
		if err != nil || head.StatusCode != c.status || len(body) > 0 || c.status < 300 && head.ContentLength != int64(len(c.body)) {
			t.Errorf("%s: HEAD: %v with %d bytes, %v", c.name, head, len(body), err)
		}
	}
	if sent := r.state().BytesSent; sent < int64(5*size) {
		t.Errorf("%d bytes sent", sent)
	}
}

// Every single range that a client may send is answered as net/http answers it for the same bytes.
func TestRanges(t *testing.T) {
	path, data, id := sample(t, 1)
	r := start(t, nil, path)
	client := r.client(t, r.kubelet(t, node))
	rapid.Check(t, func(p *rapid.T) {
		text := rapid.StringMatching(`bytes=[0-9]{0,8}-[0-9]{0,8}`).Draw(p, "range")
		req, err := http.NewRequest(http.MethodGet, "/", nil)
		if err != nil {
			p.Fatal(err)
		}
		req.Header.Set("Range", text)
		want := &recorder{header: http.Header{}}
		http.ServeContent(want, req, "x", time.Time{}, bytes.NewReader(data))
		resp, body, err := r.send(t, client, sending{path: "/bundles/" + id, header: map[string]string{"Range": text}})
		if err != nil || resp.StatusCode != want.status || want.status == 206 && !bytes.Equal(body, want.body.Bytes()) || resp.Header.Get("Content-Range") != want.header.Get("Content-Range") {
			p.Fatalf("%s: %v, %d bytes, %v; want %d", text, resp, len(body), err, want.status)
		}
	})
}

type recorder struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (r *recorder) Header() http.Header         { return r.header }
func (r *recorder) WriteHeader(status int)      { r.status = status }
func (r *recorder) Write(b []byte) (int, error) { return r.body.Write(b) }

// Only GET and HEAD, and only these paths, as they are.
func TestPathsAndMethods(t *testing.T) {
	path, _, id := sample(t, 1)
	r := start(t, nil, path)
	client := r.client(t, r.kubelet(t, node))
	for path, want := range map[string]int{
		"/": 404, "/bundle": 404, "/bundlesx": 404, "/v1/": 404, "/metrics": 404, "/debug/pprof/": 404, "/status": 404, "/refresh": 404,
		"/bundles/": 404, "/bundles/" + id[1:]: 404, "/bundles/" + strings.ToUpper(id): 404, "/bundles/" + strings.Repeat("0", 64): 404,
		"/bundles/" + id + "/": 404, "/bundles/./" + id: 404, "/bundles//" + id: 404, "//bundles": 404, "/bundles/" + id + ".partial": 404,
		"/bundles/../bundles/" + id: 404, "/bundles/../../../../etc/kubernetes/pki/ca.key": 404, "/bundles/%2e%2e%2fknown.json": 404,
		"/bundles/..%2f..%2fetc/passwd": 404, "/bundles/known.json": 404, "/bundles/cache": 404, "/bundles/" + id + "%00": 404,
		"/x/../bundles/" + id: 404, "/readyz/": 404, "/bundles/" + id + "?x=1": 200, "/bundles?x": 200,
	} {
		if got := r.status(t, client, sending{path: path}); got != want {
			t.Errorf("%s: %d, want %d", path, got, want)
		}
	}
	for _, method := range []string{"POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT", "get"} {
		for _, path := range []string{"/bundles", "/bundles/" + id, "/v2/a/blobs/uploads/", "/v2/a/manifests/1", "/readyz", "/"} {
			for _, client := range []*http.Client{client, r.client(t, nil)} {
				resp, _, err := r.send(t, client, sending{method: method, path: path})
				if err != nil {
					t.Fatalf("%s %s: %v", method, path, err)
				}
				if resp.StatusCode != 405 || resp.Header.Get("Allow") != "GET, HEAD" {
					t.Errorf("%s %s: %d, Allow %q", method, path, resp.StatusCode, resp.Header.Get("Allow"))
				}
			}
		}
	}
	if got := r.catalog.bundles(); len(got) != 1 {
		t.Errorf("%+v", got)
	}
}

// A damaged piece is never sent: the answer ends before it. Other pieces are.
func TestDamagedFile(t *testing.T) {
	path, data, id := sample(t, 1)
	r := start(t, nil, path)
	f, err := bundle.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	damaged := f.PayloadOffset() + 2*head.PieceSize
	flip(t, filepath.Join(r.settings.Directory, id), damaged+100)
	client := r.client(t, r.kubelet(t, node))
	_, body, err := r.send(t, client, sending{path: "/bundles/" + id})
	if !errors.Is(err, io.ErrUnexpectedEOF) || int64(len(body)) != damaged || !bytes.Equal(body, data[:damaged]) {
		t.Errorf("%d bytes, want %d; %v", len(body), damaged, err)
	}
	after := damaged + head.PieceSize
	_, body, err = r.send(t, client, sending{path: "/bundles/" + id, header: map[string]string{"Range": fmt.Sprintf("bytes=%d-", after)}})
	if err != nil || !bytes.Equal(body, data[after:]) {
		t.Errorf("the pieces after it: %d bytes, %v", len(body), err)
	}
	if s := r.state(); !strings.Contains(s.Problems[id], "damaged") || s.Serves(id) {
		t.Errorf("%+v", s)
	}
}

// A file that is placed while the service runs is served without a restart, and one that is removed is not.
func TestFilesChange(t *testing.T) {
	first, _, id := sample(t, 1)
	r := start(t, nil)
	client := r.client(t, r.kubelet(t, node))
	if got := r.status(t, client, sending{path: "/bundles/" + id}); got != 404 {
		t.Fatal(got)
	}
	place(t, r.copies.store, first)
	eventually(t, func() bool { return r.status(t, client, sending{path: "/bundles/" + id}) == 200 })
	eventually(t, func() bool { return len(r.images.ids()) == 1 })
	if err := r.copies.store.Remove(id); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() bool { return r.status(t, client, sending{path: "/bundles/" + id}) == 404 })
	eventually(t, func() bool { return len(r.images.ids()) == 0 })
}

// A client that sends nothing, or only a part, is closed after the time for headers. One that sends a body is answered
// and closed.
func TestClientThatNeverSends(t *testing.T) {
	r := start(t, nil)
	address := r.connections.Addr().String()
	var tasks sync.WaitGroup
	for name, text := range map[string]string{"no handshake": "", "half a header": "GET /readyz HTTP/1.1\r\nHost: x\r\n"} {
		tasks.Go(func() {
			conn, err := net.Dial("tcp", address)
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			if text != "" {
				config := r.trust(nil)
				config.ServerName = "127.0.0.1"
				conn = tls.Client(conn, config)
			}
			_ = conn.SetDeadline(time.Now().Add(patience))
			if _, err := conn.Write([]byte(text)); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if _, err := io.ReadAll(conn); errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("%s: the server keeps the connection", name)
			}
		})
	}
	tasks.Go(func() {
		conn, err := tls.Dial("tcp", address, r.trust(nil))
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(patience))
		_, _ = conn.Write([]byte("GET /readyz HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n"))
		body, err := io.ReadAll(conn)
		if !strings.HasPrefix(string(body), "HTTP/1.1 400 ") || err != nil {
			t.Errorf("a body that does not arrive: %q, %v", body, err)
		}
	})
	tasks.Wait()
	eventually(t, func() bool { return r.connections.count() == 0 })
	resp, _, err := r.send(t, r.client(t, nil), sending{path: "/readyz", header: map[string]string{"X-Large": strings.Repeat("x", 64<<10)}})
	if err != nil || resp.StatusCode != 431 {
		t.Errorf("a large header: %v, %v", resp, err)
	}
}

// A slow pipe: the server in a bubble of time writes to a client that reads at a pace.
func pace(t *testing.T, read func(net.Conn) error, size int) (sent int, took time.Duration, err error) {
	t.Helper()
	server, client := net.Pipe()
	defer client.Close()
	begin := time.Now()
	var reading sync.WaitGroup
	reading.Go(func() { _ = read(client) })
	w := newProgressWriter(&pipeWriter{conn: server}, &new(service).sent)
	sent, err = w.Write(make([]byte, size))
	took = time.Since(begin)
	server.Close()
	reading.Wait()
	return sent, took, err
}

// A pipeWriter writes to a connection as the server of net/http.
type pipeWriter struct{ conn net.Conn }

func (p *pipeWriter) Header() http.Header                   { return http.Header{} }
func (p *pipeWriter) WriteHeader(int)                       {}
func (p *pipeWriter) Write(b []byte) (int, error)           { return p.conn.Write(b) }
func (p *pipeWriter) SetWriteDeadline(when time.Time) error { return p.conn.SetWriteDeadline(when) }

// A transfer of hours survives as long as it moves; a client that does not read, or a byte a minute, is closed.
func TestClientThatReadsSlowly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		every := func(pause time.Duration, size int64) func(net.Conn) error {
			return func(c net.Conn) (err error) {
				for err == nil {
					time.Sleep(pause)
					_, err = io.CopyN(io.Discard, c, size)
				}
				return err
			}
		}
		const size = 10 << 20
		if sent, took, err := pace(t, every(30*time.Second, progressSize), size); err != nil || sent != size || took < 2*time.Hour {
			t.Errorf("32 KiB in half a minute: %d bytes in %s, %v", sent, took, err)
		}
		if _, took, err := pace(t, func(net.Conn) error { return nil }, size); !errors.Is(err, os.ErrDeadlineExceeded) || took != progressTimeout {
			t.Errorf("nothing: %s, %v", took, err)
		}
		if sent, took, err := pace(t, every(time.Second, 1), size); !errors.Is(err, os.ErrDeadlineExceeded) || took != progressTimeout {
			t.Errorf("a byte a second: %d bytes in %s, %v", sent, took, err)
		}
	})
}

// Clients that connect and send nothing take nothing from others, and busy connections stay.
func TestThousandClients(t *testing.T) {
	path, _, id := sample(t, 1)
	r := start(t, nil, path)
	client := r.client(t, r.kubelet(t, node))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.url+"/bundles/"+id, nil)
	if err != nil {
		t.Fatal(err)
	}
	busy, err := client.Do(req) // and does not read
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Body.Close()
	var open []net.Conn
	defer func() {
		for _, c := range open {
			c.Close()
		}
	}()
	for range 1000 {
		c, err := net.Dial("tcp", r.connections.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, c)
	}
	if got := r.status(t, r.client(t, nil), sending{path: "/readyz"}); got != 200 {
		t.Errorf("a client after the thousand: %d", got)
	}
	if n := r.connections.count(); n > limits[handshaking].each+2 {
		t.Errorf("%d connections are open", n)
	}
	if body, err := io.ReadAll(busy.Body); err != nil || len(body) == 0 {
		t.Errorf("the busy connection: %d bytes, %v", len(body), err)
	}
}

// No kind has more connections than its limits, one owner neither. A new connection takes the place of the owner who has the most,
// and a busy connection of a known reader, and what other kinds have, stays.
func TestLimitsOfConnections(t *testing.T) {
	real := limits
	defer func() { limits = real }()
	limits = map[kind]struct{ all, each int }{handshaking: {8, 3}, stranger: {6, 3}, identified: {10, 4}}
	rapid.Check(t, func(t *rapid.T) {
		c := newConnections(nil, nil)
		draw := func(n int) int { return rapid.IntRange(0, n-1).Draw(t, "n") }
		var all []*fakeConn
		for range rapid.IntRange(1, 150).Draw(t, "connections") {
			k := kind(draw(3))
			conn := &fakeConn{address: fmt.Sprintf("10.0.%d.%d:1", k, draw(1+draw(8)))}
			before := maps.Clone(c.open)
			admitted := c.admit(conn, handshaking, addressOf(conn))
			if k != handshaking && admitted {
				before = maps.Clone(c.open)
				admitted = c.admit(conn, k, addressOf(conn))
				delete(before, conn)
			}
			all = append(all, conn)
			if admitted == conn.closed {
				t.Fatal("a connection is open and not admitted, or the other way round")
			}
			for other, was := range before {
				if _, open := c.open[other]; open {
					continue
				}
				if was.busy || was.kind != k && was.kind != handshaking {
					t.Fatalf("%+v was closed for one of kind %d", was, k)
				}
				if !other.(*fakeConn).closed {
					t.Fatalf("%+v is forgotten and not closed", was)
				}
			}
			if k == identified && draw(2) == 0 {
				c.follow(conn, http.StateActive)
			}
			if draw(4) == 0 {
				gone := all[draw(len(all))]
				c.follow(gone, http.StateClosed)
			}
			counts, owners := map[kind]int{}, map[string]int{}
			for _, is := range c.open {
				counts[is.kind]++
				if owners[fmt.Sprint(is.kind, is.owner)]++; owners[fmt.Sprint(is.kind, is.owner)] > limits[is.kind].each {
					t.Fatalf("%s has %d of kind %d", is.owner, limits[is.kind].each+1, is.kind)
				}
			}
			for k, n := range counts {
				if n > limits[k].all {
					t.Fatalf("%d connections of kind %d", n, k)
				}
			}
		}
	})
}

// A fakeConn is a connection from an address.
type fakeConn struct {
	net.Conn
	address string
	closed  bool
}

func (f *fakeConn) RemoteAddr() net.Addr { return fakeAddr(f.address) }
func (f *fakeConn) Close() error         { f.closed = true; return nil }

type fakeAddr string

func (fakeAddr) Network() string  { return "tcp" }
func (a fakeAddr) String() string { return string(a) }

// Requests of nodes beyond their limit get 503. Whoever is not known takes no slot.
func TestTooManyRequests(t *testing.T) {
	r := start(t, func(r *rig) { r.requests = make(chan struct{}, 1) })
	r.requests <- struct{}{}
	client := r.client(t, r.kubelet(t, node))
	resp, _, err := r.send(t, client, sending{path: "/v2/"})
	if err != nil || resp.StatusCode != 503 || resp.Header.Get("Retry-After") == "" {
		t.Errorf("%v, %v", resp, err)
	}
	if got := r.status(t, client, sending{path: "/readyz"}); got != 200 {
		t.Errorf("its health: %d", got)
	}
	<-r.requests
	if got := r.status(t, client, sending{path: "/v2/"}); got != 200 {
		t.Errorf("afterwards: %d", got)
	}
	r.api.blocking = make(chan struct{})
	done := make(chan int)
	go func() { done <- r.status(t, r.client(t, nil), sending{path: "/bundles", header: bearer}) }()
	eventually(t, func() bool { r.api.mu.Lock(); defer r.api.mu.Unlock(); return r.api.reviews > 0 })
	if got := r.status(t, client, sending{path: "/v2/"}); got != 200 {
		t.Errorf("while a token is reviewed: %d", got)
	}
	close(r.api.blocking)
	if got := <-done; got != 200 {
		t.Errorf("the token: %d", got)
	}
}

// The connection of whoever is not known ends with the answer; the one of a node, or with a valid token, stays.
func TestStrangersAreClosed(t *testing.T) {
	r := start(t, nil)
	for _, c := range []struct {
		name, path string
		cert       *tls.Certificate
		header     map[string]string
		stays      bool
	}{
		{"health", "/readyz", nil, nil, false}, {"nothing", "/bundles", nil, nil, false}, {"images", "/v2/", nil, nil, false}, {"no such path", "/x", nil, nil, false},
		{"a wrong token", "/bundles", nil, map[string]string{"Authorization": "Bearer abcdef.0000000000000000"}, false},
		{"a removed node", "/v2/", r.kubelet(t, "gone"), nil, false}, {"images with a token", "/v2/", nil, bearer, false},
		{"a token", "/bundles", nil, bearer, true}, {"a node", "/v2/", r.kubelet(t, node), nil, true}, {"the health to a node", "/readyz", r.kubelet(t, node), nil, true},
	} {
		resp, _, err := r.send(t, r.client(t, c.cert), sending{path: c.path, header: c.header})
		if err != nil || resp.Close == c.stays {
			t.Errorf("%s: %v, %v", c.name, resp, err)
		}
	}
}
