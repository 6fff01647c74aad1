package charts_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"airlift/builder/charts"
	"airlift/internal/fault"
)

// small is a chart with one object.
var small = map[string]string{
	"Chart.yaml":        "apiVersion: v2\nname: app\nversion: 1.2.3\n",
	"templates/cm.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n",
}

// write writes the chart's directory.
func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, content := range files {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
}

// link creates symbolic links, from name to target.
func link(t *testing.T, dir string, links map[string]string) {
	t.Helper()
	for name, target := range links {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.Symlink(target, path)); err != nil {
			t.Fatal(err)
		}
	}
}

func TestLinksInDirectory(t *testing.T) {
	for _, c := range []struct {
		name  string
		links map[string]string
		want  string // in the error
	}{
		{"file in the chart", map[string]string{"templates/other.yaml": "../files/other.yaml"}, ""},
		{"directory in the chart", map[string]string{"templates/more": "../parts"}, ""},
		{"subchart in the chart", map[string]string{"charts/sub": "../files/sub"}, ""},
		{"link to a link in the chart", map[string]string{"templates/a.yaml": "b.yaml", "templates/b.yaml": "../files/other.yaml"}, ""},
		{"two links to one directory", map[string]string{"templates/a": "../parts", "b": "parts"}, ""},
		{"file out of the chart", map[string]string{"templates/x.yaml": "../../secret/x.yaml"}, "leads out of the chart"},
		{"values out of the chart", map[string]string{"values.yaml": "../secret/x.yaml"}, "leads out of the chart"},
		{"directory out of the chart", map[string]string{"files/secret": "../../secret"}, "leads out of the chart"},
		{"absolute target", map[string]string{"files/etc": "/etc"}, "leads out of the chart"},
		{"directory with a similar name", map[string]string{"files/x": "../../app-secret"}, "leads out of the chart"},
		{"subchart out of the chart", map[string]string{"charts/sub": "../../sub"}, "leads out of the chart"},
		{"in a directory that is a link", map[string]string{"templates/more": "../parts", "parts/out.yaml": "../../secret/x.yaml"}, "leads out of the chart"},
		{"a link to a link out of the chart", map[string]string{"templates/a.yaml": "b.yaml", "templates/b.yaml": "../../secret/x.yaml"}, "leads out of the chart"},
		{"the chart itself", map[string]string{"templates/loop": ".."}, "loop"},
		{"its own directory", map[string]string{"templates/loop": "."}, "loop"},
		{"two directories", map[string]string{"files/a/x": "../b", "files/b/y": "../a"}, "loop"},
		{"a link to itself", map[string]string{"templates/x.yaml": "x.yaml"}, "too many links"},
		{"nothing", map[string]string{"templates/x.yaml": "none.yaml"}, "no such file"},
	} {
		top := t.TempDir()
		dir := filepath.Join(top, "app")
		write(t, top, map[string]string{"secret/x.yaml": "a: 1\n", "app-secret/x.yaml": "a: 1\n", "sub/Chart.yaml": "apiVersion: v2\nname: sub\nversion: 0.1.0\n"})
		write(t, dir, small)
		write(t, dir, map[string]string{"files/other.yaml": "# nothing\n", "parts/other.yaml": "# nothing\n", "files/sub/Chart.yaml": "apiVersion: v2\nname: sub\nversion: 0.1.0\n"})
		link(t, dir, c.links)
		_, err := client(t).Render(context.Background(), charts.Chart{Name: dir, KubernetesVersion: kubernetes})
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", c.name, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || fault.Hint(err) == ""):
			t.Errorf("%s: %v (hint %q), want %q", c.name, err, fault.Hint(err), c.want)
		}
	}
}

// The user may name the chart by a link.
func TestChartIsALink(t *testing.T) {
	top := t.TempDir()
	write(t, filepath.Join(top, "v1"), small)
	link(t, top, map[string]string{"current": "v1"})
	link(t, filepath.Join(top, "v1"), map[string]string{"templates/other.yaml": "cm2.yaml"})
	write(t, filepath.Join(top, "v1"), map[string]string{"templates/cm2.yaml": "# nothing\n"})
	render(t, client(t), charts.Chart{Name: filepath.Join(top, "current")})
}

// links of links of links: the number of paths doubles with each level.
func TestManyPathsThroughLinks(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, small)
	for i := range 30 {
		link(t, dir, map[string]string{fmt.Sprintf("files/%d/a", i): fmt.Sprintf("../%d", i+1), fmt.Sprintf("files/%d/b", i): fmt.Sprintf("../%d", i+1)})
	}
	write(t, dir, map[string]string{"files/30/x": "x"})
	_, err := client(t).Render(context.Background(), charts.Chart{Name: dir, KubernetesVersion: kubernetes})
	if err == nil || !strings.Contains(err.Error(), "links") {
		t.Error(err)
	}
}

