package main

import (
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"airlift/images/release"
	"airlift/scripts/fixtures/docs"
	"airlift/scripts/fixtures/fakesites"
)

// TestDocumentedFlags looks up every command and flag that the documentation names.
func TestDocumentedFlags(t *testing.T) {
	pages, err := docs.Read("../..")
	if err != nil {
		t.Fatal(err)
	}
	calls, _ := docs.Calls(pages)
	root, checked := newRootCmd(), 0
	for _, c := range calls {
		if c.Name == "bundle" {
			checked++
			if err := docs.CheckCall(root, c); err != nil {
				t.Error(err)
			}
		}
	}
	if checked < 10 {
		t.Errorf("only %d calls found", checked)
	}
	for _, flag := range docs.BundleFlags {
		if !docs.HasFlag(root, flag) {
			t.Errorf("there is no flag --%s", flag)
		}
	}
}

// TestDocumentedCommands runs the commands that the documentation has for a
// connected machine, as they are, one page after the other.
func TestDocumentedCommands(t *testing.T) {
	pages, err := docs.Read("../..")
	if err != nil {
		t.Fatal(err)
	}
	u := fakesites.New(t, "v1.29.15", release.NewestOf("stable"))
	both := func(seed string) map[string]v1.Image {
		return map[string]v1.Image{"amd64": fakesites.Image(t, "amd64", seed), "arm64": fakesites.Image(t, "arm64", seed)}
	}
	u.PushIndex("registry.k8s.io/etcd:3.5.16-0", both("etcd"))
	u.PushIndex("docker.io/library/nginx:1.27", both("nginx"))
	env, _ := internet(t, u)
	for _, p := range pages {
		t.Run(p.Path, func(t *testing.T) {
			s := newShell(t)
			s.bundleInPath(t)
			kubelet := fmt.Sprintf("%x", sha256.Sum256(u.Get("dl.k8s.io/release/v1.29.15/bin/linux/amd64/kubelet")))
			if err := os.WriteFile(filepath.Join(s.dir, "SHA256SUMS"), []byte(kubelet+"  kubelet\n"), 0o644); err != nil {
				t.Fatal(err)
			}
			s.sourcesOfImages(t)
			seen := ""
			for _, b := range p.Blocks {
				if b.Lang == "text" && strings.HasPrefix(b.Text, "MANIFEST") && !strings.Contains(seen, b.Text) {
					t.Errorf("%s:%d: no command has printed\n%s\nin\n%s", p.Path, b.Line, b.Text, seen)
				}
				if !slices.Contains(b.On, docs.Machine) {
					continue
				}
				script := b.Script()
				for _, m := range u.Mirrors() {
					host, _, _ := strings.Cut(m, "=")
					script = regexp.MustCompile(regexp.QuoteMeta(host)+`=https://[a-z]+\.example/k8s`).ReplaceAllLiteralString(script, m)
				}
				script = strings.ReplaceAll(script, "kubelet=sha256:HEX", "kubelet=sha256:"+kubelet)
				script = strings.ReplaceAll(script, "pause:3.9=sha256:HEX", "pause:3.9=sha256:"+s.pauseDigest(t))
				c := exec.Command("bash", "-eux", "-o", "pipefail", "-c", script)
				c.Dir, c.Env = s.dir, append(s.command().Env, env...)
				out, err := c.CombinedOutput()
				if err != nil {
					t.Fatalf("%s:%d: %v\n%s", p.Path, b.Line, err, out)
				}
				seen += string(out)
			}
		})
	}
}

// sourcesOfImages makes the archive app.tar and the OCI image layout build.
func (s shell) sourcesOfImages(t *testing.T) {
	t.Helper()
	tag, err := name.NewTag("registry.example/app:1")
	if err == nil {
		err = tarball.WriteToFile(filepath.Join(s.dir, "app.tar"), tag, fakesites.Image(t, "amd64", "app"))
	}
	if err != nil {
		t.Fatal(err)
	}
	build, err := layout.Write(filepath.Join(s.dir, "build"), empty.Index)
	if err == nil {
		err = build.AppendImage(fakesites.Image(t, "amd64", "web"), layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": "v1"}))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// bundleInPath makes bin/bundle in the shell's directory: this test, as main, with
// stubs in place of the launcher and the installer that "make build" embeds.
func (s shell) bundleInPath(t *testing.T) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	amd64, err := os.ReadFile(filepath.Join(s.dir, "stub"))
	if err != nil {
		t.Fatal(err)
	}
	arm64 := slices.Clone(amd64)
	arm64[18] = 183 // e_machine: EM_AARCH64
	script := fmt.Sprintf(`#!/bin/sh
case "$1" in
build) shift; set -- build --compression fastest "$@";;
esac
case "$*" in
build*--arch\ amd64,arm64*) set -- "$@" --launcher stub --installer stub;;
build*--arch\ arm64*) set -- "$@" --launcher stub-arm64 --installer stub-arm64;;
build*) set -- "$@" --arch amd64 --launcher stub --installer stub;;
update*) set -- "$@" --arch amd64;;
esac
exec %q "$@"
`, self)
	if err := os.Mkdir(filepath.Join(s.dir, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{"stub-amd64": string(amd64), "stub-arm64": string(arm64), "bin/bundle": script} {
		if err := os.WriteFile(filepath.Join(s.dir, name), []byte(content), 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

// pauseDigest is the digest of pause in the last bundle, once there is one.
func (s shell) pauseDigest(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(s.dir, "install.provenance.json"))
	if os.IsNotExist(err) {
		return ""
	}
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`(?s)"name": "` + release.Pause + `".*?"digest": "sha256:([0-9a-f]{64})"`).FindSubmatch(text)
	if m == nil {
		t.Fatalf("pause has no digest in\n%s", text)
	}
	return string(m[1])
}
