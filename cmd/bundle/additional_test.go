package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"airlift/bundle"
	"airlift/internal/fault"
	"airlift/scripts/fixtures/fakesites"
	"airlift/scripts/fixtures/rig"
)

// moreShell has a full bundle, install, and site/more.yaml for an additional one.
func moreShell(t *testing.T) (shell, *fakesites.Upstream) {
	u := siteSites(t)
	s := siteShell(t, u)
	if _, errs, code := s.run(buildArgs(u)...); code != 0 {
		t.Fatalf("exit code %d: %s", code, errs)
	}
	text, err := os.ReadFile(filepath.Join(s.dir, "site/bundle.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	_, mirrors, _ := strings.Cut(string(text), "mirrors:\n")
	s.writeAll(map[string]string{"site/more.yaml": `apiVersion: airlift/v1
kind: Bundle
kubernetesVersion: v1.29.15
architectures: [amd64]
only: [images, manifests]
base: ../install
compression: fastest
output: more
manifests:
- {name: web, path: web.yaml, namespace: web}
images: [docker.io/team/tool:v1]
mirrors:
` + mirrors})
	u.Forget()
	return s, u
}

func TestBuildAdditional(t *testing.T) {
	s, u := moreShell(t)
	// An installer of 1 MB makes the bundle large enough for parts.
	stub, err := os.ReadFile(filepath.Join(s.dir, "stub"))
	if err != nil {
		t.Fatal(err)
	}
	s.writeAll(map[string]string{"installer": string(stub) + string(incompressible(1<<20))})
	stubs := []string{"--launcher", "stub", "--installer", "installer"}
	build := append([]string{"build", "--file", "site/more.yaml", "--sbom", "spdx-json"}, stubs...)
	out, errs, code := s.run(build...)
	if code != 0 {
		t.Fatalf("exit code %d: %s", code, errs)
	}
	has(t, "summary", out, "├─ images ", "docker.io/library/nginx", "docker.io/team/tool", "├─ manifests ",
		"complete: every image that the workloads in web name is in the bundle", "kubernetes  v1.29.15",
		"base        install; left out: 1 layer (", "lock        site/more.lock (written)")
	has(t, "progress", errs, "additional bundle for Kubernetes v1.29.15 on linux/amd64: 2 images, 1 manifest\n")
	for _, q := range u.Requests() {
		if !strings.Contains(q, "/v2/library/nginx/") && !strings.Contains(q, "/v2/team/tool/") && !strings.HasSuffix(q, "/v2/") {
			t.Errorf("request for something else: %s", q)
		}
	}
	more := filepath.Join(s.dir, "site/more")
	f, err := bundle.Open(filepath.Join(s.dir, "install"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()

	out, _, _ = s.run("inspect", "site/more")
	has(t, "inspect", out, "additional bundle without Kubernetes: images and manifests for clusters of Kubernetes v1.29 (built for v1.29.15) on linux/amd64\n",
		"base: the bundle whose manifest has sha256 "+f.ManifestSHA256()+"; only there: 1 layer (", "├─ images ", "├─ manifests ", "more in the base\n", "docker.io/team/tool:v1")
	if strings.Contains(out, "─ binaries ") || strings.Contains(out, "pod network") {
		t.Error(out)
	}
	out, _, _ = s.run("inspect", "-o", "json", "site/more")
	var got struct{ Manifest bundle.Manifest }
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatal(err)
	}
	m := got.Manifest
	if !slices.Equal(m.Only, []string{"images", "manifests"}) || m.Base == nil || len(m.Base.Layers) != 1 || len(m.Components) > 0 {
		t.Errorf("%+v", m)
	}
	t.Run("tar lists it", func(t *testing.T) {
		rig.Tool(t, "zstd")
		want := []string{bundle.ManifestName, bundle.InstallerName}
		for _, e := range m.Entries {
			want = append(want, e.Name)
		}
		c := s.command("inspect", "site/more")
		text, err := c.Output()
		if err != nil {
			t.Fatal(err)
		}
		_, line, _ := strings.Cut(string(text), "To list the files with tar:\n")
		tar := exec.Command("bash", "-o", "pipefail", "-c", line)
		tar.Dir = s.dir
		if list, err := tar.Output(); err != nil || string(list) != strings.Join(want, "\n")+"\n" {
			t.Errorf("%v: tar lists\n%s\nwant %q", err, list, want)
		}
	})

	for _, args := range [][]string{{"verify", "site/more"}, {"split", "site/more", "--size", "1M"}, {"verify", "site/more.sha256"}, {"sbom", "site/more"}} {
		if out, errs, code := s.run(args...); code != 0 {
			t.Errorf("%q: exit code %d: %s%s", args, code, out, errs)
		}
	}
	out, errs, code = s.run("diff", "install", "site/more")
	has(t, "diff", out, "  + only images, manifests\n", "  + base "+f.ManifestSHA256()+"\n", "  ~ pod network flannel → none\n", "  - kubelet v1.29.15\n", "  + docker.io/team/tool:v1 ", "layers: 0 B of ")
	if code != 0 {
		t.Error(errs)
	}

	// A damaged copy is repaired with the other one.
	whole, err := os.ReadFile(more)
	if err != nil {
		t.Fatal(err)
	}
	damaged := slices.Clone(whole)
	damaged[len(damaged)/2] ^= 1
	s.writeAll(map[string]string{"damaged": string(damaged)})
	if out, errs, code := s.run("repair", "damaged", "--from", "site/more"); code != 0 {
		t.Errorf("repair: exit code %d: %s%s", code, out, errs)
	}
	if repaired, err := os.ReadFile(filepath.Join(s.dir, "damaged")); err != nil || string(repaired) != string(whole) {
		t.Errorf("repair gave other bytes: %v", err)
	}

	// The lock is used, and bundle update finds it up to date.
	out, errs, code = s.run(append(build, "--locked")...)
	if again, err := os.ReadFile(more); code != 0 || err != nil || string(again) != string(whole) {
		t.Errorf("locked: exit code %d: %s%s", code, out, errs)
	}
	if out, errs, code := s.run("update", "--file", "site/more.yaml"); code != 0 || out != "site/more.lock is up to date\n" {
		t.Errorf("update: exit code %d: %s%s", code, out, errs)
	}

	// Flags replace the values of the file. The default output is not the base.
	out, errs, code = s.run(append([]string{"build", "--file", "site/more.yaml", "--lock", "images.lock", "--only", "images", "--output", "images"}, stubs...)...)
	if code != 0 || strings.Contains(out, "MANIFEST") || !strings.Contains(out, "docker.io/library/nginx") {
		t.Errorf("--only images: exit code %d: %s%s", code, out, errs)
	}
	before, err := os.ReadFile(filepath.Join(s.dir, "install"))
	if err != nil {
		t.Fatal(err)
	}
	out, errs, code = s.run(buildArgs(u, "--only", "images", "--base", "install", "--image", "docker.io/team/more:v1")...)
	if code != 0 || !strings.Contains(out, "\nmore\n") {
		t.Errorf("without --out: exit code %d: %s%s", code, out, errs)
	}
	if after, err := os.ReadFile(filepath.Join(s.dir, "install")); err != nil || string(after) != string(before) {
		t.Errorf("the base changed: %v", err)
	}
	args := slices.DeleteFunc(buildArgs(u, "--only=images", "--image", "docker.io/team/more:v1"), func(arg string) bool { return arg == "--version" || arg == "v1.29" })
	if _, errs, _ := s.run(args...); !strings.Contains(errs, "note: without --version, the bundle is for clusters of the newest known minor version: v1.") {
		t.Error(errs)
	}
}

func TestAdditionalUsage(t *testing.T) {
	s, u := moreShell(t)
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--only", ""}, "--only is empty"},
		{[]string{"--only", "image"}, `--only "image": an additional bundle cannot have this`},
		{[]string{"--only", "images", "--cni", "none"}, "an additional bundle has no pod network"},
		{[]string{"--only", "images", "--pause-version", "3.9"}, "an additional bundle has no components"},
		{[]string{"--base", "install"}, "--base is only for additional bundles"},
		{[]string{"--only", "images", "--base", "install", "--output", "install", "--image", "a"}, `the output "install" is the base`},
		{[]string{"--file", "site/bundle.yaml", "--only", "images"}, "site/bundle.yaml:5: cni is not for this additional bundle"},
		{[]string{"--file", "site/more.yaml", "--only", "manifests"}, "--only manifests leaves out the images"},
	} {
		if out, errs, code := s.run(buildArgs(u, c.args...)...); code != fault.Usage || out != "" || !strings.Contains(errs, c.want) || !strings.Contains(errs, "hint: ") && !strings.Contains(errs, "    (") {
			t.Errorf("%q: exit code %d: %s%s", c.args, code, out, errs)
		}
	}
	if list := u.Requests(); len(list) > 0 {
		t.Errorf("requests %q", list)
	}
}
