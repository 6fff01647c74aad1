package images_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"hash"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"airlift/bundle"
	"airlift/installer/registry/images"
	"airlift/scripts/fixtures/testbundle"
)

// events counts what a Registry logs.
type events struct {
	slog.Handler
	mu    sync.Mutex
	count map[string]int
}

func (e *events) Enabled(context.Context, slog.Level) bool { return true }

func (e *events) Handle(_ context.Context, r slog.Record) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.count[r.Message]++
	return nil
}

const (
	passBegins = "a pass through a bundle begins"
	compresses = "a layer is compressed"
	notMade    = "a blob was not made"
)

func (e *events) reset() {
	e.mu.Lock()
	defer e.mu.Unlock()
	clear(e.count)
}

func (e *events) of(message string) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.count[message]
}

// A server is a Registry that listens.
type server struct {
	*images.Registry
	*httptest.Server
	events *events
	cache  string
}

func serve(t testing.TB, files ...*bundle.File) *server {
	t.Helper()
	return serveFrom(t, t.TempDir(), files...)
}

func serveFrom(t testing.TB, cache string, files ...*bundle.File) *server {
	t.Helper()
	e := &events{count: map[string]int{}}
	r := images.New(images.Options{Cache: cache, Limit: 1 << 30, Log: slog.New(e)})
	if err := r.Set(files); err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(r)
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)
	s.StartTLS()
	t.Cleanup(func() { s.CloseClientConnections(); s.Close(); r.Close() })
	return &server{r, s, e, cache}
}

// An answer is a response with its body.
type answer struct {
	*http.Response
	body []byte
	err  error // of reading the body
}

// do sends a request; header are pairs.
func (s *server) do(t testing.TB, method, path string, header ...string) answer {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, s.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	for ; len(header) > 0; header = header[2:] {
		req.Header.Set(header[0], header[1])
	}
	resp, err := s.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return answer{resp, body, err}
}

func (s *server) get(t testing.TB, path string, header ...string) answer {
	t.Helper()
	return s.do(t, http.MethodGet, path, header...)
}

// code returns the code of an error of the protocol.
func (a answer) code(t testing.TB) string {
	t.Helper()
	var e struct {
		Errors []struct{ Code, Message string }
	}
	if err := json.Unmarshal(a.body, &e); err != nil || len(e.Errors) != 1 || e.Errors[0].Message == "" || a.Header.Get("Content-Type") != "application/json" {
		t.Errorf("%s: %v, %q", a.Status, err, a.body)
		return ""
	}
	return e.Errors[0].Code
}

// tar returns a layer with text that can be compressed.
func tar(t testing.TB, name string, size int) []byte {
	t.Helper()
	r := rand.New(rand.NewPCG(uint64(len(name)), uint64(size)))
	var b strings.Builder
	for b.Len() < size {
		fmt.Fprintf(&b, "%s %d %x\n", name, r.IntN(1000), r.Uint64())
	}
	return testbundle.Layer(t.(*testing.T), name, b.String())
}

func write(t *testing.T, name string, b *testbundle.Images) *bundle.File {
	t.Helper()
	return b.Write(t, name).File
}

type layers = []testbundle.CompressedLayer

// variety returns layers in all forms that a bundle has.
func variety(t *testing.T, name string) layers {
	t.Helper()
	return layers{
		{Tar: tar(t, name+"-go", 300_000), Encoder: "go-gzip-6"},
		{Tar: tar(t, name+"-plain", 100_000)},
		{Tar: tar(t, name+"-zstd", 700_000), Encoder: "klauspost-zstd-2"},
		{Tar: tar(t, name+"-kept", 50_000), Encoder: "zlib-6", Kept: true},
		{Tar: tar(t, name+"-pgzip", 400_000), Encoder: "klauspost-pgzip-5-1048576"},
		{Tar: tar(t, name+"-go", 300_000), Encoder: "go-gzip-9"}, // another blob of the first layer
	}
}

func blobPath(repository, digest string) string { return "/v2/" + repository + "/blobs/" + digest }

func digestOf(t testing.TB, l testbundle.CompressedLayer) string {
	return "sha256:" + testbundle.Sum(l.Blob(t))
}

