package lab

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Processes returns the processes of the host and of its pods, with their numbers on this machine.
func (h *Host) Processes() (pids []int) {
	depth := len(namespacePIDs("self"))
	for _, pid := range h.processes() {
		if len(namespacePIDs(strconv.Itoa(pid))) > depth { // systemd-nspawn is outside
			pids = append(pids, pid)
		}
	}
	return pids
}

// CPUTime returns the processor time of all processes that the host has had since it was switched on.
func (h *Host) CPUTime() (time.Duration, error) {
	dirs, err := findCgroups(func(name string) bool { return name == h.qualified() })
	if err != nil {
		return 0, err
	}
	for _, dir := range dirs {
		if data, err := os.ReadFile(filepath.Join(dir, "cpuacct.usage")); err == nil { // version 1
			n, err := strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64)
			return time.Duration(n), err
		}
	}
	for _, dir := range dirs {
		var n int64
		data, _ := os.ReadFile(filepath.Join(dir, "cpu.stat"))
		if _, err := fmt.Sscanf(string(data), "usage_usec %d", &n); err == nil {
			return time.Duration(n) * time.Microsecond, nil
		}
	}
	return 0, fmt.Errorf("reading the processor time of %s: no cgroup counts it", h.Name)
}
