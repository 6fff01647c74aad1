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
// in the host syncs. And as in a small machine, little may be waiting to be
// written: the device's share of dirty pages is limited, too.
type SlowDisk struct {
	Dir string // where to put files

	device string // "7:3"
}

const (
	slowDiskSize = 24 << 30 // sparse
	// maxDirty is what may wait to be written, in bytes: the kernel's default
	// of 20 percent of what is available, in a machine with 1 GB to spare.
	maxDirty = 200 << 20

	throttle = "/sys/fs/cgroup/blkio/blkio.throttle."
)

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
	var stat unix.Stat_t
	if err := unix.Stat(s.Dir, &stat); err != nil {
		return nil, errors.Join(fmt.Errorf("making a slow disk: %w", err), s.Remove())
	}
	s.device = fmt.Sprintf("%d:%d", unix.Major(stat.Dev), unix.Minor(stat.Dev))
	return s, nil
}

// Limit makes it slow: bytes a second, each way.
func (s *SlowDisk) Limit(bytesPerSecond int) error {
	if err := s.write("strict_limit", "1"); err != nil {
		return err
	}
	if err := s.write("max_bytes", strconv.Itoa(maxDirty)); err != nil {
		return err
	}
	return s.limit(bytesPerSecond)
}

func (s *SlowDisk) limit(bytesPerSecond int) error {
	for _, way := range []string{"write_bps_device", "read_bps_device"} {
		if err := os.WriteFile(throttle+way, []byte(s.device+" "+strconv.Itoa(bytesPerSecond)), 0o644); err != nil {
			return fmt.Errorf("limiting the slow disk: %w", err)
		}
	}
	return nil
}

func (s *SlowDisk) write(setting, value string) error {
	if err := os.WriteFile(filepath.Join("/sys/class/bdi", s.device, setting), []byte(value), 0o644); err != nil {
		return fmt.Errorf("limiting the slow disk: %w", err)
	}
	return nil
}

// Remove makes it fast again and unmounts and deletes it. The kernel's settings
// of a loop device outlive what it is used for, so they are put back.
func (s *SlowDisk) Remove() error {
	var errs []error
	if s.device != "" {
		errs = append(errs, s.limit(0), s.write("strict_limit", "0"), s.write("max_ratio", "100"))
	}
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
