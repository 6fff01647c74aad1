package remote

import (
	"bytes"
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"airlift/installer/multihost/spec"
	"airlift/scripts/fixtures/sshhost"
)

// target returns a user of a host. "openssh " before the name is for the command ssh.
func target(h *sshhost.Host, user string) spec.Host {
	user, isOpenSSH := strings.CutPrefix(user, "openssh ")
	return spec.Host{Name: "node-" + user, Group: "workers", SSH: spec.SSH{Address: "127.0.0.1", Port: h.Port, User: user, KeyFile: h.Key, HostKey: h.HostKey, OpenSSH: isOpenSSH}}
}

func dialer(t *testing.T, o Options) *Dialer {
	if o.KnownHosts == nil {
		o.KnownHosts = []string{filepath.Join(t.TempDir(), "known_hosts")}
	}
	d := NewDialer(o)
	t.Cleanup(func() { _ = d.Close() })
	return d
}

func password(text string) func(context.Context, string) (string, error) {
	return func(context.Context, string) (string, error) { return text, nil }
}

func dial(t *testing.T, h *sshhost.Host, user string) Conn {
	t.Helper()
	c, err := dialer(t, Options{Password: password(sshhost.Password)}).Dial(t.Context(), target(h, user))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func output(t *testing.T, c Conn, stdin string, args ...string) string {
	t.Helper()
	var out bytes.Buffer
	if err := c.Run(t.Context(), Command{Args: args, Stdin: strings.NewReader(stdin), Stdout: &out}); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// Pains 2, 4, 5 and 6: shells that are not POSIX, profiles that print, sudo with and without a password.
func TestCommandsArriveAsTheyAreInAllShells(t *testing.T) {
	h := sshhost.Start(t)
	random := "a'b\"c\\d$e`f!g\nh *?~#%& ü\t\x01\xff" + strings.Repeat("x", 70000)
	for _, user := range []string{"root", "nopasswd", "secret", "fish", "csh", "dash", "noisy", "tty", "ttysec", "openssh ttysec", "openssh root", "openssh secret", "openssh fish"} {
		t.Run(user, func(t *testing.T) {
			c := dial(t, h, user)
			if got := output(t, c, "", "id", "-u"); got != "0\n" {
				t.Errorf("the user is %q", got)
			}
			if got := output(t, c, "", "printf", "%s|", random[:40], "", "x"); got != random[:40]+"||x|" {
				t.Errorf("the arguments are %q", got)
			}
			if got := output(t, c, random, "cat"); got != random {
				t.Errorf("cat gives %d bytes of %d", len(got), len(random))
			}
			if got := output(t, c, "", "sh", "-c", `echo "$LC_ALL $HOME $PWD"`); got != "C /root /\n" {
				t.Errorf("the environment is %q", got)
			}
			var e *ExitError
			if err := c.Run(t.Context(), Command{Args: []string{"sh", "-c", "echo why >&2; exit 255"}}); !errors.As(err, &e) || e.Code != 255 || e.Stderr != "why" {
				t.Errorf("the error is %#v", err)
			}
		})
	}
	awaitNoFiles(t, h)
}
