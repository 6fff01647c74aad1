package local_test

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"airlift/internal/fault"
	"airlift/scripts/fixtures/fakesites"
)

// dockerArchive writes images with go-containerregistry, in the form of docker save. Its
// layers are compressed.
func (r *rig) dockerArchive(file string, all map[string]v1.Image) string {
	r.t.Helper()
	tags := map[name.Tag]v1.Image{}
	for s, img := range all {
		tag, err := name.NewTag(s)
		if err != nil {
			r.t.Fatal(err)
		}
		tags[tag] = img
	}
	if err := tarball.MultiWriteToFile(r.path(file), tags); err != nil {
		r.t.Fatal(err)
	}
	return r.path(file)
}

func TestDockerArchive(t *testing.T) {
	r := newRig(t)
	a, b := fakesites.Image(t, "amd64", "a"), fakesites.Image(t, "amd64", "b")
	file := r.dockerArchive("all.tar", map[string]v1.Image{"registry.example/a:1": a, "b:2": b, "b:latest": b})
	list, err := r.read("amd64", "docker-archive:"+file)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, i := range list {
		names = append(names, i.Reference)
		want := b
		if i.Reference == "registry.example/a:1" {
			want = a
		}
		r.sameLayers(i, want)
		if i.Target != i.Manifest {
			t.Errorf("target %v, manifest %v", i.Target, i.Manifest)
		}
	}
	slices.Sort(names)
	if want := []string{"docker.io/library/b:2", "docker.io/library/b:latest", "registry.example/a:1"}; !slices.Equal(names, want) {
		t.Errorf("names = %v", names)
	}
	if img := r.one("amd64", "docker-archive:"+file+":b:2"); img.Reference != "docker.io/library/b:2" {
		t.Errorf("reference = %s", img.Reference)
	}
	if img := r.one("amd64", "docker-archive:"+file+":b=registry.example/b:3"); img.Reference != "registry.example/b:3" {
		t.Errorf("reference = %s", img.Reference)
	}
	_, err = r.read("amd64", "docker-archive:"+file+":c:1")
	if err == nil || !strings.Contains(fault.Hint(err), "docker.io/library/b:2, docker.io/library/b:latest, registry.example/a:1") {
		t.Errorf("err = %v, hint = %q", err, fault.Hint(err))
	}
}

