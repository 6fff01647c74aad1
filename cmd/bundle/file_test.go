package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"airlift/builder/sitefile"
	"airlift/bundle"
	"airlift/images/release"
	"airlift/internal/fault"
	"airlift/scripts/fixtures/fakesites"
)

// writeAll writes files below the shell's directory, by name.
func (s shell) writeAll(files map[string]string) {
	s.t.Helper()
	for name, content := range files {
		path := filepath.Join(s.dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			s.t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			s.t.Fatal(err)
		}
	}
}

const pod = `apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  containers:
  - {name: web, image: "nginx:1.27"}
`

// siteShell has a directory site with a bundle.yaml and its sources.
func siteShell(t *testing.T, u *fakesites.Upstream) shell {
	s := newShell(t)
	mirrors := ""
	for _, m := range u.Mirrors() {
		mirrors += "- " + m + "\n"
	}
	s.writeAll(map[string]string{
		"site/bundle.yaml": `apiVersion: airlift/v1
kind: Bundle
kubernetesVersion: v1.29.15
architectures: [amd64]
cni: none
compression: fastest
output: site.bundle
manifests:
- {name: web, path: web.yaml, namespace: web}
files:
- {path: /etc/motd, source: motd, nodes: control-plane}
systemdUnits:
- source: exporter.service
images: [docker.io/team/tool:v1]
mirrors:
` + mirrors,
		"site/web.yaml": pod, "site/motd": "hello\n", "site/exporter.service": "[Install]\nWantedBy=multi-user.target\n",
	})
	return s
}

func siteSites(t *testing.T) *fakesites.Upstream {
	u := fakesites.New(t, "v1.29.15")
	for _, ref := range []string{"docker.io/library/nginx:1.27", "docker.io/team/tool:v1", "docker.io/team/more:v1"} {
		u.Push(ref, fakesites.Image(t, "amd64", ref))
	}
	return u
}

func has(t *testing.T, what, text string, wants ...string) {
	t.Helper()
	for _, want := range wants {
		if !strings.Contains(text, want) {
			t.Errorf("%s: %q is not in\n%s", what, want, text)
		}
	}
}

func TestBuildFile(t *testing.T) {
	s := siteShell(t, siteSites(t))
	stubs := []string{"--launcher", "stub", "--installer", "stub"}
	out, errs, code := s.run(append([]string{"build", "--file", "site/bundle.yaml"}, stubs...)...)
	if code != 0 {
		t.Fatalf("exit code %d: %s", code, errs)
	}
	tables := []string{"─ web  ", "  namespace web\n", "─ /etc/motd  ", "  mode 0644, only on each control-plane\n", "─ /etc/systemd/system/exporter.service  ", "  mode 0644, a unit that is started\n"}
	has(t, "summary", out, append(tables, "complete: every image that the workloads in web name is in the bundle", "docker.io/library/nginx", "docker.io/team/tool", "site/site.bundle")...)
	if strings.Contains(errs, "without --version") {
		t.Error(errs)
	}
	out, errs, code = s.run("inspect", "site/site.bundle")
	has(t, "inspect"+errs, out, "pod network: none\n", "├─ manifests ", "  namespace web\n", "├─ files ",
		"├─ /etc/motd ", "6 B    0 %  mode 0644, only on each control-plane\n", "└─ /etc/systemd/system/exporter.service ", "37 B    0 %  mode 0644, a unit that is started\n")
	if code != 0 {
		t.Error(code)
	}
	out, _, _ = s.run("inspect", "-o", "json", "site/site.bundle")
	var got struct{ Manifest bundle.Manifest }
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatal(err)
	}
	if m := got.Manifest; len(m.Manifests) != 1 || len(m.Files) != 2 || len(m.Units) != 1 || m.Files[0].Nodes != "control-plane" {
		t.Errorf("%+v", m)
	}
	if out, errs, code := s.run("verify", "site/site.bundle"); code != 0 {
		t.Errorf("verify: %d, %s%s", code, out, errs)
	}

	// The same site in another directory, and the same with the flags.
	first, err := os.ReadFile(filepath.Join(s.dir, "site/site.bundle"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(s.dir, "site"), filepath.Join(s.dir, "elsewhere")); err != nil {
		t.Fatal(err)
	}
	if _, errs, code := s.run(append([]string{"build", "-f", filepath.Join(s.dir, "elsewhere/bundle.yaml"), "--out", "again"}, stubs...)...); code != 0 {
		t.Fatalf("exit code %d: %s", code, errs)
	}
	if again, err := os.ReadFile(filepath.Join(s.dir, "again")); err != nil || string(again) != string(first) {
		t.Errorf("the bundle differs: %v", err)
	}

	// Flags replace values, and lists are added.
	out, errs, code = s.run(append([]string{"build", "-f", "elsewhere/bundle.yaml", "--lock", "other.lock", "--out", "other", "--cni", "flannel", "--image", "docker.io/team/more:v1"}, stubs...)...)
	if code != 0 {
		t.Fatalf("exit code %d: %s", code, errs)
	}
	has(t, "summary", out, "docker.io/team/more", "docker.io/team/tool", "flannel-io/flannel", "kubernetes  v1.29.15")
}

// An image that only a manifest of the user's own has.
func TestImagesFromFlag(t *testing.T) {
	u := siteSites(t)
	s := newShell(t)
	s.writeAll(map[string]string{"web.yaml": pod})
	out, errs, code := s.run(buildArgs(u, "--images-from", "web.yaml")...)
	if code != 0 {
		t.Fatalf("exit code %d: %s", code, errs)
	}
	has(t, "summary", out, "docker.io/library/nginx", "complete: every image that the workloads in web.yaml name is in the bundle\n")
	if strings.Contains(out, "MANIFEST") {
		t.Error(out)
	}
}

