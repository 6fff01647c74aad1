package remote

import (
	"cmp"
	"context"
	"fmt"
	"strings"
)

// An elevation is how commands run as root on a host. The zero value is a login of root, or no elevation.
type elevation struct {
	sudo     bool
	asks     bool // sudo asks for the password
	terminal bool // sudo wants a terminal
	password string
}

// script returns the script of a job.
func (e elevation) script(public string, j job) string {
	script := streamed(public, j.command)
	if j.length >= 0 {
		script = framed(public, j.command, j.length)
	}
	if !e.sudo {
		return script
	}
	if e.terminal {
		script = joinRelay + script
	}
	if e.asks {
		script = fmt.Sprintf("%s-S -p %s%c /bin/sh -c %s", sudo, public, markPassword, quote(script))
	} else {
		script = sudo + "-n /bin/sh -c " + quote(script)
	}
	if e.terminal {
		return relayScript(public, script)
	}
	return script
}

// sudo's messages are in English with LC_ALL, which is set here because sshd's AcceptEnv may not let it pass.
const sudo = "LC_ALL=C; export LC_ALL; exec sudo -H "

// probe prints the user's ID, and whether sudo needs a password, in its exit code.
const probe = `id -u; [ "$(id -u)" = 0 ] || { command -v sudo >/dev/null || exit 127; sudo -n -H true; }`

// becomeRoot finds out how commands run as root. A password is asked for once for all hosts of the group.
func (d *Dialer) becomeRoot(ctx context.Context, c *conn) error {
	id, messages := &tail{}, &tail{}
	code, err := c.execute(ctx, elevation{}, job{command: "(" + probe + ")", stdout: id, stderr: messages})
	switch {
	case err != nil:
		return err
	case id.String() == "0":
		return nil
	case code == 127:
		return c.refused(Sudo, "set ssh.user: root in cluster.yaml, or install sudo on the host", "the host has no sudo, and %s is not root", c.User)
	}
	c.root = elevation{sudo: true}
	printed := messages.String()
	if code != 0 && strings.Contains(printed, "tty") {
		c.root.terminal = true
		c.sessions = make(chan struct{}, maxSessions/2) // a command has two
		if code, err = c.execute(ctx, c.root, job{command: "true"}); err != nil {
			printed = err.Error()
		}
	}
	switch {
	case code == 0 && err == nil:
		return nil
	case !strings.Contains(printed, "password"):
		return cmp.Or(err, c.sudoFailed(printed))
	}
	return d.askForSudo(ctx, c)
}

// askForSudo asks for the password, and tries it.
func (d *Dialer) askForSudo(ctx context.Context, c *conn) error {
	c.root.asks = true
	prompt := fmt.Sprintf("Password of %s for sudo on %s: ", c.User, c.of())
	err := d.useSecret(ctx, "sudo "+c.account(), prompt, func(text string) error {
		c.root.password = text
		_, err := c.execute(ctx, c.root, job{command: "true"})
		return err
	})
	if err == nil || classOf(err) != "" || ctx.Err() != nil {
		return err
	}
	return c.refused(Sudo, "run the command on a terminal, or allow sudo without a password on the host: "+c.User+" ALL=(ALL) NOPASSWD: ALL",
		"sudo needs a password: %w", err)
}

// sudoFailed returns the error for what sudo printed.
func (c *conn) sudoFailed(printed string) error {
	rule := c.User + " ALL=(ALL) ALL"
	switch {
	case strings.Contains(printed, "incorrect password"):
		return c.refused(Sudo, "run the command again; the password was sent once, and to no other host", "sudo: %w for %s", errWrong, c.User)
	case strings.Contains(printed, "sudoers"), strings.Contains(printed, "not allowed"):
		return c.refused(Sudo, "allow it with visudo on the host: "+rule, "sudo does not let %s run commands as root: %s", c.User, printed)
	case strings.Contains(printed, "tty"):
		return c.refused(Sudo, "remove requiretty with visudo on the host: Defaults:"+c.User+" !requiretty", "sudo wants a terminal: %s", printed)
	}
	return c.refused(Sudo, "try it on the host: sudo -v", "sudo: %s", printed)
}