// archive returns an archive with the small chart and more entries.
func archive(t *testing.T, more ...tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for name, content := range small {
		more = append(more, tar.Header{Name: "app/" + name, Mode: 0o644, Size: int64(len(content)), Linkname: content})
	}
	for _, h := range more {
		content := ""
		if h.Typeflag == 0 {
			h.Linkname, content = "", h.Linkname
			h.Size = int64(len(content))
		}
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(content)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Close(), z.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// Helm reads a link in an archive as an empty file: the objects in it would be missing.
func TestLinksInArchive(t *testing.T) {
	symlink := tar.Header{Name: "app/templates/x.yaml", Typeflag: tar.TypeSymlink, Linkname: "../files/x.yaml"}
	for name, entry := range map[string]tar.Header{
		"symbolic link":      symlink,
		"hard link":          {Name: "app/templates/x.yaml", Typeflag: tar.TypeLink, Linkname: "app/files/x.yaml"},
		"link to a host":     {Name: "app/templates/x.yaml", Typeflag: tar.TypeSymlink, Linkname: "/etc/passwd"},
		"named pipe":         {Name: "app/files/x", Typeflag: tar.TypeFifo},
		"link in a subchart": {Name: "app/charts/sub.tgz", Linkname: string(archive(t, symlink))},
	} {
		path := filepath.Join(t.TempDir(), "app.tgz")
		if err := os.WriteFile(path, archive(t, entry), 0o644); err != nil {
			t.Fatal(err)
		}
		_, err := client(t).Render(context.Background(), charts.Chart{Name: path, KubernetesVersion: kubernetes})
		if err == nil || !strings.Contains(err.Error(), "app/") || !strings.Contains(fault.Hint(err), "helm package") {
			t.Errorf("%s: %v (hint %q)", name, err, fault.Hint(err))
		}
	}
	dir := t.TempDir()
	write(t, dir, small)
	write(t, dir, map[string]string{"charts/sub.tgz": string(archive(t, symlink))})
	if _, err := client(t).Render(context.Background(), charts.Chart{Name: dir, KubernetesVersion: kubernetes}); err == nil || !strings.Contains(err.Error(), "app/templates/x.yaml") {
		t.Errorf("archive in a directory: %v", err)
	}
}

// zeros returns a gzip stream of an archive with a file of zeros.
func zeros(t *testing.T, size int64) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	if err := w.WriteHeader(&tar.Header{Name: "app/files/zeros", Mode: 0o644, Size: size}); err != nil {
		t.Fatal(err)
	}
	if _, err := io.CopyN(w, zeroReader{}, size); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.Close(), z.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

type zeroReader struct{}

func (zeroReader) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func TestArchiveThatGrows(t *testing.T) {
	bomb := zeros(t, 200<<20)
	half := zeros(t, 60<<20)
	nested := archive(t)
	for range 12 {
		nested = archive(t, tar.Header{Name: "app/charts/app.tgz", Linkname: string(nested)})
	}
	for name, c := range map[string]struct {
		content []byte
		want    string
	}{
		"a file":           {bomb, "maximum"},
		"a subchart":       {archive(t, tar.Header{Name: "app/charts/a.tgz", Linkname: string(bomb)}), "maximum"},
		"two subcharts":    {archive(t, tar.Header{Name: "app/charts/a.tgz", Linkname: string(half)}, tar.Header{Name: "app/charts/b.tgz", Linkname: string(half)}), "maximum"},
		"nested subcharts": {nested, "deep"},
	} {
		path := filepath.Join(t.TempDir(), "app.tgz")
		if err := os.WriteFile(path, c.content, 0o644); err != nil {
			t.Fatal(err)
		}
		_, err := client(t).Render(context.Background(), charts.Chart{Name: path, KubernetesVersion: kubernetes})
		if err == nil || !strings.Contains(err.Error(), c.want) || fault.Hint(err) == "" {
			t.Errorf("%s: %v (hint %q), want %q", name, err, fault.Hint(err), c.want)
		}
	}
}

// endless is a template that ends after days and uses no memory.
const endless = "{{ range until 1000000 }}{{ range until 1000000 }}{{ end }}{{ end }}"

func TestRenderingEndsWithTheContext(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, small)
	write(t, dir, map[string]string{"templates/x.yaml": endless})
	ctx, cancel := context.WithCancelCause(context.Background())
	interrupted := errors.New("interrupted")
	time.AfterFunc(100*time.Millisecond, func() { cancel(interrupted) })
	if _, err := client(t).Render(ctx, charts.Chart{Name: dir, KubernetesVersion: kubernetes}); !errors.Is(err, interrupted) {
		t.Error(err)
	}
	if _, err := client(t).Render(ctx, charts.Chart{Name: dir, KubernetesVersion: kubernetes}); !errors.Is(err, interrupted) {
		t.Error(err)
	}
}

// A proxy or a login page may answer for a repository.
func TestPageInsteadOfAChart(t *testing.T) {
	page := []byte("<!DOCTYPE html><html><title>Log in</title></html>")
	index := []byte("apiVersion: v1\nentries: {app: [{name: app, version: 1.2.3, urls: [app.tgz]}]}\n")
	for name, files := range map[string]map[string][]byte{
		"index":   {"/index.yaml": page},
		"archive": {"/index.yaml": index, "/app.tgz": page},
	} {
		server, _ := served(t, files)
		_, err := client(t).Render(context.Background(), charts.Chart{Name: "app", Repository: server.URL, KubernetesVersion: kubernetes})
		if err == nil || !strings.Contains(err.Error(), "returned a web page") || !strings.Contains(fault.Hint(err), "HTTPS_PROXY") {
			t.Errorf("%s: %v (hint %q)", name, err, fault.Hint(err))
		}
	}
}
