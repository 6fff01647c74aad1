package images_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/core/remotes"
	"github.com/containerd/containerd/v2/core/remotes/docker"
	"github.com/containerd/containerd/v2/core/transfer"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"pgregory.net/rapid"

	"airlift/bundle"
	_ "airlift/scripts/fixtures/seed"
	"airlift/scripts/fixtures/testbundle"
)

// hub writes a bundle with images of several registries.
func hub(t *testing.T) (*bundle.File, []bundle.Image) {
	t.Helper()
	b := testbundle.NewImages()
	for _, ref := range []string{"registry.k8s.io/app:v1", "registry.k8s.io/coredns/app:v1", "quay.io/team/app:v1.2_x", "docker.io/library/busybox:1.36"} {
		b.AddCompressed(t, ref, variety(t, ref)...)
	}
	return write(t, "file", b), b.Manifest.Images
}

// The client of go-containerregistry, which checks sizes, digests and diff IDs, pulls every image by its path.
func TestPullByPath(t *testing.T) {
	file, list := hub(t)
	s := serve(t, file)
	host := strings.TrimPrefix(s.URL, "https://")
	for _, i := range list {
		for _, at := range []string{i.Reference, strings.Split(i.Reference, ":")[0] + "@" + i.Target.Digest, i.Reference + "@" + i.Target.Digest} {
			ref, err := name.ParseReference(host + "/" + at)
			if err != nil {
				t.Fatal(err)
			}
			d, err := remote.Get(ref, remote.WithTransport(s.Client().Transport), remote.WithContext(t.Context()))
			if err != nil || d.Digest.String() != i.Target.Digest || string(d.MediaType) != i.Target.MediaType || d.Size != i.Target.Size {
				t.Fatalf("%s: %v, %+v", at, err, d)
			}
			img, err := d.Image()
			if err == nil {
				err = checkLayers(img, i)
			}
			if err != nil {
				t.Fatalf("%s: %v", at, err)
			}
			if digest, err := img.Digest(); err != nil || digest.String() != i.Manifest.Digest {
				t.Errorf("%s: %v, %v", at, digest, err)
			}
			config, err := img.ConfigFile()
			if err != nil || config.Config.Cmd[0] != i.Reference {
				t.Errorf("%s: %v, %v", at, config, err)
			}
		}
	}
	tags, err := remote.List(must(name.NewRepository(host+"/quay.io/team/app")), remote.WithTransport(s.Client().Transport))
	if err != nil || fmt.Sprint(tags) != "[v1.2_x]" {
		t.Errorf("%v, %v", tags, err)
	}
	referrers, err := remote.Referrers(must(name.NewDigest(host+"/quay.io/team/app@"+list[2].Target.Digest)), remote.WithTransport(s.Client().Transport))
	if err != nil {
		t.Fatal(err)
	}
	if m, err := referrers.IndexManifest(); err != nil || len(m.Manifests) != 0 {
		t.Errorf("%v, %v", m, err)
	}
}

