package main

import (
	"bytes"
	"crypto/sha256"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/spf13/cobra"

	"airlift/builder"
	"airlift/builder/events"
	"airlift/bundle"
	"airlift/internal/fault"
	"airlift/scripts/fixtures/fakesites"
)

// archesShell is a siteShell whose bundle.yaml names both architectures, with sites that serve
// them, and the arguments of its build.
func archesShell(t *testing.T) (*fakesites.Upstream, shell, []string) {
	t.Helper()
	u := siteSites(t)
	pushBoth(t, u, "registry.k8s.io/etcd:3.5.16-0", "docker.io/library/nginx:1.27")
	s := siteShell(t, u)
	path := filepath.Join(s.dir, "site/bundle.yaml")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	s.writeAll(map[string]string{
		"site/bundle.yaml": strings.Replace(string(text), "architectures: [amd64]", "architectures: [amd64, arm64]\nkeepCompressedLayers: true", 1),
		"both-amd64":       string(fakesites.Executable(t, elf.EM_X86_64)), "both-arm64": string(fakesites.Executable(t, elf.EM_AARCH64)),
	})
	return u, s, []string{"build", "--file", "site/bundle.yaml", "--launcher", "both", "--installer", "both"}
}

func pushBoth(t *testing.T, u *fakesites.Upstream, references ...string) {
	t.Helper()
	for _, ref := range references {
		u.PushIndex(ref, map[string]v1.Image{"amd64": fakesites.Image(t, "amd64", ref), "arm64": fakesites.Image(t, "arm64", ref)})
	}
}

func files(t *testing.T, dir string) (names []string) {
	t.Helper()
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		names = append(names, e.Name())
	}
	return names
}

func platformOf(t *testing.T, path string) string {
	t.Helper()
	f, err := bundle.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	m, err := f.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	return m.Platform
}

// One command builds a file for each architecture, with one lock. What one of them has not fails
// the build before any file is written.
func TestSeveralArchitectures(t *testing.T) {
	u, s, build := archesShell(t)
	site := filepath.Join(s.dir, "site")
	sources := files(t, site)
	_, errs, code := s.run(build...)
	has(t, "an image for amd64 only", errs, "docker.io/team/tool:v1", "linux/arm64")
	if code != fault.Failure || !slices.Equal(files(t, site), sources) {
		t.Fatalf("exit code %d, %v", code, files(t, site))
	}

	pushBoth(t, u, "docker.io/team/tool:v1")
	out, errs, code := s.run(append(build, "--progress", "json", "--refresh")...)
	if code != 0 {
		t.Fatalf("exit code %d: %s%s", code, out, errs)
	}
	list := decodeEvents(t, out)
	results := of[events.Result](list)
	if p := list[0].(events.Start).Platforms; len(results) != 2 || !slices.Equal(p, []string{"linux/amd64", "linux/arm64"}) {
		t.Fatalf("platforms %v, results %+v", p, results)
	}
	sums := map[string]string{}
	for n, arch := range []string{"amd64", "arm64"} {
		path := filepath.Join(site, "site.bundle-"+arch)
		if results[n].Path != "site/site.bundle-"+arch || results[n].Platform != "linux/"+arch || platformOf(t, path) != "linux/"+arch {
			t.Errorf("%+v", results[n])
		}
		if _, err := os.Stat(path + ".provenance.json"); err != nil {
			t.Error(err)
		}
		sums[arch] = results[n].SHA256
		if out, errs, code := s.run("verify", path); code != 0 {
			t.Errorf("%s: %s%s", arch, out, errs)
		}
	}

	// Both builds use the lock, also alone and under another name.
	u.Push("docker.io/team/tool:v1", fakesites.Image(t, "amd64", "a new tool"))
	out, errs, code = s.run(append(build, "--locked")...)
	has(t, errs, out, "site.bundle-amd64\n", "site.bundle-arm64\n", "site/bundle.lock (used)", sums["amd64"], sums["arm64"])
	if code != 0 {
		t.Fatal(code)
	}
	out, errs, code = s.run("build", "--file", "site/bundle.yaml", "--locked", "--arch", "arm64", "--output", "one", "--launcher", "both-arm64", "--installer", "both-arm64")
	has(t, errs, out, "\none\n", sums["arm64"])
	if code != 0 {
		t.Fatal(code)
	}
}

