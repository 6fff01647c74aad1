package fetch

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func sum(b []byte) string { return fmt.Sprintf("%x", sha256.Sum256(b)) }

// content is long enough for many reads.
var content = bytes.Repeat([]byte("0123456789abcdef"), 1<<16)

func newClient(t *testing.T) *Client {
	t.Helper()
	cache, err := OpenCache(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	c := New(cache, direct(t))
	c.RetryWait, c.maxWait = time.Millisecond, 5*time.Millisecond
	return c
}

// direct sends every request to its own host.
func direct(t *testing.T) *Mirrors {
	t.Helper()
	m, err := NewMirrors(http.DefaultTransport, nil)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// gauge is a meter that must end at the size of the file.
type gauge struct{ total, done, received atomic.Int64 }

func (g *gauge) SetTotal(n int64) { g.total.Store(n) }
func (g *gauge) Add(n int64)      { g.done.Add(n) }
func (g *gauge) Received(n int64) { g.received.Add(n) }

type site struct {
	*httptest.Server
	mu     sync.Mutex
	ranges []string // the Range header of each request
}

// asked lists the Range header of each request so far.
func (s *site) asked() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.ranges)
}

// serve answers the nth request (from 1) with handler.
func serve(t *testing.T, handler func(n int, w http.ResponseWriter, r *http.Request)) *site {
	t.Helper()
	s := &site{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.ranges = append(s.ranges, r.Header.Get("Range"))
		n := len(s.ranges)
		s.mu.Unlock()
		handler(n, w, r)
	}))
	t.Cleanup(s.Close)
	return s
}

func whole(w http.ResponseWriter, r *http.Request) {
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
}

// cut announces everything from an offset and disconnects after n bytes.
func cut(w http.ResponseWriter, from, n int) {
	w.Header().Set("Content-Length", fmt.Sprint(len(content)-from))
	if from > 0 {
		w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, len(content)-1, len(content)))
		w.WriteHeader(http.StatusPartialContent)
	}
	w.Write(content[from : from+n])
	panic(http.ErrAbortHandler)
}

func get(ctx context.Context, c *Client, url, sum string) (*gauge, error) {
	g := &gauge{}
	_, err := c.Get(ctx, Download{Name: "thing", URL: url, SHA256: sum, Meter: g})
	return g, err
}

func wantWhole(t *testing.T, c *Client, g *gauge) {
	t.Helper()
	f, err := c.Cache.Open(sum(content))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	got, err := io.ReadAll(f)
	if err != nil || !bytes.Equal(got, content) {
		t.Errorf("the cache has %d bytes, want %d; err = %v", len(got), len(content), err)
	}
	if g.done.Load() != int64(len(content)) || g.total.Load() != int64(len(content)) {
		t.Errorf("the meter shows %d of %d bytes, want %d", g.done.Load(), g.total.Load(), len(content))
	}
}

func TestBrokenConnectionsAreResumed(t *testing.T) {
	s := serve(t, func(n int, w http.ResponseWriter, r *http.Request) {
		switch n {
		case 1:
			cut(w, 0, 300_000)
		case 2:
			cut(w, 300_000, 200_000)
		default:
			whole(w, r)
		}
	})
	c := newClient(t)
	g, err := get(context.Background(), c, s.URL, sum(content))
	if err != nil {
		t.Fatal(err)
	}
	wantWhole(t, c, g)
	if got := strings.Join(s.asked(), " "); got != " bytes=300000- bytes=500000-" {
		t.Errorf("ranges asked for: %q", got)
	}
}

func TestSiteWithoutRangesStartsOver(t *testing.T) {
	s := serve(t, func(n int, w http.ResponseWriter, r *http.Request) {
		if n == 1 {
			cut(w, 0, 300_000)
		}
		w.Write(content)
	})
	c := newClient(t)
	g, err := get(context.Background(), c, s.URL, sum(content))
	if err != nil {
		t.Fatal(err)
	}
	g.SetTotal(int64(len(content))) // a chunked answer has no length
	wantWhole(t, c, g)
	if n := g.received.Load(); n != int64(len(content))+300_000 {
		t.Errorf("received %d bytes", n)
	}
}

// A download from a site that always breaks off at the same place fails.
func TestNoProgressEnds(t *testing.T) {
	s := serve(t, func(n int, w http.ResponseWriter, r *http.Request) { cut(w, 0, 1000) })
	_, err := get(context.Background(), newClient(t), s.URL, sum(content))
	if err == nil || !strings.Contains(err.Error(), "gave up after 5 attempts") {
		t.Errorf("err = %v", err)
	}
	if n := len(s.asked()); n != attempts {
		t.Errorf("%d requests", n)
	}
}