// checkLayers reads the layers of an image compressed and uncompressed.
func checkLayers(img v1.Image, want bundle.Image) error {
	layers, err := img.Layers()
	if err != nil || len(layers) != len(want.Layers) {
		return fmt.Errorf("%d layers: %w", len(layers), err)
	}
	for n, l := range layers {
		digest, err := l.Digest()
		if err != nil {
			return err
		}
		for _, c := range []struct {
			open func() (io.ReadCloser, error)
			want string
		}{{l.Compressed, digest.String()}, {l.Uncompressed, want.Layers[n].DiffID}} {
			r, err := c.open()
			if err != nil {
				return err
			}
			content, err := io.ReadAll(r)
			if got := "sha256:" + testbundle.Sum(content); err != nil || got != c.want {
				return fmt.Errorf("layer %d has the digest %s, not %s: %w", n, got, c.want, err)
			}
			r.Close()
		}
	}
	return nil
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// resolver returns containerd's resolver with this server as the mirror of all registries. It checks that each
// request names the registry.
func resolver(t *testing.T, s *server) remotes.Resolver {
	t.Helper()
	client := &http.Client{Transport: asks(func(r *http.Request) {
		if r.URL.Query().Get("ns") == "" {
			t.Errorf("%s names no registry", r.URL)
		}
	}, s.Client().Transport)}
	return docker.NewResolver(docker.ResolverOptions{Hosts: func(string) ([]docker.RegistryHost, error) {
		return []docker.RegistryHost{{Client: client, Host: strings.TrimPrefix(s.URL, "https://"), Scheme: "https", Path: "/v2", Capabilities: docker.HostCapabilityPull | docker.HostCapabilityResolve}}, nil
	}})
}

type transport func(*http.Request) (*http.Response, error)

func (t transport) RoundTrip(r *http.Request) (*http.Response, error) { return t(r) }

func asks(see func(*http.Request), next http.RoundTripper) http.RoundTripper {
	return transport(func(r *http.Request) (*http.Response, error) { see(r); return next.RoundTrip(r) })
}

// pull fetches everything that a descriptor names, as containerd does.
func pull(ctx context.Context, f remotes.Fetcher, d ocispec.Descriptor) error {
	r, err := f.Fetch(ctx, d)
	if err != nil {
		return fmt.Errorf("%s %s: %w", d.MediaType, d.Digest, err)
	}
	defer r.Close()
	content, err := io.ReadAll(r)
	if err != nil {
		return fmt.Errorf("%s %s, %d of %d bytes: %w", d.MediaType, d.Digest, len(content), d.Size, err)
	}
	if "sha256:"+testbundle.Sum(content) != d.Digest.String() || int64(len(content)) != d.Size {
		return fmt.Errorf("%s %s: other bytes", d.MediaType, d.Digest)
	}
	var all struct {
		Config    *ocispec.Descriptor
		Layers    []ocispec.Descriptor
		Manifests []ocispec.Descriptor
	}
	switch d.MediaType {
	case ocispec.MediaTypeImageIndex, ocispec.MediaTypeImageManifest:
		if err := json.Unmarshal(content, &all); err != nil {
			return err
		}
	}
	if all.Config != nil {
		all.Layers = append(all.Layers, *all.Config)
	}
	if len(all.Manifests) > 0 { // the other one is an attestation
		all.Layers = all.Manifests[:1]
	}
	for _, child := range all.Layers {
		if err := pull(ctx, f, child); err != nil {
			return err
		}
	}
	return nil
}

// containerd's client resolves by tag and by digest, and fetches; also in parallel chunks (pain 4).
func TestPullByContainerd(t *testing.T) {
	file, list := hub(t)
	for _, chunk := range []int{0, 20_000} {
		s := serve(t, file)
		r := resolver(t, s)
		if chunk > 0 {
			r.(remotes.ResolverWithOptions).SetOptions(transfer.WithMaxConcurrentDownloads(3), transfer.WithConcurrentLayerFetchBuffer(chunk))
		}
		for _, i := range list {
			for _, ref := range []string{i.Reference, i.Reference + "@" + i.Target.Digest} {
				_, d, err := r.Resolve(t.Context(), ref)
				if err != nil || d.Digest.String() != i.Target.Digest || d.MediaType != i.Target.MediaType || d.Size != i.Target.Size {
					t.Fatalf("%s: %v, %+v", ref, err, d)
				}
				f, err := r.Fetcher(t.Context(), ref)
				if err == nil {
					err = pull(t.Context(), f, d)
				}
				if err != nil {
					t.Fatalf("%s in chunks of %d: %v", ref, chunk, err)
				}
			}
		}
	}
}

// A connection that is cut is continued by containerd's client with a range.
func TestPullContinues(t *testing.T) {
	file, list := hub(t)
	s := serve(t, file)
	cut := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.Path, "/blobs/") && r.Header.Get("Range") == "" {
			w = &cutter{w, 10_000}
		}
		s.ServeHTTP(w, r)
	}))
	cut.StartTLS()
	defer cut.Close()
	continues := &server{s.Registry, cut, s.events, ""}
	r := resolver(t, continues)
	_, d, err := r.Resolve(t.Context(), list[0].Reference)
	if err != nil {
		t.Fatal(err)
	}
	f, err := r.Fetcher(t.Context(), list[0].Reference)
	if err == nil {
		err = pull(t.Context(), f, d)
	}
	if err != nil {
		t.Error(err)
	}
}

// A cutter ends a connection after some bytes.
type cutter struct {
	http.ResponseWriter
	left int
}

func (c *cutter) Write(p []byte) (int, error) {
	if c.left -= len(p); c.left < 0 {
		_, _ = c.ResponseWriter.Write(p[:len(p)+c.left])
		_ = http.NewResponseController(c.ResponseWriter).Flush()
		panic(http.ErrAbortHandler)
	}
	return c.ResponseWriter.Write(p)
}

func (c *cutter) Unwrap() http.ResponseWriter { return c.ResponseWriter }

