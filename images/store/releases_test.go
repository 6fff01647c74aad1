package store_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"airlift/scripts/fixtures/rig"
)

// A release is a containerd for the tests.
type release struct {
	name string
	bin  []string // directories with containerd, ctr, the shim and runc
}

// old reports whether it is a containerd 1.x, which distributions still have.
func (r release) old() bool { return strings.HasPrefix(r.name, "1.") }

func (r release) program(t testing.TB, name string) string {
	t.Helper()
	for _, dir := range r.bin {
		path := filepath.Join(dir, name)
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	t.Fatalf("no %s in %s", name, strings.Join(r.bin, ", "))
	return ""
}

// ours is the containerd of the bundles.
func ours(t testing.TB) release {
	t.Helper()
	return newRelease(t, bundled(t))
}

func newRelease(t testing.TB, bin []string) release {
	t.Helper()
	rel := release{bin: bin}
	out := run(t, "/", rel.program(t, "containerd"), "--version")
	rel.name = strings.TrimPrefix(strings.Fields(out)[2], "v")
	return rel
}

// onEach runs a test with every supported containerd: the bundles' containerd, and Debian's, which
// may already run on a host.
func onEach(t *testing.T, test func(t *testing.T, rel release)) {
	t.Run("bundled", func(t *testing.T) { test(t, ours(t)) })
	t.Run("debian", func(t *testing.T) { test(t, newRelease(t, rig.DebianContainerd(t))) })
}

// onEachSnapshotter is onEach with a running containerd for each snapshotter.
func onEachSnapshotter(t *testing.T, test func(t *testing.T, d *daemon)) {
	onEach(t, func(t *testing.T, rel release) {
		for _, sn := range []string{"overlayfs", "native"} {
			t.Run(sn, func(t *testing.T) { test(t, startDaemon(t, rel, sn)) })
		}
	})
}

// bundled finds the rig's build.
func bundled(t testing.TB) []string {
	t.Helper()
	var dirs []string
	for _, name := range []string{"containerd", "runc"} {
		dirs = append(dirs, filepath.Dir(rig.Component(t, "v1.29.15", name)))
	}
	return dirs
}

func run(t testing.TB, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, out)
	}
	return string(out)
}
