package uninstall

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"airlift/installer/host"
)

// killTimeout limits the wait for killed processes to end.
const killTimeout = 20 * time.Second

// KillPods kills what the runtime could not stop: the processes in the pods'
// cgroups and the shims of Kubernetes containers. It also removes the cgroups.
// It does nothing on a host that Airlift did not make a node.
func KillPods(ctx context.Context, h *host.Host) error {
	if !h.Records().RanNode() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, killTimeout)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		pids, err := podProcesses(h)
		if err != nil {
			return fmt.Errorf("listing the pods' processes: %w", err)
		}
		if len(pids) == 0 {
			removePodCgroups(h)
			return nil
		}
		for _, pid := range pids {
			if err := unix.Kill(pid, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
				return fmt.Errorf("killing pod process %d: %w", pid, err)
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("killing the pods' processes: %w; still running: %v", ctx.Err(), pids)
		case <-tick.C:
		}
	}
}

func podProcesses(h *host.Host) ([]int, error) {
	inCgroups, err := cgroupProcesses(h)
	if err != nil {
		return nil, err
	}
	shims, err := shims(h)
	if err != nil {
		return nil, err
	}
	pids := append(inCgroups, shims...)
	slices.Sort(pids)
	return slices.Compact(pids), nil
}

// podCgroups finds the top cgroups of pods, as the kubelet names them with either driver: at the
// top of cgroup v2's tree, and of each tree of v1. Deeper cgroups belong to a host in a container
// on this machine.
func podCgroups(h *host.Host) ([]string, error) {
	var found []string
	for _, pattern := range []string{"/sys/fs/cgroup/kubepods", "/sys/fs/cgroup/kubepods.slice", "/sys/fs/cgroup/*/kubepods", "/sys/fs/cgroup/*/kubepods.slice"} {
		dirs, err := filepath.Glob(h.Path(pattern))
		if err != nil {
			return nil, err
		}
		found = append(found, dirs...)
	}
	return found, nil
}

func cgroupProcesses(h *host.Host) ([]int, error) {
	tops, err := podCgroups(h)
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, top := range tops {
		err := filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) {
				return nil // it was removed meanwhile
			}
			if err != nil || d.Name() != "cgroup.procs" {
				return err
			}
			data, err := os.ReadFile(path)
			if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) || errors.Is(err, unix.EOPNOTSUPP) {
				return nil // gone, or a cgroup of threads
			}
			if err != nil {
				return err
			}
			for _, field := range strings.Fields(string(data)) {
				// 0 is a process in another PID namespace.
				if pid, err := strconv.Atoi(field); err == nil && pid > 1 {
					pids = append(pids, pid)
				}
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return pids, nil
}

// removePodCgroups removes empty cgroups, the deepest first. Remaining cgroups
// are systemd's, or harmless: the next kubelet uses them again.
func removePodCgroups(h *host.Host) {
	tops, err := podCgroups(h)
	if err != nil {
		return
	}
	for _, top := range tops {
		var dirs []string
		_ = filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				dirs = append(dirs, path)
			}
			return nil
		})
		for _, dir := range slices.Backward(dirs) {
			_ = unix.Rmdir(dir)
		}
	}
}

// shims finds the shims of Kubernetes containers by their command line. Shims in another PID
// namespace belong to a host in a container on this machine.
func shims(h *host.Host) ([]int, error) {
	own, err := os.Readlink(h.Path("/proc/self/ns/pid"))
	if err != nil {
		return nil, err
	}
	dirs, err := filepath.Glob(h.Path("/proc/[0-9]*"))
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, dir := range dirs {
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil {
			continue
		}
		cmdline, err := os.ReadFile(dir + "/cmdline")
		if err != nil || !isShim(cmdline) {
			continue // it has ended, or is not a shim
		}
		if namespace, err := os.Readlink(dir + "/ns/pid"); err == nil && namespace == own {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

func isShim(cmdline []byte) bool {
	args := bytes.Split(cmdline, []byte{0})
	if !strings.HasPrefix(filepath.Base(string(args[0])), "containerd-shim") {
		return false
	}
	for i, arg := range args {
		if string(arg) == "-namespace" && i+1 < len(args) && string(args[i+1]) == "k8s.io" {
			return true
		}
	}
	return false
}
