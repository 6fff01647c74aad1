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

// Down kills every process of the lab and removes its namespaces, cgroups, mounts and files.
// It only needs the lab's name, so it also removes the remains of a killed process. It is no
// error if nothing exists.
func (l *Lab) Down(ctx context.Context) error {
	if err := CheckName(l.Name); err != nil {
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
	l.process.Close() // it is nil in another process, and then this does nothing
	others, err := List()
	if err != nil || len(others) > 0 {
		return err
	}
	if err := returnSysctls(); err != nil {
		return err
	}
	return ignore(os.Remove(stateDir), fs.ErrNotExist)
}

// DownAll removes every lab on this machine.
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

// down removes everything in dir, and the cgroups, network namespaces and directories of
// nspawn whose names begin with prefix.
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
	for _, path := range propagated { // nspawn creates them and never removes them
		if err := os.Remove(path); err != nil {
			return err
		}
	}
	if err := unmountBelow(dir); err != nil {
		return err
	}
	// A child of a killed process may still write its last file, or create its last cgroup.
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

// endProcesses kills everything that runs in the lab and removes its cgroups. A supervisor
// may still create cgroups, so it repeats this until there are none.
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

// ignore returns err unless it is harmless.
func ignore(err, harmless error) error {
	if errors.Is(err, harmless) {
		return nil
	}
	return err
}

// endSupervisors kills the scripts that run hosts. Usually they are in the hosts' cgroups; a
// script that was just started is not there yet.
func endSupervisors(dir string) error {
	cmdlines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return err
	}
	for _, path := range cmdlines {
		data, _ := os.ReadFile(path) // the process may have ended
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

// unmountBelow unmounts everything in dir, the innermost mount first. To remove files through
// a remaining mount would delete the mounted files.
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