func TestProtocol(t *testing.T) {
	b := testbundle.NewImages()
	img := b.AddCompressed(t, "registry.example:5000/team/app:v1", variety(t, "app")...)
	b.AddCompressed(t, "busybox:1.36", variety(t, "busybox")...)
	hub := b.Manifest.Images[1]
	s := serve(t, write(t, "file", b))
	const app = "registry.example:5000/team/app"

	for _, c := range []struct {
		method, path string
		status       int
		code         string
	}{
		{"GET", "/v2/", 200, ""},
		{"HEAD", "/v2/", 200, ""},
		{"GET", "/v2/team/app/manifests/v1?ns=registry.example:5000", 200, ""},
		{"GET", "/v2/" + app + "/manifests/v1", 200, ""},
		{"GET", "/v2/" + app + "/manifests/" + img.Target.Digest, 200, ""},
		{"GET", "/v2/" + app + "/manifests/" + img.Manifest.Digest, 200, ""},
		{"GET", "/v2/library/busybox/manifests/1.36?ns=docker.io", 200, ""},
		{"GET", "/v2/busybox/manifests/1.36?ns=docker.io", 200, ""},
		{"GET", "/v2/docker.io/busybox/manifests/1.36", 200, ""},
		{"GET", "/v2/docker.io/library/busybox/manifests/1.36", 200, ""},
		{"GET", "/v2/index.docker.io/library/busybox/manifests/1.36", 200, ""},
		{"GET", "/v2/busybox/manifests/1.36", 404, "NAME_INVALID"}, // no registry
		{"GET", "/v2/" + app + "/manifests/v2", 404, "MANIFEST_UNKNOWN"},
		{"GET", "/v2/team/app/manifests/v1?ns=other.example", 404, "NAME_UNKNOWN"},
		{"GET", "/v2/" + app + "/manifests/" + strings.Repeat("x", 129), 404, "MANIFEST_INVALID"},
		{"GET", "/v2/" + app + "/manifests/..", 404, "MANIFEST_INVALID"},
		{"GET", "/v2/" + app + "/blobs/v1", 400, "DIGEST_INVALID"},
		{"GET", "/v2/" + app + "/blobs/sha256:" + strings.Repeat("0", 64), 404, "BLOB_UNKNOWN"},
		{"GET", "/v2/" + app + "/blobs/sha512:" + strings.Repeat("0", 128), 404, "BLOB_UNKNOWN"},
		// Pain 22: a digest is looked up in its repository.
		{"GET", "/v2/" + app + "/manifests/" + hub.Manifest.Digest, 404, "MANIFEST_UNKNOWN"},
		{"GET", "/v2/" + app + "/blobs/" + hub.Config.Digest, 404, "BLOB_UNKNOWN"},
		// Pain 13: the index lists an attestation that the bundle does not have.
		{"GET", "/v2/" + app + "/manifests/sha256:" + testbundle.Sum([]byte(img.Reference)), 404, "MANIFEST_UNKNOWN"},
		{"GET", "/v2/" + app + "/tags/list", 200, ""},
		{"GET", "/v2/" + app + "/tags/other", 404, "NAME_INVALID"},
		{"GET", "/v2/" + app + "/tags/list?n=x", 400, "PAGINATION_NUMBER_INVALID"},
		{"GET", "/v2/" + app + "/referrers/" + img.Target.Digest, 200, ""},
		{"GET", "/v2/" + app + "/referrers/v1", 400, "DIGEST_INVALID"},
		{"GET", "/v2/registry.example:5000/team%2fapp/manifests/v1", 404, "NAME_INVALID"},
		{"GET", "/v2/registry.example:5000//team/app/manifests/v1", 404, "NAME_INVALID"},
		{"GET", "/v2//" + app + "/manifests/v1", 404, "NAME_INVALID"},
		{"GET", "/v2/" + app + "/../app/manifests/v1", 404, "NAME_INVALID"},
		{"GET", "/v2/" + app + "/%2e%2e/app/manifests/v1", 404, "NAME_INVALID"},
		{"GET", "/v2/Team/app/manifests/v1?ns=registry.example:5000", 404, "NAME_INVALID"},
		{"GET", "/v2/a/manifests/v1?ns=" + strings.Repeat("x", 255), 404, "NAME_INVALID"},
		{"GET", "/v2/team/app/manifests/v1?ns=registry.example:5000&%", 400, "UNSUPPORTED"},
		{"GET", "/v1/", 404, "NAME_INVALID"},
		{"GET", "/v2/_catalog", 404, "NAME_INVALID"},
		// Pain 28: there is no way to push.
		{"POST", "/v2/" + app + "/blobs/uploads/", 405, "UNSUPPORTED"},
		{"PUT", "/v2/" + app + "/manifests/v1", 405, "UNSUPPORTED"},
		{"PATCH", "/v2/x", 405, "UNSUPPORTED"},
		{"DELETE", "/v2/" + app + "/manifests/v1", 405, "UNSUPPORTED"},
	} {
		a := s.do(t, c.method, c.path)
		if a.StatusCode != c.status {
			t.Errorf("%s %s: %s %s", c.method, c.path, a.Status, a.body)
		} else if c.code != "" && a.code(t) != c.code {
			t.Errorf("%s %s: %s", c.method, c.path, a.body)
		}
		if a.StatusCode == 405 && a.Header.Get("Allow") != "GET, HEAD" {
			t.Errorf("%s %s: Allow is %q", c.method, c.path, a.Header.Get("Allow"))
		}
	}
}

