package doctor

import (
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// A disk is a mounted file system that the node writes to.
type disk struct {
	mount       string
	free, total uint64 // bytes
	inodesFree  uint64
	inodes      uint64 // 0 if they are not limited
	readOnly    bool
}

// full reports whether less than one percent is free.
func (d disk) full() bool { return d.total > 0 && d.free*100 < d.total }

// noInodes reports whether less than one percent of the inodes is free.
func (d disk) noInodes() bool { return d.inodes > 0 && d.inodesFree*100 < d.inodes }

// nodeDirs are the directories that a node writes to.
var nodeDirs = []string{"/etc/kubernetes", "/var/lib", "/var/log", "/run", "/tmp", "/opt/cni"}

// readDisks reads the free space of the file systems that nodeDirs are on, and of file systems that
// are mounted below them, without the volumes of pods.
func (d *Doctor) readDisks() (list []disk) {
	mounts, err := mountinfo.GetMounts(func(m *mountinfo.Info) (skip, stop bool) {
		pod := strings.Contains(m.Mountpoint, "/kubelet/pods/") || strings.Contains(m.Mountpoint, "/containerd/") && strings.HasPrefix(m.Mountpoint, "/run/") || strings.HasPrefix(m.Mountpoint, "/run/netns") || strings.HasPrefix(m.Mountpoint, "/run/credentials")
		concerns := slices.ContainsFunc(nodeDirs, func(dir string) bool { return below(m.Mountpoint, dir) || below(dir, m.Mountpoint) })
		return pod || !concerns || slices.Contains([]string{"proc", "sysfs", "nsfs", "devtmpfs", "squashfs", "iso9660", "autofs"}, m.FSType), false
	})
	if err != nil {
		return nil
	}
	seen := map[string]bool{}
	for _, m := range mounts {
		var st unix.Statfs_t
		if seen[m.Mountpoint] || unix.Statfs(m.Mountpoint, &st) != nil {
			continue
		}
		seen[m.Mountpoint] = true
		list = append(list, disk{
			mount: m.Mountpoint, free: st.Bavail * uint64(st.Bsize), total: st.Blocks * uint64(st.Bsize),
			inodesFree: st.Ffree, inodes: st.Files, readOnly: st.Flags&unix.ST_RDONLY != 0,
		})
	}
	return list
}

// below reports whether a path is a directory or in it.
func below(path, dir string) bool {
	return path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}
