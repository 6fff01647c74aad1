package manifests_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"airlift/builder/manifests"
	"airlift/internal/fault"
)

const linkedObject = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: linked}\n"

// layout writes files, and links from a name to a target.
func layout(t *testing.T, files, links map[string]string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for name, content := range files {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	for name, target := range links {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestLinksInADirectory(t *testing.T) {
	files := map[string]string{"site/a.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n", "other/b.yaml": linkedObject}
	for name, c := range map[string]struct{ from, to, want string }{
		"file":           {"site/b.yaml", "../other/b.yaml", ""},
		"hidden":         {"site/.data", "../other", ""},
		"directory":      {"site/more", "../other", "is a link to a directory"},
		"with extension": {"site/more.yaml", "../other", "is a link to a directory"},
		"loop":           {"site/more", ".", "is a link to a directory"},
		"nothing":        {"site/b.yaml", "none.yaml", "no such file"},
	} {
		dir := layout(t, files, map[string]string{c.from: c.to})
		_, err := manifests.Read(filepath.Join(dir, "site"))
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %v (hint %q), want %q", name, err, fault.Hint(err), c.want)
		}
	}
}

// Kustomize itself refuses files out of the kustomization's directory, also through links.
// Directories are bases, which may be anywhere on this machine.
func TestLinksInAKustomization(t *testing.T) {
	for name, c := range map[string]struct {
		text  string
		links map[string]string
		want  string
	}{
		"file in the directory":      {"resources: [a.yaml]", map[string]string{"site/a.yaml": "b.yaml"}, ""},
		"file out of it":             {"resources: [a.yaml]", map[string]string{"site/a.yaml": "../other/b.yaml"}, "is not in or below"},
		"file by its path":           {"resources: [../other/b.yaml]", nil, "is not in or below"},
		"data out of it":             {"resources: [b.yaml]\nconfigMapGenerator: [{name: x, files: [a.txt]}]", map[string]string{"site/a.txt": "/etc/passwd"}, "is not in or below"},
		"patch out of it":            {"resources: [b.yaml]\npatches: [{path: p.yaml}]", map[string]string{"site/p.yaml": "../other/b.yaml"}, "is not in or below"},
		"file in a linked directory": {"resources: [more/b.yaml]", map[string]string{"site/more": "../other"}, "is not in or below"},
		"base":                       {"resources: [../base]", nil, ""},
		"base through a link":        {"resources: [base]", map[string]string{"site/base": "../base"}, ""},
		"the directory itself":       {"resources: [loop]", map[string]string{"site/loop": "."}, "cycle"},
		"base of the directory":      {"resources: [up]", map[string]string{"site/up": "../above"}, "cycle"},
	} {
		dir := layout(t, map[string]string{"site/kustomization.yaml": c.text + "\n", "site/b.yaml": linkedObject, "other/b.yaml": linkedObject,
			"base/kustomization.yaml": "resources: [b.yaml]\n", "base/b.yaml": linkedObject, "above/kustomization.yaml": "resources: [../site]\n"}, c.links)
		_, err := manifests.Read(filepath.Join(dir, "site"))
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || fault.Hint(err) == ""):
			t.Errorf("%s: %v (hint %q), want %q", name, err, fault.Hint(err), c.want)
		}
	}
}
