// Package fakesites serves small made-up components and images on loopback, for tests
// of the code that downloads them. Layouts, checksums and digests are as on the real
// sites.
package fakesites

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"debug/elf"
	"fmt"
	"io"
	"log"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"airlift/images/release"
)

// An Upstream serves the components and images of one catalog.
type Upstream struct {
	t      testing.TB
	server *httptest.Server
	push   *httptest.Server // the registry alone, to push images to

	mu       sync.Mutex
	files    map[string][]byte // by host and path: "dl.k8s.io/release/stable.txt"
	requests []string          // "GET dl.k8s.io/release/stable.txt"
	// Answer, if set, may answer a request itself. It returns whether it did.
	Answer func(w http.ResponseWriter, r *http.Request, target string) bool
}

// Hosts are the sites that an Upstream replaces. The others redirect downloads to
// the last two, as the real ones do.
var Hosts = []string{"dl.k8s.io", "github.com", "registry.k8s.io", "ghcr.io", "docker.io", "cdn.dl.k8s.io", "blobs.example.com"}

// New serves the catalogs of versions for amd64 and arm64. Each is the newest release of its
// minor version.
func New(t testing.TB, versions ...string) *Upstream {
	t.Helper()
	u := &Upstream{t: t, files: map[string][]byte{}}
	reg := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	u.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, rest, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
		u.serve(w, r, reg, host, rest)
	}))
	t.Cleanup(u.server.Close)
	u.push = httptest.NewServer(reg)
	t.Cleanup(u.push.Close)

	for _, version := range versions {
		u.Release(version, release.Versions{})
	}
	return u
}

// Release adds the catalog of a version to what is served, as the newest release of its minor
// version. given are the versions of components that the version needs.
func (u *Upstream) Release(version string, given release.Versions) {
	u.t.Helper()
	minor := version[:strings.LastIndex(version, ".")]
	u.Put("dl.k8s.io/release/stable-"+minor[1:]+".txt", []byte(version+"\n"))
	for _, arch := range release.Arches() {
		c, err := release.For(version, arch, release.Flannel, given)
		if err != nil {
			u.t.Fatal(err)
		}
		u.add(c)
	}
	u.Forget()
}

// add serves the binaries and images of a catalog.
func (u *Upstream) add(c *release.Catalog) {
	u.t.Helper()
	for _, b := range c.Binaries {
		if u.Get(strings.TrimPrefix(b.URL, "https://")) == nil { // not of an earlier version
			u.putBinary(b)
		}
	}
	for n, i := range c.Images {
		// The second is a plain manifest without an index, like some real
		// images. It has only one platform.
		if n != 1 {
			u.PushIndex(i.Reference, map[string]v1.Image{"amd64": Image(u.t, "amd64", i.Name), "arm64": Image(u.t, "arm64", i.Name)})
		} else if c.Arch == "amd64" {
			u.Push(i.Reference, Image(u.t, c.Arch, i.Name))
		}
	}
}

// Mirrors returns the values of --mirror for these sites.
func (u *Upstream) Mirrors() []string {
	var m []string
	for _, h := range Hosts {
		m = append(m, h+"="+u.server.URL+"/"+h)
	}
	return m
}

// T is the test.
func (u *Upstream) T() testing.TB { return u.t }

// URL serves all hosts, each in a directory with its name.
func (u *Upstream) URL() string { return u.server.URL }

// Put serves content at a host and path.
func (u *Upstream) Put(target string, content []byte) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.files[target] = content
}

// PutFile serves a file, and a checksum file with it alone, as on dl.k8s.io.
func (u *Upstream) PutFile(target string, content []byte) {
	u.Put(target, content)
	u.Put(target+".sha256", fmt.Appendf(nil, "%x\n", sha256.Sum256(content)))
}

// Remove makes a host and path return 404.
func (u *Upstream) Remove(target string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.files, target)
}

