package remote

import (
	"bufio"
	"bytes"
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"pgregory.net/rapid"

	"airlift/scripts/fixtures/rig"
	_ "airlift/scripts/fixtures/seed"
	"airlift/scripts/fixtures/sshhost"
)

func writePEM(t *testing.T, name string, block *pem.Block) {
	t.Helper()
	if err := os.WriteFile(name, pem.EncodeToMemory(block), 0o600); err != nil {
		t.Fatal(err)
	}
}

// processes returns the processes of this machine with a text in their arguments.
func processes(text string) (found []string) {
	names, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, name := range names {
		if data, err := os.ReadFile(name); err == nil && bytes.Contains(data, []byte(text)) {
			found = append(found, string(data))
		}
	}
	return found
}

var allLogins = []string{"root", "nopasswd", "secret", "fish", "tty", "ttysec", "openssh root", "openssh secret", "openssh tty"}

// The end of ctx and the loss of the connection leave no process, also of a command that reads its input to the end.
func TestCancelLeavesNoProcess(t *testing.T) {
	t.Parallel() // it waits most of the time
	h := sshhost.Start(t)
	for i, user := range allLogins {
		for j, stdin := range []io.Reader{nil, strings.NewReader("secret"), &endless{}} {
			t.Run(fmt.Sprint(user, j), func(t *testing.T) {
				c := dial(t, h, user)
				ctx, cancel := context.WithCancelCause(t.Context())
				canary := fmt.Sprintf("12%02d%02d", i, j)
				args := []string{"sh", "-c", "cat >/dev/null; echo began; sleep " + canary}
				if i+j == 0 { // a shell lets its background ignore SIGINT
					args = []string{"sh", "-c", "sleep " + canary + " & echo began; wait"}
				}
				if j == 2 {
					args = []string{"sh", "-c", "echo began; cat >/dev/null; exec sleep 0." + canary}
				}
				began := &signalled{want: "began", done: func() { cancel(errors.New("enough")) }}
				err := c.Run(ctx, Command{Args: args, Stdin: stdin, Stdout: began})
				if err == nil || err.Error() != "enough" {
					t.Errorf("the error is %v", err)
				}
				await(t, func() bool { return len(processes("sleep\x00"+canary)) == 0 })
			})
		}
	}
	awaitNoFiles(t, h)
}

// awaitNoFiles waits until a host has no temporary files.
func awaitNoFiles(t *testing.T, h *sshhost.Host) {
	t.Helper()
	await(t, func() bool { list, err := os.ReadDir(h.Root() + "/tmp"); return err == nil && len(list) == 0 })
}

// endless is a stream that does not end.
type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

// signalled calls done once when it gets the text.
type signalled struct {
	want string
	text bytes.Buffer
	once sync.Once
	done func()
}

func (s *signalled) Write(p []byte) (int, error) {
	s.text.Write(p)
	if strings.Contains(s.text.String(), s.want) {
		s.once.Do(s.done)
	}
	return len(p), nil
}

func TestLostConnectionLeavesNoProcess(t *testing.T) {
	t.Parallel() // it waits most of the time
	h := sshhost.Start(t)
	for i, user := range allLogins {
		t.Run(user, func(t *testing.T) {
			c := dial(t, h, user)
			canary := fmt.Sprintf("13%02d77", i)
			closed := make(chan error, 1)
			began := &signalled{want: "began", done: func() { go func() { closed <- c.Close() }() }}
			err := c.Run(t.Context(), Command{Args: []string{"sh", "-c", "echo began; sleep " + canary}, Stdout: began})
			if lost := (*LostError)(nil); !errors.As(err, &lost) {
				t.Errorf("the error is %v", err)
			}
			if err := <-closed; err != nil {
				t.Error(err)
			}
			await(t, func() bool { return len(processes("sleep\x00"+canary)) == 0 })
		})
	}
	awaitNoFiles(t, h)
}

