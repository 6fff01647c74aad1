package preflight

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"airlift/scripts/fixtures/rig"
)

// bind mounts a directory of the host on itself with flags of mount(2).
func bind(t *testing.T, s *subject, dir string, flags uintptr) {
	t.Helper()
	rig.Root(t)
	target := s.host.Path(dir)
	if err := os.MkdirAll(target, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount(target, target, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(target, 0); err != nil {
			t.Error(err)
		}
	})
	if err := unix.Mount("", target, "", unix.MS_BIND|unix.MS_REMOUNT|flags, ""); err != nil {
		t.Fatal(err)
	}
}

// A file system that is full of files which exist already may be read-only, and one
// without binaries may be noexec.
func TestDirWritableOnlyWhereNeeded(t *testing.T) {
	s := healthy(t)
	bind(t, s, "/usr/local", unix.MS_RDONLY)
	bind(t, s, "/var/lib/containerd", unix.MS_NOEXEC)
	s.Disk = []Space{{Path: "/var/lib/containerd", Bytes: 1}} // no binary is missing in /usr/local
	if found := s.runOne(t, "DirWritable"); len(found) > 0 {
		t.Errorf("%+v", found)
	}
}