// Get returns the content served at a host and path.
func (u *Upstream) Get(target string) []byte {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.files[target]
}

// Requests lists the requests since the last Forget: "GET host/path".
func (u *Upstream) Requests() []string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return append([]string(nil), u.requests...)
}

// Forget empties the list of requests.
func (u *Upstream) Forget() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.requests = nil
}

// Close stops the server, as if the network failed.
func (u *Upstream) Close() { u.server.Close() }

func (u *Upstream) serve(w http.ResponseWriter, r *http.Request, reg http.Handler, host, rest string) {
	target := host + "/" + rest
	u.mu.Lock()
	u.requests = append(u.requests, r.Method+" "+target)
	content, ok := u.files[target]
	answer := u.Answer
	u.mu.Unlock()
	if answer != nil && answer(w, r, target) {
		return
	}
	switch {
	case host == "dl.k8s.io" && r.Method != http.MethodHead:
		http.Redirect(w, r, "https://cdn.dl.k8s.io/"+rest, http.StatusFound)
	case host == "cdn.dl.k8s.io":
		u.mu.Lock()
		content, ok = u.files["dl.k8s.io/"+rest]
		u.mu.Unlock()
		fallthrough
	case host == "github.com":
		if !ok {
			http.NotFound(w, r)
			return
		}
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
	case strings.Contains(rest, "/blobs/sha256:") && r.Method == http.MethodGet && host != "blobs.example.com":
		http.Redirect(w, r, "https://blobs.example.com/"+rest, http.StatusTemporaryRedirect)
	default: // a registry; all registries share one namespace here
		r.URL.Path = "/" + rest
		reg.ServeHTTP(w, r)
	}
}

// madeFiles are the published files that publishedFile has made, by URL. All tests need the same ones.
var madeFiles sync.Map

// publishedFile returns the content of a published file of the catalog.
func publishedFile(t testing.TB, b release.Binary) (content []byte) {
	t.Helper()
	if made, ok := madeFiles.Load(b.URL); ok {
		return made.([]byte)
	}
	switch c := b.Contents; {
	case c.Entry != "":
		content = fakeBinary(b.URL)
	case c.Dir != "":
		content = archive(t, map[string][]byte{"./bridge": fakeBinary("bridge" + b.URL), "./host-local": fakeBinary("host-local" + b.URL), "./static": fakeBinary("static" + b.URL), "./README.md": []byte("read me")})
	default:
		members := map[string][]byte{"LICENSE": []byte("licence")}
		for _, m := range c.Members {
			members[m.Name] = fakeBinary(m.Name + b.URL)
		}
		content = archive(t, members)
	}
	madeFiles.Store(b.URL, content)
	return content
}

// putBinary serves a published file of the catalog and its checksum file.
func (u *Upstream) putBinary(b release.Binary) {
	content := publishedFile(u.t, b)
	file := strings.TrimPrefix(b.URL, "https://")
	sums := strings.TrimPrefix(b.ChecksumURL, "https://")
	u.Put(file, content)
	line := fmt.Sprintf("%x", sha256.Sum256(content))
	if strings.HasPrefix(file, "github.com/") {
		line += "  " + path.Base(file)
	}
	// A checksum file may list several architectures.
	u.Put(sums, append(u.Get(sums), line+"\n"...))
}

// fakeBinary returns deterministic bytes for a seed. They differ from those of any other
// seed and compress about as well as a binary.
func fakeBinary(seed string) []byte {
	sum := sha256.Sum256([]byte(seed))
	r := rand.New(rand.NewChaCha8(sum))
	b := make([]byte, 20_000+r.IntN(60_000))
	for i := range b {
		b[i] = byte(r.ExpFloat64() * 12)
	}
	copy(b, elf.ELFMAG)
	return b
}

// archive returns a .tar.gz.
func archive(t testing.TB, members map[string][]byte) []byte {
	t.Helper()
	return gzipped(t, tarOf(t, members))
}

