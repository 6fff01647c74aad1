package remote

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"airlift/multihost/spec"
)

// A localShell is a transport to a shell of this machine.
type localShell struct{}

func (localShell) open(ctx context.Context, command string, _ bool) (*stream, error) {
	c := exec.CommandContext(ctx, "/bin/sh", "-c", command)
	stdin, err1 := c.StdinPipe()
	stdout, err2 := c.StdoutPipe()
	stderr, err3 := c.StderrPipe()
	for _, err := range []error{err1, err2, err3, c.Start()} {
		if err != nil {
			return nil, err
		}
	}
	wait := func() (int, error) { return 0, c.Wait() }
	return &stream{stdin, stdout, stderr, wait, func() { _ = c.Process.Kill() }}, nil
}

func (localShell) done() <-chan struct{} { return nil }
func (localShell) Close() error          { return nil }

func localConn() *conn {
	return &conn{host: host{name: "local", SSH: spec.SSH{Address: "localhost", Port: 22}}, transport: localShell{}, sessions: make(chan struct{}, maxSessions)}
}

// Root must not follow a link that a user of the host has put where a file goes.
func TestAFileIsNotSentIntoADirectoryOfOthers(t *testing.T) {
	for _, mode := range []os.FileMode{0o777, 0o777 | os.ModeSticky, 0o770} {
		dir := filepath.Join(t.TempDir(), "tmp")
		victim := filepath.Join(t.TempDir(), "shadow")
		f := testFile(filepath.Join(dir, "install"), 1000, 1)
		for _, err := range []error{os.WriteFile(victim, nil, 0o600), os.Mkdir(dir, 0o700), os.Chmod(dir, mode),
			os.Symlink(victim, filepath.Join(dir, ".install.partial-"+f.SHA256))} {
			if err != nil {
				t.Fatal(err)
			}
		}
		_, err := localConn().Send(t.Context(), f, nil)
		assertRefused(t, err, Disk, "users other than root can write to "+dir, "ls -ld")
		if data, err := os.ReadFile(victim); err != nil || len(data) > 0 {
			t.Errorf("%v: the target of the link has %d bytes: %v", mode, len(data), err)
		}
	}
}

func TestAFileIsSentThroughTheShellOfThisMachine(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a b's", "c")
	f := testFile(filepath.Join(dir, "install"), 100_000, 1)
	for _, want := range []int64{f.Size, 0} {
		if sent, err := localConn().Send(t.Context(), f, nil); err != nil || sent != want {
			t.Errorf("%d bytes were sent: %v", sent, err)
		}
	}
	list, err := os.ReadDir(dir)
	if err != nil || len(list) != 1 {
		t.Errorf("the directory has %v: %v", list, err)
	}
}

// A file that changes while it is sent does not get its name.
func TestAFileThatChangesIsNotInPlace(t *testing.T) {
	f := testFile(filepath.Join(t.TempDir(), "install"), 1000, 1)
	f.Content = strings.NewReader(strings.Repeat("x", 1000))
	_, err := localConn().Send(t.Context(), f, nil)
	assertRefused(t, err, Disk, "the file changed meanwhile")
	if list, _ := os.ReadDir(filepath.Dir(f.Path)); len(list) > 0 {
		t.Errorf("there is %v", list)
	}
}

// What begins with % in the arguments of a proxy is not for ssh.
func TestPercentSignsReachTheProxy(t *testing.T) {
	jump := &openSSH{host: host{SSH: spec.SSH{Address: "fe80::1%eth0", Port: 22, User: "a%hb"}}, dir: "/tmp/100%x"}
	target := &openSSH{host: host{SSH: spec.SSH{Address: "10.0.0.1", Port: 22, User: "root"}}, dir: t.TempDir()}
	options, err := target.masterOptions(dialer(t, Options{}), jump)
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Join(options, " ")
	for _, want := range []string{"'fe80::1%%eth0'", "'a%%hb'", "'ControlPath=/tmp/100%%%%x/s'"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in %s", want, text)
		}
	}
}

// Shells drop zero bytes without a word.
func TestArgumentsWithAZeroByteAreRefused(t *testing.T) {
	var out strings.Builder
	err := localConn().Run(t.Context(), Command{Args: []string{"printf", "%s", "a\x00b"}, Stdout: &out})
	if err == nil || out.Len() > 0 || !strings.Contains(err.Error(), "zero byte") {
		t.Errorf("%q: %v", out.String(), err)
	}
}