func TestAnInterruptedDownloadGoesOnInTheNextRun(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	s := serve(t, func(n int, w http.ResponseWriter, r *http.Request) {
		if n == 1 {
			w.Header().Set("Content-Length", fmt.Sprint(len(content)))
			w.Write(content[:400_000])
			w.(http.Flusher).Flush()
			<-r.Context().Done()
			return
		}
		whole(w, r)
	})
	c := newClient(t)
	partial := c.Cache.partialPath(sum(content), s.URL)
	go func() {
		for {
			if i, err := os.Stat(partial); err == nil && i.Size() == 400_000 {
				cancel()
				return
			}
			time.Sleep(time.Millisecond)
		}
	}()
	if _, err := get(ctx, c, s.URL, sum(content)); !errors.Is(err, context.Canceled) {
		t.Fatalf("err = %v", err)
	}
	if _, ok, _ := c.Cache.Has(context.Background(), sum(content)); ok {
		t.Fatal("half a file counts as whole")
	}
	again := New(c.Cache, direct(t))
	g, err := get(context.Background(), again, s.URL, sum(content))
	if err != nil {
		t.Fatal(err)
	}
	wantWhole(t, again, g)
	if s.asked()[1] != "bytes=400000-" {
		t.Errorf("the second run asked for %q", s.asked()[1])
	}
	if n := g.received.Load(); n != int64(len(content))-400_000 {
		t.Errorf("the second run received %d of %d bytes", n, len(content))
	}
	if _, err := os.Stat(partial); err == nil {
		t.Error("the partial file is still there")
	}
}

// A partial file from an earlier run may be damaged: then the whole file is downloaded.
func TestDamagedPartialFileIsFetchedAgain(t *testing.T) {
	s := serve(t, func(n int, w http.ResponseWriter, r *http.Request) { whole(w, r) })
	for name, left := range map[string][]byte{
		"damaged":       bytes.Repeat([]byte("x"), 1000),
		"too long":      append(bytes.Clone(content), "more"...),
		"whole already": content,
	} {
		c := newClient(t)
		if err := os.WriteFile(c.Cache.partialPath(sum(content), s.URL), left, 0o644); err != nil {
			t.Fatal(err)
		}
		g, err := get(context.Background(), c, s.URL, sum(content))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		wantWhole(t, c, g)
	}
}

func TestWrongContentIsNotKept(t *testing.T) {
	s := serve(t, func(n int, w http.ResponseWriter, r *http.Request) { whole(w, r) })
	c := newClient(t)
	want := strings.Repeat("0", 64)
	_, err := get(context.Background(), c, s.URL+"/file", want)
	var m *MismatchError
	if !errors.As(err, &m) {
		t.Fatalf("err = %v", err)
	}
	for _, part := range []string{"thing", s.URL + "/file", want, sum(content)} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not name %q", err, part)
		}
	}
	if len(s.asked()) != 1 {
		t.Errorf("%d requests: what is wrong stays wrong", len(s.asked()))
	}
	for _, dir := range []string{"partial", "sha256"} {
		left, err := os.ReadDir(filepath.Join(c.Cache.dir, dir))
		if err != nil || len(left) > 0 {
			t.Errorf("%s has %v, %v", dir, left, err)
		}
	}
}

func TestStatuses(t *testing.T) {
	for _, c := range []struct {
		status   int
		requests int // until it fails
		want     string
	}{
		{http.StatusNotFound, 1, "not found: "},
		{http.StatusForbidden, 1, "403 Forbidden"},
		{http.StatusInternalServerError, 5, "500 Internal Server Error"},
		{http.StatusTooManyRequests, 5, "429 Too Many Requests"},
	} {
		s := serve(t, func(n int, w http.ResponseWriter, r *http.Request) { w.WriteHeader(c.status) })
		_, err := get(context.Background(), newClient(t), s.URL, sum(content))
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), s.URL) {
			t.Errorf("%d: err = %v", c.status, err)
		}
		if len(s.asked()) != c.requests {
			t.Errorf("%d: %d requests, want %d", c.status, len(s.asked()), c.requests)
		}
		var missing *MissingError
		if errors.As(err, &missing) != (c.status == http.StatusNotFound) {
			t.Errorf("%d: err is %T", c.status, err)
		}
	}
}

func TestServerErrorsPass(t *testing.T) {
	s := serve(t, func(n int, w http.ResponseWriter, r *http.Request) {
		if n <= 2 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		whole(w, r)
	})
	c := newClient(t)
	g, err := get(context.Background(), c, s.URL, sum(content))
	if err != nil {
		t.Fatal(err)
	}
	wantWhole(t, c, g)
}

func TestSilentConnectionsAreReplaced(t *testing.T) {
	s := serve(t, func(n int, w http.ResponseWriter, r *http.Request) {
		if n == 1 {
			w.Header().Set("Content-Length", fmt.Sprint(len(content)))
			w.Write(content[:1000])
			w.(http.Flusher).Flush()
			<-r.Context().Done()
			return
		}
		whole(w, r)
	})
	c := newClient(t)
	c.mirrors.StallAfter = 100 * time.Millisecond
	g, err := get(context.Background(), c, s.URL, sum(content))
	if err != nil {
		t.Fatal(err)
	}
	wantWhole(t, c, g)
}

