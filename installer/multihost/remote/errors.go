package remote

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"

	"airlift/internal/fault"
)

// A Class is why a host cannot be used. None of them gets better by trying again at once.
type Class string

const (
	Unreachable    Class = "unreachable"    // no address, no route, refused, no answer, closed in the handshake
	HostKey        Class = "host key"       // unknown, changed or revoked
	Authentication Class = "authentication" // no key or password was accepted
	Sudo           Class = "sudo"           // no sudo, no rule for the user, wrong password
	Shell          Class = "shell"          // the login shell does not run /bin/sh
	Disk           Class = "disk"           // full, or the file cannot be written
)

// An Error is a host that cannot be used.
type Error struct {
	Class   Class
	Host    string // its name in cluster.yaml, or "jump host ADDRESS"
	Address string // HOST:PORT
	Err     error
}

func (e *Error) Error() string {
	return fault.Printable(fmt.Sprintf("%s (%s): %v", e.Host, e.Address, e.Err)) // a host sends its reason for a disconnect
}
func (e *Error) Unwrap() error { return e.Err }

// An ExitError is a command that ended with a code other than 0.
type ExitError struct {
	Host   string
	Code   int    // 128 + the number of a signal that ended it
	Stderr string // the last lines
}

func (e *ExitError) Error() string {
	if e.Stderr == "" {
		return fmt.Sprintf("exit code %d", e.Code)
	}
	return e.Stderr
}

// A LostError is a command whose end is unknown: the connection ended before it did.
type LostError struct {
	Host string
	Err  error
}

func (e *LostError) Error() string {
	return fault.Printable(fmt.Sprintf("%s: the connection was lost, and the command's result is unknown: %v", e.Host, e.Err))
}
func (e *LostError) Unwrap() error { return e.Err }

func classOf(err error) Class {
	if e := (*Error)(nil); errors.As(err, &e) {
		return e.Class
	}
	return ""
}

// failed returns the error of a connection that did not come to an end of its handshake. Shown reports whether the host
// had shown its key.
func (h host) failed(ctx context.Context, err error, shown bool) error {
	var none *ssh.AlgorithmNegotiationError
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.As(err, new(*question)), errors.Is(err, errNeedsPassword), classOf(err) != "":
		return err // to ask the user, or explained
	case errors.Is(err, errHostKey) && h.HostKey != "":
		return h.refused(HostKey, "compare the key on the console of the host: ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub; if the host was installed again, correct "+h.field("hostKey"), "%w", err)
	case errors.Is(err, errHostKey):
		return h.refused(HostKey, "if the host was installed again, compare the key on its console, and remove the old one: ssh-keygen -R "+fault.Word(knownhosts.Normalize(h.address())), "%w", err)
	case errors.As(err, &none):
		return h.refused(HostKey, "see which keys the host has: ls /etc/ssh/ssh_host_*_key.pub", "%w", err)
	case !shown && (errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET)):
		return h.refused(Unreachable, "see why on the host: journalctl -u ssh -u sshd", "%w: %w", errDropped, err)
	}
	hint := "see whether the host is on, and try: " + h.typed("ssh") + "; or correct " + h.field("address")
	switch lookup := (*net.DNSError)(nil); {
	case errors.As(err, &lookup):
		err, hint = lookup, "write its IP address to "+h.field("address")+"; or see what this machine resolves: getent hosts "+fault.Word(h.Address)
	case errors.Is(err, syscall.ECONNREFUSED):
		err, hint = syscall.ECONNREFUSED, "start sshd on the host: systemctl enable --now ssh || systemctl enable --now sshd; or correct "+h.field("port")+", and try: "+h.typed("ssh")
	}
	return h.refused(Unreachable, hint, "connecting: %w", err)
}

// authenticationFailed adds the host to an error that has none.
func (h host) authenticationFailed(ctx context.Context, err error) error {
	if classOf(err) != "" || ctx.Err() != nil {
		return err
	}
	hint := "try it: " + h.typed("ssh") + "; copy your public key to the host: " + h.typed("ssh-copy-id") + "; or correct " + h.field("keyPath", "user")
	if errors.Is(err, errTooMany) {
		hint = "name the one key to offer with " + h.field("keyPath")
	}
	return h.refused(Authentication, cmp.Or(fault.Hint(err), hint), "logging in as %s: %w", h.User, err)
}

// refused returns an Error with a hint.
func (h host) refused(class Class, hint, format string, args ...any) error {
	return fault.Wrap(&Error{class, h.name, h.address(), fmt.Errorf(format, args...)}, fault.Failure, hint)
}

// oneLine returns a text of a host as a part of a line.
func oneLine(text string) string { return strings.Join(strings.Fields(fault.Printable(text)), " ") }

// tail keeps the last bytes of what is written to it.
type tail struct {
	mu   sync.Mutex
	text []byte
}

const tailSize = 4096

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, p...)
	if len(t.text) > 2*tailSize {
		t.text = append(t.text[:0], t.text[len(t.text)-tailSize:]...)
	}
	return len(p), nil
}

// String returns the last lines, at most 10, without characters that control a terminal.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	lines := strings.Split(strings.TrimSpace(fault.Printable(string(t.text))), "\n")
	return strings.Join(lines[max(0, len(lines)-10):], "\n")
}
