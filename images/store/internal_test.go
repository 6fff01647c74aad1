package store

import (
	"archive/tar"
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"airlift/scripts/fixtures/rig"
	"github.com/containerd/containerd/v2/core/mount"
	"github.com/moby/sys/mountinfo"
)

// Snapshotters without plain directories, and user namespaces, need a mount. This test uses
// an overlay mount: the kernel must create the whiteout.
func TestUnpackThroughMount(t *testing.T) {
	rig.Root(t) // to mount
	base, err := os.MkdirTemp("/var/tmp", "airlift-store-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(base) })
	for _, dir := range []string{"lower", "upper", "work"} {
		if err := os.Mkdir(filepath.Join(base, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(base, "lower/old"), []byte("old"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(runDir, 0o700); err != nil {
		t.Fatal(err)
	}
	mounts := []mount.Mount{{Type: "overlay", Source: "overlay", Options: []string{
		"workdir=" + filepath.Join(base, "work"), "upperdir=" + filepath.Join(base, "upper"), "lowerdir=" + filepath.Join(base, "lower"), "index=off"}}}
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	for _, h := range []tar.Header{{Name: ".wh.old", Typeflag: tar.TypeReg}, {Name: "new", Typeflag: tar.TypeReg, Mode: 0o640}} {
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	var at string
	err = withMount(mounts, func(root string) error {
		at = root
		return applyTo(t.Context(), root, &layer)
	})
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Lstat(filepath.Join(base, "upper/old")); err != nil || info.Mode()&os.ModeCharDevice == 0 {
		t.Errorf("the whiteout is %v, %v", info, err)
	}
	if info, err := os.Stat(filepath.Join(base, "upper/new")); err != nil || info.Mode() != 0o640 {
		t.Errorf("the new file is %v, %v", info, err)
	}
	assertUnmounted(t, at)

	// An error in the function must not leave the mount either.
	err = withMount(mounts, func(root string) error {
		at = root
		return os.ErrDeadlineExceeded
	})
	if err == nil || !strings.Contains(err.Error(), os.ErrDeadlineExceeded.Error()) {
		t.Errorf("err = %v", err)
	}
	assertUnmounted(t, at)
}

func assertUnmounted(t *testing.T, dir string) {
	t.Helper()
	mounts, err := mountinfo.GetMounts(mountinfo.PrefixFilter(dir))
	if err != nil || len(mounts) > 0 {
		t.Errorf("mounts at %s: %v, %v", dir, mounts, err)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("%s is still there (%v)", dir, err)
	}
}

// The installer must not link code that pulls from registries, and containerd's client
// package has such code.
func TestLinksNoRegistryCode(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "airlift/images/store").Output()
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(out), "github.com/containerd/containerd/v2/pkg/archive\n") {
		t.Fatalf("go list -deps says:\n%s", out)
	}
	for _, code := range []string{"containerd/v2/client\n", "containerd/v2/core/remotes", "containerd/v2/core/transfer", "go-containerregistry"} {
		if strings.Contains(string(out), code) {
			t.Errorf("links %s", strings.TrimSpace(code))
		}
	}
}

func TestRecordNames(t *testing.T) {
	const target, config = "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "sha256:bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
	for ref, want := range map[string][]string{
		"registry.k8s.io/pause:3.9":           {config, "registry.k8s.io/pause@" + target, "registry.k8s.io/pause:3.9"},
		"nginx":                               {config, "docker.io/library/nginx@" + target, "docker.io/library/nginx:latest"},
		"localhost:5000/a/b:c":                {config, "localhost:5000/a/b@" + target, "localhost:5000/a/b:c"},
		"registry.k8s.io/pause@" + target:     {config, "registry.k8s.io/pause@" + target},
		"registry.k8s.io/pause:3.9@" + target: {config, "registry.k8s.io/pause@" + target},
	} {
		got, err := recordNames(ref, target, config)
		if err != nil || strings.Join(got, " ") != strings.Join(want, " ") {
			t.Errorf("recordNames(%q) = %q, %v; want %q", ref, got, err, want)
		}
	}
}
