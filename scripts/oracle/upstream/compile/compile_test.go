package compile

import (
	"archive/zip"
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"airlift/scripts/fixtures/rig"
	"airlift/scripts/oracle/upstream/components"
)

// proxy creates a module proxy on disk with one module, for the go command.
func proxy(t *testing.T) {
	t.Helper()
	rig.Needs(t, "half a minute to compile")
	const prefix = "example.com/tiny@v1.2.3/"
	gomod := "module example.com/tiny\n\ngo 1.24\n\nreplace example.com/part => ./staging/part\n"
	dir := filepath.Join(t.TempDir(), "example.com/tiny/@v")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	var archive bytes.Buffer
	zw := zip.NewWriter(&archive)
	for name, text := range map[string]string{
		"go.mod":            gomod,
		"go.sum":            "",
		"notes.txt":         "notes",
		"answer/answer.go":  "package answer\n\nconst Text = \"42\"\n",
		"cmd/hello/main.go": "package main\n\nvar version, commit string\n\nfunc main() { println(version, commit) }\n",
	} {
		w, err := zw.Create(prefix + name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := zw.Close(); err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{
		"v1.2.3.info": []byte(`{"Version":"v1.2.3","Time":"2024-01-02T03:04:05Z","Origin":{"Hash":"abc123"}}`),
		"v1.2.3.mod":  []byte(gomod),
		"v1.2.3.zip":  archive.Bytes(),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	root := strings.TrimSuffix(dir, "example.com/tiny/@v")
	t.Setenv("GOPROXY", "file://"+root)
	t.Setenv("GONOSUMDB", "example.com")
	t.Setenv("GOMODCACHE", t.TempDir())
	t.Cleanup(func() { // the module cache is read-only, which TempDir cannot remove
		if out, err := exec.Command("go", "clean", "-modcache").CombinedOutput(); err != nil {
			t.Errorf("removing the test's module cache: %v: %s", err, out)
		}
	})
}

var tiny = components.Recipe{
	Name: "tiny", Version: "v1.2.3", Module: "example.com/tiny",
	Targets: []components.Target{{
		Packages: map[string]string{"hello": "example.com/tiny/cmd/hello"},
		LDFlags:  "-X main.version=v1.2.3 -X main.commit={commit}",
	}},
	Files: map[string]string{"notes": "notes.txt"},
}

func TestBuildsOnceAndStamps(t *testing.T) {
	proxy(t)
	var log bytes.Buffer
	b := &Builder{Cache: t.TempDir(), Log: &log}
	if err := b.Build(t.Context(), []components.Recipe{tiny}); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), filepath.Join(tiny.Dir(b.Cache), "hello")).CombinedOutput()
	if err != nil || string(out) != "v1.2.3 abc123\n" {
		t.Errorf("the program says %q, %v", out, err)
	}
	if data, err := os.ReadFile(filepath.Join(tiny.Dir(b.Cache), "notes")); err != nil || string(data) != "notes" {
		t.Errorf("the file next to it: %q, %v", data, err)
	}
	if !strings.Contains(log.String(), "built tiny v1.2.3 in ") {
		t.Errorf("log is %q", log.String())
	}
	log.Reset()
	if err := b.Build(t.Context(), []components.Recipe{tiny}); err != nil || log.Len() > 0 {
		t.Errorf("built again: %v, log %q", err, log.String())
	}
	leftovers, err := filepath.Glob(filepath.Join(b.Cache, "tmp", "*"))
	if err != nil || len(leftovers) > 0 {
		t.Errorf("left behind: %q, %v", leftovers, err)
	}
}

// A recipe can have the source of a command, which can import the module's packages.
func TestCommandOfTheCaller(t *testing.T) {
	proxy(t)
	b := &Builder{Cache: t.TempDir(), Log: new(bytes.Buffer)}
	recipe := tiny
	recipe.Name, recipe.Files = "ask", nil
	recipe.Main = "package main\n\nimport \"example.com/tiny/answer\"\n\nfunc main() { println(answer.Text) }\n"
	recipe.Targets = []components.Target{{Packages: map[string]string{"ask": "main.go"}}}
	if err := b.Build(t.Context(), []components.Recipe{recipe}); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(filepath.Join(recipe.Dir(b.Cache), "ask")).CombinedOutput(); err != nil || string(out) != "42\n" {
		t.Errorf("the command prints %q, %v", out, err)
	}
}

// A recipe can have other files for a module, and modules that the proxy does not serve.
func TestLocalModules(t *testing.T) {
	proxy(t)
	b := &Builder{Cache: t.TempDir(), Log: new(bytes.Buffer)}
	recipe := tiny
	recipe.Name, recipe.Files = "local", nil
	recipe.Local = map[string]components.LocalModule{
		"example.com/tiny": {Version: "v1.2.3", Files: map[string]string{"answer/answer.go": "package answer\n\nconst Text = \"43\"\n"}},
		"example.com/part": {Files: map[string]string{"go.mod": "module example.com/part\n", "part.go": "package part\n\nconst Text = \"44\"\n"}},
	}
	recipe.Main = "package main\n\nimport (\n\t\"example.com/part\"\n\t\"example.com/tiny/answer\"\n)\n\nfunc main() { println(answer.Text, part.Text) }\n"
	recipe.Targets = []components.Target{{Packages: map[string]string{"local": "main.go"}}}
	if err := b.Build(t.Context(), []components.Recipe{recipe}); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(filepath.Join(recipe.Dir(b.Cache), "local")).CombinedOutput(); err != nil || string(out) != "43 44\n" {
		t.Errorf("the command prints %q, %v", out, err)
	}
}

// If two processes need the same component, one builds it.
func TestTwoAtOnce(t *testing.T) {
	proxy(t)
	cache := t.TempDir()
	logs := make([]bytes.Buffer, 2)
	errs := make([]error, 2)
	var both sync.WaitGroup
	for i := range 2 {
		both.Go(func() {
			errs[i] = (&Builder{Cache: cache, Log: &logs[i]}).Build(t.Context(), []components.Recipe{tiny})
		})
	}
	both.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(logs[0].String()+logs[1].String(), "built tiny"); n != 1 {
		t.Errorf("built %d times:\n%s%s", n, logs[0].String(), logs[1].String())
	}
}

func TestWaitingForALockEnds(t *testing.T) {
	b := &Builder{Cache: t.TempDir(), Log: new(bytes.Buffer)}
	unlock, err := b.lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := b.lock(ctx); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "waiting for another build") {
		t.Errorf("got %v", err)
	}
}

