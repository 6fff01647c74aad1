package lab

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// Down ends every process of the lab and removes its namespaces, cgroups,
// mounts and files. It goes by the lab's name alone, so it also works on what
// a killed process left behind, and on nothing at all.
func (l *Lab) Down(ctx context.Context) error {
	if err := checkName(l.Name); err != nil {
		return err
	}
	unlock, err := lock(ctx, lockFile)
	if err != nil {
		return err
	}
	defer unlock()
	if err := down(ctx, l.Dir(), qualified(l.Name, "")); err != nil {
		return fmt.Errorf("taking lab %s down: %w", l.Name, err)
	}
	others, err := List()
	if err != nil || len(others) > 0 {
		return err
	}
	if err := returnSysctls(); err != nil {
		return err
	}
	return ignore(os.Remove(stateDir), fs.ErrNotExist)
}

// DownAll takes every lab on this machine down.
func DownAll(ctx context.Context) error {
	names, err := List()
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range names {
		errs = append(errs, (&Lab{Name: name}).Down(ctx))
	}
	return errors.Join(errs...)
}

// down removes what lives in dir, and the cgroups, network namespaces and
// nspawn's directories whose names begin with prefix.
func down(ctx context.Context, dir, prefix string) error {
	if err := endProcesses(ctx, dir, prefix); err != nil {
		return err
	}
	namespaces, err := filepath.Glob("/run/netns/" + prefix + "*")
	if err != nil {
		return err
	}
	for _, path := range namespaces {
		if err := run(ctx, "ip", "netns", "del", filepath.Base(path)); err != nil {
			return err
		}
	}
	propagated, err := filepath.Glob("/run/systemd/nspawn/propagate/" + prefix + "*")
	if err != nil {
		return err
	}
	for _, path := range propagated { // nspawn makes them and never removes them
		if err := os.Remove(path); err != nil {
			return err
		}
	}
	if err := unmountBelow(dir); err != nil {
		return err
	}
	// A program that a killed process had started may write its last file, or
	// make its last cgroup, now.
	return poll(ctx, dir+" to be empty", func() (bool, error) {
		if err := os.RemoveAll(dir); err != nil {
			return false, ignore(err, unix.ENOTEMPTY)
		}
		left, err := cgroupsOf(prefix)
		if err != nil || len(left) == 0 {
			return err == nil, err
		}
		return false, removeCgroups(ctx, left)
	})
}

// endProcesses ends everything that runs in the lab and removes its cgroups. A
// supervisor may be making them at this moment, so it looks again until there
// are none.
func endProcesses(ctx context.Context, dir, prefix string) error {
	return poll(ctx, "the processes of "+dir+" to end", func() (bool, error) {
		if err := endSupervisors(dir); err != nil {
			return false, err
		}
		cgroups, err := cgroupsOf(prefix)
		if err != nil || len(cgroups) == 0 {
			return err == nil, err
		}
		return false, removeCgroups(ctx, cgroups)
	})
}

func cgroupsOf(prefix string) ([]string, error) {
	return findCgroups(func(name string) bool { return strings.HasPrefix(name, prefix) })
}

// ignore returns err unless it is the one that does not matter.
func ignore(err, harmless error) error {
	if errors.Is(err, harmless) {
		return nil
	}
	return err
}

// endSupervisors ends scripts that run hosts. They are normally found in the
// hosts' cgroups; one that was only just started is not there yet.
func endSupervisors(dir string) error {
	cmdlines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return err
	}
	for _, path := range cmdlines {
		data, _ := os.ReadFile(path) // the process may be gone
		argv := strings.Split(strings.TrimSuffix(string(data), "\x00"), "\x00")
		if len(argv) != 3 || argv[0] != "/bin/sh" || filepath.Dir(argv[1]) != dir || filepath.Dir(argv[2]) != dir {
			continue
		}
		var pid int
		if _, err := fmt.Sscanf(path, "/proc/%d/", &pid); err != nil {
			return err
		}
		if err := ignore(unix.Kill(pid, unix.SIGKILL), unix.ESRCH); err != nil {
			return fmt.Errorf("ending process %d: %w", pid, err)
		}
	}
	return nil
}

// unmountBelow undoes every mount in dir, the innermost first. Removing files
// through a mount that was left would remove what is mounted.
func unmountBelow(dir string) error {
	mounts, err := mountinfo.GetMounts(mountinfo.PrefixFilter(dir))
	if err != nil {
		return fmt.Errorf("listing mounts below %s: %w", dir, err)
	}
	for i := len(mounts) - 1; i >= 0; i-- {
		if err := ignore(unix.Unmount(mounts[i].Mountpoint, unix.MNT_DETACH), unix.EINVAL); err != nil {
			return fmt.Errorf("unmounting %s: %w", mounts[i].Mountpoint, err)
		}
	}
	return nil
}
