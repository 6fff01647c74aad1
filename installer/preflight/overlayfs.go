package preflight

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"slices"
	"strings"

	"airlift/installer/host/detection"

	"golang.org/x/sys/unix"
)

// overlayfs requires a kernel with overlayfs, and, for the bundle's containerd, a
// file system that overlayfs can write its layers to. An existing containerd has
// checked its own.
func (s *subject) overlayfs(context.Context) []Problem {
	if s.RuntimeInUse && s.Snapshotter != "overlayfs" {
		return nil
	}
	if !s.kernelHasOverlayfs() {
		return Fail("use a kernel that has it (CONFIG_OVERLAY_FS), or modprobe overlay on the machine that runs this container",
			"the kernel has no overlayfs, which container images need")
	}
	if s.RuntimeInUse || s.Images == "" {
		return nil
	}
	dir := s.existing(s.Images)
	if err := holdsLayers(dir); err != nil {
		mount := s.hostPath(topmost(dir, func(string) bool { return true }))
		return Fail("mount a file system at "+s.Images+" that it can use, such as ext4, btrfs, or xfs with ftype=1",
			"overlayfs cannot write image layers to %s: the file system at %s %v", s.Images, mount, err)
	}
	return nil
}

func (s *subject) kernelHasOverlayfs() bool {
	data, err := os.ReadFile(s.host.Path("/proc/filesystems"))
	if err == nil && slices.Contains(strings.Fields(string(data)), "overlay") {
		return true
	}
	release, err := detection.Kernel()
	if err != nil {
		return false
	}
	list, err := os.ReadFile(s.host.Path("/lib/modules/" + release + "/modules.dep"))
	return err == nil && strings.Contains(string(list), "/overlay.ko")
}

// noUpper are file systems that the kernel refuses as the upper layer of overlayfs
// (fs/overlayfs/super.c: names that can change on a server, or are redirected).
var noUpper = map[int64]string{
	unix.OVERLAYFS_SUPER_MAGIC: "is overlayfs itself",
	unix.NFS_SUPER_MAGIC:       "is NFS",
	unix.CIFS_SUPER_MAGIC:      "is a network share",
	unix.SMB2_SUPER_MAGIC:      "is a network share",
	unix.V9FS_MAGIC:            "is a directory of the machine that runs this one (9p)",
}

// holdsLayers returns why overlayfs cannot write layers below a directory.
func holdsLayers(dir string) error {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return fmt.Errorf("cannot be read: %w", err)
	}
	if reason, refused := noUpper[int64(st.Type)]; refused {
		return fmt.Errorf("%s", reason)
	}
	stores, err := storesTypes(dir)
	if err != nil {
		return fmt.Errorf("cannot be read: %w", err)
	}
	if !stores {
		return fmt.Errorf("does not store the types of files in its directories (d_type; xfs with ftype=0 and ext4 without filetype do not)")
	}
	return nil
}

// storesTypes reports whether a file system stores the type of each file in its
// directory entry. containerd does not use overlayfs without it. An empty directory
// has the entry "." too.
func storesTypes(path string) (bool, error) {
	// A struct linux_dirent64 has its length at byte 16 and the type at byte 18.
	const length, fileType = 16, 18
	d, err := os.Open(path)
	if err != nil {
		return false, err
	}
	defer d.Close()
	entries := make([]byte, 4096)
	n, err := unix.Getdents(int(d.Fd()), entries)
	if err != nil {
		return false, os.NewSyscallError("getdents64", err)
	}
	for entries = entries[:n]; len(entries) > fileType; entries = entries[binary.NativeEndian.Uint16(entries[length:]):] {
		if entries[fileType] == unix.DT_UNKNOWN {
			return false, nil
		}
	}
	return true, nil
}
