package fetch

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// endless answers until the client disconnects, and counts the sent bytes.
func endless(w http.ResponseWriter, sent *atomic.Int64) {
	chunk := bytes.Repeat([]byte("x"), 64<<10)
	for {
		n, err := w.Write(chunk)
		sent.Add(int64(n))
		if err != nil {
			return
		}
	}
}

// inFlight is more than the bytes that socket buffers hold.
const inFlight = 16 << 20

func wantSizeError(t *testing.T, err error) {
	t.Helper()
	var size *SizeError
	if !errors.As(err, &size) {
		t.Fatalf("err = %v", err)
	}
}

func TestEndlessTextEnds(t *testing.T) {
	var sent atomic.Int64
	s := serve(t, func(n int, w http.ResponseWriter, r *http.Request) { endless(w, &sent) })
	_, _, err := newClient(t).Text(context.Background(), s.URL+"/stable.txt")
	wantSizeError(t, err)
	if !strings.Contains(err.Error(), s.URL+"/stable.txt") || len(s.asked()) != 1 {
		t.Errorf("%d requests, err = %v", len(s.asked()), err)
	}
	s.Close() // waits for the handler
	if n := sent.Load(); n > maxText+inFlight {
		t.Errorf("%d bytes were taken", n)
	}
}

// A text over the size limit is an error, and is not truncated.
func TestTextsAreNotCutShort(t *testing.T) {
	for name, announce := range map[string]bool{"announced": true, "not announced": false} {
		s := serve(t, func(n int, w http.ResponseWriter, r *http.Request) {
			if announce {
				w.Header().Set("Content-Length", fmt.Sprint(maxText+1))
			}
			io.WriteString(w, strings.Repeat("a", 64)+strings.Repeat(" ", maxText+1-64))
		})
		_, _, err := newClient(t).Checksum(context.Background(), s.URL, "file")
		if err == nil {
			t.Errorf("%s: it was taken", name)
			continue
		}
		wantSizeError(t, err)
	}
}

// The size limit of a compressed answer applies to the decompressed text.
func TestCompressedTextIsBounded(t *testing.T) {
	var bomb bytes.Buffer
	z := gzip.NewWriter(&bomb)
	z.Write(make([]byte, 4*maxText))
	z.Close()
	s := serve(t, func(n int, w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		w.Write(bomb.Bytes())
	})
	_, _, err := newClient(t).Text(context.Background(), s.URL)
	wantSizeError(t, err)
}

func TestSilentTextIsGivenUp(t *testing.T) {
	for name, begin := range map[string]func(http.ResponseWriter){
		"before the head":  func(http.ResponseWriter) {},
		"after some bytes": func(w http.ResponseWriter) { io.WriteString(w, "v1."); w.(http.Flusher).Flush() },
	} {
		s := serve(t, func(n int, w http.ResponseWriter, r *http.Request) {
			begin(w)
			<-r.Context().Done()
		})
		c := newClient(t)
		c.mirrors.StallAfter = 20 * time.Millisecond
		_, _, err := c.Text(context.Background(), s.URL)
		if !errors.Is(err, errStalled) || !strings.Contains(err.Error(), "gave up after 5 attempts") {
			t.Errorf("%s: err = %v", name, err)
		}
	}
}

// The time that a slow reader takes does not count as silence of the site.
func TestPausesOfTheReaderDoNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://site/", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := roundTrip(inMemory{}, req, time.Second)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		time.Sleep(time.Hour)
		if got, err := io.ReadAll(resp.Body); err != nil || string(got) != "text" || resp.Request.Context().Err() != nil {
			t.Errorf("%q, %v", got, err)
		}
	})
}

type inMemory struct{}

func (inMemory) RoundTrip(req *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Request: req, ContentLength: -1, Body: io.NopCloser(strings.NewReader("text"))}, nil
}

