package remote

import (
	"context"
	"crypto/ed25519"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/crypto/ssh"

	"airlift/installer/multihost/spec"
)

// A localShell is a transport to a shell of this machine.
type localShell struct{}

func (localShell) open(ctx context.Context, command string, _ bool) (*stream, error) {
	c := exec.CommandContext(ctx, "/bin/sh", "-c", command)
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a script signals its group
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

// fakeSudo puts a sudo in PATH that runs commands as this user, asks for a password and waits for the end as sudo does.
func fakeSudo(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	const script = `#!/bin/sh
while :; do
  case $1 in
  -p) printf %s "$2" >&2; read -r password; [ "$password" = secret ] || exit 1; shift 2 ;;
  -*) shift ;;
  *) "$@"; exit ;;
  esac
done
`
	if err := os.WriteFile(filepath.Join(dir, "sudo"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}

// forger prints every word of the arguments of all processes that can be a marker as the end of a command that succeeded, on
// both outputs, as a user of the host can by a text that root prints.
const forger = `for pid in /proc/[0-9]*; do tr '\0' '\n' <$pid/cmdline; done 2>/dev/null | grep -o '[A-Z2-7]\{26\}' | sort -u | while read -r m; do
  for letter in B E0 P R; do printf '%s\n' "$m$letter"; printf '%s\n' "$m$letter" >&2; done
done; set | grep airlift_marker; env | grep airlift_marker; echo done; exit 7`

// The output of a command, which may have texts of others, cannot end the command: what separates the two is in no argument and no
// environment.
func TestOutputCannotForgeTheEnd(t *testing.T) {
	fakeSudo(t)
	t.Setenv("airlift_marker", "exported by the user")
	for name, e := range map[string]elevation{"root": {}, "sudo": {sudo: true}, "password": {sudo: true, asks: true, password: "secret"},
		"terminal": {sudo: true, terminal: true}} {
		for kind, in := range map[string]io.Reader{"none": nil, "sized": strings.NewReader("input"), "stream": io.MultiReader(strings.NewReader("input"))} {
			t.Run(name+" "+kind, func(t *testing.T) {
				c := localConn()
				c.root = e
				var out, errs strings.Builder
				err := c.Run(t.Context(), Command{Args: []string{"/bin/sh", "-c", forger}, Stdin: in, Stdout: &out, Stderr: &errs})
				if exit := (*ExitError)(nil); !errors.As(err, &exit) || exit.Code != 7 || !strings.HasSuffix(out.String(), "done\n") || strings.Contains(out.String(), "airlift_marker") {
					t.Errorf("%v\n%s\n%s", err, out.String(), errs.String())
				}
			})
		}
	}
}

// New keys are written as ssh would: hashed, unless its configuration has them in the clear.
func TestNamesInKnownHostsAreHashedAsSSHDoes(t *testing.T) {
	public, _, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	key, err := ssh.NewPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	for script, clear := range map[string]bool{"echo user root; echo hashknownhosts yes; echo x": false, "echo user root; echo hashknownhosts no; echo x": true, "exit 255": false, "": false} {
		bin := t.TempDir()
		if script != "" {
			if err := os.WriteFile(filepath.Join(bin, "ssh"), []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		t.Setenv("PATH", bin)
		for _, address := range []string{"10.0.0.1", "fe80::1%eth0", "node.example"} {
			for _, port := range []int{22, 2222} {
				known := filepath.Join(t.TempDir(), "known_hosts")
				d := dialer(t, Options{KnownHosts: []string{known}, Ask: func(context.Context, string) (bool, error) { return true, nil }})
				h := host{name: "node", SSH: spec.SSH{Address: address, Port: port, User: "root"}}
				if err := d.learnHostKey(t.Context(), h, key); err != nil {
					t.Fatal(err)
				}
				data, err := os.ReadFile(known)
				if err != nil || strings.Contains(string(data), address) != clear {
					t.Errorf("%q: %q, %v", script, data, err)
				}
				check, err := d.knownHosts()
				if err != nil || check(h.address(), &net.TCPAddr{}, key) != nil {
					t.Errorf("%q: %q does not know %s: %v", script, data, h.address(), err)
				}
			}
		}
	}
}

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