// A driver that was killed leaves neither a command nor the master of ssh: the end of its process closes the socket.
func TestKilledDriverLeavesNoMaster(t *testing.T) {
	t.Parallel() // it waits most of the time
	c := dial(t, sshhost.Start(t), "openssh root").(*conn)
	master := c.transport.(*openSSH)
	const canary = "1401"
	began := &signalled{want: "began", done: func() { _ = master.client.Close() }}
	err := c.Run(t.Context(), Command{Args: []string{"sh", "-c", "echo began; sleep " + canary}, Stdout: began})
	if lost := (*LostError)(nil); !errors.As(err, &lost) {
		t.Errorf("the error is %v", err)
	}
	await(t, func() bool { return len(processes("sleep\x00"+canary)) == 0 && len(processes(master.dir)) == 0 })
}

// A command that ends by itself on SIGINT has the time for it.
func TestCancelInterruptsFirst(t *testing.T) {
	h := sshhost.Start(t)
	for _, user := range []string{"root", "secret", "ttysec", "openssh root"} {
		c := dial(t, h, user)
		ctx, cancel := context.WithCancel(t.Context())
		name := "/tmp/ended-" + strings.ReplaceAll(user, " ", "")
		began := &signalled{want: "began", done: cancel}
		_ = c.Run(ctx, Command{Args: []string{"bash", "-c", "trap 'sleep 1; echo interrupted >" + name + "; exit 3' INT; echo began; while :; do sleep 0.1; done"}, Stdout: began})
		if got := output(t, c, "", "cat", name); got != "interrupted\n" {
			t.Errorf("%s: %q", user, got)
		}
	}
}

// Pain 7 and signals: each end has its own answer.
func TestEndsOfCommands(t *testing.T) {
	h := sshhost.Start(t)
	for _, user := range []string{"root", "secret", "tty", "openssh fish"} {
		c := dial(t, h, user)
		for script, want := range map[string]int{"exit 1": 1, "exit 255": 255, "exit 127": 127, "kill -9 $$": 137, "kill -TERM $$": 143} {
			err := c.Run(t.Context(), Command{Args: []string{"sh", "-c", script}})
			if e := (*ExitError)(nil); !errors.As(err, &e) || e.Code != want {
				t.Errorf("%s: %s: %v", user, script, err)
			}
		}
		if err := c.Run(t.Context(), Command{Args: []string{"no-such-command"}}); err == nil || !strings.Contains(err.Error(), "no-such-command") {
			t.Errorf("%s: %v", user, err)
		}
		// A command need not read its input, and may leave a process in the background.
		if err := c.Run(t.Context(), Command{Args: []string{"true"}, Stdin: strings.NewReader(strings.Repeat("x", 5<<20))}); err != nil {
			t.Error(err)
		}
		if err := c.Run(t.Context(), Command{Args: []string{"true"}, Stdin: endless{}}); err != nil {
			t.Error(err)
		}
		full := errors.New("full")
		if err := c.Run(t.Context(), Command{Args: []string{"sh", "-c", "while :; do echo x; done"}, Stdout: failing{full}}); !errors.Is(err, full) {
			t.Errorf("%s: %v", user, err)
		}
	}
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }

