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

// A SlowDisk is a folder on a file system that takes and gives only so many
// bytes a second, for the files behind hosts' disks (lab.Options.Disks).
//
// It is an ext4 on a loop device with a blkio limit. In cgroup v1 such a limit
// is not for a device but for what one cgroup does to it, and buffered writes
// are done by the kernel, which is in the root cgroup. So a host's own loop
// device, whose file is on this one, sends everything that it writes through the
// kernel's page cache and the one limit of the root cgroup: also what a process
// in the host syncs.
//
// Between the two there is what a drive has, too, a small cache and a short
// queue. Without bounds, a process that syncs one block waits for all that others
// have written: for seconds. With these it waits some 140 ms while somebody else
// writes as fast as the disk goes. And the host's kernel holds as few dirty pages
// as one with little memory.
type SlowDisk struct {
	Dir string // where to put files

	under   device
	limited []device // hosts' disks and the one under them
}

const (
	slowDiskSize = 24 << 30 // sparse
	// maxDirty is what may wait in a host to be written, in bytes: the kernel's
	// default of 20 percent of what is available, in a machine with 1 GB to
	// spare.
	maxDirty = 200 << 20
	// driveCache, queueLength and requestKB are the drive's, and the queue's
	// to it.
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

// shorten bounds the queue of a device and what may wait for it.
func (d device) shorten(dirty int) error {
	return d.set([][2]string{
		{"bdi/strict_limit", "1"}, {"bdi/max_bytes", strconv.Itoa(dirty)},
		{"queue/nr_requests", strconv.Itoa(queueLength)}, {"queue/max_sectors_kb", strconv.Itoa(requestKB)},
	})
}

// restore undoes that. The settings of a loop device outlive its use.
func (d device) restore() error {
	return d.set([][2]string{
		{"bdi/strict_limit", "0"}, {"bdi/max_ratio", "100"},
		{"queue/nr_requests", "128"}, {"queue/max_sectors_kb", "1280"}, // Linux' defaults for them
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

// throttle limits both ways to bytes a second; 0 is no limit.
func (d device) throttle(bytesPerSecond int) error {
	for _, way := range []string{"write_bps_device", "read_bps_device"} {
		if err := os.WriteFile(throttle+way, []byte(string(d)+" "+strconv.Itoa(bytesPerSecond)), 0o644); err != nil {
			return fmt.Errorf("making a disk slow, or fast again: %w", err)
		}
	}
	return nil
}

// NewSlowDisk makes one in a folder that it makes. It is not slow yet.
func NewSlowDisk(ctx context.Context, dir string) (*SlowDisk, error) {
	if _, err := os.Stat(throttle + "write_bps_device"); err != nil {
		return nil, fmt.Errorf("making a slow disk: it needs cgroup version 1: %w", err)
	}
	s := &SlowDisk{Dir: filepath.Join(dir, "files")}
	if err := os.MkdirAll(s.Dir, 0o700); err != nil {
		return nil, err
	}
	image := filepath.Join(dir, "disk.img")
	for _, argv := range [][]string{
		{"truncate", "--size", strconv.Itoa(slowDiskSize), image},
		{"mkfs.ext4", "-q", "-m", "0", "-O", "^has_journal", image},
		// Else the kernel would go on making the file system in the background.
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

// Limit makes it slow, for the hosts whose root directories on this machine are
// given: bytes a second, each way.
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

// Unlimit makes it fast again.
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
	// Not mounted, if making it failed.
	if err := unix.Unmount(s.Dir, 0); err != nil && err != unix.EINVAL {
		errs = append(errs, fmt.Errorf("unmounting the slow disk: %w", err))
	} else {
		errs = append(errs, os.RemoveAll(filepath.Dir(s.Dir)))
	}
	return errors.Join(errs...)
}

// Settle has a file system of this machine write everything out, and the kernel
// stop making what is left to make of it in the background.
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
