package store_test

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"airlift/bundle"
)

// An imageSet is images as in a bundle, and the entries and bytes of their blobs in the
// order of the stream.
type imageSet struct {
	images  []bundle.Image
	entries []bundle.Entry
	blobs   map[string][]byte // by entry name
}

// add appends an image and its new blobs: index, manifest, config, layers.
func (p *imageSet) add(t testing.TB, ref string, img v1.Image, idx v1.ImageIndex) bundle.Image {
	t.Helper()
	if p.blobs == nil {
		p.blobs = map[string][]byte{}
	}
	manifest := p.blob(t, must(img.Digest()), string(must(img.MediaType())), must(img.RawManifest()))
	target := manifest
	if idx != nil {
		target = p.blob(t, must(idx.Digest()), string(must(idx.MediaType())), must(idx.RawManifest()))
	}
	var between []bundle.Descriptor
	for idx != nil { // indexes that have only one index
		list := must(idx.IndexManifest()).Manifests
		if !list[0].MediaType.IsIndex() {
			break
		}
		idx = must(idx.ImageIndex(list[0].Digest))
		between = append(between, p.blob(t, must(idx.Digest()), string(must(idx.MediaType())), must(idx.RawManifest())))
	}
	m := must(img.Manifest())
	b := bundle.Image{
		Name: ref, Reference: ref, Target: target, Indexes: between, Manifest: manifest,
		Config: p.blob(t, m.Config.Digest, string(m.Config.MediaType), must(img.RawConfigFile())),
	}
	for _, l := range must(img.Layers()) {
		content := readAll(t, l)
		d := p.blob(t, must(l.DiffID()), "", content)
		b.Layers = append(b.Layers, bundle.Layer{DiffID: d.Digest, Size: d.Size})
	}
	p.images = append(p.images, b)
	return b
}

func readAll(t testing.TB, l v1.Layer) []byte {
	t.Helper()
	r, err := l.Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func (p *imageSet) blob(t testing.TB, h v1.Hash, mediaType string, content []byte) bundle.Descriptor {
	name := bundle.BlobDir + h.Hex
	if _, known := p.blobs[name]; !known {
		p.blobs[name] = content
		p.entries = append(p.entries, bundle.Entry{Name: name, Size: int64(len(content)), SHA256: h.Hex})
	}
	return bundle.Descriptor{MediaType: mediaType, Digest: h.String(), Size: int64(len(content))}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// layer returns a layer with these entries; data is the content of a regular file. It sets
// missing owners, times and modes.
func layer(t testing.TB, entries ...file) v1.Layer {
	t.Helper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, f := range entries {
		h := f.Header
		h.Size = int64(len(f.data))
		if h.Mode == 0 {
			h.Mode = 0o644
			if h.Typeflag == tar.TypeDir {
				h.Mode = 0o755
			}
		}
		if h.ModTime.IsZero() {
			h.ModTime = time.Date(2024, 2, 29, 12, 30, 0, 0, time.UTC)
		}
		h.Format = tar.FormatPAX
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, f.data); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return tarLayer(t, buf.Bytes())
}

func tarLayer(t testing.TB, content []byte) v1.Layer {
	t.Helper()
	l, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(content)), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

type file struct {
	tar.Header
	data string
}

func text(name, data string) file {
	return file{tar.Header{Typeflag: tar.TypeReg, Name: name}, data}
}

func dir(name string) file {
	return file{tar.Header{Typeflag: tar.TypeDir, Name: name}, ""}
}

// noise is incompressible content that is the same in every run.
func noise(seed uint64, size int) string {
	b := make([]byte, size)
	r := rand.New(rand.NewPCG(seed, seed))
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return string(b)
}

// image returns an image of layers. command is in the config, so images with the same
// layers differ.
func image(t testing.TB, command string, layers ...v1.Layer) v1.Image {
	t.Helper()
	img := must(mutate.AppendLayers(empty.Image, layers...))
	return must(mutate.ConfigFile(img, &v1.ConfigFile{
		Architecture: "amd64", OS: "linux",
		Config: v1.Config{Cmd: []string{command}},
		RootFS: must(img.ConfigFile()).RootFS,
	}))
}

// index returns an index of img and of an image for another platform that is not in the bundle.
func index(t testing.TB, img v1.Image) v1.ImageIndex {
	t.Helper()
	other := must(mutate.ConfigFile(img, &v1.ConfigFile{
		Architecture: "arm64", OS: "linux", RootFS: must(img.ConfigFile()).RootFS}))
	return mutate.AppendManifests(empty.Index,
		mutate.IndexAddendum{Add: other, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "arm64"}}},
		mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "amd64"}}})
}

// archive writes an OCI layout tar of the image, for ctr to import.
func archive(t testing.TB, d *daemon, ref string, img v1.Image) string {
	t.Helper()
	dir := t.TempDir()
	p := must(layout.Write(dir, empty.Index))
	if err := p.AppendImage(img, layout.WithAnnotations(map[string]string{"io.containerd.image.name": ref})); err != nil {
		t.Fatal(err)
	}
	name := d.path(strings.NewReplacer("/", "_", ":", "_").Replace(ref) + ".tar")
	writeTar(t, name, dir)
	return name
}

