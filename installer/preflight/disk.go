package preflight

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// diskSpace adds up what will be written to each file system, and compares it
// with the free space there.
func (s *subject) diskSpace(context.Context) (found []Problem) {
	var disks []*disk
	for _, space := range s.Disk {
		dir := s.existing(space.Path)
		var st unix.Stat_t
		if err := unix.Stat(dir, &st); err != nil {
			found = append(found, Fail("make it readable for root", "checking the file system of %s: %v", space.Path, err)...)
			continue
		}
		i := slices.IndexFunc(disks, func(d *disk) bool { return d.device == st.Dev })
		if i < 0 {
			d := &disk{device: st.Dev, mount: s.hostPath(topmost(dir, func(string) bool { return true }))}
			if err := unix.Statfs(dir, &d.Statfs_t); err != nil {
				found = append(found, Fail("make it readable for root", "reading the free space of %s: %v", space.Path, err)...)
				continue
			}
			disks, i = append(disks, d), len(disks)
		}
		disks[i].add(space)
	}
	for _, d := range disks {
		found = append(found, d.findings()...)
	}
	return found
}

// CheckSpace runs the check DiskSpace alone.
func CheckSpace(ctx context.Context, root string, disk ...Space) (Report, error) {
	return run(ctx, Target{Root: root, Disk: disk}, nil, func(s *subject) []check { return []check{{"DiskSpace", s.diskSpace}} })
}

// A disk is a mounted file system and what will be written to it.
type disk struct {
	unix.Statfs_t
	device uint64
	mount  string
	need   Space // all together
	parts  []Space
}

func (d *disk) add(space Space) {
	d.need.Bytes += space.Bytes
	d.need.Files += space.Files
	d.need.Grows += space.Grows
	d.need.KeepFree = max(d.need.KeepFree, space.KeepFree)
	if i := slices.IndexFunc(d.parts, func(p Space) bool { return p.Path == space.Path }); i >= 0 {
		d.parts[i].Bytes += space.Bytes
		return
	}
	d.parts = append(d.parts, space)
}

func (d *disk) findings() []Problem {
	free, total := d.Bavail*uint64(d.Bsize), d.Blocks*uint64(d.Bsize)
	// File systems without a fixed number of inodes report 0.
	limited := d.Files > 0
	switch {
	case d.need.Bytes > free:
		return Fail("free space there, or mount a larger disk",
			"the file system at %s has %d MB free, and %d MB are needed: %s", d.mount, free/1e6, megabytes(d.need.Bytes), d.list())
	case limited && d.need.Files > d.Ffree:
		return Fail("remove files there, or use a file system with more inodes",
			"the file system at %s has %d inodes free, and at least %d are needed", d.mount, d.Ffree, d.need.Files)
	case d.need.KeepFree > 0 && (free-d.need.Bytes)*100 < total*d.need.KeepFree:
		return Warn("free space there, or change evictionHard in the kubelet's configuration",
			"%s will have %d%% of its space free: below %d%% the kubelet evicts pods and accepts no new ones", d.mount, (free-d.need.Bytes)*100/total, d.need.KeepFree)
	case d.need.KeepFree > 0 && limited && d.Ffree*100 < d.Files*inodeEviction:
		return Warn("remove files there, or use a file system with more inodes",
			"%s has %d%% of its inodes free: below %d%% the kubelet evicts pods and accepts no new ones", d.mount, d.Ffree*100/d.Files, inodeEviction)
	case d.need.Grows > free-d.need.Bytes:
		return Warn("plan for a larger disk there",
			"the file system at %s will have %d MB free, and etcd's database may grow by %d MB", d.mount, (free-d.need.Bytes)/1e6, d.need.Grows/1e6)
	}
	return nil
}

// inodeEviction is the kubelet's default for nodefs.inodesFree, in percent.
const inodeEviction = 5

// list describes how much space each directory needs.
func (d *disk) list() string {
	var list []string
	for _, p := range d.parts {
		if p.Bytes > 0 {
			list = append(list, fmt.Sprintf("%d MB in %s", megabytes(p.Bytes), p.Path))
		}
	}
	return strings.Join(list, ", ")
}

func megabytes(n uint64) uint64 { return (n + 1e6 - 1) / 1e6 }

// existing returns the path or its nearest existing parent directory. New files below the path will
// be on its file system. It also follows links whose targets do not exist yet.
func (s *subject) existing(path string) string {
	for range 40 { // the kernel's limit for links
		full := s.host.Path(path)
		if _, err := os.Stat(full); err == nil {
			if resolved, err := filepath.EvalSymlinks(full); err == nil {
				return resolved
			}
			return full
		}
		if target, err := os.Readlink(full); err == nil {
			if !filepath.IsAbs(target) {
				target = filepath.Join(filepath.Dir(path), target)
			}
			path = target
			continue
		}
		if path == filepath.Dir(path) {
			return full
		}
		path = filepath.Dir(path)
	}
	return s.host.Path("/")
}
