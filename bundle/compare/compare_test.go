package compare_test

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"testing"

	"airlift/builder"
	"airlift/builder/fetch"
	"airlift/bundle"
	"airlift/bundle/compare"
	"airlift/scripts/fixtures/fakesites"
)

const version = "v1.29.15"

// module is a line of the build information of the binary.
var module = regexp.MustCompile(`dep\tgithub\.com/klauspost/compress\tv([0-9.]+)`)

// binaries returns a Go binary, and the same with another version of a module.
func binaries(t *testing.T) (old, now []byte, want compare.Change) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "launch")
	c := exec.Command("go", "build", "-buildvcs=false", "-o", path, "airlift/cmd/launch")
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	old, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	m := module.FindSubmatch(old)
	if m == nil {
		t.Fatal("the binary has no such module")
	}
	other := bytes.Repeat([]byte{'9'}, len(m[1]))
	line := bytes.Replace(m[0], m[1], other, 1)
	return old, bytes.ReplaceAll(old, m[0], line), compare.Change{Name: "github.com/klauspost/compress", Old: "v" + string(m[1]), New: "v" + string(other)}
}

func build(t *testing.T, u *fakesites.Upstream, file string) *bundle.File {
	t.Helper()
	dir := t.TempDir()
	motd := filepath.Join(dir, "motd")
	if err := os.WriteFile(motd, []byte(file), 0o644); err != nil {
		t.Fatal(err)
	}
	o := builder.Options{
		Target:    builder.Target{Version: version, Arch: "amd64", CNI: "none"},
		Selection: builder.Selection{Images: []string{"docker.io/team/app:v1"}},
		Network:   builder.Network{CacheDir: filepath.Join(dir, "cache")},
		Destination: builder.Destination{Output: filepath.Join(dir, "install"), Level: bundle.Fastest,
			Executables: bundle.Executables{Launcher: fakesites.Executable(t, elf.EM_X86_64), Installer: fakesites.Executable(t, elf.EM_X86_64)}},
	}
	o.Site.Files = []builder.File{{SiteFile: bundle.SiteFile{Path: "/etc/motd", Mode: "0644"}, Source: motd}}
	for _, s := range u.Mirrors() {
		m, err := fetch.ParseMirror(s)
		if err != nil {
			t.Fatal(err)
		}
		o.Mirrors = append(o.Mirrors, m)
	}
	r, err := builder.Run(context.Background(), []builder.Options{o})
	if err != nil {
		t.Fatal(err)
	}
	f, err := bundle.Open(r[0].Path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// put serves a binary as the kubelet and in an image.
func put(t *testing.T, u *fakesites.Upstream, content []byte) {
	t.Helper()
	kubelet := "dl.k8s.io/release/" + version + "/bin/linux/amd64/kubelet"
	u.Put(kubelet, content)
	u.Put(kubelet+".sha256", fmt.Appendf(nil, "%x", sha256.Sum256(content)))
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "./app", Mode: 0o755, Size: int64(len(content))}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(content); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	u.Push("docker.io/team/app:v1", fakesites.ImageOf(t, "amd64", fakesites.GzipLayer(t, fakesites.LayerTar(t, "base")), fakesites.GzipLayer(t, layer.Bytes())))
}

func compared(t *testing.T, x, y *bundle.File) *compare.Report {
	t.Helper()
	r, err := compare.Files(context.Background(), x, y)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestFiles(t *testing.T) {
	u := fakesites.New(t, version)
	old, now, module := binaries(t)
	put(t, u, old)
	x := build(t, u, "one")
	put(t, u, now)
	y := build(t, u, "two")

	r := compared(t, x, y)
	both := []compare.Change{module}
	if want := []compare.Binary{{"bin/kubelet", both}, {"docker.io/team/app: /app", both}}; !reflect.DeepEqual(r.Modules, want) {
		t.Errorf("%+v", r.Modules)
	}
	sum := func(b []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(b)) }
	if want := []compare.Change{{"kubelet", sum(old), sum(now)}}; !reflect.DeepEqual(r.Components, want) {
		t.Errorf("%+v", r.Components)
	}
	if len(r.Images) != 1 || r.Images[0].Name != "docker.io/team/app:v1" || len(r.Files) != 1 || r.Files[0].Name != "/etc/motd" || len(r.Manifests)+len(r.Units) != 0 || !r.Different {
		t.Errorf("%+v", r)
	}
	// Only the layer with the binary is not shared.
	if n := r.Old.Layers - r.SharedLayers; n < int64(len(old)) || n > int64(len(old))+10_000 || r.SharedLayers == 0 {
		t.Errorf("%d of %d bytes are shared", r.SharedLayers, r.Old.Layers)
	}
	if r := compared(t, x, x); r.Different || r.SharedLayers != r.Old.Layers {
		t.Errorf("a bundle differs from itself: %+v", r)
	}
}
