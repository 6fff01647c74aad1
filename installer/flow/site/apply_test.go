package site

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"airlift/bundle"
	"airlift/installer/cluster/apply"
	"airlift/installer/node"
	"airlift/installer/payload"
	"airlift/installer/phases"
	"airlift/installer/workflow"
	"airlift/internal/fault"
	"airlift/scripts/fixtures/testbundle"
	"airlift/scripts/fixtures/testhost"
)

// anAPIServer returns the kubeconfig of a server that answers only requests for its version.
func anAPIServer(t *testing.T, version string) (kubeconfig string) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/version" {
			http.Error(w, "only /version is here", http.StatusNotFound)
			return
		}
		fmt.Fprintf(w, `{"gitVersion": %q}`, version)
	}))
	t.Cleanup(server.Close)
	kubeconfig = filepath.Join(t.TempDir(), "admin.conf")
	text := fmt.Sprintf("{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c, user: u}}], clusters: [{name: c, cluster: {server: %q}}], users: [{name: u, user: {token: t}}]}", server.URL)
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return kubeconfig
}

const someObject = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: some}\n"

// laterBundle has a manifest, and an image if ref is not empty.
func laterBundle(t *testing.T, ref string) *payload.Bundle {
	t.Helper()
	only := []string{bundle.OnlyManifests}
	if ref != "" {
		only = []string{bundle.OnlyImages, bundle.OnlyManifests}
	}
	b := testbundle.NewImages(only...)
	m := bundle.SiteManifest{Name: "site"}
	b.Manifest.Manifests = []bundle.SiteManifest{m}
	b.Manifest.Entries = []bundle.Entry{{Name: m.Entry(), Size: int64(len(someObject)), SHA256: testbundle.Sum([]byte(someObject))}}
	b.Content[m.Entry()] = []byte(someObject)
	if ref != "" {
		b.Add(t, ref, ref, nil, testbundle.Layer(t, "app", ref))
	}
	return b.Write(t, "more")
}

func runApply(t *testing.T, root string, b *payload.Bundle, o ApplyOptions) (output, results string, err error) {
	t.Helper()
	var out, printed strings.Builder
	a := NewApply(b, o, testhost.Open(t, root), &workflow.Console{Out: &out, Results: &printed})
	defer a.Close()
	err = a.Run(t.Context())
	return out.String(), printed.String(), err
}

// checksOnly are options with which apply does nothing after its checks.
func checksOnly(kubeconfig string) ApplyOptions {
	return ApplyOptions{InitOptions: phases.InitOptions{Kubeconfig: kubeconfig}, SkipPhases: []string{"manifests", "wait-manifests"}}
}

func TestApplyComparesTheVersion(t *testing.T) {
	b, root := laterBundle(t, ""), t.TempDir()
	if out, _, err := runApply(t, root, b, checksOnly(anAPIServer(t, "v1.37.9"))); err != nil || strings.Contains(out, "warning") {
		t.Errorf("another patch version: %v\n%s", err, out)
	}
	o := checksOnly(anAPIServer(t, "v1.36.1"))
	_, _, err := runApply(t, root, b, o)
	wantFault(t, "another minor version", err, fault.Preflight, "v1.36.1", "v1.37.1", "bundle build --version v1.36.1", b.File.Path()+" apply --ignore-version")
	o.IgnoreVersion = true
	if out, _, err := runApply(t, root, b, o); err != nil || !strings.Contains(out, "warning: the API server has Kubernetes v1.36.1") {
		t.Errorf("--ignore-version: %v\n%s", err, out)
	}
	// The checks are followed by the manifests.
	o.SkipPhases = nil
	if _, _, err := runApply(t, root, b, o); err == nil || !strings.Contains(err.Error(), "manifests: ") {
		t.Errorf("without an API: %v", err)
	}
}

func TestApplyNeedsTheImages(t *testing.T) {
	const ref = "site.example/later:1"
	b, o := laterBundle(t, ref), checksOnly(anAPIServer(t, "v1.37.1"))
	out, _, err := runApply(t, t.TempDir(), b, o)
	if err != nil || !strings.Contains(out, "warning: this host is not a node") {
		t.Errorf("on a host that is no node: %v\n%s", err, out)
	}
	root := testhost.Node(t)
	_, _, err = runApply(t, root, b, o)
	wantFault(t, "without the image", err, fault.Preflight, ref, "on every node first: "+b.File.Path()+" import")
	if _, _, err := runImport(t, root, b, ImportOptions{Unpinned: true}); err != nil {
		t.Fatal(err)
	}
	if out, _, err = runApply(t, root, b, o); err != nil || !strings.Contains(out, "every other node needs them too: "+b.File.Path()+" import") {
		t.Errorf("with the image: %v\n%s", err, out)
	}
}

// An undo needs the images of the version that it brings back, and names the file that has them.
func TestUndoNeedsTheImages(t *testing.T) {
	const ref = "site.example/later:1"
	b, root, r := laterBundle(t, ref), testhost.Node(t), &apply.Revision{File: "former", Bundle: "abc"}
	check := func() error {
		var out strings.Builder
		a := NewApply(b, ApplyOptions{Undo: true}, testhost.Open(t, root), &workflow.Console{Out: &out})
		defer a.Close()
		return a.haveImages(t.Context(), []string{ref, "not an image's name"}, "version 1", r)
	}
	wantFault(t, "without the image", check(), fault.Preflight, ref, "version 1", "its name was former", "sha256 abc")
	if _, _, err := runImport(t, root, b, ImportOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := check(); err != nil {
		t.Errorf("with the image: %v", err)
	}
}

func TestApplyPrintsTheManifests(t *testing.T) {
	b := laterBundle(t, "")
	_, printed, err := runApply(t, t.TempDir(), b, ApplyOptions{InitOptions: phases.InitOptions{PrintManifest: true}})
	if err != nil || !strings.Contains(printed, someObject) {
		t.Errorf("%q, %v", printed, err)
	}
}

func TestApplyWithoutManifests(t *testing.T) {
	b := testbundle.NewImages(bundle.OnlyImages).Write(t, "more")
	out, _, err := runApply(t, t.TempDir(), b, ApplyOptions{InitOptions: phases.InitOptions{Kubeconfig: node.AdminConf}})
	if err != nil || !strings.Contains(out, "Nothing to do: this file has no manifests.") {
		t.Errorf("%v\n%s", err, out)
	}
}
