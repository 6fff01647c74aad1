package measure

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// A SlowDisk is a directory on a file system with limited read and write rates, for the
// files behind the hosts' disks (lab.Options.Disks).
//
// It is an ext4 on a loop device with a blkio limit. In cgroup v1 such a limit applies to
// one cgroup's use of a device, and buffered writes are done by the kernel in the root
// cgroup. A host's loop device, whose file is on this file system, sends all writes through
// the kernel's page cache and the limit of the root cgroup, also those that a process in
// the host syncs.
//
// Like a real drive, it has a small cache and a short queue. Without these limits, a
// process that syncs one block waits for all other writes, for seconds. With them it waits
// about 140 ms while another process writes at the full rate. The number of dirty pages in
// the host is limited as on a machine with little memory.
type SlowDisk struct {
	Dir string // directory for the files

	under   device
	limited []device // the hosts' disks and the disk under them
}

const (
	slowDiskSize = 24 << 30 // sparse
	// maxDirty limits the bytes in a host that wait to be written: the kernel's default
	// of 20 percent of the available memory, for 1 GB.
	maxDirty = 200 << 20
	// driveCache, queueLength and requestKB describe the drive and its queue.
	driveCache  = 8 << 20
	queueLength = 4
	requestKB   = 128

	throttle = "/sys/fs/cgroup/blkio/blkio.throttle."
)

// A device is a block device by its numbers, "7:3".
type device string

// deviceOf returns the device of the file system that is mounted on a path.
func deviceOf(path string) (device, error) {
	var stat unix.Stat_t
	if err := unix.Stat(path, &stat); err != nil {
		return "", fmt.Errorf("looking for the device of %s: %w", path, err)
	}
	return device(fmt.Sprintf("%d:%d", unix.Major(stat.Dev), unix.Minor(stat.Dev))), nil
}

// shorten limits the queue of a device and the dirty bytes for it.
func (d device) shorten(dirty int) error {
	return d.set([][2]string{
		{"bdi/strict_limit", "1"}, {"bdi/max_bytes", strconv.Itoa(dirty)},
		{"queue/nr_requests", strconv.Itoa(queueLength)}, {"queue/max_sectors_kb", strconv.Itoa(requestKB)},
	})
}

// restore undoes shorten, because a loop device keeps its parameters after use.
func (d device) restore() error {
	return d.set([][2]string{
		{"bdi/strict_limit", "0"}, {"bdi/max_ratio", "100"},
		{"queue/nr_requests", "128"}, {"queue/max_sectors_kb", "1280"}, // the defaults of Linux
	})
}

func (d device) set(settings [][2]string) error {
	for _, s := range settings {
		if err := os.WriteFile(filepath.Join("/sys/dev/block", string(d), s[0]), []byte(s[1]), 0o644); err != nil {
			return fmt.Errorf("making a disk slow, or fast again: %w", err)
		}
	}
	return nil
}

// throttle limits reads and writes, in bytes per second each; 0 means no limit.
func (d device) throttle(bytesPerSecond int) error {
	for _, way := range []string{"write_bps_device", "read_bps_device"} {
		if err := os.WriteFile(throttle+way, []byte(string(d)+" "+strconv.Itoa(bytesPerSecond)), 0o644); err != nil {
			return fmt.Errorf("making a disk slow, or fast again: %w", err)
		}
	}
	return nil
}

// NewSlowDisk creates a SlowDisk in a directory, which it creates. It has no limit yet.
func NewSlowDisk(ctx context.Context, dir string) (*SlowDisk, error) {
	if _, err := os.Stat(throttle + "write_bps_device"); err != nil {
		return nil, fmt.Errorf("limiting a disk needs cgroup version 1: %w", err)
	}
	s := &SlowDisk{Dir: filepath.Join(dir, "files")}
	if err := os.MkdirAll(s.Dir, 0o700); err != nil {
		return nil, err
	}
	image := filepath.Join(dir, "disk.img")
	for _, argv := range [][]string{
		{"truncate", "--size", strconv.Itoa(slowDiskSize), image},
		{"mkfs.ext4", "-q", "-m", "0", "-O", "^has_journal", image},
		// Otherwise the kernel would initialize the file system in the background.
		{"mount", "-o", "loop,noatime,noinit_itable", image, s.Dir},
	} {
		if err := run(ctx, argv...); err != nil {
			return nil, errors.Join(fmt.Errorf("making a slow disk: %w", err), s.Remove())
		}
	}
	var err error
	if s.under, err = deviceOf(s.Dir); err != nil {
		return nil, errors.Join(err, s.Remove())
	}
	return s, nil
}

// Limit sets the limit, in bytes per second each way, for the hosts with the given root
// directories on this machine.
func (s *SlowDisk) Limit(bytesPerSecond int, roots ...string) error {
	for _, root := range roots {
		d, err := deviceOf(root)
		if err != nil {
			return err
		}
		s.limited = append(s.limited, d)
		if err := d.shorten(maxDirty); err != nil {
			return err
		}
	}
	s.limited = append(s.limited, s.under)
	if err := s.under.shorten(driveCache); err != nil {
		return err
	}
	return s.under.throttle(bytesPerSecond)
}

// Unlimit removes the limit.
func (s *SlowDisk) Unlimit() error {
	var errs []error
	for _, d := range s.limited {
		errs = append(errs, d.restore())
	}
	if len(s.limited) > 0 {
		errs = append(errs, s.under.throttle(0))
	}
	s.limited = nil
	return errors.Join(errs...)
}

// Remove unmounts and deletes it.
func (s *SlowDisk) Remove() error {
	errs := []error{s.Unlimit()}
	// It is not mounted if NewSlowDisk failed.
	if err := unix.Unmount(s.Dir, 0); err != nil && err != unix.EINVAL {
		errs = append(errs, fmt.Errorf("unmounting the slow disk: %w", err))
	} else {
		errs = append(errs, os.RemoveAll(filepath.Dir(s.Dir)))
	}
	return errors.Join(errs...)
}

// Settle writes everything on a file system of this machine to its disk, and waits until
// the kernel has initialized the file system.
func Settle(ctx context.Context, root string) error {
	if err := run(ctx, "mount", "-o", "remount,noinit_itable", root); err != nil {
		return err
	}
	return run(ctx, "sync", "-f", root)
}

func run(ctx context.Context, argv ...string) error {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("running %s: %w: %s", strings.Join(argv, " "), err, bytes.TrimSpace(out))
	}
	return nil
}
