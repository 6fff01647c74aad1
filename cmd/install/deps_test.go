package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"airlift/scripts/fixtures/rig"
)

// TestInstallCannotPull: install runs on isolated hosts and must not link a
// package that can fetch an image or a file.
func TestInstallCannotPull(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", ".").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	deps := strings.Fields(string(out))
	if len(deps) < 100 {
		t.Fatalf("only %d dependencies listed: %s", len(deps), out)
	}
	for _, dep := range deps {
		for _, forbidden := range []string{
			"github.com/google/go-containerregistry", "github.com/hashicorp/go-retryablehttp",
			"github.com/containerd/containerd/v2/core/remotes/docker",
			"airlift/builder/fetch", "airlift/builder", "airlift/builder/registry",
		} {
			if dep == forbidden || strings.HasPrefix(dep, forbidden+"/") {
				t.Errorf("links %s", dep)
			}
		}
	}
}

// TestOnlyElsewhereTalksToStorage: minio-go and pkg/sftp send backups to the target that the user named. One package uses them, which
// gives them their connections, and credentials of a file: no proxy, nothing of the environment, no metadata service of a cloud.
func TestOnlyElsewhereTalksToStorage(t *testing.T) {
	const home = "airlift/installer/backup/elsewhere"
	out, err := exec.Command("go", "list", "-deps", "-f", "{{.ImportPath}} {{join .Imports \" \"}}", ".").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	found := false
	for line := range strings.Lines(string(out)) {
		from, imports, _ := strings.Cut(strings.TrimSpace(line), " ")
		for path := range strings.FieldsSeq(imports) {
			if !strings.HasPrefix(from, "airlift/") || !strings.HasPrefix(path, "github.com/minio/") && path != "github.com/pkg/sftp" {
				continue
			}
			found = true
			if from != home {
				t.Errorf("%s imports %s", from, path)
			}
		}
	}
	if !found {
		t.Fatalf("%s is not linked", home)
	}
	files, err := filepath.Glob("../../installer/backup/elsewhere/*.go")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		code, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"credentials.NewIAM", "credentials.NewEnv", "credentials.NewFile", "credentials.NewChain", "credentials.NewSTS", "ProxyFromEnvironment", "DefaultTransport", "DefaultClient", "os.Getenv", "os.LookupEnv"} {
			if strings.Contains(string(code), name) && !strings.HasSuffix(file, "_test.go") {
				t.Errorf("%s uses %s", file, name)
			}
		}
	}
}

// TestMethodsAreNotCalledByName: a package that executes templates calls
// methods by names that are known only at run time. The linker must then keep
// every method of every type, a third of the installer. With the build tags of
// a release, install links no such package.
func TestMethodsAreNotCalledByName(t *testing.T) {
	rig.Needs(t, "half a minute to link the installer")
	out, err := exec.Command("go", "build", "-tags", "grpcnotrace", "-o", filepath.Join(t.TempDir(), "install"), "-ldflags", "-dumpdep", ".").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if !strings.Contains(string(out), "main.main -> ") {
		t.Fatal("the linker did not say what depends on what")
	}
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, "<ReflectMethod>") {
			t.Errorf("methods are called by name: %s", line)
			return
		}
	}
}
