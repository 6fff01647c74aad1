package lab

import (
	"bytes"
	"context"
	_ "embed"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"airlift/internal/fault"
)

// interruptGrace is the time that a command has to clean up after an interrupt.
const interruptGrace = 10 * time.Second

// Exec runs a command on the host as root, with a plain environment and in /root. The error
// wraps an *exec.ExitError if the command failed. When ctx is cancelled, the command gets
// SIGINT, as from Ctrl-C, and ten seconds to end.
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
	cmd.WaitDelay = interruptGrace + time.Second // nsenter ends after the command
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			err = fmt.Errorf("%w (%w)", ctx.Err(), err)
		}
		return fmt.Errorf("running %s on %s: %w", strings.Join(argv, " "), h.Name, err)
	}
	return nil
}

// Output is Exec without input. It returns the command's standard output. An error includes
// the end of its standard error.
func (h *Host) Output(ctx context.Context, argv ...string) (string, error) {
	var stdout, stderr bytes.Buffer
	err := h.Exec(ctx, nil, &stdout, &stderr, argv...)
	if err != nil {
		err = fmt.Errorf("%w%s", err, lastLines(stderr.String(), 8))
	}
	return stdout.String(), err
}

// Shell replaces this process with a login shell on the host.
func (h *Host) Shell() error {
	argv, err := h.enter([]string{"bash", "--login"})
	if err != nil {
		return err
	}
	return fmt.Errorf("running %s: %w", argv[0], syscall.Exec(argv[0], argv, os.Environ()))
}

// enterScript moves a process into the host's cgroups and then into its
// namespaces. usage: sh -c … sh CGROUP... -- COMMAND ARG...
const enterScript = `while [ "$1" != -- ]; do echo 0 >"$1/cgroup.procs"; shift; done; shift; exec "$@"`

// enter wraps a command so that it runs on the host.
func (h *Host) enter(argv []string) ([]string, error) {
	leader := h.leader()
	if leader == 0 {
		return nil, fault.New(fault.Failure, "%s of lab %s is not running", h.Name, h.lab).Hint("its console is in " + h.ConsoleLog())
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

// signal signals the process group of nsenter, but not nsenter itself: otherwise nsenter
// would end and the command on the host would have no parent.
func (h *Host) signal(nsenter int, signal unix.Signal) {
	for _, pid := range h.processes() {
		if group, err := unix.Getpgid(pid); err == nil && group == nsenter && pid != nsenter {
			_ = unix.Kill(pid, signal) // it may have ended
		}
	}
}
