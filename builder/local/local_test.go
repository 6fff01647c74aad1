package local_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/klauspost/compress/zstd"

	"airlift/builder/fetch"
	"airlift/builder/local"
	"airlift/internal/fault"
	"airlift/scripts/fixtures/fakesites"
)

type rig struct {
	t     *testing.T
	cache *fetch.Cache
	dir   string
}

func newRig(t *testing.T) *rig {
	t.Helper()
	dir := t.TempDir()
	cache, err := fetch.OpenCache(filepath.Join(dir, "cache"))
	if err != nil {
		t.Fatal(err)
	}
	return &rig{t, cache, dir}
}

func (r *rig) path(name string) string { return filepath.Join(r.dir, name) }

// read parses and reads a source, as bundle build does.
func (r *rig) read(arch, source string) ([]*local.Image, error) {
	r.t.Helper()
	spec, ok, err := local.Parse(source)
	if err != nil || !ok {
		r.t.Fatalf("%s: %v, %v", source, ok, err)
	}
	return (&local.Reader{Cache: r.cache, Arch: arch}).Read(r.t.Context(), spec)
}

func (r *rig) one(arch, source string) *local.Image {
	r.t.Helper()
	list, err := r.read(arch, source)
	if err != nil || len(list) != 1 {
		r.t.Fatalf("%s: %d images, %v; hint: %s", source, len(list), err, fault.Hint(err))
	}
	return list[0]
}

// sameLayers compares the cached layers with the original's layers.
func (r *rig) sameLayers(got *local.Image, want v1.Image) {
	r.t.Helper()
	layers, err := want.Layers()
	if err != nil {
		r.t.Fatal(err)
	}
	if len(layers) != len(got.Layers) {
		r.t.Fatalf("%d layers, want %d", len(got.Layers), len(layers))
	}
	for n, l := range layers {
		rc, err := l.Uncompressed()
		if err != nil {
			r.t.Fatal(err)
		}
		tar, err := io.ReadAll(rc)
		if err != nil {
			r.t.Fatal(err)
		}
		if !bytes.Equal(fakesites.Cached(r.t, r.cache, got.Layers[n].DiffID), tar) || got.Layers[n].Size != int64(len(tar)) {
			r.t.Errorf("layer %d differs", n)
		}
	}
	config, err := want.RawConfigFile()
	if err != nil {
		r.t.Fatal(err)
	}
	if !bytes.Equal(fakesites.Cached(r.t, r.cache, got.Config.Digest), config) {
		r.t.Error("the config differs")
	}
}

func digestOf(t *testing.T, of interface{ Digest() (v1.Hash, error) }) string {
	t.Helper()
	d, err := of.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return d.String()
}

func indexOf(t *testing.T, seed string, arches ...string) v1.ImageIndex {
	t.Helper()
	var idx v1.ImageIndex = empty.Index
	for _, arch := range arches {
		idx = mutate.AppendManifests(idx, mutate.IndexAddendum{Add: fakesites.Image(t, arch, seed),
			Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: arch}}})
	}
	return idx
}

// layoutWith writes a layout with go-containerregistry. tags maps the annotation
// org.opencontainers.image.ref.name to an image or an index.
func (r *rig) layoutWith(name string, tags map[string]any) string {
	r.t.Helper()
	p, err := layout.Write(r.path(name), empty.Index)
	if err != nil {
		r.t.Fatal(err)
	}
	for tag, what := range tags {
		o := layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": tag})
		if tag == "" {
			o = layout.WithAnnotations(nil)
		}
		switch w := what.(type) {
		case v1.Image:
			err = p.AppendImage(w, o)
		case v1.ImageIndex:
			err = p.AppendIndex(w, o)
		}
		if err != nil {
			r.t.Fatal(err)
		}
	}
	return r.path(name)
}

// tarOf writes the files of a directory to a tar, through a compressor.
func (r *rig) tarOf(dir, name string, compress func(io.Writer) io.WriteCloser) string {
	r.t.Helper()
	f, err := os.Create(r.path(name))
	if err != nil {
		r.t.Fatal(err)
	}
	defer f.Close()
	c := compress(f)
	w := tar.NewWriter(c)
	if err := w.AddFS(os.DirFS(dir)); err != nil {
		r.t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		r.t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		r.t.Fatal(err)
	}
	return f.Name()
}

type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }

var compressors = map[string]func(io.Writer) io.WriteCloser{
	"app.tar":     func(w io.Writer) io.WriteCloser { return nopCloser{w} },
	"app.tar.gz":  func(w io.Writer) io.WriteCloser { return gzip.NewWriter(w) },
	"app.tar.zst": func(w io.Writer) io.WriteCloser { z, _ := zstd.NewWriter(w); return z },
}

