package lab

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// hierarchy is one mounted cgroup hierarchy: a v1 controller, systemd's named v1 hierarchy,
// or the unified v2 hierarchy.
type hierarchy struct {
	mountpoint string
	key        string // as in the second field of /proc/PID/cgroup; "" is v2
}

// hierarchies lists the mounted cgroup hierarchies of this machine.
func hierarchies() ([]hierarchy, error) {
	mounts, err := mountinfo.GetMounts(func(m *mountinfo.Info) (skip, stop bool) {
		return m.FSType != "cgroup" && m.FSType != "cgroup2", false
	})
	if err != nil {
		return nil, fmt.Errorf("listing cgroup mounts: %w", err)
	}
	members, err := memberships("self")
	if err != nil {
		return nil, err
	}
	var found []hierarchy
	seen := map[string]bool{}
	for _, m := range mounts {
		for key := range members {
			if !seen[key] && mountHas(m, key) {
				seen[key] = true
				found = append(found, hierarchy{m.Mountpoint, key})
			}
		}
	}
	if len(found) == 0 {
		return nil, errors.New("listing cgroup mounts: this machine has none")
	}
	return found, nil
}

// mountHas reports whether m is the mount of the hierarchy with this key in /proc/PID/cgroup.
// v1 names its controllers in the mount options.
func mountHas(m *mountinfo.Info, key string) bool {
	if key == "" || m.FSType == "cgroup2" {
		return key == "" && m.FSType == "cgroup2"
	}
	options := "," + m.VFSOptions + ","
	for _, part := range strings.Split(key, ",") {
		if !strings.Contains(options, ","+part+",") {
			return false
		}
	}
	return true
}

// memberships returns the cgroup of a process in every hierarchy, by key.
func memberships(pid string) (map[string]string, error) {
	data, err := os.ReadFile(filepath.Join("/proc", pid, "cgroup"))
	if err != nil {
		return nil, fmt.Errorf("reading cgroups of process %s: %w", pid, err)
	}
	paths := map[string]string{}
	for line := range strings.Lines(string(data)) {
		if parts := strings.SplitN(strings.TrimSpace(line), ":", 3); len(parts) == 3 {
			paths[parts[1]] = parts[2]
		}
	}
	return paths, nil
}

// cgroupDirs returns the directories of a process's cgroups.
func cgroupDirs(pid string) ([]string, error) {
	trees, err := hierarchies()
	if err != nil {
		return nil, err
	}
	paths, err := memberships(pid)
	if err != nil {
		return nil, err
	}
	var dirs []string
	for _, h := range trees {
		dirs = append(dirs, filepath.Join(h.mountpoint, paths[h.key]))
	}
	return dirs, nil
}

// makeCgroups creates a cgroup with this name in every hierarchy, below the cgroup of this
// process, so that its limits also apply to the hosts. In a v2 hierarchy with controllers it
// is at the root instead, because in v2 only the root may have both processes and children
// with controllers.
func makeCgroups(name string) ([]string, error) {
	trees, err := hierarchies()
	if err != nil {
		return nil, err
	}
	own, err := memberships("self")
	if err != nil {
		return nil, err
	}
	var made []string
	for _, h := range trees {
		parent := filepath.Join(h.mountpoint, own[h.key])
		controllers, _ := os.ReadFile(filepath.Join(h.mountpoint, "cgroup.controllers")) // v1 has no such file
		for _, c := range strings.Fields(string(controllers)) {
			parent = h.mountpoint
			if err := os.WriteFile(filepath.Join(parent, "cgroup.subtree_control"), []byte("+"+c), 0o644); err != nil {
				return nil, fmt.Errorf("handing down cgroup controller: %w", err)
			}
		}
		dir := filepath.Join(parent, name)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, fmt.Errorf("making cgroup: %w", err)
		}
		if err := inheritCpuset(parent, dir); err != nil {
			return nil, err
		}
		made = append(made, dir)
	}
	return made, nil
}

// inheritCpuset copies what a v1 cpuset does not inherit: no process can enter a cpuset
// without CPUs and memory nodes.
func inheritCpuset(parent, dir string) error {
	if _, err := os.Stat(filepath.Join(dir, "cgroup.clone_children")); err != nil {
		return nil // v2 inherits them
	}
	for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
		value, err := os.ReadFile(filepath.Join(parent, file))
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, file), value, 0o644)
		}
		if err != nil {
			return fmt.Errorf("copying %s to cgroup: %w", file, err)
		}
	}
	return nil
}

// findCgroups returns the cgroups in all hierarchies whose name the filter accepts, including
// cgroups of processes that have ended.
func findCgroups(accept func(name string) bool) ([]string, error) {
	trees, err := hierarchies()
	if err != nil {
		return nil, err
	}
	var found []string
	for _, h := range trees {
		_ = filepath.WalkDir(h.mountpoint, func(path string, d fs.DirEntry, err error) error {
			switch {
			case err != nil: // cgroups are created and removed meanwhile
				return fs.SkipDir
			case d.IsDir() && accept(d.Name()):
				found = append(found, path)
				return fs.SkipDir
			}
			return nil
		})
	}
	return found, nil
}

// processesIn returns the processes in the given cgroups and below.
func processesIn(dirs []string) []int {
	var pids []int
	seen := map[int]bool{}
	for _, dir := range dirs {
		_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.IsDir() {
				return nil
			}
			data, _ := os.ReadFile(filepath.Join(path, "cgroup.procs"))
			for _, field := range strings.Fields(string(data)) {
				if pid, err := strconv.Atoi(field); err == nil && pid > 0 && !seen[pid] {
					seen[pid] = true
					pids = append(pids, pid)
				}
			}
			return nil
		})
	}
	return pids
}

// removeCgroups kills every process in the given cgroups and removes the cgroups. They only
// have processes of the hosts.
func removeCgroups(ctx context.Context, dirs []string) error {
	for {
		pids := processesIn(dirs)
		for _, pid := range pids {
			if err := ignore(unix.Kill(pid, unix.SIGKILL), unix.ESRCH); err != nil {
				return fmt.Errorf("ending process %d: %w", pid, err)
			}
		}
		if len(pids) == 0 {
			left := removeTrees(dirs)
			if len(left) == 0 {
				return nil
			}
			dirs = left
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("removing cgroups %s: %d processes left: %w",
				strings.Join(dirs, ", "), len(processesIn(dirs)), ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// removeTrees removes the given cgroups and their children, children first, and returns the
// ones that it could not remove yet.
func removeTrees(dirs []string) (left []string) {
	for _, dir := range dirs {
		var tree []string
		_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				tree = append(tree, path)
			}
			return nil
		})
		for i := len(tree) - 1; i >= 0; i-- {
			_ = unix.Rmdir(tree[i])
		}
		if _, err := os.Stat(dir); err == nil {
			left = append(left, dir)
		}
	}
	return left
}