func TestBuildFileErrors(t *testing.T) {
	u := siteSites(t)
	s := siteShell(t, u)
	u.Forget()
	for _, c := range []struct {
		file string
		want []string
	}{
		{"none.yaml", []string{"no such file", "bundle init"}},
		{".", []string{"is a directory"}},
		{"field.yaml", []string{"site/field.yaml:3: manifest is not known", "did you mean manifests?"}},
		{"owned.yaml", []string{`site/owned.yaml:4: path "/etc/kubernetes/x" is not for the site's files`, "belongs to Kubernetes"}},
		{"always.yaml", []string{"Pod web: spec.containers[0].imagePullPolicy", "imagePullPolicy: IfNotPresent"}},
	} {
		s.writeAll(map[string]string{
			"site/field.yaml":  "apiVersion: airlift/v1\nkind: Bundle\nmanifest: []\n",
			"site/owned.yaml":  "apiVersion: airlift/v1\nkind: Bundle\nfiles:\n- {path: /etc/kubernetes/x, source: motd}\n",
			"site/always.yaml": "apiVersion: airlift/v1\nkind: Bundle\nkubernetesVersion: v1.29.15\narchitectures: [amd64]\nmanifests:\n- {name: a, path: latest.yaml}\n",
			"site/latest.yaml": strings.Replace(pod, ":1.27", ":latest", 1),
		})
		out, errs, code := s.run("build", "-f", filepath.Join("site", c.file), "--launcher", "stub", "--installer", "stub")
		if code != fault.Usage || out != "" || !strings.HasPrefix(errs, "error: ") {
			t.Errorf("%s: exit code %d\n%s%s", c.file, code, out, errs)
		}
		has(t, c.file, errs, c.want...)
	}
	if got := u.Requests(); len(got) > 0 {
		t.Errorf("downloads began: %v", got)
	}
}

func TestInit(t *testing.T) {
	s := newShell(t)
	out, errs, code := s.run("init")
	if code != 0 || !strings.Contains(out, "bundle build --file bundle.yaml") {
		t.Fatalf("%d: %s%s", code, out, errs)
	}
	path := filepath.Join(s.dir, "bundle.yaml")
	got, err := os.ReadFile(path)
	if err != nil || string(got) != string(sitefile.Example) {
		t.Errorf("%q, %v", got, err)
	}
	s.writeAll(map[string]string{"bundle.yaml": "mine\n"})
	if _, errs, code := s.run("init"); code != fault.Usage || !strings.Contains(errs, "exists already") {
		t.Errorf("%d: %s", code, errs)
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != "mine\n" {
		t.Errorf("%q, %v", got, err)
	}
	if out, _, code := s.run("init", "other site.yaml"); code != 0 || !strings.Contains(out, "--file 'other site.yaml'") {
		t.Errorf("%d: %s", code, out)
	}
	for _, args := range [][]string{{"init", "a", "b"}, {"init", "no/such/file"}} {
		if _, errs, code := s.run(args...); code != fault.Usage {
			t.Errorf("%v: %d: %s", args, code, errs)
		}
	}
	// The example is a complete file.
	u := fakesites.New(t, "v1.37.1")
	args := []string{"build", "--arch", "amd64", "--launcher", "stub", "--installer", "stub", "--file", "other site.yaml", "--compression", "fastest"}
	for _, m := range u.Mirrors() {
		args = append(args, "--mirror", m)
	}
	if _, errs, code := s.run(args...); code != 0 {
		t.Errorf("%d: %s", code, errs)
	}
}

// Add-ons of the file and of the flag are in one table. The site's manifests have another table.
func TestBuildAddOns(t *testing.T) {
	u := siteSites(t)
	list, err := release.AddOns("v1.29.15")
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range list {
		u.Push(a.Image, fakesites.Image(t, "amd64", a.Image))
	}
	s := siteShell(t, u)
	text, err := os.ReadFile(filepath.Join(s.dir, "site/bundle.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	s.writeAll(map[string]string{"site/bundle.yaml": string(text) + "addons: [metrics-server]\n"})
	stubs := []string{"--launcher", "stub", "--installer", "stub"}
	out, errs, code := s.run(append([]string{"build", "--file", "site/bundle.yaml", "--addon", "local-path-storage"}, stubs...)...)
	if code != 0 {
		t.Fatalf("exit code %d: %s", code, errs)
	}
	has(t, "summary", out, "─ local-path-storage  ", "  add-on v0.0.30\n", "─ metrics-server  ", "  add-on v0.7.2\n", "  namespace web\n",
		"complete: every image that the workloads in local-path-storage, metrics-server, web name is in the bundle")
	out, errs, _ = s.run("inspect", "site/site.bundle")
	has(t, "inspect"+errs, out, "├─ metrics-server ", "  add-on v0.7.2\n")
	if text, err := os.ReadFile(filepath.Join(s.dir, "site/bundle.lock")); err != nil || !strings.Contains(string(text), list[2].Image) {
		t.Errorf("the lock does not pin %s: %v", list[2].Image, err)
	}
	for addOn, want := range map[string]string{"dashboard": "known add-ons: network-policy, local-path-storage, metrics-server", "network-policy": "remove it"} {
		if _, errs, code := s.run(append([]string{"build", "--file", "site/bundle.yaml", "--addon", addOn}, stubs...)...); code != fault.Usage || !strings.Contains(errs, want) {
			t.Errorf("%s: exit code %d: %s", addOn, code, errs)
		}
	}
}