func TestOCILayout(t *testing.T) {
	r := newRig(t)
	idx := indexOf(t, "app", "amd64", "arm64")
	dir := r.layoutWith("layout", map[string]any{"v1": idx})
	sources := map[string]string{"oci:" + dir + ":v1=registry.example/app:1": "oci"}
	for name, c := range compressors {
		sources["oci-archive:"+r.tarOf(dir, name, c)+"=registry.example/app:1"] = "oci-archive"
	}
	for source, kind := range sources {
		for _, arch := range []string{"amd64", "arm64"} {
			t.Run(kind+" "+filepath.Base(source)+" "+arch, func(t *testing.T) {
				fresh := newRig(t)
				img := fresh.one(arch, source)
				want := fakesites.Image(t, arch, "app")
				if img.Reference != "registry.example/app:1" || img.Kind != kind {
					t.Errorf("%s from %s", img.Reference, img.Kind)
				}
				if img.Target.Digest != digestOf(t, idx) || img.Manifest.Digest != digestOf(t, want) {
					t.Errorf("target %s, manifest %s", img.Target.Digest, img.Manifest.Digest)
				}
				fresh.sameLayers(img, want)
			})
		}
	}
}

// The name of an image is one of: given, a full name in an annotation.
func TestNamesInLayouts(t *testing.T) {
	r := newRig(t)
	a, b := fakesites.Image(t, "amd64", "a"), fakesites.Image(t, "amd64", "b")
	full := r.layoutWith("full", map[string]any{"registry.example/a:1": a, "registry.example:5000/b:2": b})
	list, err := r.read("amd64", "oci:"+full)
	names := map[string]string{}
	for _, i := range list {
		names[i.Reference] = i.Target.Digest
	}
	if err != nil || len(names) != 2 || names["registry.example/a:1"] != digestOf(t, a) || names["registry.example:5000/b:2"] != digestOf(t, b) {
		t.Errorf("%v, %v", names, err)
	}
	if img := r.one("amd64", "oci:"+full+":registry.example:5000/b:2"); img.Target.Digest != digestOf(t, b) {
		t.Error("another image was chosen")
	}
	if img := r.one("amd64", "oci:"+full+":@0=x:1"); img.Reference != "docker.io/library/x:1" {
		t.Errorf("reference = %s", img.Reference)
	}
	tags := r.layoutWith("tags", map[string]any{"v1": a, "v2": b})
	one := r.layoutWith("none", map[string]any{"": a})
	for source, want := range map[string][2]string{
		"oci:" + tags:         {"has no name that pods can use", "oci:" + tags + ":v"},
		"oci:" + tags + ":v2": {"has no name that pods can use", "oci:" + tags + ":v2=registry.example/app:1"},
		"oci:" + tags + ":v3=registry.example/c:1": {`no image "v3"`, "v1, v2"},
		"oci:" + tags + "=registry.example/c:1":    {"names one image, but the source has 2", "v1, v2"},
		"oci:" + one:                               {"has no name that pods can use", "oci:" + one + ":@0=registry.example/app:1"},
		"oci-archive:" + one:                       {"is a directory", "oci:" + one},
		"oci:" + r.path("absent"):                  {"index.json is missing", ""},
	} {
		_, err := r.read("amd64", source)
		if err == nil || !strings.Contains(err.Error(), want[0]) || !strings.Contains(fault.Hint(err), want[1]) {
			t.Errorf("%s: err = %v, hint = %q", source, err, fault.Hint(err))
		}
	}
}

// Several manifests with one name are the platforms of one image.
func TestPlatformsWithOneName(t *testing.T) {
	r := newRig(t)
	p, err := layout.Write(r.path("layout"), empty.Index)
	if err != nil {
		t.Fatal(err)
	}
	for _, arch := range []string{"arm64", "amd64"} {
		if err := p.AppendImage(fakesites.Image(t, arch, "app"), layout.WithPlatform(v1.Platform{OS: "linux", Architecture: arch}),
			layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": "registry.example/app:1"})); err != nil {
			t.Fatal(err)
		}
	}
	for _, arch := range []string{"arm64", "amd64"} {
		if img := r.one(arch, "oci:"+r.path("layout")); img.Target.Digest != digestOf(t, fakesites.Image(t, arch, "app")) {
			t.Errorf("%s: the target is %s", arch, img.Target.Digest)
		}
	}
}