// HEAD has the headers of GET. Documents and blobs never have an encoding, whatever the client accepts.
func TestHeaders(t *testing.T) {
	b := testbundle.NewImages()
	all := variety(t, "app")
	img := b.AddCompressed(t, "registry.example/app:v1", all...)
	s := serve(t, write(t, "file", b))
	check := func(path, digest, mediaType string, want []byte) {
		t.Helper()
		for _, method := range []string{"HEAD", "GET"} {
			a := s.do(t, method, path+"?ns=registry.example", "Accept-Encoding", "zstd;q=1.0, gzip;q=0.8, deflate;q=0.5")
			if a.StatusCode != 200 || a.Header.Get("Docker-Content-Digest") != digest || a.Header.Get("Content-Type") != mediaType ||
				a.ContentLength != int64(len(want)) || a.Header.Get("Content-Encoding") != "" || a.Header.Get("OCI-Namespace") != "registry.example" {
				t.Errorf("%s %s: %s %v, %d bytes", method, path, a.Status, a.Header, a.ContentLength)
			}
			if method == "GET" && !bytes.Equal(a.body, want) {
				t.Errorf("%s: %d other bytes", path, len(a.body))
			}
		}
	}
	for _, d := range []bundle.Descriptor{img.Target, img.Manifest} {
		for _, ref := range []string{d.Digest, "v1"} {
			if ref == "v1" && d != img.Target {
				continue
			}
			check("/v2/app/manifests/"+ref, d.Digest, d.MediaType, b.Content[bundle.BlobName(d.Digest)])
		}
	}
	check("/v2/app/blobs/"+img.Config.Digest, img.Config.Digest, "application/octet-stream", b.Content[bundle.BlobName(img.Config.Digest)])
	for _, l := range all {
		check("/v2/app/blobs/"+digestOf(t, l), digestOf(t, l), "application/octet-stream", l.Blob(t))
	}
	// Pain 3: a range of a manifest is ignored.
	for _, header := range []string{"bytes=0-", "bytes=5-", "bytes=999999-"} {
		a := s.get(t, "/v2/registry.example/app/manifests/v1", "Range", header)
		if a.StatusCode != 200 || !bytes.Equal(a.body, b.Content[bundle.BlobName(img.Target.Digest)]) {
			t.Errorf("%s: %s", header, a.Status)
		}
	}
}

// Pain 30: two registries have one path.
func TestHostsAreApart(t *testing.T) {
	b := testbundle.NewImages()
	one := b.AddCompressed(t, "one.example/team/app:v1", layers{{Tar: tar(t, "one", 1000), Encoder: "go-gzip-6"}}...)
	two := b.AddCompressed(t, "two.example/team/app:v1", layers{{Tar: tar(t, "two", 1000), Encoder: "go-gzip-6"}}...)
	s := serve(t, write(t, "file", b))
	for host, img := range map[string]bundle.Image{"one.example": one, "two.example": two} {
		a := s.get(t, "/v2/team/app/manifests/v1?ns="+host)
		if a.Header.Get("Docker-Content-Digest") != img.Target.Digest {
			t.Errorf("%s: %s, %v", host, a.Status, a.Header)
		}
	}
}

