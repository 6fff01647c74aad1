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

// A Passing watches for files that come and go, by fanotify: every file and
// folder that the command under Gauge makes anywhere on the host's disk and in
// its /run and /dev/shm. It costs the host time, so nothing is timed meanwhile.
//
// Files without a name (O_TMPFILE, memfd) are not seen by it; a Disk sees the
// blocks of the first, gauge the pages of the second.
type Passing struct {
	root   string
	fd     int
	mounts []mountPoint

	gauge map[int32]bool   // whether a process is under gauge
	made  map[string]int64 // path on the host: its size when it was last closed
	moved map[string]bool  // got another name, and is what it was to be
	stop  chan struct{}
	done  chan error
}

type mountPoint struct {
	path string // on the host
	fd   int    // to open its files by handle
	fsid [8]byte
}

// WatchPassing begins.
func WatchPassing(h *lab.Host) (*Passing, error) {
	root, err := h.Root()
	if err != nil {
		return nil, err
	}
	fd, err := unix.FanotifyInit(unix.FAN_CLASS_NOTIF|unix.FAN_CLOEXEC|unix.FAN_NONBLOCK|unix.FAN_UNLIMITED_QUEUE|unix.FAN_REPORT_DFID_NAME, unix.O_RDONLY)
	if err != nil {
		return nil, fmt.Errorf("watching files of %s: %w", h.Name, err)
	}
	p := &Passing{root: root, fd: fd, gauge: map[int32]bool{}, made: map[string]int64{}, moved: map[string]bool{},
		stop: make(chan struct{}), done: make(chan error, 1)}
	for _, fs := range fileSystems {
		if err := p.mark(fs); err != nil {
			return nil, errors.Join(fmt.Errorf("watching %s of %s: %w", fs, h.Name, err), p.close())
		}
	}
	go func() { p.done <- p.read() }()
	return p, nil
}

func (p *Passing) mark(fs string) error {
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

// Passed are the files and folders that a command made and that are gone.
type Passed struct {
	Paths []string
	Bytes int64
}

// Gone ends the watching. What was made and is gone now came and went.
func (p *Passing) Gone() (Passed, error) {
	close(p.stop)
	err := <-p.done
	var passed Passed
	for path, size := range p.made {
		if p.moved[path] {
			continue
		}
		if _, statErr := os.Lstat(filepath.Join(p.root, path)); errors.Is(statErr, os.ErrNotExist) {
			passed.Paths = append(passed.Paths, path)
			passed.Bytes += size
		}
	}
	slices.Sort(passed.Paths)
	return passed, errors.Join(err, p.close())
}

func (p *Passing) close() error {
	for _, m := range p.mounts {
		unix.Close(m.fd)
	}
	return unix.Close(p.fd)
}

// read takes events until it is told to stop and none is left.
func (p *Passing) read() error {
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

// events takes what one read returned: fanotify(7), "Reading fanotify events".
func (p *Passing) events(b []byte) error {
	const metadata = 24
	for len(b) >= metadata {
		size := int(binary.NativeEndian.Uint32(b))
		mask := binary.NativeEndian.Uint64(b[8:])
		pid := int32(binary.NativeEndian.Uint32(b[20:]))
		if size < metadata || size > len(b) {
			return errors.New("reading file events: their size makes no sense")
		}
		// Who moved a file may be gone already, and then nobody's; that it has
		// moved is so all the same.
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

func (p *Passing) event(mask uint64, path string) {
	if mask&(unix.FAN_CREATE|unix.FAN_MOVED_TO) != 0 {
		p.made[path], p.moved[path] = max(p.made[path], 0), false
	}
	if mask&unix.FAN_CLOSE_WRITE != 0 {
		if info, err := os.Lstat(filepath.Join(p.root, path)); err == nil {
			p.made[path] = max(p.made[path], info.Size())
		}
	}
	if mask&unix.FAN_MOVED_FROM != 0 {
		p.moved[path] = true
	}
}

// gauged says whether a process is the command's or a child of it.
func (p *Passing) gauged(pid int32) bool {
	known, ok := p.gauge[pid]
	if !ok {
		groups, _ := os.ReadFile(filepath.Join("/proc", strconv.Itoa(int(pid)), "cgroup"))
		known = strings.Contains(string(groups), "/"+GaugeGroup)
		p.gauge[pid] = known
	}
	return known
}

// path returns what an event is about, as a path on the host: a folder by its
// handle, and a name in it.
func (p *Passing) path(info []byte) (string, bool) {
	const header, fsid, handle = 4, 8, 8 // and the handle's own bytes
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
			return "/(a folder that is gone)/" + string(name), true
		}
		defer unix.Close(fd)
		dir, err := os.Readlink(filepath.Join("/proc/self/fd", strconv.Itoa(fd)))
		return filepath.Join(dir, string(name)), err == nil
	}
	return "", false
}