func TestMissingPlatformListsThoseThereAre(t *testing.T) {
	r := newRig(t)
	dir := r.layoutWith("layout", map[string]any{"index": indexOf(t, "app", "arm64"), "single": fakesites.Image(t, "arm64", "app")})
	docker := r.dockerArchive("app.tar", map[string]v1.Image{"registry.example/app:1": fakesites.Image(t, "arm64", "app")})
	for _, source := range []string{"oci:" + dir + ":index=registry.example/app:1", "oci:" + dir + ":single=registry.example/app:1", "docker-archive:" + docker} {
		_, err := r.read("amd64", source)
		if err == nil || !strings.Contains(err.Error(), "registry.example/app:1 has no image for linux/amd64, only for linux/arm64") {
			t.Errorf("%s: err = %v", source, err)
		}
	}
}

// A damaged blob of any kind is refused, with its path and digest, also if the cache has
// its content.
func TestDamagedBlobs(t *testing.T) {
	r := newRig(t)
	dir := r.layoutWith("layout", map[string]any{"v1": indexOf(t, "app", "amd64")})
	source := "oci:" + dir + ":v1=registry.example/app:1"
	r.one("amd64", source)
	blobs, err := filepath.Glob(filepath.Join(dir, "blobs", "sha256", "*"))
	if err != nil || len(blobs) != 5 {
		t.Fatalf("%d blobs, %v", len(blobs), err)
	}
	for _, blob := range blobs {
		good, err := os.ReadFile(blob)
		if err != nil {
			t.Fatal(err)
		}
		flipped := bytes.Clone(good)
		flipped[len(flipped)/2] ^= 1
		for name, bad := range map[string][]byte{"a flipped bit": flipped, "truncated": good[:len(good)-1], "empty": {}} {
			if err := os.WriteFile(blob, bad, 0o644); err != nil {
				t.Fatal(err)
			}
			archive := r.tarOf(dir, "damaged.tar", compressors["app.tar"])
			for _, source := range []string{source, "oci-archive:" + archive + "=registry.example/app:1"} {
				_, err = r.read("amd64", source)
				if err == nil || !strings.Contains(err.Error(), "blobs/sha256/"+filepath.Base(blob)) {
					t.Errorf("%s of %s: err = %v", name, source, err)
				}
			}
		}
		if err := os.Remove(blob); err != nil {
			t.Fatal(err)
		}
		if _, err = r.read("amd64", source); err == nil || !strings.Contains(err.Error(), blob+" is missing") {
			t.Errorf("missing: err = %v", err)
		}
		if err := os.WriteFile(blob, good, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	r.one("amd64", source)
}

// A layer that does not have the diffID of the config is refused.
func TestWrongDiffID(t *testing.T) {
	r := newRig(t)
	img := fakesites.Image(t, "amd64", "app")
	cfg, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	cfg = cfg.DeepCopy()
	cfg.RootFS.DiffIDs[0].Hex = strings.Repeat("ab", 32)
	wrong, err := mutate.ConfigFile(img, cfg)
	if err != nil {
		t.Fatal(err)
	}
	dir := r.layoutWith("layout", map[string]any{"v1": wrong})
	_, err = r.read("amd64", "oci:"+dir+":v1=registry.example/app:1")
	if err == nil || !strings.Contains(err.Error(), "expected "+strings.Repeat("ab", 32)) || !strings.Contains(err.Error(), filepath.Join(dir, "blobs")) {
		t.Errorf("err = %v", err)
	}
}

func TestNotAnArchive(t *testing.T) {
	r := newRig(t)
	write := func(name string, content []byte) string {
		if err := os.MkdirAll(filepath.Dir(r.path(name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(r.path(name), content, 0o644); err != nil {
			t.Fatal(err)
		}
		return r.path(name)
	}
	members := func(name string, files ...string) string {
		var out bytes.Buffer
		w := tar.NewWriter(&out)
		for _, file := range files {
			if err := w.WriteHeader(&tar.Header{Name: file, Typeflag: tar.TypeReg}); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		return write(name, out.Bytes())
	}
	listed := func(name, list string) string {
		var out bytes.Buffer
		w := tar.NewWriter(&out)
		if err := w.WriteHeader(&tar.Header{Name: "manifest.json", Typeflag: tar.TypeReg, Size: int64(len(list))}); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, list); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		return write(name, out.Bytes())
	}
	var empty bytes.Buffer
	if err := tar.NewWriter(&empty).Close(); err != nil {
		t.Fatal(err)
	}
	docker := r.dockerArchive("docker.tar", map[string]v1.Image{"registry.example/app:1": fakesites.Image(t, "amd64", "app")})
	whole, err := os.ReadFile(docker)
	if err != nil {
		t.Fatal(err)
	}
	for source, want := range map[string]string{
		"docker-archive:" + listed("list.tar", "[]"):                                                               "it has no images",
		"docker-archive:" + listed("null.tar", "null"):                                                             "it has no images",
		"oci-archive:" + write("text", bytes.Repeat([]byte("text "), 500)):                                         "is not a tar archive",
		"docker-archive:" + write("nothing", nil):                                                                  "is not a tar archive",
		"docker-archive:" + write("empty.tar", empty.Bytes()):                                                      "is not a tar archive",
		"docker-archive:" + write("cut.tar", whole[:len(whole)/2]):                                                 "is cut off",
		"docker-archive:" + write("cut.tar.gz", []byte{0x1f, 0x8b, 8}):                                             "is cut off",
		"docker-archive:" + write("lfs.tar", []byte("version https://git-lfs.github.com/spec/v1\noid sha256:0\n")): "is a pointer of Git LFS",
		"docker-archive:" + write("page.tar", []byte("\n<!DOCTYPE html>\n<html>")):                                 "it is a web page",
		"oci-archive:" + write("app.7z", []byte("7z\xbc\xaf\x27\x1c")):                                             "it is compressed with 7z",
		"docker-archive:" + members("export.tar", "etc/passwd", "bin/sh"):                                          "has the files of a container",
		"oci-archive:" + docker: "it is an archive of docker save",
		"oci:" + docker:         "is not a directory",
		"docker-archive:" + write("app.tar.xz", []byte("\xfd7zXZ\x00\x00\x04")):  "it is compressed with xz",
		"oci-archive:" + write("app.tar.bz2", []byte("BZh91AY&SY")):              "it is compressed with bzip2",
		"oci-archive:" + write("app.tar.lz4", []byte("\x04\x22\x4d\x18\x64")):    "it is compressed with lz4",
		"oci-archive:" + write("app.zip", []byte("PK\x03\x04\x14")):              "it is compressed with zip",
		"oci-archive:" + members("chart.tgz", "app/Chart.yaml"):                  "is a Helm chart, not a container image",
		"oci:" + filepath.Dir(write("chart/Chart.yaml", nil)):                    "is a Helm chart, not a container image",
		"docker-archive:" + members("old.tar", "repositories", "0123/layer.tar"): "is of docker save before version 1.10",
	} {
		_, err := r.read("amd64", source)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: err = %v", source, err)
		}
		if fault.Hint(err) == "" {
			t.Errorf("%s: no hint for %v", source, err)
		}
	}
	left, err := fs.Glob(os.DirFS(r.dir), "cache/partial/*")
	if err != nil || len(left) > 0 {
		t.Errorf("left in the cache: %v, %v", left, err)
	}
}

func TestParse(t *testing.T) {
	for s, want := range map[string]string{
		"oci:dir":                          "oci dir  ",
		"oci:dir:v1":                       "oci dir v1 ",
		"oci:dir:v1=app:2":                 "oci dir v1 docker.io/library/app:2",
		"oci:dir=registry.example:5000/a":  "oci dir  registry.example:5000/a:latest",
		"oci:a=b/c:v1=app":                 "oci a=b/c v1 docker.io/library/app:latest",
		"oci-archive:f.tar:localhost/a:1":  "oci-archive f.tar localhost/a:1 ",
		"docker-archive:/x/f.tar:@1=a:1":   "docker-archive /x/f.tar @1 docker.io/library/a:1",
		"docker-daemon:app:1":              "docker-daemon  app:1 docker.io/library/app:1",
		"docker-daemon:0123456789ab=app:1": "docker-daemon  0123456789ab docker.io/library/app:1",
		"containerd:app=other:1":           "containerd  docker.io/library/app:latest docker.io/library/other:1",
		"nginx:1.27":                       "registry",
		"docker://nginx":                   "registry",
		"registry.example:5000/oci:1":      "registry",
		"oci:":                             "it has no path",
		"oci:dir:v1=":                      "reading the name after =",
		"oci:dir=app@sha256:" + strings.Repeat("0", 64):                     "oci dir  docker.io/library/app@sha256:" + strings.Repeat("0", 64),
		"docker-daemon:0123456789ab":                                        "an image ID is not a name",
		"docker-daemon:":                                                    "invalid reference format",
		"containerd:registry.example/a:1@sha256:" + strings.Repeat("0", 64): "containerd  registry.example/a@sha256:" + strings.Repeat("0", 64) + " registry.example/a@sha256:" + strings.Repeat("0", 64),
		"containers-storage:localhost/app":                                  "not supported",
		"dir:/tmp/x":                                                        "not supported",
		"oci://registry.example/app:1":                                      "is the URL of a registry",
	} {
		spec, ok, err := local.Parse(s)
		got := "registry"
		if ok {
			got = fmt.Sprintf("%s %s %s %s", spec.Kind, spec.Path, spec.Select, spec.Reference)
		}
		if err != nil {
			if got = err.Error(); fault.ExitCode(err) == fault.Usage && strings.Contains(got, want) {
				continue
			}
		}
		if got != want {
			t.Errorf("%s: %q, want %q", s, got, want)
		}
	}
}
