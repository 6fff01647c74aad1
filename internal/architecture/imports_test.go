// Package architecture tests the structure of the repository.
package architecture

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

// A rule forbids imports. Go forbids cycles; these rules keep apart what would be one thing otherwise.
type rule struct {
	text    string
	forbids func(from, to string) bool
}

// Names of the repository's packages have no prefix "airlift/". No rule is for tests, which may import what they compare with.
var rules = []rule{
	{"the product does not import tests", func(_, to string) bool {
		return in(to, "scripts") || in(to, "e2e") || in(to, "testing") || to == "net/http/httptest"
	}},
	{"internal knows nothing of the rest, and of Kubernetes only how kubectl separates documents", func(from, to string) bool {
		foreign := strings.HasPrefix(to, "k8s.io/") && to != "k8s.io/apimachinery/pkg/util/yaml" || strings.HasPrefix(to, "github.com/containerd/")
		return in(from, "internal") && (isOurs(to) && !in(to, "internal") || foreign)
	}},
	{"the file format knows nothing of its users", func(from, to string) bool {
		return in(from, "bundle") && (in(to, "images") || in(to, "installer"))
	}},
	{"images know of the file only its format, and nothing of hosts", func(from, to string) bool {
		return in(from, "images") && (in(to, "installer") || strings.HasPrefix(to, "bundle/") && to != "bundle/platform")
	}},
	{"only the command bundle downloads and builds, and it needs nothing of hosts for that", func(from, to string) bool {
		return in(to, "builder") && !in(from, "builder") && from != "cmd/bundle" || in(from, "builder") && in(to, "installer")
	}},
	{"only commands run flows: a flow that needs a part of another one shares a lower package with it", func(from, to string) bool {
		return in(to, "installer/flow") && !in(from, "cmd") && !in(from, to)
	}},
	{"a driver changes hosts by commands: only its agent knows what is on them", func(from, to string) bool {
		driver := in(from, "installer/multihost") && !in(from, "installer/multihost/agent")
		shared := []string{"installer/config", "installer/configfile", "installer/patches", "installer/pki", "installer/backup/target"} // what both read
		return driver && in(to, "installer") && !in(to, "installer/multihost") && !slices.Contains(shared, to) ||
			in(to, "installer/multihost") && !in(from, "installer/multihost") && !in(from, "cmd")
	}},
	{"only commands import commands", func(from, to string) bool { return in(to, "cmd") && !in(from, "cmd") }},
}

// areas are the directories of the product.
var areas = []string{"builder", "bundle", "cmd", "images", "installer", "internal"}

func isOurs(name string) bool {
	return slices.ContainsFunc(areas, func(area string) bool { return in(name, area) })
}

func in(name, dir string) bool { return name == dir || strings.HasPrefix(name, dir+"/") }

// broken returns the rules that an import breaks.
func broken(from, to string) (list []string) {
	for _, r := range rules {
		if r.forbids(from, to) {
			list = append(list, r.text)
		}
	}
	return list
}

func TestImports(t *testing.T) {
	for _, p := range list(t) {
		from := strings.TrimPrefix(p.ImportPath, "airlift/")
		switch {
		case isOurs(from):
		case from == "airlift" || in(from, "scripts") || in(from, "e2e"):
			continue
		default:
			t.Errorf("%s is a new area: add it to areas, and see which rules it needs", from)
		}
		for _, path := range p.Imports {
			for _, text := range broken(from, strings.TrimPrefix(path, "airlift/")) {
				t.Errorf("%s imports %s: %s", from, path, text)
			}
		}
	}
}

func TestRules(t *testing.T) {
	for _, c := range []struct {
		from, to string
		want     int // rules that are broken
	}{
		{"bundle", "bundle/head", 0},
		{"images/store", "bundle", 0},
		{"images/store", "bundle/head", 1},
		{"images/store", "installer/host", 1},
		{"images/store", "bundle/platform", 0},
		{"images/store", "builder/fetch", 1},
		{"bundle", "builder/fetch", 1},
		{"bundle", "images/release", 1},
		{"bundle", "installer/config", 1},
		{"builder", "builder/fetch", 0},
		{"builder", "installer/config", 1},
		{"cmd/bundle", "builder/lock", 0},
		{"cmd/install", "builder/lock", 1},
		{"cmd/install", "builder/fetch", 1},
		{"installer/status", "images/store", 0},
		{"installer/node", "installer/flow/join", 1},
		{"installer/flow/join", "installer/flow/upgrade", 1},
		{"cmd/install", "installer/flow/upgrade", 0},
		{"installer/multihost/run", "installer/node", 1},
		{"installer/multihost/agent", "installer/node", 0},
		{"installer/multihost/plan", "installer/config", 0},
		{"installer/node", "installer/multihost/facts", 1},
		{"internal/fault", "internal/progress", 0},
		{"internal/fault", "installer/config", 1},
		{"internal/dialer", "k8s.io/client-go/rest", 1},
		{"installer/node", "cmd/output", 1},
		{"bundle", "scripts/lab", 1},
		{"bundle", "io", 0},
		{"bundle", "testing", 1},
		{"bundle", "testing/iotest", 1},
	} {
		if got := broken(c.from, c.to); len(got) != c.want {
			t.Errorf("%s imports %s: %q, want %d", c.from, c.to, got, c.want)
		}
	}
}

func TestMain(m *testing.M) {
	if err := os.Chdir("../.."); err != nil { // the tests read the repository
		panic(err)
	}
	os.Exit(m.Run())
}

// Build tools and .gitignore files treat directories with this name as output.
func TestNoDirectoryIsNamedBuild(t *testing.T) {
	for _, p := range list(t) {
		if slices.Contains(strings.Split(p.ImportPath, "/"), "build") {
			t.Errorf("rename the directory of %s", p.ImportPath)
		}
	}
}

// Only scripts/fixtures/rig skips tests, so `make test` runs all of them. Tests with the tag e2e run on
// two machines and skip the parts of the other one.
func TestOnlyRigSkipsTests(t *testing.T) {
	skip := regexp.MustCompile(`\bt\.Skip(f|Now)?\(`)
	for _, p := range list(t) {
		if p.ImportPath == "airlift/scripts/fixtures/rig" {
			continue
		}
		for _, name := range slices.Concat(p.GoFiles, p.TestGoFiles, p.XTestGoFiles) {
			code, err := os.ReadFile(filepath.Join(p.Dir, name))
			if err != nil {
				t.Fatal(err)
			}
			if skip.Match(code) && !bytes.HasPrefix(code, []byte("//go:build e2e\n")) {
				t.Errorf("%s/%s skips a test: use scripts/fixtures/rig", p.Dir, name)
			}
		}
	}
}

type goPackage struct {
	ImportPath, Dir            string
	GoFiles, Imports           []string
	TestGoFiles, TestImports   []string
	XTestGoFiles, XTestImports []string
}

// list returns the packages of the repository, with the files for -tags e2e.
func list(t *testing.T) []goPackage {
	t.Helper()
	packages, err := listed()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	return packages
}

// listed runs go list once for all tests.
var listed = sync.OnceValues(func() (packages []goPackage, err error) {
	cmd := exec.Command("go", "list", "-tags", "e2e", "-json=ImportPath,Dir,GoFiles,Imports,TestGoFiles,TestImports,XTestGoFiles,XTestImports", "./...")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, stderr.String())
	}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p goPackage
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return packages, nil
		} else if err != nil {
			return nil, err
		}
		packages = append(packages, p)
	}
})