// Pain 39: the passwords are in no argument and no environment of any process, and in no file of the host.
func TestPasswordIsNowhere(t *testing.T) {
	h := sshhost.Start(t)
	ctx, cancel := context.WithCancel(t.Context())
	var watching sync.WaitGroup
	found, rounds := "", 0
	own, parent := fmt.Sprintf("/proc/%d/", os.Getpid()), fmt.Sprintf("/proc/%d/", os.Getppid())
	watching.Go(func() {
		for ; ctx.Err() == nil; rounds++ {
			names, _ := filepath.Glob("/proc/[0-9]*/*")
			for _, name := range names {
				if base := filepath.Base(name); (base == "cmdline" || base == "environ") && !strings.HasPrefix(name, own) && !strings.HasPrefix(name, parent) {
					if data, err := os.ReadFile(name); err == nil && bytes.Contains(data, []byte(sshhost.Password)) {
						found = name + ": " + string(data)
					}
				}
			}
		}
	})
	for _, user := range []string{"secret", "ttysec", "openssh secret"} {
		c := dial(t, h, user)
		for range 3 {
			if got := output(t, c, "a token "+sshhost.Password, "sh", "-c", "sleep 0.2; wc -c"); got != "30\n" {
				t.Errorf("got %q", got)
			}
		}
		_ = c.Close()
	}
	cancel()
	watching.Wait()
	if found != "" || rounds < 3 {
		t.Errorf("%d rounds: %s", rounds, found)
	}
	err := filepath.WalkDir(h.Path("/"), func(name string, d os.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			if data, err := os.ReadFile(name); err == nil && bytes.Contains(data, []byte(sshhost.Password)) {
				t.Errorf("%s has the password", name)
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// The marker is found in any chunks, and all other bytes are as they were.
func TestUntil(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		marker := "abab0"
		before := rapid.StringMatching(`[ab0x]{0,200}`).Filter(func(s string) bool { return !strings.Contains(s+marker[:4], marker) }).Draw(t, "before")
		before = strings.ReplaceAll(before, marker, "")
		r := newChunks(before+marker+"Erest", rapid.IntRange(1, 9).Draw(t, "chunk"))
		var out strings.Builder
		letter, err := until(&out, r, marker)
		rest, _ := io.ReadAll(r)
		wanted, after, _ := strings.Cut(before+marker+"Erest", marker)
		if err != nil || out.String() != wanted || string(letter)+string(rest) != after {
			t.Fatalf("got %q, %q and %q: %v", out.String(), letter, rest, err)
		}
		out.Reset()
		if _, err := until(&out, newChunks(before+"aba", 3), marker); err != io.EOF || out.String() != before+"aba" {
			t.Fatalf("got %q of %q: %v", out.String(), before+"aba", err)
		}
	})
}

// The shells that are /bin/sh on hosts: the exit code, the input, and the end of the command with its driver.
func TestScriptInShells(t *testing.T) {
	t.Parallel()
	var wg sync.WaitGroup
	for i, shell := range [][]string{{"/bin/sh"}, {rig.Tool(t, "bash"), "--posix"}, {rig.Tool(t, "dash")}} {
		wg.Go(func() { scriptInShell(t, shell, fmt.Sprint("100", i)) }) // each waits for the end of the watcher
	}
	wg.Wait()
}

func scriptInShell(t *testing.T, shell []string, canary string) {
	run := func(command, input, rest string) string {
		args := append([]string{"--default-signal"}, shell...) // a test in the background ignores SIGINT
		cmd := exec.Command("env", append(args, "-c", framed("MARK", command, int64(len(input))))...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		stdin, err := cmd.StdinPipe()
		if err != nil {
			t.Error(err)
			return ""
		}
		out := &signalled{want: "began", done: func() { _ = stdin.Close() }}
		cmd.Stdout = out
		if err := cmd.Start(); err != nil {
			t.Error(err)
			return ""
		}
		_, _ = io.WriteString(stdin, "END\n"+input+rest)
		_ = cmd.Wait()
		return out.text.String()
	}
	if got := run("wc -c; (exit 7)", "12345", "\n"); strings.ReplaceAll(got, " ", "") != "MARKB5\nENDE7\n" {
		t.Errorf("%s: %q", shell, got)
	}
	if got := run("sh -c 'echo began; exec sleep "+canary+"'", "12345", ""); got != "MARKBbegan\nENDE130\n" {
		t.Errorf("%s: %q", shell, got)
	}
	await(t, func() bool { return len(processes("sleep\x00"+canary)) == 0 })
}

func newChunks(text string, size int) *bufio.Reader {
	return bufio.NewReaderSize(&chunks{strings.NewReader(text), size}, 64)
}

// chunks gives a few bytes at a time.
type chunks struct {
	r    io.Reader
	size int
}

func (c *chunks) Read(p []byte) (int, error) { return c.r.Read(p[:min(len(p), c.size)]) }