// Downloads of files, and of blobs whose descriptor has the size.
func TestDownloadsAreBounded(t *testing.T) {
	size := int64(len(content))
	for name, c := range map[string]struct {
		size   int64
		answer func(w http.ResponseWriter, sent *atomic.Int64)
		want   string
	}{
		"endless, size known": {size, func(w http.ResponseWriter, sent *atomic.Int64) { endless(w, sent) }, "more than the"},
		"longer than known": {size, func(w http.ResponseWriter, _ *atomic.Int64) {
			w.Header().Set("Content-Length", fmt.Sprint(size+1))
			w.Write(append(bytes.Clone(content), 'x'))
		}, "more than the"},
		"shorter than known": {size, func(w http.ResponseWriter, _ *atomic.Int64) {
			w.Header().Set("Content-Length", fmt.Sprint(size-1))
			w.Write(content[1:])
		}, "expected 1048576"},
		"announced too much": {0, func(w http.ResponseWriter, _ *atomic.Int64) {
			w.Header().Set("Content-Length", fmt.Sprint(int64(maxFile)+1))
		}, "more than the"},
	} {
		t.Run(name, func(t *testing.T) {
			var sent atomic.Int64
			s := serve(t, func(n int, w http.ResponseWriter, r *http.Request) { c.answer(w, &sent) })
			cl := newClient(t)
			_, err := cl.Get(context.Background(), Download{Name: "thing", URL: s.URL, SHA256: sum(content), Size: c.size})
			wantSizeError(t, err)
			if !strings.Contains(err.Error(), c.want) || len(s.asked()) != 1 {
				t.Errorf("%d requests, err = %v", len(s.asked()), err)
			}
			s.Close()
			if n := sent.Load(); n > c.size+inFlight {
				t.Errorf("%d bytes were taken", n)
			}
			if left, err := os.ReadDir(filepath.Join(cl.Cache.dir, "partial")); err != nil || len(left) > 0 {
				t.Errorf("partial has %v, %v", left, err)
			}
		})
	}
}

// The text of a redirect may be larger than the requested file.
func TestRedirectsOfSmallDownloads(t *testing.T) {
	small := []byte("ten bytes.")
	s := serve(t, func(n int, w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/" {
			w.Header().Set("Location", "/there")
			w.WriteHeader(http.StatusTemporaryRedirect)
			io.WriteString(w, "a text of more than ten bytes")
			return
		}
		w.Write(small)
	})
	c := newClient(t)
	if _, err := c.Get(context.Background(), Download{Name: "thing", URL: s.URL + "/", SHA256: sum(small), Size: 10}); err != nil {
		t.Error(err)
	}
}

// An answer without a length that ends too early is continued with a new request.
func TestShortAnswersAreContinued(t *testing.T) {
	s := serve(t, func(n int, w http.ResponseWriter, r *http.Request) {
		if n == 1 {
			w.Write(content[:300_000])
			w.(http.Flusher).Flush() // no Content-Length
			return
		}
		whole(w, r)
	})
	c := newClient(t)
	g := &gauge{}
	if _, err := c.Get(context.Background(), Download{Name: "thing", URL: s.URL, SHA256: sum(content), Size: int64(len(content)), Meter: g}); err != nil {
		t.Fatal(err)
	}
	wantWhole(t, c, g)
	if s.asked()[1] != "bytes=300000-" {
		t.Errorf("ranges: %q", s.asked())
	}
}

// A site that sends a byte at a time makes no progress.
func TestDripsEnd(t *testing.T) {
	s := serve(t, func(n int, w http.ResponseWriter, r *http.Request) { cut(w, n-1, 1) })
	_, err := get(context.Background(), newClient(t), s.URL, sum(content))
	if err == nil || !strings.Contains(err.Error(), "gave up after 5 attempts") || len(s.asked()) != attempts {
		t.Errorf("%d requests, err = %v", len(s.asked()), err)
	}
}

type zeros struct{ read int64 }

func (z *zeros) Read(p []byte) (int, error) {
	clear(p)
	z.read += int64(len(p))
	return len(p), nil
}

