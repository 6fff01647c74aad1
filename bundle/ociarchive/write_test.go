package ociarchive_test

import (
	"bytes"
	"debug/elf"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"airlift/builder"
	"airlift/builder/fetch"
	"airlift/bundle"
	"airlift/bundle/blobs"
	"airlift/bundle/ociarchive"
	"airlift/internal/fault"
	"airlift/scripts/fixtures/fakesites"
	"airlift/scripts/fixtures/rig"
)

// archive writes the images of a bundle: an index of two platforms, and a manifest.
func archive(t *testing.T) (path string, images []bundle.Image) {
	t.Helper()
	u := fakesites.New(t)
	u.PushIndex("docker.io/team/app:v1", map[string]v1.Image{"amd64": fakesites.Image(t, "amd64", "app"), "arm64": fakesites.Image(t, "arm64", "app")})
	u.Push("docker.io/team/tool:v2", fakesites.Image(t, "amd64", "tool"))
	var mirrors []fetch.Mirror
	for _, s := range u.Mirrors() {
		m, err := fetch.ParseMirror(s)
		if err != nil {
			t.Fatal(err)
		}
		mirrors = append(mirrors, m)
	}
	dir := t.TempDir()
	o := builder.Options{
		Target:    builder.Target{Version: "v1.29.15", Arch: "amd64", Only: []string{bundle.OnlyImages}},
		Selection: builder.Selection{Images: []string{"docker.io/team/app:v1", "docker.io/team/tool:v2"}},
		Network:   builder.Network{CacheDir: filepath.Join(dir, "cache"), Mirrors: mirrors},
		Destination: builder.Destination{Output: filepath.Join(dir, "more"), Level: bundle.Fastest,
			Executables: bundle.Executables{Launcher: fakesites.Executable(t, elf.EM_X86_64), Installer: fakesites.Executable(t, elf.EM_X86_64)}},
	}
	if _, err := builder.Run(t.Context(), []builder.Options{o}); err != nil {
		t.Fatalf("%v\nhint: %s", err, fault.Hint(err))
	}
	f, err := bundle.Open(o.Output)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b, err := blobs.Open(f, nil)
	if err != nil {
		t.Fatal(err)
	}
	var first, second bytes.Buffer
	for _, w := range []*bytes.Buffer{&first, &second} {
		if err := ociarchive.Write(t.Context(), w, b, b.Manifest().Images, nil); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(first.Bytes(), second.Bytes()) {
		t.Error("two archives of the same images differ")
	}
	path = filepath.Join(dir, "images.tar")
	if err := os.WriteFile(path, first.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return path, b.Manifest().Images
}

func command(t *testing.T, name string, args ...string) string {
	t.Helper()
	var stderr bytes.Buffer
	c := exec.Command(name, args...)
	c.Stderr = &stderr
	out, err := c.Output()
	if err != nil {
		t.Fatalf("%s %q: %v\n%s", name, args, err, stderr.String())
	}
	return string(out)
}

// An image in nested indexes is the same after it was built from a layout, exported and read again.
func TestIndexInIndex(t *testing.T) {
	d := fakesites.Documents{}
	p := ocispec.Platform{OS: "linux", Architecture: "amd64"}
	manifest := d.AddManifest(ocispec.MediaTypeImageManifest, "app", p)
	manifest.Platform = &p
	target := d.AddIndex(ocispec.MediaTypeImageIndex, d.AddIndex(ocispec.MediaTypeImageIndex, manifest))
	dir := t.TempDir()
	d.Layout(t, filepath.Join(dir, "layout"), target)
	read := func(output, source string) bundle.Image {
		o := builder.Options{
			Target:    builder.Target{Version: "v1.29.15", Arch: "amd64", Only: []string{bundle.OnlyImages}},
			Selection: builder.Selection{Images: []string{source}},
			Network:   builder.Network{CacheDir: filepath.Join(dir, output+"-cache")},
			Destination: builder.Destination{Output: filepath.Join(dir, output), Level: bundle.Fastest,
				Executables: bundle.Executables{Launcher: fakesites.Executable(t, elf.EM_X86_64), Installer: fakesites.Executable(t, elf.EM_X86_64)}},
		}
		r, err := builder.Run(t.Context(), []builder.Options{o})
		if err != nil {
			t.Fatalf("%v\nhint: %s", err, fault.Hint(err))
		}
		return r[0].Manifest.Images[0]
	}
	first := read("first", "oci:"+filepath.Join(dir, "layout")+"=registry.example/app:1")
	if first.Target.Digest != target.Digest.String() || len(first.Indexes) != 1 || first.Manifest.Digest != manifest.Digest.String() {
		t.Errorf("%+v", first)
	}
	f, err := bundle.Open(filepath.Join(dir, "first"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b, err := blobs.Open(f, nil)
	if err != nil {
		t.Fatal(err)
	}
	out, err := os.Create(filepath.Join(dir, "images.tar"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	if err := ociarchive.Write(t.Context(), out, b, b.Manifest().Images, nil); err != nil {
		t.Fatal(err)
	}
	if again := read("second", "oci-archive:"+out.Name()); !reflect.DeepEqual(again, first) {
		t.Errorf("%+v, want %+v", again, first)
	}
}

func TestSkopeoReadsTheArchive(t *testing.T) {
	skopeo := rig.Tool(t, "skopeo")
	path, images := archive(t)
	// skopeo finds names in a layout only for OCI's media types, which the index has.
	for n, source := range []string{"oci-archive:" + path + ":" + images[0].Reference, "docker-archive:" + path + ":" + images[1].Reference} {
		var seen struct{ Layers []string }
		if err := json.Unmarshal([]byte(command(t, skopeo, "--override-arch", "amd64", "inspect", source)), &seen); err != nil {
			t.Fatal(err)
		}
		for k, l := range images[n].Layers {
			want := l.Compressed.Digest
			if n == 1 {
				want = l.DiffID // skopeo reads the layers of such archives uncompressed
			}
			if seen.Layers[k] != want {
				t.Errorf("%s: layer %s, want %s", source, seen.Layers[k], want)
			}
		}
		// Copying compares every digest.
		command(t, skopeo, "--override-arch", "amd64", "copy", source, "dir:"+t.TempDir())
	}
}

func TestCtrImportsTheArchive(t *testing.T) {
	rig.Root(t)
	daemon, ctr := rig.Component(t, "v1.37.1", "containerd"), rig.Component(t, "v1.37.1", "ctr")
	path, images := archive(t)
	dir, err := os.MkdirTemp("", "ociarchive") // a socket needs a short path
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket := filepath.Join(dir, "sock")
	config := filepath.Join(dir, "config.toml")
	text := fmt.Sprintf("version = 3\nroot = %q\nstate = %q\ndisabled_plugins = [\"io.containerd.cri.v1.images\", \"io.containerd.cri.v1.runtime\", \"io.containerd.grpc.v1.cri\"]\n[grpc]\naddress = %q\n[ttrpc]\naddress = %q\n", filepath.Join(dir, "root"), filepath.Join(dir, "state"), socket, socket+".ttrpc")
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	c := exec.Command(daemon, "--config", config)
	c.Stdout, c.Stderr = &log, &log
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() })
	for range 600 {
		if exec.Command(ctr, "--address", socket, "version").Run() == nil {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	command(t, ctr, "--address", socket, "images", "import", "--no-unpack", path)
	list := command(t, ctr, "--address", socket, "images", "list")
	for _, i := range images {
		found := false
		for line := range strings.Lines(list) {
			found = found || strings.HasPrefix(line, i.Reference+" ") && strings.Contains(line, i.Target.Digest)
		}
		if !found {
			t.Errorf("%s is not in the list with digest %s:\n%s", i.Reference, i.Target.Digest, list)
		}
	}
	check := command(t, ctr, "--address", socket, "images", "check")
	if strings.Count(check, "complete") != len(images) || strings.Contains(check, "incomplete") {
		t.Errorf("ctr images check:\n%s", check)
	}
}
