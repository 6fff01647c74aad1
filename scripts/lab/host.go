package lab

import (
	"bytes"
	"context"
	"crypto/rand"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"airlift/fault"
)

//go:embed host.sh
var hostScript []byte

//go:embed lab-host.service
var hostUnit []byte

// Host is one isolated machine.
type Host struct {
	Name  string         // also its host name
	Addr  netip.Addr     // the address of eth0
	Addrs []netip.Prefix // of every interface, in order

	lab   string
	nics  []nic
	flags []string // further flags for systemd-nspawn
}

func (h *Host) dir() string       { return filepath.Join(stateDir, h.lab) }
func (h *Host) disk() string      { return filepath.Join(h.dir(), h.Name) }
func (h *Host) qualified() string { return qualified(h.lab, h.Name) }

// ConsoleLog is the file on this machine that the host's console goes to.
func (h *Host) ConsoleLog() string { return h.disk() + ".console.log" }

func (h *Host) countersFile() string { return h.disk() + ".counters" }

// install makes the host's disk: a plain directory, because containerd's
// overlayfs snapshotter cannot have its files on another overlay.
func (h *Host) install(ctx context.Context, tarball string) error {
	if err := os.Mkdir(h.disk(), 0o755); err != nil {
		return err
	}
	if err := run(ctx, "tar", "--numeric-owner", "--xattrs", "--zstd", "-C", h.disk(), "-xf", tarball); err != nil {
		return err
	}
	id := make([]byte, 16)
	if _, err := rand.Read(id); err != nil {
		return err
	}
	const unitDir = "etc/systemd/system"
	if err := os.MkdirAll(filepath.Join(h.disk(), "etc/systemd/system.conf.d"), 0o755); err != nil {
		return err
	}
	for path, content := range map[string][]byte{
		"etc/hostname":                       []byte(h.Name + "\n"),
		"etc/hosts":                          []byte("127.0.0.1 localhost\n127.0.1.1 " + h.Name + "\n::1 localhost ip6-localhost\n"),
		"etc/machine-id":                     []byte(hex.EncodeToString(id) + "\n"),
		"etc/resolv.conf":                    nil,
		unitDir + "/lab-host.service":        hostUnit,
		"etc/systemd/system.conf.d/lab.conf": []byte("[Manager]\nDefaultTimeoutStopSec=20s\n"),
	} {
		if err := os.WriteFile(filepath.Join(h.disk(), path), content, 0o644); err != nil {
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
	// Nothing to log in to on a console that is a pipe, and nothing to
	// download from.
	for _, unit := range []string{"console-getty.service", "apt-daily.timer", "apt-daily-upgrade.timer"} {
		if err := os.Symlink("/dev/null", filepath.Join(h.disk(), unitDir, unit)); err != nil {
			return err
		}
	}
	return nil
}

// Boot powers the host on and waits until systemd has started everything.
func (h *Host) Boot(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, bootTimeout)
	defer cancel()
	if h.leader() != 0 {
		return fmt.Errorf("booting %s: it is running", h.Name)
	}
	supervisor, err := h.powerOn()
	if err != nil {
		return fmt.Errorf("booting %s: %w", h.Name, err)
	}
	if err := h.waitBooted(ctx, supervisor, 0); err != nil {
		return fmt.Errorf("booting %s: %w", h.Name, err)
	}
	return nil
}

// powerOn starts the script that runs the host. The channel gets the error it
// ends with, should it end while this process is there to see it.
func (h *Host) powerOn() (<-chan error, error) {
	cgroups, err := makeCgroups(h.qualified())
	if err != nil {
		return nil, err
	}
	script, env := h.disk()+".sh", h.disk()+".env"
	if err := os.WriteFile(script, hostScript, 0o700); err != nil {
		return nil, err
	}
	if err := os.WriteFile(env, h.environment(cgroups), 0o600); err != nil {
		return nil, err
	}
	console, err := os.OpenFile(h.ConsoleLog(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer console.Close()
	cmd := exec.Command("/bin/sh", script, env)
	cmd.Stdout, cmd.Stderr = console, console
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // a terminal's Ctrl-C is not for the hosts
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	return ended, nil
}

// environment is host.sh's input, as shell assignments.
func (h *Host) environment(cgroups []string) []byte {
	var nics []string
	for _, n := range h.nics {
		nics = append(nics, n.MAC+"="+n.Address.String()+"="+n.Bridge)
	}
	var b bytes.Buffer
	for _, v := range [][2]string{
		{"NAME", h.Name},
		{"MACHINE", h.qualified()},
		{"NETNS", h.qualified()},
		{"SWITCH", qualified(h.lab, switchPart)},
		{"ROOT", h.disk()},
		{"COUNTERS", h.countersFile()},
		{"CGROUPS", strings.Join(cgroups, " ")},
		{"NICS", strings.Join(nics, " ")},
		{"NSPAWN_FLAGS", strings.Join(h.flags, " ")},
	} {
		fmt.Fprintf(&b, "%s='%s'\n", v[0], v[1])
	}
	return b.Bytes()
}

// waitBooted waits until the host runs with another first process than before
// and systemd has no more jobs.
func (h *Host) waitBooted(ctx context.Context, supervisor <-chan error, before int) error {
	last := "no process yet"
	err := poll(ctx, "systemd", func() (bool, error) {
		select {
		case err := <-supervisor:
			return false, fmt.Errorf("host ended: %v%s", err, h.consoleTail())
		default:
		}
		leader := h.leader()
		if leader == 0 || leader == before {
			return false, nil
		}
		// The exit status only repeats the word, and fails before D-Bus is up.
		state, _ := h.Output(ctx, "systemctl", "is-system-running")
		if state = strings.TrimSpace(state); state != "" {
			last = state
		}
		return state == "running" || state == "degraded", nil
	})
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("%w (last seen: %s)%s", err, last, h.consoleTail())
	}
	return err
}

func (h *Host) consoleTail() string {
	text, _ := os.ReadFile(h.ConsoleLog())
	return lastLines(string(text), 8)
}

// leader returns the process on this machine that is the host's process 1, or
// 0 if the host is not running. It is the one in the host's cgroup that is
// number 1 one PID namespace further in; the pods' are deeper still.
func (h *Host) leader() int {
	depth := len(namespacePIDs("self"))
	for _, pid := range h.processes() {
		if ids := namespacePIDs(strconv.Itoa(pid)); len(ids) == depth+1 && ids[depth] == "1" {
			return pid
		}
	}
	return 0
}

// processes returns every process of the host, those that run it included.
func (h *Host) processes() []int {
	dirs, err := findCgroups(func(name string) bool { return name == h.qualified() })
	if err != nil {
		return nil
	}
	return processesIn(dirs)
}

// namespacePIDs returns a process's numbers, from this PID namespace inwards.
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

// interruptGrace is how long a program has to clean up after an interrupt.
const interruptGrace = 10 * time.Second

// Exec runs a program on the host as root, with a plain environment and in
// /root. The error holds an *exec.ExitError if the program failed. When ctx is
// cancelled the program gets SIGINT, as from Ctrl-C, and ten seconds.
func (h *Host) Exec(ctx context.Context, stdin io.Reader, stdout, stderr io.Writer, argv ...string) error {
	enter, err := h.enter(argv)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, enter[0], enter[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, stdout, stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	ended := make(chan struct{})
	defer close(ended)
	cmd.Cancel = func() error {
		h.signal(cmd.Process.Pid, unix.SIGINT)
		go func() {
			select {
			case <-ended:
			case <-time.After(interruptGrace):
				h.signal(cmd.Process.Pid, unix.SIGKILL)
			}
		}()
		return nil
	}
	cmd.WaitDelay = interruptGrace + time.Second // for nsenter to follow
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			err = fmt.Errorf("%w (%w)", ctx.Err(), err)
		}
		return fmt.Errorf("running %s on %s: %w", strings.Join(argv, " "), h.Name, err)
	}
	return nil
}

// Output is Exec without input; it returns what the program wrote to standard
// output. An error holds the end of what it wrote to standard error.
func (h *Host) Output(ctx context.Context, argv ...string) (string, error) {
	var stdout, stderr bytes.Buffer
	err := h.Exec(ctx, nil, &stdout, &stderr, argv...)
	if err != nil {
		err = fmt.Errorf("%w%s", err, lastLines(stderr.String(), 8))
	}
	return stdout.String(), err
}

// Shell replaces this process by a login shell on the host.
func (h *Host) Shell() error {
	argv, err := h.enter([]string{"bash", "--login"})
	if err != nil {
		return err
	}
	return fmt.Errorf("running %s: %w", argv[0], syscall.Exec(argv[0], argv, os.Environ()))
}

// enterScript moves a process into the host's cgroups and then into its
// namespaces. usage: sh -c … sh CGROUP... -- PROGRAM ARG...
const enterScript = `while [ "$1" != -- ]; do echo 0 >"$1/cgroup.procs"; shift; done; shift; exec "$@"`

// enter wraps a command so that it runs on the host.
func (h *Host) enter(argv []string) ([]string, error) {
	leader := h.leader()
	if leader == 0 {
		return nil, fault.New(fault.Failure, "its console is in "+h.ConsoleLog(), "%s of lab %s is not running", h.Name, h.lab)
	}
	pid := strconv.Itoa(leader)
	cgroups, err := cgroupDirs(pid)
	if err != nil {
		return nil, err
	}
	term := os.Getenv("TERM")
	if term == "" {
		term = "dumb"
	}
	return slices.Concat(
		[]string{"/bin/sh", "-ec", enterScript, "sh"}, cgroups,
		[]string{"--", "nsenter", "--target", pid, "--all", "--",
			"/usr/bin/env", "--ignore-environment", "--chdir=/root",
			"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
			"HOME=/root", "USER=root", "LOGNAME=root", "SHELL=/bin/bash", "LANG=C.UTF-8", "TERM=" + term},
		argv,
	), nil
}

// signal signals the process group that nsenter leads, but not nsenter: it
// would die, and the program on the host would be left without a parent.
func (h *Host) signal(nsenter int, signal unix.Signal) {
	for _, pid := range h.processes() {
		if group, err := unix.Getpgid(pid); err == nil && group == nsenter && pid != nsenter {
			_ = unix.Kill(pid, signal) // it may have just ended
		}
	}
}

// Reboot restarts the host and waits until systemd has started everything
// again. What remains is the disk; interfaces, routes, packet filters, /run
// and every process are new.
func (h *Host) Reboot(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, bootTimeout)
	defer cancel()
	before := h.leader()
	// The shell that asks may be gone before it can be told that all went well.
	if _, err := h.Output(ctx, "systemctl", "reboot"); err != nil && before == h.leader() {
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.Exited() {
			return fmt.Errorf("rebooting %s: %w", h.Name, err)
		}
	}
	if err := h.waitBooted(ctx, nil, before); err != nil {
		return fmt.Errorf("rebooting %s: %w", h.Name, err)
	}
	return nil
}

// PowerOff shuts the host down in an orderly way. Boot starts it again.
func (h *Host) PowerOff(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, bootTimeout)
	defer cancel()
	if _, err := h.Output(ctx, "systemctl", "poweroff"); err != nil && h.leader() != 0 {
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.Exited() {
			return fmt.Errorf("powering off %s: %w", h.Name, err)
		}
	}
	return h.waitOff(ctx)
}

// PowerCut stops the host without a warning, as pulling its plug does. Boot
// starts it again.
func (h *Host) PowerCut(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, bootTimeout)
	defer cancel()
	if pid := h.leader(); pid != 0 {
		if err := unix.Kill(pid, unix.SIGKILL); err != nil {
			return fmt.Errorf("cutting power of %s: %w", h.Name, err)
		}
	}
	return h.waitOff(ctx)
}

// waitOff waits until the host's processes and the script that runs it ended.
func (h *Host) waitOff(ctx context.Context) error {
	return poll(ctx, h.Name+" to end", func() (bool, error) {
		return len(h.processes()) == 0, nil
	})
}