func TestTagsList(t *testing.T) {
	b := testbundle.NewImages()
	for _, tag := range []string{"v2", "v1", "latest", "v10"} {
		b.AddCompressed(t, "registry.example/app:"+tag, layers{{Tar: tar(t, tag, 1000), Encoder: "go-gzip-6"}}...)
	}
	img := b.AddCompressed(t, "registry.example/other:v1", layers{{Tar: tar(t, "other", 1000), Encoder: "go-gzip-6"}}...)
	// Pain 27: a reference with a tag and a digest.
	b.Manifest.Images[4].Reference += "@" + img.Target.Digest
	s := serve(t, write(t, "file", b))
	list := func(query string) (tags []string, link string) {
		t.Helper()
		a := s.get(t, "/v2/app/tags/list?ns=registry.example"+query)
		var l struct {
			Name string
			Tags []string
		}
		if err := json.Unmarshal(a.body, &l); err != nil || l.Name != "app" || l.Tags == nil {
			t.Errorf("%s: %v, %s", query, err, a.body)
		}
		return l.Tags, a.Header.Get("Link")
	}
	for query, want := range map[string]string{
		"": "[latest v1 v10 v2]", "&n=9": "[latest v1 v10 v2]", "&n=0": "[]", "&n=2": "[latest v1]", "&n=2&last=v1": "[v10 v2]", "&last=v11": "[v2]", "&last=z": "[]",
	} {
		tags, link := list(query)
		if fmt.Sprint(tags) != want || (link != "") != (query == "&n=2") {
			t.Errorf("%q: %v, %q", query, tags, link)
		}
	}
	_, link := list("&n=2")
	next, _, _ := strings.Cut(strings.TrimPrefix(link, "<"), ">")
	if a := s.get(t, next); !strings.Contains(string(a.body), `["v10","v2"]`) {
		t.Errorf("%s: %s", next, a.body)
	}
	if a := s.get(t, "/v2/registry.example/other/manifests/"+img.Target.Digest); a.StatusCode != 200 {
		t.Errorf("by digest: %s", a.Status)
	}
	if a := s.get(t, "/v2/registry.example/other/manifests/v1"); a.StatusCode != 404 {
		t.Errorf("a tag next to a digest: %s", a.Status)
	}
}

// A summer is a client that only hashes what it gets.
type summer struct {
	header http.Header
	status int
	sum    hash.Hash
}

func (s *summer) Header() http.Header         { return s.header }
func (s *summer) WriteHeader(status int)      { s.status = status }
func (s *summer) Write(p []byte) (int, error) { return s.sum.Write(p) }
func (s *summer) Flush()                      {}

// A client that asks for many blobs at once gets them from few passes, and all clients of one blob share an encoder.
func TestOneEncoderForManyClients(t *testing.T) {
	b := testbundle.NewImages()
	l := testbundle.CompressedLayer{Tar: tar(t, "app", 2<<20), Encoder: "go-gzip-6"}
	b.AddCompressed(t, "registry.example/app:v1", l)
	s := serve(t, write(t, "file", b))
	s.events.reset()
	digest := digestOf(t, l)
	var clients sync.WaitGroup
	for range 1000 {
		clients.Go(func() {
			for {
				got := &summer{header: http.Header{}, sum: sha256.New()}
				s.ServeHTTP(got, httptest.NewRequestWithContext(t.Context(), "GET", blobPath("registry.example/app", digest), nil))
				if got.status == 503 {
					continue // on a slow machine: too many streams for 20 s
				}
				if sum := fmt.Sprintf("sha256:%x", got.sum.Sum(nil)); sum != digest {
					t.Errorf("status %d, %s", got.status, sum)
				}
				return
			}
		})
	}
	clients.Wait()
	if n := s.events.of(compresses); n != 1 {
		t.Errorf("%d encoders ran", n)
	}
	if n := s.events.of(passBegins); n > 1 { // 0 if the pass of Set has not ended
		t.Errorf("%d passes", n)
	}
}

