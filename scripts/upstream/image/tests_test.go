package image

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"airlift/scripts/rig"
	"airlift/scripts/upstream/components"
)

// The images that e2e.test names are made with its tags, agnhost with more than the image for
// other purposes. Those that the rig cannot make are reported.
func TestTestImages(t *testing.T) {
	release, err := components.Find("v1.37.1")
	if err != nil {
		t.Fatal(err)
	}
	const (
		agnhost = "registry.k8s.io/e2e-test-images/agnhost:2.66.1"
		older   = "registry.k8s.io/e2e-test-images/agnhost:2.55"
		sample  = "registry.k8s.io/e2e-test-images/sample-apiserver:1.29.2"
		pause   = "registry.k8s.io/pause:3.10.2"
	)
	b := &Builder{Cache: t.TempDir()}
	made, missing := b.makes(release, []string{sample, agnhost, "registry.k8s.io/e2e-test-images/sample-apiserver:1.17.7", older, pause, "gcr.io/k8s-authenticated-test/agnhost:2.6", pause})
	if want := []string{older, agnhost, sample, pause}; !slices.Equal(made, want) {
		t.Errorf("made %q, want %q", made, want)
	}
	if want := []string{"gcr.io/k8s-authenticated-test/agnhost:2.6", "registry.k8s.io/e2e-test-images/sample-apiserver:1.17.7"}; !slices.Equal(missing, want) {
		t.Errorf("missing %q, want %q", missing, want)
	}
	b.TestImages = made
	specs, err := b.all(release)
	if err != nil {
		t.Fatal(err)
	}
	keys := map[string][]string{} // of the layers
	versions := map[string]string{}
	for _, s := range specs {
		if keys[s.reference()] != nil {
			t.Errorf("%s is made twice", s.reference())
		}
		for _, l := range s.layers {
			keys[s.reference()] = append(keys[s.reference()], l.key)
		}
		versions[s.reference()] = s.config.Labels["org.opencontainers.image.version"]
	}
	if len(specs) != len(b.specs(release))+2 { // older and sample
		t.Errorf("%d images", len(specs))
	}
	if !slices.Contains(keys[agnhost], "agnhost tools 2") || !slices.Equal(keys[agnhost], keys[older]) {
		t.Errorf("agnhost has the layers %q and %q", keys[agnhost], keys[older])
	}
	// The same layers, but two images.
	if versions[agnhost] != "2.66.1" || versions[older] != "2.55" {
		t.Errorf("versions %q", versions)
	}
	b.TestImages = []string{"registry.k8s.io/no/such:1"}
	if _, err := b.Build(t.Context(), release); err == nil || !strings.Contains(err.Error(), "registry.k8s.io/no/such:1") {
		t.Errorf("an image that the rig does not make: %v", err)
	}
}

// nnp gains its owner's rights, or the test of AllowPrivilegeEscalation would pass anywhere.
func TestNoNewPrivsIsSetuid(t *testing.T) {
	release, err := components.Find("v1.37.1")
	if err != nil {
		t.Fatal(err)
	}
	b := &Builder{Cache: t.TempDir()}
	recipe, err := release.Recipe("nnp")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(recipe.Dir(b.Cache), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(recipe.Dir(b.Cache), "nnp"), []byte("program"), 0o755); err != nil {
		t.Fatal(err)
	}
	layers := b.noNewPrivs(release).layers
	tree := newTree("amd64")
	if err := layers[len(layers)-1].fill(t.Context(), tree); err != nil {
		t.Fatal(err)
	}
	var written bytes.Buffer
	if err := tree.write(&written); err != nil {
		t.Fatal(err)
	}
	for r := tar.NewReader(&written); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			t.Fatal("the layer has no nnp")
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Name == "usr/local/bin/nnp" {
			if mode := h.FileInfo().Mode(); mode&os.ModeSetuid == 0 || mode&os.ModeSetgid == 0 || mode.Perm() != 0o755 {
				t.Errorf("mode %v", mode)
			}
			return
		}
	}
}

// The programs from Debian's packages start in the images: their libraries and files are there.
func TestDebianProgramsStart(t *testing.T) {
	rig.Root(t)
	release, err := components.Find("v1.37.1")
	if err != nil {
		t.Fatal(err)
	}
	b := &Builder{Cache: t.TempDir()}
	for name, c := range map[string]struct {
		image    spec
		commands [][]string
	}{
		"agnhost": {b.agnhostWithTools(release), [][]string{
			{"dig", "-v"}, {"nslookup", "-version"}, {"host", "-V"}, {"curl", "--version"}, {"bash", "-c", "ip -V && ss -V"},
			{"sh", "-c", "iperf -v 2>&1 | grep iperf"}, {"socat", "-V"}, {"ipcs", "-a"}, {"sh", "-c", "nc -h 2>&1 | grep OpenBSD"}, {"id", "user-defined-in-image"}, {"getent", "passwd", "root"}}},
		"busybox":           {b.busybox(release), [][]string{{"sh", "-c", "seq 3 | awk '{print $1}' | sort -r | head -1 && busybox timeout 1 true"}}},
		"glibc-dns-testing": {b.dnsTools(release), [][]string{{"dig", "-v"}, {"sh", "-c", "seq 3 | awk '{print $1}' | sed p | grep -c 1"}, {"getent", "passwd", "root"}, {"hostname"}}},
		"nginx":             {b.nginx(release), [][]string{{"nginx", "-t"}}},
		"httpd":             {b.httpd(release), [][]string{{"httpd-foreground", "-t"}}},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			for _, layer := range c.image.layers {
				if strings.Contains(layer.key, "programs 1") {
					continue // components, which are static
				}
				tree := newTree("amd64")
				if err := layer.fill(t.Context(), tree); err != nil {
					t.Fatal(err)
				}
				var written bytes.Buffer
				if err := tree.write(&written); err != nil {
					t.Fatal(err)
				}
				unpack := exec.Command("tar", "-x", "-C", root, "--keep-directory-symlink")
				unpack.Stdin = &written
				if out, err := unpack.CombinedOutput(); err != nil {
					t.Fatalf("%v: %s", err, out)
				}
			}
			for _, d := range []string{"dev", "proc/self/fd", "run"} {
				if err := os.MkdirAll(filepath.Join(root, d), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			for _, f := range []string{"dev/null", "dev/stdout", "dev/stderr"} {
				if err := os.WriteFile(filepath.Join(root, f), nil, 0o666); err != nil {
					t.Fatal(err)
				}
			}
			for _, argv := range c.commands {
				run := exec.Command("/usr/bin/env", argv...) // of the image
				run.Dir = "/"
				run.Env = []string{searchPath}
				run.SysProcAttr = &syscall.SysProcAttr{Chroot: root}
				if out, err := run.CombinedOutput(); err != nil {
					t.Errorf("%s: %v: %s", strings.Join(argv, " "), err, out)
				}
			}
		})
	}
}
