package preflight

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"airlift/scripts/fixtures/rig"
)

// smallDisk mounts a file system of 10 MiB on a directory of the host.
func smallDisk(t *testing.T, s *subject, dir, options string) {
	t.Helper()
	target := s.host.Path(dir)
	if err := os.MkdirAll(target, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", target, "tmpfs", 0, "size=10m"+options); err != nil {
		t.Fatalf("mounting a file system: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(target, 0); err != nil {
			t.Error(err)
		}
	})
}

func link(t *testing.T, s *subject, from, to string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(s.host.Path(from)), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(to, s.host.Path(from)); err != nil {
		t.Fatal(err)
	}
}

func TestDiskSpaceIsSummedWhereTheBytesGo(t *testing.T) {
	rig.Root(t) // to mount file systems
	const mb = 1_000_000
	for name, c := range map[string]struct {
		prepare func(t *testing.T, s *subject)
		disk    []Space
		says    []string // substrings of the one problem; none for no problem
		warning bool
	}{
		"each on a disk of its own": {
			prepare: func(t *testing.T, s *subject) {
				smallDisk(t, s, "/var/lib/containerd", "")
				smallDisk(t, s, "/var/lib/etcd", "")
			},
			disk: []Space{{Path: "/var/lib/containerd", Bytes: 6 * mb}, {Path: "/var/lib/etcd", Bytes: 6 * mb}},
		},
		"too much on a disk of its own": {
			prepare: func(t *testing.T, s *subject) { smallDisk(t, s, "/var/lib/etcd", "") },
			disk:    []Space{{Path: "/var/lib/containerd", Bytes: 6 * mb}, {Path: "/var/lib/etcd", Bytes: 11 * mb}},
			says:    []string{"the file system at /var/lib/etcd has 10 MB free", "11 MB are needed", "11 MB in /var/lib/etcd"},
		},
		"together on one disk": {
			prepare: func(t *testing.T, s *subject) { smallDisk(t, s, "/var/lib", "") },
			disk:    []Space{{Path: "/var/lib/containerd", Bytes: 6 * mb}, {Path: "/var/lib/etcd/deep/down", Bytes: 6 * mb}},
			says:    []string{"the file system at /var/lib has 10 MB free", "12 MB are needed", "6 MB in /var/lib/containerd, 6 MB in /var/lib/etcd/deep/down"},
		},
		"one directory named twice": {
			prepare: func(t *testing.T, s *subject) { smallDisk(t, s, "/usr/local", "") },
			disk:    []Space{{Path: "/usr/local/bin", Bytes: 6 * mb}, {Path: "/usr/local/bin", Bytes: 6 * mb}},
			says:    []string{"12 MB in /usr/local/bin"},
		},
		"behind a link": {
			prepare: func(t *testing.T, s *subject) {
				smallDisk(t, s, "/data", "")
				if err := os.Mkdir(s.host.Path("/data/images"), 0o755); err != nil {
					t.Fatal(err)
				}
				link(t, s, "/var/lib/containerd", "../../data/images")
			},
			disk: []Space{{Path: "/var/lib/containerd", Bytes: 11 * mb}},
			says: []string{"the file system at /data", "11 MB in /var/lib/containerd"},
		},
		"behind a link to what is not there yet": {
			prepare: func(t *testing.T, s *subject) {
				smallDisk(t, s, "/data", "")
				link(t, s, "/var/lib/containerd", "/data/images")
			},
			disk: []Space{{Path: "/var/lib/containerd/io.containerd.snapshotter.v1.overlayfs", Bytes: 6 * mb}, {Path: "/data", Bytes: 6 * mb}},
			says: []string{"the file system at /data", "12 MB are needed"},
		},
		"links in a circle": {
			prepare: func(t *testing.T, s *subject) { link(t, s, "/var/lib/containerd", "containerd") },
			disk:    []Space{{Path: "/var/lib/containerd", Bytes: 1}},
		},
		"no inodes": {
			prepare: func(t *testing.T, s *subject) { smallDisk(t, s, "/opt/cni", ",nr_inodes=5") },
			disk:    []Space{{Path: "/opt/cni/bin", Bytes: 1, Files: 5}},
			says:    []string{"the file system at /opt/cni has 4 inodes free", "at least 5 are needed"},
		},
		"so little that the kubelet evicts": {
			prepare: func(t *testing.T, s *subject) { smallDisk(t, s, "/var/lib/kubelet", "") },
			disk:    []Space{{Path: "/var/lib/kubelet", Bytes: 9_500_000, KeepFree: 10}},
			says:    []string{"/var/lib/kubelet will have 9% of its space free", "below 10%"}, warning: true,
		},
		"little room for etcd to grow": {
			prepare: func(t *testing.T, s *subject) { smallDisk(t, s, "/var/lib/etcd", "") },
			disk:    []Space{{Path: "/var/lib/etcd", Bytes: mb, Grows: 20 * mb}},
			says:    []string{"/var/lib/etcd will have 9 MB free", "may grow by 20 MB"}, warning: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := healthy(t)
			c.prepare(t, s)
			s.Disk = c.disk
			found := s.runOne(t, "DiskSpace")
			if len(c.says) == 0 {
				if len(found) > 0 {
					t.Errorf("%+v", found)
				}
				return
			}
			if len(found) != 1 || found[0].Warning != c.warning || found[0].Fix == "" {
				t.Fatalf("%+v", found)
			}
			for _, words := range c.says {
				if !strings.Contains(found[0].Message, words) {
					t.Errorf("%q is not in %q", words, found[0].Message)
				}
			}
		})
	}
}