func TestRedirectChain(t *testing.T) {
	var s *site
	s = serve(t, func(n int, w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/a":
			http.Redirect(w, r, "/b", http.StatusMovedPermanently)
		case "/b":
			http.Redirect(w, r, s.URL+"/c", http.StatusTemporaryRedirect)
		default:
			whole(w, r)
		}
	})
	c := newClient(t)
	g, err := get(context.Background(), c, s.URL+"/a", sum(content))
	if err != nil {
		t.Fatal(err)
	}
	wantWhole(t, c, g)
}

// Two processes that share a cache directory download a file once.
func TestTwoDownloadersOneDownload(t *testing.T) {
	s := serve(t, func(n int, w http.ResponseWriter, r *http.Request) {
		time.Sleep(50 * time.Millisecond)
		whole(w, r)
	})
	one := newClient(t)
	second, err := OpenCache(one.Cache.dir)
	if err != nil {
		t.Fatal(err)
	}
	two := New(second, direct(t))
	var wg sync.WaitGroup
	for _, c := range []*Client{one, two, one, two} {
		wg.Go(func() {
			if _, err := get(context.Background(), c, s.URL, sum(content)); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if len(s.asked()) != 1 {
		t.Errorf("%d downloads", len(s.asked()))
	}
}

func TestUnpackKeepsOnlyWhatWasInside(t *testing.T) {
	s := serve(t, func(n int, w http.ResponseWriter, r *http.Request) { whole(w, r) })
	c := newClient(t)
	d := Download{Name: "archive", URL: s.URL, SHA256: sum(content)}
	var inside string
	no := func() (bool, error) { return false, nil }
	err := c.Unpack(context.Background(), d, no, func(r Verified) (err error) {
		if r.Size != int64(len(content)) {
			t.Errorf("the archive has %d bytes", r.Size)
		}
		inside, _, err = c.Cache.Put(context.Background(), io.LimitReader(r, 10), "")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, ok, _ := c.Cache.Has(context.Background(), inside); !ok || inside != sum(content[:10]) {
		t.Error("what was inside is not in the cache")
	}
	if _, ok, _ := c.Cache.Has(context.Background(), sum(content)); ok {
		t.Error("the archive is in the cache")
	}
	left, err := os.ReadDir(filepath.Join(c.Cache.dir, "partial"))
	if err != nil || len(left) > 0 {
		t.Errorf("partial has %v, %v", left, err)
	}
}

func TestCacheRemembers(t *testing.T) {
	c := newClient(t).Cache
	if _, ok := c.Recall("key"); ok {
		t.Error("an empty cache remembers")
	}
	if err := c.Remember("key", "value"); err != nil {
		t.Fatal(err)
	}
	if got, ok := c.Recall("key"); !ok || got != "value" {
		t.Errorf("recalled %q, %v", got, ok)
	}
	if err := os.WriteFile(c.factPath("key"), []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, ok := c.Recall("key"); ok {
		t.Error("a damaged fact was recalled")
	}
}

func TestCacheNoticesDamage(t *testing.T) {
	c := newClient(t).Cache
	ctx := context.Background()
	s, _, err := c.Put(ctx, strings.NewReader("good"), "")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(c.path(s), []byte("evil"), 0o644); err != nil {
		t.Fatal(err)
	}
	fresh, err := OpenCache(c.dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok, err := fresh.Has(ctx, s); ok || err != nil {
		t.Errorf("Has = %v, %v", ok, err)
	}
	if got := fresh.Damaged(); len(got) != 1 || got[0] != c.path(s) {
		t.Errorf("damaged = %v", got)
	}
}

func TestParseChecksum(t *testing.T) {
	a, b := strings.Repeat("a", 64), strings.Repeat("b", 64)
	for _, c := range []struct{ text, want string }{
		{a, a},
		{strings.ToUpper(a) + "\n", a},
		{a + "  file\n", a},
		{a + " *file\n", a},
		{a + "  ./file\n", a},
		{b + "  file.asc\n" + a + "  file\n" + b + "  other\n", a},
		{"-----BEGIN PGP SIGNED MESSAGE-----\nHash: SHA256\n\n" + a + "  file\n-----BEGIN PGP SIGNATURE-----\nabc\n", a},
	} {
		if got, _ := parseChecksum(c.text, "file"); got != c.want {
			t.Errorf("parseChecksum(%q) = %q", c.text, got)
		}
	}
	for _, text := range []string{"", "<html>not here</html>", a + "  other\n", a[:63], a + "\n" + b + "\n"} {
		if got, _ := parseChecksum(text, "file"); got != "" {
			t.Errorf("parseChecksum(%q) = %q", text, got)
		}
	}
}

func TestChecksumOfOthersOnlyMeansMissing(t *testing.T) {
	s := serve(t, func(n int, w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, strings.Repeat("a", 64)+"  runc.amd64\n")
	})
	_, _, err := newClient(t).Checksum(context.Background(), s.URL+"/runc.sha256sum", s.URL+"/runc.arm64")
	var missing *MissingError
	if !errors.As(err, &missing) || !strings.Contains(err.Error(), "no checksum for runc.arm64, only for \"runc.amd64\"") {
		t.Errorf("err = %v", err)
	}
}
