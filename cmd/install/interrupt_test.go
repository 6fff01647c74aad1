package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"airlift/scripts/fixtures/rig"
)

// asking is a running install whose reset waits for an answer to its question.
type asking struct {
	*exec.Cmd
	stdin  io.WriteCloser
	stderr bytes.Buffer
}

// resetThatAsks returns a command that runs reset with a temporary ledger, in
// its own mount namespace. Without a ledger, reset asks nothing. The shell runs
// more first, and then replaces itself with reset.
func resetThatAsks(more string) []string {
	const ledger = `{"version": 2, "entries": [{"kind": "dir", "name": "/var/lib/airlift-example"}]}`
	script := more + "mount -t tmpfs none /var/lib; mkdir -m 700 /var/lib/airlift; echo '" + ledger + `' >/var/lib/airlift/ledger.json; exec "$0" reset`
	// Tests may run under nohup. A child process inherits an ignored signal,
	// but not a handled one.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	return []string{"unshare", "--mount", "sh", "-ec", script, os.Args[0]}
}

// question is the end of reset's question.
const question = "[y/N] "

func ask(t *testing.T, argv ...string) *asking {
	t.Helper()
	a := &asking{Cmd: exec.Command(argv[0], argv[1:]...)}
	a.Env, a.Stderr = append(os.Environ(), asMain+"=1"), &a.stderr
	stdin, err := a.StdinPipe()
	must(t, err)
	a.stdin = stdin
	stdout, err := a.StdoutPipe()
	must(t, err)
	must(t, a.Start())
	t.Cleanup(func() { _ = a.Process.Kill() })
	waitFor(t, stdout, question)
	return a
}

func waitFor(t *testing.T, r io.Reader, text string) {
	t.Helper()
	var got strings.Builder
	for in := bufio.NewReader(r); !strings.HasSuffix(got.String(), text); {
		b, err := in.ReadByte()
		if err != nil {
			t.Fatalf("it ended before %q: %v; it printed %q", text, err, got.String())
		}
		got.WriteByte(b)
	}
}

// ended waits for the exit and returns the exit code, -1 if a signal killed it.
func (a *asking) ended() (code int, stderr string) {
	_ = a.Wait()
	return a.ProcessState.ExitCode(), a.stderr.String()
}

func TestSignals(t *testing.T) {
	rig.Root(t) // reset needs root
	for _, s := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		t.Run(fmt.Sprint(s), func(t *testing.T) {
			a := ask(t, resetThatAsks("")...)
			must(t, a.Process.Signal(s))
			if code, stderr := a.ended(); code != 130 || !strings.HasPrefix(stderr, "error: interrupted") || !strings.Contains(stderr, "hint: ") {
				t.Errorf("exit code %d\n%s", code, stderr)
			}
		})
	}
	t.Run("SIGHUP under nohup", func(t *testing.T) {
		a := ask(t, resetThatAsks(`trap "" HUP; `)...)
		must(t, a.Process.Signal(syscall.SIGHUP))
		_, err := io.WriteString(a.stdin, "n\n")
		must(t, err)
		if code, stderr := a.ended(); code != 1 || !strings.Contains(stderr, "nothing was changed") {
			t.Errorf("exit code %d\n%s", code, stderr)
		}
	})
	t.Run("two signals", func(t *testing.T) {
		// A read from standard input does not end at the first signal.
		cmd := exec.Command("sh", "-c", `echo ready; exec "$0" config validate --config -`, os.Args[0])
		cmd.Env = append(os.Environ(), asMain+"=1")
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		stdin, err := cmd.StdinPipe()
		must(t, err)
		defer stdin.Close()
		must(t, cmd.Start())
		defer cmd.Process.Kill()
		waitForHandler(t, cmd.Process.Pid)
		must(t, cmd.Process.Signal(syscall.SIGINT))
		must(t, cmd.Process.Signal(syscall.SIGTERM))
		_ = cmd.Wait()
		if code := cmd.ProcessState.ExitCode(); code != 130 || !strings.Contains(stderr.String(), "ended at once") || strings.Count(stderr.String(), "\n") != 1 {
			t.Errorf("exit code %d\n%s", code, stderr.String())
		}
	})
}

// waitForHandler waits until a Go process catches SIGHUP and reads its standard
// input. A Go program catches SIGHUP only if it calls signal.Notify.
func waitForHandler(t *testing.T, pid int) {
	t.Helper()
	for {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		must(t, err)
		var comm, caught string
		for line := range strings.Lines(string(status)) {
			if f := strings.Fields(line); f[0] == "SigCgt:" {
				caught = f[1]
			} else if f[0] == "Name:" {
				comm = f[1]
			}
		}
		if comm != "sh" && caught != "" && readsInput(pid) {
			return
		}
		_ = unix.Nanosleep(&unix.Timespec{Nsec: 5e6}, nil) // a signal may end it early
	}
}

// readsInput reports whether a thread of the process is in read(0, …).
func readsInput(pid int) bool {
	threads, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	for _, thread := range threads {
		call, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/syscall", pid, thread.Name()))
		if strings.HasPrefix(string(call), fmt.Sprintf("%d 0x0 ", unix.SYS_READ)) {
			return true
		}
	}
	return false
}

// TestOutputNobodyReads: a closed output pipe interrupts a run and does not
// kill it.
func TestOutputNobodyReads(t *testing.T) {
	rig.Root(t) // reset needs root
	r, w, err := os.Pipe()
	must(t, err)
	r.Close()
	argv := resetThatAsks("")
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), asMain+"=1")
	var stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = w, &stderr
	stdin, err := cmd.StdinPipe() // stays open: reset would wait for an answer
	must(t, err)
	defer stdin.Close()
	_ = cmd.Run()
	if code := cmd.ProcessState.ExitCode(); code != 130 || !strings.Contains(stderr.String(), "/dev/stdout was closed") {
		t.Errorf("exit code %d (%s)\n%s", code, cmd.ProcessState, stderr.String())
	}
}

// TestTerminalIsClosed closes the terminal while reset waits for an answer.
func TestTerminalIsClosed(t *testing.T) {
	rig.Root(t) // reset needs root
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	must(t, err)
	must(t, unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0))
	number, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	must(t, err)
	terminal, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	must(t, err)
	argv := resetThatAsks("")
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), asMain+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = terminal, terminal, terminal
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	must(t, cmd.Start())
	defer cmd.Process.Kill()
	terminal.Close()
	waitFor(t, master, question)
	master.Close()
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 130 {
		t.Errorf("exit code %d (%s)", code, cmd.ProcessState)
	}
}