// A failed build leaves nothing that the next one would use as a result.
func TestFailureLeavesNothing(t *testing.T) {
	proxy(t)
	b := &Builder{Cache: t.TempDir(), Log: new(bytes.Buffer)}
	broken := tiny
	broken.Targets = []components.Target{{Packages: map[string]string{"no": "example.com/tiny/cmd/no"}}}
	err := b.Build(t.Context(), []components.Recipe{broken})
	if err == nil || !strings.Contains(err.Error(), "building tiny v1.2.3: running go build") {
		t.Errorf("got %v", err)
	}
	entries, err := os.ReadDir(filepath.Dir(broken.Dir(b.Cache)))
	if err != nil || len(entries) > 0 {
		t.Errorf("left %v, %v", entries, err)
	}
}

// The local replacements of Kubernetes become the published staging modules; the replacements of
// other modules are removed, because these modules require real versions.
func TestLocalReplacements(t *testing.T) {
	proxy(t)
	b := &Builder{Cache: t.TempDir(), Log: new(bytes.Buffer)}
	mod, _, err := b.download(t.Context(), tiny.Module, tiny.Version)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		staging, want string
	}{
		{"v0.2.3", "replace example.com/part => example.com/part v0.2.3"},
		{"", ""},
	} {
		r := tiny
		r.Staging = c.staging
		dir := t.TempDir()
		if err := b.writeModule(t.Context(), r, mod, dir); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), "./staging") || !strings.Contains(string(text), c.want) ||
			c.want == "" && strings.Contains(string(text), "replace") {
			t.Errorf("with staging %q go.mod is\n%s", c.staging, text)
		}
	}
}
