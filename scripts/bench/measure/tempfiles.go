package measure

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"airlift/scripts/lab"
)

// TempFiles records, with fanotify, the files and directories that the command under Gauge
// creates and removes again on the host's disk, in /run or in /dev/shm. This slows the host
// down, so no times are measured in the same run.
//
// It does not see unnamed files (O_TMPFILE, memfd). A Disk sees the blocks of the former,
// and gauge the pages of the latter.
type TempFiles struct {
	root   string
	fd     int
	mounts []mountPoint

	gauge   map[int32]bool   // whether a process runs under gauge
	made    map[string]int64 // path on the host => size when it was last closed
	renamed map[string]bool  // renamed to its final name
	stop    chan struct{}
	done    chan error
}

type mountPoint struct {
	path string // on the host
	fd   int    // to open its files by handle
	fsid [8]byte
}

// WatchTempFiles starts recording.
func WatchTempFiles(h *lab.Host) (*TempFiles, error) {
	root, err := h.Root()
	if err != nil {
		return nil, err
	}
	fd, err := unix.FanotifyInit(unix.FAN_CLASS_NOTIF|unix.FAN_CLOEXEC|unix.FAN_NONBLOCK|unix.FAN_UNLIMITED_QUEUE|unix.FAN_REPORT_DFID_NAME, unix.O_RDONLY)
	if err != nil {
		return nil, fmt.Errorf("watching files of %s: %w", h.Name, err)
	}
	p := &TempFiles{root: root, fd: fd, gauge: map[int32]bool{}, made: map[string]int64{}, renamed: map[string]bool{},
		stop: make(chan struct{}), done: make(chan error, 1)}
	for _, fs := range fileSystems {
		if err := p.mark(fs); err != nil {
			return nil, errors.Join(fmt.Errorf("watching %s of %s: %w", fs, h.Name, err), p.close())
		}
	}
	go func() { p.done <- p.read() }()
	return p, nil
}

func (p *TempFiles) mark(fs string) error {
	path := filepath.Join(p.root, fs)
	const events = unix.FAN_CREATE | unix.FAN_CLOSE_WRITE | unix.FAN_MOVED_FROM | unix.FAN_MOVED_TO | unix.FAN_ONDIR
	if err := unix.FanotifyMark(p.fd, unix.FAN_MARK_ADD|unix.FAN_MARK_FILESYSTEM, events, unix.AT_FDCWD, path); err != nil {
		return err
	}
	var s unix.Statfs_t
	if err := unix.Statfs(path, &s); err != nil {
		return err
	}
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	m := mountPoint{path: fs, fd: fd}
	binary.NativeEndian.PutUint32(m.fsid[:], uint32(s.Fsid.Val[0]))
	binary.NativeEndian.PutUint32(m.fsid[4:], uint32(s.Fsid.Val[1]))
	p.mounts = append(p.mounts, m)
	return nil
}

// Removed has the files and directories that a command created and removed.
type Removed struct {
	Paths []string
	Bytes int64
}

// Stop ends the recording. Created files that no longer exist were temporary.
func (p *TempFiles) Stop() (Removed, error) {
	close(p.stop)
	err := <-p.done
	var removed Removed
	for path, size := range p.made {
		if p.renamed[path] {
			continue
		}
		if _, statErr := os.Lstat(filepath.Join(p.root, path)); errors.Is(statErr, os.ErrNotExist) {
			removed.Paths = append(removed.Paths, path)
			removed.Bytes += size
		}
	}
	slices.Sort(removed.Paths)
	return removed, errors.Join(err, p.close())
}

func (p *TempFiles) close() error {
	for _, m := range p.mounts {
		unix.Close(m.fd)
	}
	return unix.Close(p.fd)
}

// read reads events until it is stopped and none is left.
func (p *TempFiles) read() error {
	buffer := make([]byte, 1<<18)
	for {
		n, err := unix.Read(p.fd, buffer)
		switch {
		case err == unix.EINTR:
		case err == unix.EAGAIN:
			select {
			case <-p.stop:
				return nil
			default:
			}
			const ms = 20
			if _, err := unix.Poll([]unix.PollFd{{Fd: int32(p.fd), Events: unix.POLLIN}}, ms); err != nil && err != unix.EINTR {
				return fmt.Errorf("waiting for file events: %w", err)
			}
		case err != nil:
			return fmt.Errorf("reading file events: %w", err)
		default:
			if err := p.events(buffer[:n]); err != nil {
				return err
			}
		}
	}
}

// events parses the result of one read: fanotify(7), "Reading fanotify events".
func (p *TempFiles) events(b []byte) error {
	const metadata = 24
	for len(b) >= metadata {
		size := int(binary.NativeEndian.Uint32(b))
		mask := binary.NativeEndian.Uint64(b[8:])
		pid := int32(binary.NativeEndian.Uint32(b[20:]))
		if size < metadata || size > len(b) {
			return errors.New("reading file events: invalid size")
		}
		// The process that renamed a file may have ended, so its cgroup may be unknown. The
		// rename still counts.
		if !p.gauged(pid) {
			mask &= unix.FAN_MOVED_FROM
		}
		if mask != 0 {
			if path, ok := p.path(b[metadata:size]); ok {
				p.event(mask, path)
			}
		}
		b = b[size:]
	}
	return nil
}

func (p *TempFiles) event(mask uint64, path string) {
	if mask&(unix.FAN_CREATE|unix.FAN_MOVED_TO) != 0 {
		p.made[path], p.renamed[path] = max(p.made[path], 0), false
	}
	if mask&unix.FAN_CLOSE_WRITE != 0 {
		if info, err := os.Lstat(filepath.Join(p.root, path)); err == nil {
			p.made[path] = max(p.made[path], info.Size())
		}
	}
	if mask&unix.FAN_MOVED_FROM != 0 {
		p.renamed[path] = true
	}
}

// gauged reports whether a process is the command or one of its children.
func (p *TempFiles) gauged(pid int32) bool {
	known, ok := p.gauge[pid]
	if !ok {
		groups, _ := os.ReadFile(filepath.Join("/proc", strconv.Itoa(int(pid)), "cgroup"))
		known = strings.Contains(string(groups), "/"+GaugeGroup)
		p.gauge[pid] = known
	}
	return known
}

// path returns the path of an event on the host: a directory by its handle, and a name in
// it.
func (p *TempFiles) path(info []byte) (string, bool) {
	const header, fsid, handle = 4, 8, 8 // followed by the handle
	if len(info) < header+fsid+handle || info[0] != unix.FAN_EVENT_INFO_TYPE_DFID_NAME {
		return "", false
	}
	id, rest := [8]byte(info[header:]), info[header+fsid:]
	size := int(binary.NativeEndian.Uint32(rest))
	kind := int32(binary.NativeEndian.Uint32(rest[4:]))
	if len(rest) < handle+size {
		return "", false
	}
	name, _, _ := bytes.Cut(rest[handle+size:], []byte{0})
	for _, m := range p.mounts {
		if m.fsid != id {
			continue
		}
		fd, err := unix.OpenByHandleAt(m.fd, unix.NewFileHandle(kind, rest[handle:handle+size]), unix.O_PATH|unix.O_CLOEXEC)
		if err != nil {
			return "/(a removed directory)/" + string(name), true
		}
		defer unix.Close(fd)
		dir, err := os.Readlink(filepath.Join("/proc/self/fd", strconv.Itoa(fd)))
		return filepath.Join(dir, string(name)), err == nil
	}
	return "", false
}
