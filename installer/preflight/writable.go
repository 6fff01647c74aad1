package preflight

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"airlift/installer/host"
	"airlift/installer/render"
)

// dirWritable requires every directory that files are written to to be on a file system that is
// writable, and the directories of binaries to be on a file system that allows execution.
func (s *subject) dirWritable(context.Context) []Problem {
	dirs := s.configDirs()
	for _, space := range s.Disk {
		dirs = append(dirs, space.Path)
	}
	var binaries []string
	for _, b := range s.Binaries {
		binaries = append(binaries, filepath.Dir(b.Path))
	}
	found := s.flexVolumeDir()
	return slices.Concat(found,
		s.mountedWith(unix.ST_RDONLY, dirs, "mounted read-only, and files must be written to %s", "mount -o remount,rw %[1]s, or mount a writable file system at %[2]s"),
		s.mountedWith(unix.ST_NOEXEC, binaries, "mounted noexec, and binaries in %s must be executable", "mount -o remount,exec %[1]s, or mount a file system without noexec at %[2]s"))
}

// flexVolumeDir requires that the controller manager's mount of flex volume plugins exists or can be
// created. On hosts with a read-only /usr it can be elsewhere.
func (s *subject) flexVolumeDir() []Problem {
	dir := render.FlexVolumeDir(s.Config)
	if s.Role == Join || dir == "" {
		return nil
	}
	existing := s.existing(dir)
	if s.hostPath(existing) == filepath.Clean(dir) || !hasFlag(existing, unix.ST_RDONLY) {
		return nil
	}
	return Fail("use another directory: in the configuration, set flex-volume-plugin-dir in controllerManager.extraArgs and volumePluginDir in KubeletConfiguration",
		"the controller manager mounts %s, which does not exist, and the file system there is read-only", dir)
}

// mountedWith returns a finding for each mount point with a flag that has some of
// the directories.
func (s *subject) mountedWith(flag int64, dirs []string, message, fix string) []Problem {
	var mounts []string
	within := map[string][]string{}
	for _, dir := range slices.Compact(slices.Sorted(slices.Values(dirs))) {
		existing := s.existing(dir)
		if dir == "" || !hasFlag(existing, flag) {
			continue
		}
		mount := s.hostPath(topmost(existing, func(up string) bool { return hasFlag(up, flag) }))
		if within[mount] == nil {
			mounts = append(mounts, mount)
		}
		within[mount] = append(within[mount], dir)
	}
	var found []Problem
	for _, m := range mounts {
		found = append(found, Fail(fmt.Sprintf(fix, m, within[m][0]), "the file system at %s is "+message, m, strings.Join(within[m], ", "))...)
	}
	return found
}

// ReadOnly reports whether a directory, or the closest one above that exists, is on a file system that is mounted read-only.
func ReadOnly(h *host.Host, dir string) bool {
	s := &subject{host: h}
	return hasFlag(s.existing(dir), unix.ST_RDONLY)
}

// hasFlag reports whether the mount that has path has a flag of statfs(2).
func hasFlag(path string, flag int64) bool {
	var st unix.Statfs_t
	return unix.Statfs(path, &st) == nil && int64(st.Flags)&flag != 0
}

// topmost returns the topmost parent directory of dir on the same device for which also returns
// true, or dir itself. A bind mount of a directory has the device of the file system around it.
func topmost(dir string, also func(up string) bool) string {
	var here unix.Stat_t
	if unix.Stat(dir, &here) != nil {
		return dir
	}
	for dir != filepath.Dir(dir) {
		var up unix.Stat_t
		if unix.Stat(filepath.Dir(dir), &up) != nil || up.Dev != here.Dev || !also(filepath.Dir(dir)) {
			break
		}
		dir = filepath.Dir(dir)
	}
	return dir
}

// hostPath is a path of this machine as a path of the host.
func (s *subject) hostPath(path string) string {
	if rest, err := filepath.Rel(s.host.Path("/"), path); err == nil && !strings.HasPrefix(rest, "..") {
		return filepath.Join("/", rest)
	}
	return path
}