// Ranges have the status, the length and the bytes that net/http's own server gives them, for blobs that are kept and
// blobs that are made.
func TestRanges(t *testing.T) {
	b := testbundle.NewImages()
	l := testbundle.CompressedLayer{Tar: tar(t, "app", 5000), Encoder: "go-gzip-6"}
	b.AddCompressed(t, "registry.example/app:v1", l)
	s := serve(t, write(t, "file", b))
	blob := l.Blob(t)
	path := blobPath("registry.example/app", digestOf(t, l))
	oracle := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Etag", `"`+digestOf(t, l)+`"`)
		w.Header().Set("Content-Type", "application/octet-stream")
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(blob))
	}))
	defer oracle.Close()
	reference := &server{Server: oracle}
	number := rapid.OneOf(rapid.Just(""), rapid.Map(rapid.IntRange(0, len(blob)+5), func(n int) string { return fmt.Sprint(n) }),
		rapid.SampledFrom([]string{"0", "9223372036854775807", "9223372036854775806"}))
	rapid.Check(t, func(r *rapid.T) {
		header := "bytes=" + number.Draw(r, "first") + "-" + number.Draw(r, "last")
		condition := rapid.SampledFrom([]string{"", `"` + digestOf(t, l) + `"`, `"other"`}).Draw(r, "If-Range")
		first, last, _ := strings.Cut(strings.TrimPrefix(header, "bytes="), "-")
		if first == "" && (last == "" || last == "0") || first != "" && last != "" && (len(first) > len(last) || len(first) == len(last) && first > last) {
			return // not a range of RFC 9110, or an empty one: net/http answers 416, or 206 without a byte
		}
		got, want := s.get(t, path, "Range", header, "If-Range", condition), reference.get(t, "/", "Range", header, "If-Range", condition)
		if got.StatusCode != want.StatusCode || got.Header.Get("Content-Range") != want.Header.Get("Content-Range") ||
			got.StatusCode < 300 && (got.ContentLength != want.ContentLength || !bytes.Equal(got.body, want.body)) {
			r.Errorf("%s: %s %q, net/http: %s %q", header, got.Status, got.Header.Get("Content-Range"), want.Status, want.Header.Get("Content-Range"))
		}
	})
	for _, header := range []string{"bytes=0-1,4-5", "items=0-1", "bytes=", "bytes=-", "bytes=5-1", "bytes=a-b", "bytes=+1-2", "bytes=99999999999999999999999-5", "bytes=9223372036854775807-923"} {
		if a := s.get(t, path, "Range", header); a.StatusCode != 200 || !bytes.Equal(a.body, blob) {
			t.Errorf("%s: %s", header, a.Status)
		}
	}
	if a := s.get(t, path, "Range", "bytes=99999999999999999999999-"); a.StatusCode != 416 || a.code(t) != "SIZE_INVALID" {
		t.Errorf("%s %s", a.Status, a.body)
	}
}

// A blob that nobody asked for yet is also sent from an offset on.
func TestRangesOfUnmadeBlobs(t *testing.T) {
	b := testbundle.NewImages()
	all := variety(t, "app")
	b.AddCompressed(t, "registry.example/app:v1", all...)
	s := serve(t, write(t, "file", b))
	for n, l := range all {
		blob := l.Blob(t)
		first := []int{0, 1, len(blob) / 2, len(blob) - 1}[n%4]
		a := s.get(t, blobPath("registry.example/app", digestOf(t, l)), "Range", fmt.Sprintf("bytes=%d-", first))
		if a.StatusCode != 206 || a.err != nil || !bytes.Equal(a.body, blob[first:]) {
			t.Errorf("%s from %d: %s, %v", l.Encoder, first, a.Status, a.err)
		}
	}
}

// Whatever is asked: never a panic, an error is JSON, and a success is something that the bundle lists.
func FuzzPaths(f *testing.F) {
	b := testbundle.NewImages()
	l := testbundle.CompressedLayer{Tar: []byte("content")}
	img := b.AddCompressed(f, "registry.example/team/app:v1", l)
	known := map[string]bool{digestOf(f, l): true}
	for _, d := range img.Documents() {
		known[d.Digest] = true
	}
	path := filepath.Join(f.TempDir(), "file")
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		f.Fatal(err)
	}
	testbundle.WriteFile(f, path, bundle.Executables{Launcher: self, Installer: []byte("installer")}, &b.Manifest, bundle.Fastest, b.Content)
	file, err := bundle.Open(path)
	if err != nil {
		f.Fatal(err)
	}
	defer file.Close()
	s := serve(f, file)
	for _, ref := range []string{"v1", "v1@" + img.Target.Digest, img.Target.Digest, "../../../etc/passwd", "%2e%2e", "a%2fb", "", "\x00"} {
		for _, kind := range []string{"manifests", "blobs", "tags", "referrers", ".."} {
			f.Add("GET", "/v2/registry.example/team/app/"+kind+"/"+ref, "")
			f.Add("HEAD", "/v2/team/app/"+kind+"/"+ref, "ns=registry.example")
		}
	}
	f.Add("GET", "/v2/team/app/tags/list", "ns=registry.example&n=0&last=%00")
	f.Fuzz(func(t *testing.T, method, path, query string) {
		req, err := http.NewRequestWithContext(t.Context(), method, "https://127.0.0.1"+path, nil)
		if err != nil {
			return
		}
		req.URL.RawQuery = query
		w := httptest.NewRecorder()
		s.ServeHTTP(w, req)
		a := answer{Response: w.Result(), body: w.Body.Bytes()}
		switch digest := w.Header().Get("Docker-Content-Digest"); {
		case w.Code >= 400:
			a.code(t)
		case digest != "" && !known[digest]:
			t.Errorf("%s %s: %s", method, path, digest)
		case digest != "" && method == "GET" && w.Code == 200 && "sha256:"+testbundle.Sum(a.body) != digest:
			t.Errorf("%s %s: other bytes", method, path)
		case digest == "" && !json.Valid(a.body):
			t.Errorf("%s %s: %q", method, path, a.body)
		}
	})
}
