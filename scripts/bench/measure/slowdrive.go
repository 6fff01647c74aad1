package measure

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"airlift/scripts/lab"
)

// throttle is the prefix of the files with a cgroup's limits.
const throttle = "/sys/fs/cgroup/blkio/blkio.throttle."

// A SlowDrive is a drive with one file and a limited rate, like a USB drive. It is a loop
// device that does not use this machine's page cache, with a limit in the blkio cgroup of
// the commands on a host.
type SlowDrive struct {
	dir  string
	loop string // "/dev/loop3"
	rate int    // bytes per second
}

// NewSlowDrive creates a drive with a copy of file, in a directory that it creates.
func NewSlowDrive(ctx context.Context, dir, file string, bytesPerSecond int) (*SlowDrive, error) {
	if _, err := os.Stat(throttle + "read_bps_device"); err != nil {
		return nil, fmt.Errorf("making a slow drive: it needs cgroup version 1: %w", err)
	}
	d := &SlowDrive{dir: dir, rate: bytesPerSecond}
	if err := d.make(ctx, file); err != nil {
		return nil, errors.Join(fmt.Errorf("making a slow drive: %w", err), d.Remove())
	}
	return d, nil
}

func (d *SlowDrive) make(ctx context.Context, file string) error {
	content := filepath.Join(d.dir, "content")
	if err := os.MkdirAll(content, 0o755); err != nil {
		return err
	}
	size, err := copyFile(file, filepath.Join(content, filepath.Base(file)))
	if err != nil {
		return err
	}
	image := filepath.Join(d.dir, "drive.img")
	for _, argv := range [][]string{
		{"truncate", "--size", strconv.FormatInt(size+size/8+32<<20, 10), image},
		{"mkfs.ext4", "-q", "-m", "0", "-O", "^has_journal", "-d", content, image},
		{"sync", image},
	} {
		if err := run(ctx, argv...); err != nil {
			return err
		}
	}
	out, err := exec.CommandContext(ctx, "losetup", "--find", "--show", "--direct-io=on", image).Output()
	if err != nil {
		return fmt.Errorf("running losetup: %w", err)
	}
	d.loop = string(bytes.TrimSpace(out))
	return nil
}

func copyFile(from, to string) (size int64, err error) {
	in, err := os.Open(from)
	if err != nil {
		return 0, err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	if err != nil {
		return 0, err
	}
	size, err = io.Copy(out, in)
	return size, errors.Join(err, out.Close())
}

// Plug mounts the drive at a directory of a host. The page cache has nothing of it.
func (d *SlowDrive) Plug(ctx context.Context, h *lab.Host, at string) error {
	var stat unix.Stat_t
	if err := unix.Stat(d.loop, &stat); err != nil {
		return fmt.Errorf("plugging in a drive: %w", err)
	}
	script := fmt.Sprintf(`mkdir -p %[3]s; mknod %[3]s.device b %[1]d %[2]d; mount -o ro %[3]s.device %[3]s
		cgroup=$(sed -n 's/^[0-9]*:[^:]*\bblkio\b[^:]*://p' /proc/self/cgroup)
		echo "%[1]d:%[2]d %[4]d" > "/sys/fs/cgroup/blkio$cgroup/blkio.throttle.read_bps_device"`,
		unix.Major(stat.Rdev), unix.Minor(stat.Rdev), at, d.rate)
	_, err := h.Output(ctx, "sh", "-ec", script)
	return err
}

// Unplug unmounts the drive, which also removes it from the host's page cache.
func (d *SlowDrive) Unplug(ctx context.Context, h *lab.Host, at string) error {
	_, err := h.Output(ctx, "sh", "-ec", fmt.Sprintf("umount %[1]s; rm %[1]s.device; rmdir %[1]s", at))
	return err
}

// Remove deletes the drive.
func (d *SlowDrive) Remove() error {
	var errs []error
	if d.loop != "" {
		if out, err := exec.Command("losetup", "--detach", d.loop).CombinedOutput(); err != nil {
			errs = append(errs, fmt.Errorf("removing a drive: %w: %s", err, strings.TrimSpace(string(out))))
		}
	}
	return errors.Join(append(errs, os.RemoveAll(d.dir))...)
}

func run(ctx context.Context, argv ...string) error {
	if out, err := exec.CommandContext(ctx, argv[0], argv[1:]...).CombinedOutput(); err != nil {
		return fmt.Errorf("running %s: %w: %s", strings.Join(argv, " "), err, bytes.TrimSpace(out))
	}
	return nil
}