// Thirty pods on ten nodes: each node opens three streams, in the order of the layers.
func TestPassesOfManyNodes(t *testing.T) {
	b := testbundle.NewImages()
	var all layers
	for n := range 12 {
		all = append(all, testbundle.CompressedLayer{Tar: tar(t, fmt.Sprintf("layer%d", n), 1<<20), Encoder: "go-gzip-6"})
	}
	b.AddCompressed(t, "registry.example/app:v1", all...)
	s := serve(t, write(t, "file", b))
	s.events.reset()
	var digests []string
	for _, l := range all {
		digests = append(digests, digestOf(t, l))
	}
	var nodes sync.WaitGroup
	for range 10 {
		wanted := make(chan string)
		nodes.Go(func() {
			defer close(wanted)
			for _, d := range digests {
				wanted <- d
			}
		})
		for range 3 {
			nodes.Go(func() {
				for d := range wanted {
					if a := s.get(t, blobPath("registry.example/app", d)); a.StatusCode != 200 || a.err != nil || "sha256:"+testbundle.Sum(a.body) != d {
						t.Errorf("%s, %v", a.Status, a.err)
					}
				}
			})
		}
	}
	nodes.Wait()
	t.Logf("%d passes, %d encoder runs for %d layers", s.events.of(passBegins), s.events.of(compresses), len(all))
	if n := s.events.of(compresses); n != len(all) {
		t.Errorf("%d encoders ran", n)
	}
}

// A file in the cache survives a restart; a damaged one is made again.
func TestCache(t *testing.T) {
	b := testbundle.NewImages()
	l := testbundle.CompressedLayer{Tar: tar(t, "app", 100_000), Encoder: "go-gzip-6"}
	img := b.AddCompressed(t, "registry.example/app:v1", l)
	f, cache := write(t, "file", b), t.TempDir()
	fetch := func(s *server) {
		t.Helper()
		for _, c := range []struct {
			path string
			want []byte
		}{
			{blobPath("registry.example/app", digestOf(t, l)), l.Blob(t)},
			{"/v2/registry.example/app/manifests/v1", b.Content[bundle.BlobName(img.Target.Digest)]},
		} {
			if a := s.get(t, c.path); a.StatusCode != 200 || !bytes.Equal(a.body, c.want) {
				t.Errorf("%s: %s, %d bytes, %v", c.path, a.Status, len(a.body), a.err)
			}
		}
	}
	fetch(serveFrom(t, cache, f))
	unfinished := filepath.Join(cache, "layers", "1.partial")
	if err := os.WriteFile(unfinished, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	again := serveFrom(t, cache, f)
	fetch(again)
	if n := again.events.of(passBegins); n != 0 {
		t.Errorf("%d passes after a restart", n)
	}
	if _, err := os.Stat(unfinished); err == nil {
		t.Error("an unfinished file stayed")
	}
	for _, change := range []func([]byte) []byte{
		func(b []byte) []byte { b[len(b)/2] ^= 1; return b },
		func(b []byte) []byte { return b[:len(b)/2] },
		func([]byte) []byte { return nil },
	} {
		for _, dir := range []string{"layers", "documents"} {
			found, err := filepath.Glob(filepath.Join(cache, dir, "*"))
			if err != nil || len(found) == 0 {
				t.Fatal(err, found)
			}
			for _, path := range found {
				content, err := os.ReadFile(path)
				if err == nil {
					err = os.WriteFile(path, change(content), 0o600)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
		}
		fetch(again)
		fetch(serveFrom(t, cache, f))
	}
}

// An encoder that gives other bytes never serves them: the first client loses its connection, the next gets 404.
func TestOtherBytesAreNotServed(t *testing.T) {
	b := testbundle.NewImages()
	l := testbundle.CompressedLayer{Tar: tar(t, "app", 1<<20), Encoder: "go-gzip-6"}
	b.AddCompressed(t, "registry.example/app:v1", l)
	b.Manifest.Images[0].Layers[0].Compressed.Header = "1f8b08000000000000fe" // another last byte of the header
	s := serve(t, write(t, "file", b))
	path := blobPath("registry.example/app", digestOf(t, l))
	if a := s.get(t, path); a.err == nil || len(a.body) >= len(l.Blob(t)) {
		t.Errorf("%s, %d bytes, %v", a.Status, len(a.body), a.err)
	}
	if a := s.get(t, path); a.StatusCode != 404 || a.code(t) != "BLOB_UNKNOWN" {
		t.Errorf("%s %s", a.Status, a.body)
	}
	if s.events.of(notMade) != 1 {
		t.Error(s.events.count)
	}
}