func TestUpdateSeveralArchitectures(t *testing.T) {
	u, s, build := archesShell(t)
	pushBoth(t, u, "docker.io/team/tool:v1")
	update := []string{"update", "--file", "site/bundle.yaml"}
	out, errs, code := s.run(append(update, "--arch", "amd64")...)
	has(t, errs, out, "site/bundle.lock was written: Kubernetes v1.29.15 for linux/amd64, ")
	if code != 0 {
		t.Fatal(code)
	}
	u.Forget()
	_, errs, code = s.run(build...)
	has(t, "lock of one", errs, "site/bundle.lock does not fit this build: it has no linux/arm64, only linux/amd64", "bundle update")
	if code != fault.Failure || len(u.Requests()) > 0 {
		t.Errorf("exit code %d, requests %v", code, u.Requests())
	}
	if out, errs, code = s.run(update...); out != "linux/arm64: added\nsite/bundle.lock was written\n" || code != 0 {
		t.Errorf("%d: %s%s", code, out, errs)
	}
	if out, errs, code = s.run(update...); out != "site/bundle.lock is up to date\n" || code != 0 {
		t.Errorf("%d: %s%s", code, out, errs)
	}
	// A checksum names the file of one architecture.
	arm64 := fmt.Sprintf("arm64/kubelet=sha256:%x", sha256.Sum256(u.Get("dl.k8s.io/release/v1.29.15/bin/linux/arm64/kubelet")))
	if out, errs, code = s.run(append(update, "--checksum", arm64)...); out != "site/bundle.lock is up to date\n" || code != 0 {
		t.Errorf("%d: %s%s", code, out, errs)
	}
	_, errs, code = s.run(append(update, "--checksum", strings.TrimPrefix(arm64, "arm64/"))...)
	has(t, "one checksum for both", errs, `"kubelet", which is another file for each architecture`, "amd64/kubelet and arm64/kubelet")
	if code != fault.Usage {
		t.Errorf("exit code %d", code)
	}
	s.writeAll(map[string]string{"site/motd": "new\n"})
	out, errs, _ = s.run(update...)
	has(t, errs, out, "linux/amd64 source motd sha256: ", "linux/arm64 source motd sha256: ")
	if out, errs, code = s.run(append(update, "--arch", "arm64")...); out != "linux/amd64: removed\nsite/bundle.lock was written\n" || code != 0 {
		t.Errorf("%d: %s%s", code, out, errs)
	}
}

func TestArchErrors(t *testing.T) {
	s := newShell(t)
	for arch, want := range map[string]string{"amd64,amd64": "--arch names amd64 twice", "": "--arch is empty", "amd64,riscv64": "riscv64"} {
		if _, errs, code := s.run("build", "--version", "v1.29.15", "--arch", arch, "--launcher", "stub", "--installer", "stub"); code != fault.Usage || !strings.Contains(errs, want) {
			t.Errorf("--arch %q: exit code %d: %s", arch, code, errs)
		}
	}
}

// The files that are complete are reported, also if a later one fails.
func TestReportOfAFailedBuild(t *testing.T) {
	list := []builder.Options{{Target: builder.Target{Arch: "amd64"}}, {Target: builder.Target{Arch: "arm64"}}}
	m := &bundle.Manifest{FormatVersion: bundle.FormatVersion, Platform: "linux/amd64", KubernetesVersion: "v1.29.15", CNI: "none"}
	results := []*builder.Result{{Path: "install-amd64", Manifest: m, Warnings: []string{"an assumption"}, UnusedMirrors: []string{"registry.example"}}}
	failed := errors.New("the disk is full")
	for _, format := range []string{progressText, progressJSON} {
		var out, errs bytes.Buffer
		cmd := &cobra.Command{}
		cmd.SetOut(&out)
		cmd.SetErr(&errs)
		b := &buildFlags{}
		if err := b.chooseProgress(cmd, format); err != nil {
			t.Fatal(err)
		}
		if err := b.report(cmd, list, results, failed, time.Second); !errors.Is(err, failed) {
			t.Errorf("%s: %v", format, err)
		}
		if format == progressText {
			has(t, format, out.String()+errs.String(), "\ninstall-amd64\n", "kubernetes  v1.29.15", "warning: an assumption")
		} else if r := of[events.Result](decodeEvents(t, out.String())); len(r) != 1 || r[0].Path != "install-amd64" || r[0].Platform != "linux/amd64" {
			t.Errorf("%s: %+v", format, r)
		}
		// Whether a mirror is used is only known at the end.
		if all := out.String() + errs.String(); strings.Contains(all, "registry.example") {
			t.Errorf("%s: %s", format, all)
		}
		out.Reset()
		if err := b.report(cmd, list, nil, failed, time.Second); !errors.Is(err, failed) || out.Len() > 0 {
			t.Errorf("%s, without a complete file: %v, %s", format, err, &out)
		}
	}
}