// The digest of an image without upstream's manifest does not depend on how the archive
// was written: with compressed layers, uncompressed ones, or links.
func TestDockerArchiveDigestIsOfTheContents(t *testing.T) {
	r := newRig(t)
	img := fakesites.Image(t, "amd64", "app")
	want := r.one("amd64", "docker-archive:"+r.dockerArchive("compressed.tar", map[string]v1.Image{"app:1": img}))
	layers, err := img.Layers()
	if err != nil {
		t.Fatal(err)
	}
	config, err := img.RawConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	add := func(h tar.Header, content []byte) {
		h.Size, h.Mode = int64(len(content)), 0o644
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(content); err != nil {
			t.Fatal(err)
		}
	}
	entry := map[string]any{"Config": "./config.json", "RepoTags": []string{"app:1"}}
	var names []string
	for n, l := range layers {
		rc, err := l.Uncompressed()
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(rc)
		if err != nil {
			t.Fatal(err)
		}
		id := strings.Repeat(string(rune('a'+n)), 64)
		add(tar.Header{Name: id + "/", Typeflag: tar.TypeDir}, nil)
		add(tar.Header{Name: id + "/layer.tar", Typeflag: tar.TypeReg}, content)
		add(tar.Header{Name: "link" + id + "/layer.tar", Typeflag: tar.TypeSymlink, Linkname: "../" + id + "/layer.tar"}, nil)
		add(tar.Header{Name: "hard" + id, Typeflag: tar.TypeLink, Linkname: "link" + id + "/layer.tar"}, nil)
		names = append(names, "hard"+id)
	}
	entry["Layers"] = names
	add(tar.Header{Name: "config.json", Typeflag: tar.TypeReg}, config)
	text, err := json.Marshal([]any{entry})
	if err != nil {
		t.Fatal(err)
	}
	add(tar.Header{Name: "manifest.json", Typeflag: tar.TypeReg}, text)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(r.path("links.tar"), out.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	got := newRig(t).one("amd64", "docker-archive:"+r.path("links.tar"))
	if got.Target != want.Target || got.Config != want.Config {
		t.Errorf("%+v, want %+v", got.Target, want.Target)
	}
	// This digest is in people's --checksum flags.
	var m v1.Manifest
	if err := json.Unmarshal(fakesites.Cached(t, r.cache, want.Manifest.Digest), &m); err != nil {
		t.Fatal(err)
	}
	for n, l := range m.Layers {
		if l.Digest.String() != want.Layers[n].DiffID || l.Size != want.Layers[n].Size || l.MediaType != "application/vnd.docker.image.rootfs.diff.tar" {
			t.Errorf("layer %d is %+v", n, l)
		}
	}
}

func TestDamagedDockerArchive(t *testing.T) {
	r := newRig(t)
	img := fakesites.Image(t, "amd64", "app")
	file := r.dockerArchive("app.tar", map[string]v1.Image{"app:1": img})
	good, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	config, err := img.RawConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	layers, err := img.Layers()
	if err != nil {
		t.Fatal(err)
	}
	rc, err := layers[1].Compressed()
	if err != nil {
		t.Fatal(err)
	}
	layer, err := io.ReadAll(rc)
	if err != nil {
		t.Fatal(err)
	}
	for name, part := range map[string][]byte{"config": config, "layer": layer} {
		at := bytes.Index(good, part)
		if at < 0 {
			t.Fatalf("the %s is not in the archive", name)
		}
		bad := bytes.Clone(good)
		bad[at+len(part)/2] ^= 1
		if err := os.WriteFile(file, bad, 0o644); err != nil {
			t.Fatal(err)
		}
		_, err := newRig(t).read("amd64", "docker-archive:"+file)
		if err == nil || !strings.Contains(err.Error(), file+": ") {
			t.Errorf("%s: err = %v", name, err)
		}
	}
}

// serveDocker answers like Docker's API on a socket, and returns DOCKER_HOST.
func (r *rig) serveDocker(archives map[string]string) string {
	r.t.Helper()
	socket := filepath.Join(r.t.TempDir(), "docker.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		r.t.Fatal(err)
	}
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		file, ok := archives[q.URL.Query().Get("names")]
		if q.URL.Path != "/images/get" || !ok {
			w.WriteHeader(http.StatusNotFound)
			io.WriteString(w, `{"message":"reference does not exist"}`)
			return
		}
		http.ServeFile(w, q, file)
	})}
	go s.Serve(l)
	r.t.Cleanup(func() { s.Close() })
	return "unix://" + socket
}

func TestDockerDaemon(t *testing.T) {
	r := newRig(t)
	img := fakesites.Image(t, "amd64", "app")
	file := r.dockerArchive("app.tar", map[string]v1.Image{"app:1": img})
	want := r.one("amd64", "docker-archive:"+file)
	t.Setenv("DOCKER_HOST", r.serveDocker(map[string]string{"app:1": file, "0123456789ab": file}))
	t.Setenv("DOCKER_TLS_VERIFY", "")
	for source, reference := range map[string]string{
		"docker-daemon:app:1":                               "docker.io/library/app:1",
		"docker-daemon:app:1=registry.example/app:2":        "registry.example/app:2",
		"docker-daemon:0123456789ab=registry.example/app:2": "registry.example/app:2",
	} {
		fresh := newRig(t)
		got := fresh.one("amd64", source)
		if got.Reference != reference || got.Target != want.Target || got.Kind != "docker-daemon" {
			t.Errorf("%s: %+v", source, got)
		}
		fresh.sameLayers(got, img)
	}
	_, err := r.read("amd64", "docker-daemon:none:1")
	if err == nil || !strings.Contains(err.Error(), "reference does not exist") || !strings.Contains(fault.Hint(err), "docker pull none:1") {
		t.Errorf("err = %v, hint = %q", err, fault.Hint(err))
	}
	for host, want := range map[string]string{"unix:///nonexistent/docker.sock": "connecting to docker", "ssh://me@host": "neither unix:// nor tcp://"} {
		t.Setenv("DOCKER_HOST", host)
		if _, err := r.read("amd64", "docker-daemon:app:1"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: err = %v", host, err)
		}
	}
}