func gzipped(t testing.TB, content []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	z, err := gzip.NewWriterLevel(&out, gzip.BestSpeed)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := z.Write(content); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func tarOf(t testing.TB, members map[string][]byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, name := range slices.Sorted(maps.Keys(members)) {
		content := members[name]
		h := &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o755, Size: int64(len(content))}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(content); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// LayerTar returns the uncompressed tar of a layer with one file.
func LayerTar(t testing.TB, seed string) []byte {
	t.Helper()
	return tarOf(t, map[string][]byte{"file-" + path.Base(seed): fakeBinary(seed)})
}

// FilesLayer is a layer with these files.
func FilesLayer(t testing.TB, files map[string][]byte) v1.Layer {
	t.Helper()
	return GzipLayer(t, tarOf(t, files))
}

// Image returns an image of two layers. All images of an architecture share the lower
// one.
func Image(t testing.TB, arch, seed string) v1.Image {
	t.Helper()
	key := seed + "/" + arch
	img, made := madeImages.Load(key)
	if !made { // at worst, two tests make the same image
		img = ImageOf(t, arch, GzipLayer(t, LayerTar(t, "base/"+arch)), GzipLayer(t, LayerTar(t, key)))
		madeImages.Store(key, img)
	}
	return img.(v1.Image)
}

// madeImages are the images that Image has made, by seed and architecture. All tests need the
// same ones.
var madeImages sync.Map

// GzipLayer compresses a layer's tar, once: an uncompressed one would be compressed again for
// its digest and for each push.
func GzipLayer(t testing.TB, content []byte) v1.Layer {
	t.Helper()
	packed := gzipped(t, content)
	l, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(packed)), nil })
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// RawLayer is an uncompressed layer.
func RawLayer(content []byte) v1.Layer {
	return static.NewLayer(content, types.OCIUncompressedLayer)
}

// ImageOf creates an image from layers, the lowest first.
func ImageOf(t testing.TB, arch string, layers ...v1.Layer) v1.Image {
	t.Helper()
	img, err := mutate.AppendLayers(empty.Image, layers...)
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	cfg = cfg.DeepCopy()
	cfg.OS, cfg.Architecture = "linux", arch
	if img, err = mutate.ConfigFile(img, cfg); err != nil {
		t.Fatal(err)
	}
	return img
}

// Push stores an image under its reference.
func (u *Upstream) Push(reference string, img v1.Image) {
	u.t.Helper()
	if err := remote.Write(u.ref(reference), img); err != nil {
		u.t.Fatal(err)
	}
}

// PushIndex stores an index of images, by architecture, under its reference.
func (u *Upstream) PushIndex(reference string, byArch map[string]v1.Image) {
	u.t.Helper()
	var idx v1.ImageIndex = empty.Index
	for _, arch := range release.Arches() {
		if img, ok := byArch[arch]; ok {
			idx = mutate.AppendManifests(idx, mutate.IndexAddendum{Add: img,
				Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: arch}}})
		}
	}
	if err := remote.WriteIndex(u.ref(reference), idx); err != nil {
		u.t.Fatal(err)
	}
}

// Descriptor returns the descriptor of an image or index.
func (u *Upstream) Descriptor(reference string) v1.Descriptor {
	u.t.Helper()
	d, err := remote.Head(u.ref(reference))
	if err != nil {
		u.t.Fatal(err)
	}
	return *d
}

// Digest returns the digest of an image or index.
func (u *Upstream) Digest(reference string) v1.Hash {
	u.t.Helper()
	return u.Descriptor(reference).Digest
}

// ref returns the image's name in the one registry that serves all hosts.
func (u *Upstream) ref(reference string) name.Reference {
	u.t.Helper()
	_, rest, _ := strings.Cut(reference, "/")
	ref, err := name.ParseReference(strings.TrimPrefix(u.push.URL, "http://") + "/" + rest)
	if err != nil {
		u.t.Fatal(err)
	}
	return ref
}
