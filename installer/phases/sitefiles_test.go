package phases

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"airlift/bundle"
	"airlift/installer/config"
	"airlift/installer/desired"
	"airlift/installer/host"
	"airlift/installer/host/uninstall"
	"airlift/installer/node"
	"airlift/installer/payload"
	"airlift/installer/workflow"
	"airlift/scripts/fixtures/testbundle"
)

// siteBundle writes a bundle with an image and the given content of the site. Files that are
// larger than 64 bytes follow the image.
func siteBundle(t *testing.T, files map[bundle.SiteFile]string, manifests map[string]string) *payload.Bundle {
	t.Helper()
	m := &bundle.Manifest{FormatVersion: bundle.FormatVersion, Platform: "linux/amd64", KubernetesVersion: "v1.37.1", CNI: "none"}
	content := map[string][]byte{}
	add := func(name string, data []byte) {
		if content[name] == nil {
			content[name] = data
			m.Entries = append(m.Entries, bundle.Entry{Name: name, Size: int64(len(data)), SHA256: testbundle.Sum(data)})
		}
	}
	add("bin/runc", []byte("runc"))
	m.Components = []bundle.Component{{Name: "runc", Version: "v1.0.0", URL: "https://example.com/runc", Checksum: "sha256:" + testbundle.Sum(nil), Entries: []string{"bin/runc"}}}
	var late []func()
	for f, text := range files {
		f.Entry = bundle.FileName(testbundle.Sum([]byte(text)))
		m.Files = append(m.Files, f)
		if len(text) <= 64 {
			add(f.Entry, []byte(text))
		} else {
			late = append(late, func() { add(f.Entry, []byte(text)) })
		}
	}
	slices.SortFunc(m.Files, func(a, b bundle.SiteFile) int { return strings.Compare(a.Path, b.Path) })
	for _, name := range []string{"first", "second"} {
		if text, ok := manifests[name]; ok {
			s := bundle.SiteManifest{Name: name}
			m.Manifests = append(m.Manifests, s)
			add(s.Entry(), []byte(text))
		}
	}
	blob := func(data string) bundle.Descriptor {
		digest := "sha256:" + testbundle.Sum([]byte(data))
		add(bundle.BlobName(digest), []byte(data))
		return bundle.Descriptor{MediaType: "application/json", Digest: digest, Size: int64(len(data))}
	}
	manifest, cfg, layer := blob("manifest"), blob("config"), blob("layer")
	m.Images = []bundle.Image{{Name: "pause", Reference: "registry.k8s.io/pause:3.10", Target: manifest, Manifest: manifest, Config: cfg,
		Layers: []bundle.Layer{{DiffID: layer.Digest, Size: layer.Size}}}}
	for _, add := range late {
		add()
	}
	return testbundle.Write(t, "bundle", []byte("installer"), m, content)
}

// siteRun is one run of the steps unpack and files on a host without a container runtime.
func siteRun(t *testing.T, b *payload.Bundle, r Role, root string) (output string) {
	t.Helper()
	h, err := host.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	c := &config.Config{}
	n := NewNode(&Plan{Config: c, Bundle: b, Role: r}, node.NewMachine(h, &workflow.Console{Out: &out, Verbosity: 1}))
	s := NewSiteFiles(NewContent(n))
	defer s.content.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	s.content.start(ctx, func(entry string) bool { return n.Plan.wantsBinary(entry, node.Observation{}) }, n.Plan.Images(), s.content.siteRequest())
	if err := s.WriteEarly(ctx, desired.List{}); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

const large = "this content is larger than sixty-four bytes, so that it follows the images in the bundle\n"

func siteContent() map[bundle.SiteFile]string {
	return map[bundle.SiteFile]string{
		{Path: "/etc/site/all.conf", Mode: "0640"}:                                  "for all\n",
		{Path: "/etc/site/copy.conf", Mode: "0644"}:                                 "for all\n",
		{Path: "/etc/site/control.conf", Mode: "0600", Nodes: bundle.ControlPlanes}: "for control planes\n",
		{Path: "/etc/site/worker.crt", Mode: "0644", Nodes: bundle.Workers}:         "for workers\n",
		{Path: "/opt/site/bin/large", Mode: "0755"}:                                 large,
	}
}

func TestSiteFilesOfARole(t *testing.T) {
	b := siteBundle(t, siteContent(), nil)
	for name, c := range map[string]struct {
		role Role
		want []string
	}{
		"control plane": {FirstControlPlane, []string{"all.conf 640", "control.conf 600", "copy.conf 644"}},
		"worker":        {Worker, []string{"all.conf 640", "copy.conf 644", "worker.crt 644"}},
	} {
		root := t.TempDir()
		// containerd never runs here: the step must not wait for what follows the images.
		siteRun(t, b, c.role, root)
		var have []string
		entries, err := os.ReadDir(filepath.Join(root, "etc/site"))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			info, _ := e.Info()
			have = append(have, fmt.Sprintf("%s %o", e.Name(), info.Mode()))
		}
		if !slices.Equal(have, c.want) {
			t.Errorf("%s: %q, want %q", name, have, c.want)
		}
		if data, _ := os.ReadFile(filepath.Join(root, "etc/site/copy.conf")); string(data) != "for all\n" {
			t.Errorf("%s: the second path of the entry has %q", name, data)
		}
	}
}

