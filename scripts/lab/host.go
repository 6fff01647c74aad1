package lab

import (
	"context"
	"crypto/rand"
	_ "embed"
	"encoding/hex"
	"errors"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

//go:embed lab-host.service
var hostUnit []byte

// Host is one isolated machine.
type Host struct {
	Name  string         // also its host name
	Addr  netip.Addr     // the address of eth0
	Addrs []netip.Prefix // of every interface, in order

	lab   string
	nics  []nic
	disks []Disk
	flags []string // additional flags for systemd-nspawn
}

func (h *Host) dir() string       { return filepath.Join(stateDir, h.lab) }
func (h *Host) disk() string      { return filepath.Join(h.dir(), h.Name) }
func (h *Host) qualified() string { return qualified(h.lab, h.Name) }

// ConsoleLog is the file on this machine with the host's console output.
func (h *Host) ConsoleLog() string { return h.disk() + ".console.log" }

func (h *Host) countersFile() string { return h.disk() + ".counters" }

// install creates the host's disk: a plain directory, because the overlayfs snapshotter of
// containerd does not work on another overlay.
func (h *Host) install(ctx context.Context, tarball string) error {
	if err := h.makeDisk(ctx); err != nil {
		return err
	}
	if err := run(ctx, "tar", "--numeric-owner", "--xattrs", "--zstd", "-C", h.disk(), "-xf", tarball); err != nil {
		return err
	}
	for i, d := range h.disks {
		if err := h.addDisk(ctx, i, d); err != nil {
			return err
		}
	}
	id := make([]byte, 16)
	if _, err := rand.Read(id); err != nil {
		return err
	}
	const unitDir = "etc/systemd/system"
	if err := os.MkdirAll(filepath.Join(h.disk(), "etc/systemd/system.conf.d"), 0o755); err != nil {
		return err
	}
	// A pod that ignores SIGTERM would delay every reboot by systemd's 90 s.
	const managerConf = "[Manager]\nDefaultTimeoutStopSec=20s\n"
	for path, content := range map[string][]byte{
		"etc/hostname":                       []byte(h.Name + "\n"),
		"etc/hosts":                          []byte("127.0.0.1 localhost\n127.0.1.1 " + h.Name + "\n::1 localhost ip6-localhost\n"),
		"etc/machine-id":                     []byte(hex.EncodeToString(id) + "\n"),
		"etc/resolv.conf":                    nil,
		unitDir + "/lab-host.service":        hostUnit,
		"etc/systemd/system.conf.d/lab.conf": []byte(managerConf),
	} {
		path = filepath.Join(h.disk(), path)
		// A package may have made it a link to a file that exists only while the host runs.
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err := os.WriteFile(path, content, 0o644); err != nil {
			return err
		}
	}
	wants := filepath.Join(h.disk(), unitDir, "sysinit.target.wants")
	if err := os.MkdirAll(wants, 0o755); err != nil {
		return err
	}
	if err := os.Symlink("/"+unitDir+"/lab-host.service", filepath.Join(wants, "lab-host.service")); err != nil {
		return err
	}
	// The console is a pipe without a login, and there is no network to download from. The distribution's daily
	// timers write files at midnight, which a test would find as left by what it ran.
	for _, unit := range []string{"console-getty.service", "apt-daily.timer", "apt-daily-upgrade.timer", "dpkg-db-backup.timer",
		"e2scrub_all.timer", "fstrim.timer", "logrotate.timer", "man-db.timer"} {
		if err := os.Symlink("/dev/null", filepath.Join(h.disk(), unitDir, unit)); err != nil {
			return err
		}
	}
	return nil
}

// leader returns the process on this machine that is process 1 of the host, or 0 if the host is not
// running. In the host's cgroup, it is the process with number 1 in the next inner PID namespace;
// processes of pods are in deeper namespaces.
func (h *Host) leader() int {
	depth := len(namespacePIDs("self"))
	for _, pid := range h.processes() {
		if ids := namespacePIDs(strconv.Itoa(pid)); len(ids) == depth+1 && ids[depth] == "1" {
			return pid
		}
	}
	return 0
}

// processes returns every process of the host, including the supervisor.
func (h *Host) processes() []int {
	dirs, err := findCgroups(func(name string) bool { return name == h.qualified() })
	if err != nil {
		return nil
	}
	return processesIn(dirs)
}

// namespacePIDs returns a process's PIDs, from this PID namespace inwards.
func namespacePIDs(pid string) []string {
	status, _ := os.ReadFile(filepath.Join("/proc", pid, "status"))
	for line := range strings.Lines(string(status)) {
		if ids, ok := strings.CutPrefix(line, "NSpid:"); ok {
			return strings.Fields(ids)
		}
	}
	return nil
}

// State is "running" or "off".
func (h *Host) State() string {
	if h.leader() == 0 {
		return "off"
	}
	return "running"
}