// writeTar writes a tar of a directory.
func writeTar(t testing.TB, name, dir string) {
	t.Helper()
	f := must(os.Create(name))
	defer f.Close()
	w := tar.NewWriter(f)
	if err := w.AddFS(os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
}

// richImage has everything that is difficult in layers: whiteouts of files and
// directories, opaque directories, hard links, one of which a later layer breaks, xattrs and
// file capabilities, set-uid, sticky, odd owners, symlinks (dangling, absolute
// and to directories that a later layer writes through), FIFOs, devices, names
// beyond 255 bytes of path, empty files and layers, and replaced kinds.
func richImage(t testing.TB, command string) v1.Image {
	t.Helper()
	const capNetBind = "\x01\x00\x00\x02\x00\x04\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"
	long := strings.Repeat(strings.Repeat("n", 100)+"/", 5)
	base := layer(t,
		dir("bin/"), dir("etc/"), dir("usr/"), dir("usr/lib/"),
		file{tar.Header{Typeflag: tar.TypeDir, Name: "tmp/", Mode: 0o1777}, ""},
		file{tar.Header{Typeflag: tar.TypeDir, Name: "private/", Mode: 0o700, Uid: 65532, Gid: 65533}, ""},
		text("private/key", "secret"),
		text("etc/removed", "goes in the next layer"),
		text("etc/kept", "stays"),
		dir("opaque/"), text("opaque/old", "hidden later"), dir("opaque/sub/"), text("opaque/sub/old", "hidden too"),
		dir("gone/"), dir("gone/deep/"), text("gone/deep/file", "removed with its directory"),
		file{tar.Header{Typeflag: tar.TypeReg, Name: "bin/setuid", Mode: 0o4755}, "#!"},
		file{tar.Header{Typeflag: tar.TypeReg, Name: "bin/coredns", Mode: 0o755,
			PAXRecords: map[string]string{"SCHILY.xattr.security.capability": capNetBind}}, "binary"},
		file{tar.Header{Typeflag: tar.TypeReg, Name: "etc/attr",
			PAXRecords: map[string]string{"SCHILY.xattr.user.note": "kept", "SCHILY.xattr.trusted.note": "kept too"}}, "x"},
		file{tar.Header{Typeflag: tar.TypeDir, Name: "noted/", Mode: 0o711, Gid: 7, PAXRecords: map[string]string{"SCHILY.xattr.user.note": "inherited"}}, ""},
		file{tar.Header{Typeflag: tar.TypeDir, Name: "noted/deep/", Mode: 0o2770, Uid: 8}, ""},
		file{tar.Header{Typeflag: tar.TypeLink, Name: "bin/setuid-link", Linkname: "bin/setuid"}, ""},
		file{tar.Header{Typeflag: tar.TypeSymlink, Name: "lib", Linkname: "usr/lib"}, ""},
		file{tar.Header{Typeflag: tar.TypeSymlink, Name: "etc/dangling", Linkname: "/nowhere/at/all"}, ""},
		file{tar.Header{Typeflag: tar.TypeChar, Name: "null", Devmajor: 1, Devminor: 3, Mode: 0o666}, ""},
		file{tar.Header{Typeflag: tar.TypeFifo, Name: "fifo", Mode: 0o640}, ""},
		text("kind", "a file that becomes a directory"),
		text("empty", ""),
		dir(long), text(long+"file", "deep"),
		text("blob", noise(1, 3<<20)),
	)
	second := layer(t,
		dir("etc/"), text("etc/.wh.removed", ""),
		dir("opaque/"), text("opaque/.wh..wh..opq", ""), text("opaque/new", "seen"),
		text(".wh.gone", ""),
		text("lib/through-link.so", "written through a symlink of the layer below"),
		text("etc/new", "linked"), file{tar.Header{Typeflag: tar.TypeLink, Name: "bin/new-link", Linkname: "etc/new"}, ""},
		file{tar.Header{Typeflag: tar.TypeReg, Name: "private/new", Mode: 0o600, Uid: 65532}, "in a directory that this layer does not list"},
		text("noted/deep/under/new", "below directories that this layer does not list, one of them in none"),
		text("through/new", "in a directory by another name"), dir("real/"), file{tar.Header{Typeflag: tar.TypeSymlink, Name: "named", Linkname: "real"}, ""},
		text("named/new", "through a link of this layer's"),
		file{tar.Header{Typeflag: tar.TypeReg, Name: "bin/setuid", Mode: 0o755}, "replaced, no longer set-uid"},
	)
	nothing := layer(t)
	third := layer(t,
		text(".wh.kind", ""), dir("kind/"), text("kind/inside", "a directory now"),
		text("noted/.wh.deep", ""), text("real/.wh.new", ""), text("real/own/new", ""),
		dir("gone/"), text("gone/again", "back, but without the old content"),
		file{tar.Header{Typeflag: tar.TypeDir, Name: "etc/", Mode: 0o750, Gid: 42}, ""},
		text("long-"+strings.Repeat("x", 240), "a long name"),
	)
	return image(t, command, base, second, nothing, third)
}

func entryOf(p *imageSet, dgst string) bundle.Entry {
	name := bundle.BlobDir + strings.TrimPrefix(dgst, "sha256:")
	for _, e := range p.entries {
		if e.Name == name {
			return e
		}
	}
	panic(fmt.Sprintf("no entry %s", name))
}

func descriptorOf(d bundle.Descriptor) ocispec.Descriptor {
	return ocispec.Descriptor{MediaType: d.MediaType, Digest: digest.Digest(d.Digest), Size: d.Size}
}
