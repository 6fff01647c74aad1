// Package airlift tests the structure of the repository.
package airlift

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

// layers lists the packages of the product, the lowest layer first. A package may import
// only packages of lower layers, in files that are not tests. Give a new package the
// lowest layer that is possible.
var layers = [][]string{
	{"airlift", "childprocess", "dialer", "documents", "fault", "multihost/facts", "progress", "bundle/atomicfile", "bundle/hostpath", "documents/pemfile", "documents/textfile", "bundle/zstdenc", "images/platform", "installer/daemon", "installer/staticpod", "installer/timeline"},
	{"bundle/builder/events", "bundle/remote", "documents/problems", "images/authfile", "multihost/live"},
	{"interrupt", "bundle/head", "bundle/builder/lock", "space", "images/release", "installer/config", "installer/corefile", "installer/etcd", "installer/patches"},
	{"images/encoder", "installer/backup", "installer/cluster/wait", "installer/reconfiguration", "multihost/spec"},
	{"bundle", "bundle/builder/addons", "images/fetch", "installer/cluster/health", "installer/kubelet", "installer/pki", "installer/redact", "multihost/plan", "multihost/remote"},
	{"images/oci", "installer/cluster", "installer/endpoint/balancer", "installer/endpoint/vip", "installer/host/filesystem", "multihost/run"},
	{"bundle/blobs", "bundle/compare", "bundle/delta", "bundle/builder/manifests", "bundle/parts", "bundle/repair", "bundle/builder/sbom", "bundle/signature", "bundle/builder/upstreamsig", "images/local", "images/registry", "images/store", "installer/cluster/discovery", "installer/cluster/lease", "installer/cluster/rotation", "installer/cluster/workloads", "installer/host/ledger", "installer/host/systemd", "installer/registry/store", "installer/render"},
	{"bundle/blobs/ondemand", "bundle/builder/apirules", "bundle/ociarchive", "bundle/builder/push", "installer/cluster/apply", "installer/cluster/facts", "installer/host", "installer/host/detection"},
	{"bundle/builder/charts", "installer/endpoint", "installer/host/kernel", "installer/host/podnetwork", "installer/registry", "installer/registry/hosts", "installer/registry/images"},
	{"bundle/builder", "cmd/manual", "cmd/output", "installer/configfile", "installer/desired", "installer/endpoint/service", "installer/host/uninstall", "installer/preflight", "installer/registry/service"},
	{"bundle/builder/sitefile", "cmd/install/hostroute", "cmd/install/thin", "installer/status", "installer/upgradecheck", "installer/workflow"},
	{"installer/doctor", "installer/node"},
	{"installer/adoption", "installer/payload", "installer/pods", "multihost/agent"},
	{"installer/phases", "installer/snapshot"},
	{"installer/undo"},
	{"installer/flow/adopt", "installer/flow/certs", "installer/flow/endpointchange", "installer/flow/initcluster", "installer/flow/join", "installer/flow/members", "installer/flow/noderemove", "installer/flow/registrychange", "installer/flow/reset", "installer/flow/rotate", "installer/flow/site", "installer/flow/upgrade"},
	{"cmd/install/nodecmd"},
	{"cmd/install/adoptcmd", "cmd/install/certscmd", "cmd/install/clustercmd/hostcmd", "cmd/install/reconfigurecmd", "cmd/install/registrycmd"},
	{"cmd/install/clustercmd"},
	{"cmd/bundle", "cmd/install", "cmd/launch"},
}

// testOnly lists the directories for tests and benchmarks. They may import each other and
// the product. The product must import neither them nor package testing.
var testOnly = []string{"scripts", "e2e"}

func isTestOnly(name string) bool {
	return slices.ContainsFunc(testOnly, func(dir string) bool { return in(name, dir) })
}

// layer returns the index of a package's layer, or -1.
func layer(name string) int {
	return slices.IndexFunc(layers, func(l []string) bool { return slices.Contains(l, name) })
}

// mayImport reports whether a package of the product may import another package. Names of
// the repository's packages have no prefix "airlift/".
func mayImport(from, to string, ours bool) bool {
	if !ours {
		return to != "testing" && !strings.HasPrefix(to, "testing/") && to != "net/http/httptest"
	}
	return !isTestOnly(to) && layer(to) >= 0 && layer(to) < layer(from) && !isApart(from, to)
}

// isApart reports whether two packages are of areas that stay apart: images knows of the file format
// only package bundle, and only the command bundle builds.
func isApart(from, to string) bool {
	if in(to, "bundle/builder") {
		return !in(from, "bundle/builder") && from != "cmd/bundle"
	}
	return in(from, "images") && strings.HasPrefix(to, "bundle/")
}

func in(name, dir string) bool { return name == dir || strings.HasPrefix(name, dir+"/") }

func TestPackagesImportOnlyLowerLayers(t *testing.T) {
	seen := map[string]bool{}
	for _, p := range list(t) {
		from := strings.TrimPrefix(p.ImportPath, "airlift/")
		if isTestOnly(from) || len(p.GoFiles) == 0 {
			continue
		}
		seen[from] = true
		if layer(from) < 0 {
			t.Errorf("package %s is in no layer: add it to the table in layers_test.go", from)
			continue
		}
		for _, path := range p.Imports {
			to, ours := strings.CutPrefix(path, "airlift/")
			if !mayImport(from, to, ours) {
				t.Errorf("%s imports %s, which is not in a lower layer", from, to)
			}
		}
	}
	for _, names := range layers {
		for _, name := range names {
			if !seen[name] {
				t.Errorf("package %s in the table of layers does not exist", name)
			}
		}
	}
}

func TestRuleOfLayers(t *testing.T) {
	for _, c := range []struct {
		from, to string
		ours     bool
		want     bool
	}{
		{"bundle", "bundle/head", true, true},
		{"bundle/head", "bundle", true, false},
		{"bundle", "images/fetch", true, false}, // the same layer
		{"images/store", "bundle", true, true},
		{"images/store", "bundle/head", true, false},
		{"cmd/bundle", "bundle/builder/lock", true, true},
		{"cmd/install", "bundle/builder/lock", true, false},
		{"bundle", "scripts/lab", true, false},
		{"bundle", "no/such/package", true, false},
		{"bundle", "io", false, true},
		{"bundle", "testing", false, false},
		{"bundle", "testing/iotest", false, false},
	} {
		if got := mayImport(c.from, c.to, c.ours); got != c.want {
			t.Errorf("mayImport(%q, %q) = %v", c.from, c.to, got)
		}
	}
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
