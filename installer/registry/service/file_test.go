package service

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
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
	former := headerTimeout
	t.Cleanup(func() { headerTimeout = former })
	headerTimeout = 2 * time.Second
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
	if n := r.connections.count(); n > room[arriving]+2 {
		t.Errorf("%d connections are open", n)
	}
	if body, err := io.ReadAll(busy.Body); err != nil || len(body) == 0 {
		t.Errorf("the busy connection: %d bytes, %v", len(body), err)
	}
}

// No kind has more connections than its room, and no node more than perNode. For a new connection, one of the same kind is closed: of
// the owner with the most, where an address of a node has perNode before that counts, or a known one without a request.
func TestLimitsOfConnections(t *testing.T) {
	const perNode = 4
	room := [kinds]int{8, 7, 6, 10}
	addresses := []string{"10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4", "fd00::1", "fd00::2", "fd00:0:0:1::1", "::ffff:10.0.0.1"}
	rapid.Check(t, func(t *rapid.T) {
		c := newConnections(nil, nil)
		for k := range c.open {
			c.open[k].room, c.open[k].perNode = room[k], perNode
		}
		draw := func(n int) int { return rapid.IntRange(0, n-1).Draw(t, "n") }
		var all []*connection // that were open after the last step
		for range rapid.IntRange(1, 300).Draw(t, "steps") {
			conn, k := &connection{Conn: new(fakeConn)}, arriving
			if len(all) == 0 || draw(3) == 0 {
				conn.address, conn.network = addressOf(net.JoinHostPort(addresses[draw(len(addresses))], "1"))
				all = append(all, conn)
			} else if conn = all[draw(len(all))]; conn.kind < identified {
				k = conn.kind + 1
			} else {
				c.follow(tls.Server(conn, nil), []http.ConnState{http.StateActive, http.StateIdle, http.StateClosed}[draw(3)])
				all = slices.DeleteFunc(all, func(other *connection) bool { return other.place == nil })
				continue
			}
			if k == stranger && draw(2) == 0 {
				k, conn.node = identified, fmt.Sprint(draw(4))
			}
			admitted := c.admit(conn, k)
			owned, n := map[owner]int{}, [kinds]int{} // before one was closed
			var victims []*connection
			for _, other := range all {
				if n[other.kind]++; other.kind == k {
					owned[other.owner]++
				}
				if other.place == nil {
					victims = append(victims, other)
				}
				if closed := other.Conn.(*fakeConn).closed; closed != (other.place == nil) || other == conn && closed == admitted {
					t.Fatalf("%+v is open and not counted, or the other way round", other)
				}
			}
			weight := func(o owner) int {
				if o.isNode {
					return owned[o] - perNode
				}
				return owned[o]
			}
			full := k == identified && owned[conn.owner] > perNode
			if tooMany := full || n[k] > room[k]; len(victims) > 1 || (len(victims) == 1) != tooMany {
				t.Fatalf("%d were closed for %+v", len(victims), conn)
			}
			for _, victim := range victims {
				if n[victim.kind]--; victim.kind != k || full && victim.owner != conn.owner || k == identified && victim.busy && victim != conn {
					t.Fatalf("%+v was closed for %+v", victim, conn)
				}
				for o := range owned {
					if k != identified && weight(o) > weight(victim.owner) {
						t.Fatalf("%+v was closed, and %+v has %d", victim, o, owned[o])
					}
				}
			}
			all = slices.DeleteFunc(all, func(other *connection) bool { return other.place == nil })
			for k := range c.open {
				if n[k] > room[k] || c.open[k].list.Len() != n[k] {
					t.Fatalf("%d connections of kind %d, counted as %d", n[k], k, c.open[k].list.Len())
				}
			}
		}
	})
}

// A fakeConn is a connection that records its end.
type fakeConn struct {
	net.Conn
	closed bool
}

func (f *fakeConn) Close() error { f.closed = true; return nil }

// Strangers are counted by address, or by network of IPv6; nodes, and addresses that nodes have, by themselves.
func TestOwnersOfConnections(t *testing.T) {
	c := newConnections(nil, nil)
	c.nodes["fd00::9"] = client{node: "w1"}
	for _, o := range []struct {
		address, node string
		kind          kind
		owner         owner
	}{
		{"10.0.0.1:5", "", arriving, owner{"10.0.0.1", false}},
		{"[::ffff:10.0.0.1]:5", "", handshaking, owner{"10.0.0.1", false}},
		{"10.0.0.1:5", "w1", identified, owner{"w1", true}},
		{"[fd00::1]:5", "", arriving, owner{"fd00::/64", false}},
		{"[fd00::ffff:1]:5", "", stranger, owner{"fd00::/64", false}},
		{"[fd00:0:0:1::1]:5", "", arriving, owner{"fd00:0:0:1::/64", false}},
		{"[fe80::1%eth0]:5", "", arriving, owner{"fe80::/64", false}},
		{"[fd00::1]:5", "", identified, owner{"fd00::1", false}},
		{"[fd00::9]:5", "", handshaking, owner{"fd00::9", true}},
	} {
		conn := &connection{node: o.node}
		conn.address, conn.network = addressOf(o.address)
		if got := c.ownerOf(conn, o.kind); got != o.owner {
			t.Errorf("%+v: %+v", o, got)
		}
	}
}

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