func TestUnpackedSizeIsBounded(t *testing.T) {
	for compressed, limit := range map[int64]int64{
		0:         unpackedSlack,
		1000:      unpackedSlack + 200_000,
		1 << 40:   maxUnpacked,
		1<<63 - 1: maxUnpacked,
	} {
		if got := maxUnpackedOf(compressed); got != limit {
			t.Errorf("%d bytes may become %d, want %d", compressed, got, limit)
		}
	}
	z := &zeros{}
	n, err := io.Copy(io.Discard, LimitUnpacked(z, "layer", 1000))
	wantSizeError(t, err)
	if limit := maxUnpackedOf(1000); n != limit || z.read > limit+1 {
		t.Errorf("%d bytes came through of %d read, want %d", n, z.read, limit)
	}
}

// Nothing comes over plain http if its site uses https: neither a checksum nor a file, whatever
// kind of redirect the site chooses.
func TestRedirectFromHTTPSToHTTP(t *testing.T) {
	plain := serve(t, func(n int, w http.ResponseWriter, r *http.Request) { io.WriteString(w, sum(content)) })
	var status int
	secure := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/plain" {
			http.Redirect(w, r, "/plain", http.StatusFound)
			return
		}
		http.Redirect(w, r, plain.URL+r.URL.Path, status)
	}))
	defer secure.Close()
	u := strings.TrimPrefix(secure.URL, "https://")
	cache, err := OpenCache(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for name, list := range map[string][]string{"site": nil, "mirror": {"dl.example=" + secure.URL}} {
		m := mirrorsOf(t, list...)
		m.base = secure.Client().Transport
		c := New(cache, m)
		address := "https://" + u + "/file"
		if list != nil {
			address = "https://dl.example/file"
		}
		for _, status = range []int{301, 302, 303, 307, 308} {
			_, _, checksum := c.Checksum(t.Context(), address+".sha256", "file")
			_, file := c.Get(t.Context(), Download{Name: "file", URL: address, SHA256: sum([]byte(sum(content)))})
			for what, err := range map[string]error{"checksum": checksum, "file": file} {
				var redirect *RedirectError
				if !errors.As(err, &redirect) || len(plain.asked()) > 0 {
					t.Errorf("%s of the %s, %d: %d plain requests, err = %v", what, name, status, len(plain.asked()), err)
				}
			}
		}
	}
}

// A site that redirects to https does not choose plain http: the user does, with a mirror.
func TestRedirectToPlainMirror(t *testing.T) {
	plain := serve(t, func(n int, w http.ResponseWriter, r *http.Request) { w.Write(content) })
	to := ""
	secure := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, to, http.StatusFound)
	}))
	defer secure.Close()
	for _, c := range []struct {
		to      string
		refused bool
	}{{"https://cdn.example/file", false}, {"http://cdn.example/file", true}, {"https://CDN.example/file", false}} {
		to = c.to
		cache, err := OpenCache(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		m := mirrorsOf(t, "cdn.example="+plain.URL)
		m.base = secure.Client().Transport
		_, err = New(cache, m).Get(t.Context(), Download{Name: "file", URL: secure.URL + "/file", SHA256: sum(content)})
		if redirect := (*RedirectError)(nil); errors.As(err, &redirect) != c.refused || !c.refused && err != nil {
			t.Errorf("%s: %v", to, err)
		}
	}
}

func TestUnknownCertificatesAreRefused(t *testing.T) {
	secure := httptest.NewUnstartedServer(http.NotFoundHandler())
	secure.Config.ErrorLog = log.New(io.Discard, "", 0)
	secure.StartTLS()
	defer secure.Close()
	m, err := NewMirrors(Transport(), nil)
	if err != nil {
		t.Fatal(err)
	}
	c := newClient(t)
	c.HTTP = &http.Client{Transport: m}
	_, _, err = c.Text(context.Background(), secure.URL)
	if err == nil || !strings.Contains(err.Error(), "certificate") || NotThere(err) {
		t.Errorf("err = %v", err)
	}
}