// TestSiteFilesTwice: a second run changes nothing, an edited file is saved, and reset
// restores what was there before.
func TestSiteFilesTwice(t *testing.T) {
	b, root := siteBundle(t, siteContent(), nil), t.TempDir()
	at := func(path string) string { return filepath.Join(root, path) }
	write := func(path, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(at(path)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at(path), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	read := func(path string) string {
		data, err := os.ReadFile(at(path))
		if err != nil {
			return err.Error()
		}
		return string(data)
	}
	write("/etc/site/control.conf", "the user's\n")

	out := siteRun(t, b, FirstControlPlane, root)
	if !strings.Contains(out, "warning: /etc/site/control.conf existed before Airlift wrote it") {
		t.Errorf("first run:\n%s", out)
	}
	before, err := os.Stat(at("/etc/site/all.conf"))
	if err != nil {
		t.Fatal(err)
	}
	if out := siteRun(t, b, FirstControlPlane, root); strings.Contains(out, "wrote") || strings.Contains(out, "warning") {
		t.Errorf("second run:\n%s", out)
	}
	if after, err := os.Stat(at("/etc/site/all.conf")); err != nil || !os.SameFile(before, after) {
		t.Errorf("the second run wrote the file again: %v", err)
	}

	write("/etc/site/all.conf", "edited\n")
	if out := siteRun(t, b, FirstControlPlane, root); !strings.Contains(out, "warning: /etc/site/all.conf was edited after Airlift wrote it") {
		t.Errorf("after an edit:\n%s", out)
	}
	if read("/etc/site/all.conf") != "for all\n" || read("/etc/site/all.conf.airlift-saved") != "edited\n" {
		t.Errorf("after an edit: %q, saved %q", read("/etc/site/all.conf"), read("/etc/site/all.conf.airlift-saved"))
	}
	if err := os.Chmod(at("/etc/site/all.conf"), 0o644); err != nil {
		t.Fatal(err)
	}
	siteRun(t, b, FirstControlPlane, root)
	if info, _ := os.Stat(at("/etc/site/all.conf")); info.Mode().Perm() != 0o640 {
		t.Errorf("mode %o after another run", info.Mode())
	}

	h, err := host.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	write("/etc/site/copy.conf", "edited before reset\n")
	if _, err := uninstall.RemoveInstalled(t.Context(), h); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"/etc/site/control.conf": "the user's\n", "/etc/site/all.conf.airlift-saved": "edited\n", "/etc/site/copy.conf.airlift-saved": "edited before reset\n",
	} {
		if got := read(path); got != want {
			t.Errorf("after reset: %s has %q, want %q", path, got, want)
		}
	}
	for _, path := range []string{"/etc/site/all.conf", "/etc/site/copy.conf"} {
		if _, err := os.Lstat(at(path)); err == nil {
			t.Errorf("%s is left after reset", path)
		}
	}
}

// An edited file is saved even if it has the name of a certificate, which components renew, and the
// other certificates in its directory are not listed.
func TestSiteCertificateIsTheSites(t *testing.T) {
	b, root := siteBundle(t, siteContent(), nil), t.TempDir()
	siteRun(t, b, Worker, root)
	cert := filepath.Join(root, "etc/site/worker.crt")
	for path, text := range map[string]string{cert: "edited", filepath.Join(root, "etc/site/other.crt"): "other"} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	siteRun(t, b, Worker, root)
	if saved, err := os.ReadFile(cert + ".airlift-saved"); err != nil || string(saved) != "edited" {
		t.Errorf("saved: %q, %v", saved, err)
	}
}

func TestPhaseFilesWritesAllFiles(t *testing.T) {
	b, root := siteBundle(t, siteContent(), nil), t.TempDir()
	h, err := host.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	n := NewNode(&Plan{Config: &config.Config{}, Bundle: b, Role: Worker, OnePhase: true}, node.NewMachine(h, &workflow.Console{Out: &out}))
	n.inspected = true
	s := NewSiteFiles(NewContent(n))
	defer s.content.Close()
	if err := s.WriteEarly(t.Context(), desired.List{}); err != nil {
		t.Fatal(err)
	}
	if data, err := os.ReadFile(filepath.Join(root, "opt/site/bin/large")); err != nil || string(data) != large {
		t.Errorf("the file after the images: %q, %v", data, err)
	}
	if n.Changes != 4 {
		t.Errorf("%d changes, want 4", n.Changes)
	}
	// A dry run of the phase shows them too. kubeadm's file may skip it in a complete run.
	n.Plan.Config.SkipPhases = []string{"files"}
	if l, err := s.Desired(t.Context()); err != nil || len(l.SiteFiles) != 4 || len(n.hostFiles()) > 0 {
		t.Errorf("shown: %v, %v", l.SiteFiles, err)
	}
}

func TestManifestsArrive(t *testing.T) {
	b := siteBundle(t, siteContent(), map[string]string{"first": "kind: First\n", "second": "kind: Second\n"})
	var out bytes.Buffer
	results := &bytes.Buffer{}
	h, err := host.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	content := NewContent(NewNode(&Plan{Config: &config.Config{}, Bundle: b, Role: FirstControlPlane}, node.NewMachine(h, &workflow.Console{Out: &out, Results: results})))
	defer content.Close()
	s := NewManifests(NewAPI(content), InitOptions{PrintManifest: true})
	step := workflow.Step{Desired: s.Desired, Apply: s.ApplyOrPrint(func(context.Context) error {
		t.Error("it connects to the API")
		return nil
	})}
	for _, from := range []string{"the file", "the stream"} {
		results.Reset()
		if err := workflow.RunParts(t.Context(), s.Console, []workflow.Step{step}); err != nil {
			t.Fatal(err)
		}
		if got, want := results.String(), "---\nkind: First\n---\nkind: Second\n"; got != want {
			t.Errorf("from %s: %q, want %q", from, got, want)
		}
		if content.Stream == nil {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			content.start(ctx, func(string) bool { return false }, content.Node.Plan.Images(), content.siteRequest())
		}
	}
}
