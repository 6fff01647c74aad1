package images

import (
	"bufio"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"airlift/bundle"
	"airlift/scripts/fixtures/testbundle"
)

// registry returns a Registry with an image of one uncompressed layer, and the path of the layer.
func registry(t *testing.T, size int) (r *Registry, blob string) {
	t.Helper()
	b := testbundle.NewImages()
	img := b.AddCompressed(t, "registry.example/app:v1", testbundle.CompressedLayer{Tar: make([]byte, size)})
	r = New(Options{Cache: t.TempDir(), Limit: 1 << 30, Log: slog.New(slog.DiscardHandler)})
	if err := r.Set([]*bundle.File{b.Write(t, "file").File}); err != nil {
		t.Fatal(err)
	}
	return r, "/v2/registry.example/app/blobs/" + img.Layers[0].DiffID
}

// A listener accepts the ends of pipes, whose deadlines a test can let pass.
type listener chan net.Conn

func (l listener) Accept() (net.Conn, error) {
	if c, ok := <-l; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}
func (l listener) Close() error   { return nil }
func (l listener) Addr() net.Addr { return &net.UnixAddr{} }

// connect serves one connection with r until the test ends, and sends a request.
func connect(t *testing.T, r http.Handler, path string) (client net.Conn, closed <-chan struct{}) {
	t.Helper()
	client, end := net.Pipe()
	l, done := make(listener, 1), make(chan struct{})
	s := &http.Server{Handler: r, ConnState: func(_ net.Conn, state http.ConnState) {
		if state == http.StateClosed {
			close(done)
		}
	}}
	go s.Serve(l)
	l <- end
	t.Cleanup(func() { close(l); s.Close() })
	if _, err := io.WriteString(client, "GET "+path+" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	return client, done
}

// Pain 29: a client that reads slowly gets everything, in an hour.
func TestSlowTransfer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, path := registry(t, 2<<20)
		defer r.Close()
		client, _ := connect(t, r, path)
		begun := time.Now()
		resp, err := http.ReadResponse(bufio.NewReaderSize(slow{client}, 64<<10), nil)
		if err != nil {
			t.Fatal(err)
		}
		n, err := io.Copy(io.Discard, resp.Body)
		if n != 2<<20 || err != nil || time.Since(begun) < time.Hour {
			t.Errorf("%d bytes in %s, %v", n, time.Since(begun), err)
		}
		client.Close()
	})
}

// slow pauses for less than stall before it reads.
type slow struct{ net.Conn }

func (s slow) Read(p []byte) (int, error) {
	time.Sleep(stall - 10*time.Second)
	return s.Conn.Read(p)
}

// A client that reads nothing, or almost nothing, loses its connection.
func TestStalledClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, path := registry(t, 1<<20)
		defer r.Close()
		client, closed := connect(t, r, path)
		begun := time.Now()
		<-closed
		if d := time.Since(begun); d < stall || d > 2*stall {
			t.Errorf("closed after %s", d)
		}
		if len(r.streams) != 0 {
			t.Errorf("%d streams", len(r.streams))
		}
		client.Close()
	})
}

// Pain 8: a request that cannot be served is answered in time, and the client may try again.
func TestBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, path := registry(t, 1000)
		defer r.Close()
		ask := func() *httptest.ResponseRecorder {
			w := httptest.NewRecorder()
			r.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", path, nil))
			return w
		}
		for range maxStreams {
			r.streams <- struct{}{}
		}
		begun := time.Now()
		if w := ask(); w.Code != 503 || w.Header().Get("Retry-After") == "" || time.Since(begun) != patience {
			t.Errorf("%d %v after %s", w.Code, w.Header(), time.Since(begun))
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		func() {
			defer func() {
				if recover() != http.ErrAbortHandler {
					t.Error("a request without a client was answered")
				}
			}()
			r.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, "GET", path, nil))
		}()
		<-r.streams
		if w := ask(); w.Code != 200 || w.Body.Len() != 1000 {
			t.Errorf("%d, %d bytes", w.Code, w.Body.Len())
		}
	})
}

// Pain 5: what cannot be begun has a status of its own, and not 200 with a short body.
func TestUnusableCache(t *testing.T) {
	r, path := registry(t, 1000)
	defer r.Close()
	if err := os.RemoveAll(filepath.Join(r.store.Dir, "layers")); err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	r.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", path, nil))
	if w.Code != 503 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}
