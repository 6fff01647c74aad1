package remote

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"airlift/installer/multihost/spec"
)

// Options are the answers of the user. They may take as long as they need.
type Options struct {
	// Ask asks a question of several lines that ends with "?", and returns whether the answer is yes. nil: nobody can
	// be asked, so unknown host keys are refused. It is called for one host at a time.
	Ask func(ctx context.Context, question string) (bool, error)
	// Password asks for a password or a passphrase and does not show it. nil: nobody can be asked. It is called once for
	// each secret.
	Password func(ctx context.Context, prompt string) (string, error)
	// KnownHosts are files with host keys; a file that does not exist is empty. New keys go to the first one. nil:
	// ~/.ssh/known_hosts and /etc/ssh/ssh_known_hosts.
	KnownHosts []string
}

// A Dialer connects to the hosts of one run. They share the connections to jump hosts, the passwords and the questions.
type Dialer struct {
	options Options
	asking  sync.Mutex // one question at a time; also held while known_hosts changes

	jumps   sync.Map // of *jump
	slots   sync.Map // of chan struct{}
	secrets sync.Map // of *secret
	opened  sync.Map // of ssh.Signer: keys whose passphrase was given, by path
}

// NewDialer returns a Dialer without connections.
func NewDialer(o Options) *Dialer { return &Dialer{options: o} }

// shared returns the value that all hosts with a key share, which is first if there was none.
func shared[T any](m *sync.Map, key string, first T) T {
	v, _ := m.LoadOrStore(key, first)
	return v.(T)
}

// Dial connects to a host and finds out how commands run as root there. The error is an *Error with a hint.
func (d *Dialer) Dial(ctx context.Context, h spec.Host) (Conn, error) {
	target := host{h.Name, h.Group, h.SSH}
	t, err := d.connect(ctx, target)
	if err != nil {
		return nil, err
	}
	c := &conn{host: target, transport: t, sessions: make(chan struct{}, maxSessions)}
	if err := d.becomeRoot(ctx, c); err != nil {
		if classOf(err) == "" {
			err = target.failed(ctx, err, true)
		}
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// Close ends the connections to jump hosts. Close those to the hosts first.
func (d *Dialer) Close() error {
	var errs []error
	for _, j := range d.jumps.Range {
		if t := j.(*jump).transport; t != nil {
			errs = append(errs, t.Close())
		}
	}
	return errors.Join(errs...)
}

// A transport is a connection that is authenticated.
type transport interface {
	// open starts a command, which the login shell of the user gets. A terminal is for hosts whose sudo wants one.
	open(ctx context.Context, command string, terminal bool) (*stream, error)
	// done is closed when the connection has ended.
	done() <-chan struct{}
	Close() error
}

// A jump is a connection that many hosts share.
type jump struct {
	mu        sync.Mutex // held while it connects
	transport transport
}

// connect returns a connection to a host through its jump hosts.
func (d *Dialer) connect(ctx context.Context, h host) (transport, error) {
	var via transport
	if n := len(h.Jump); n > 0 {
		last := h.Jump[n-1]
		last.Jump, last.OpenSSH = h.Jump[:n-1], h.OpenSSH
		var err error
		if via, err = d.jump(ctx, host{jumpHost + last.Address, "", last}); err != nil {
			return nil, err
		}
	}
	if h.OpenSSH {
		return d.dialOpenSSH(ctx, h, via)
	}
	return d.dialNative(ctx, h, via, nil)
}

// jump returns the connection to a jump host. It connects if there is none, or if it has ended.
func (d *Dialer) jump(ctx context.Context, h host) (transport, error) {
	j := shared(&d.jumps, h.key(), &jump{})
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.transport != nil && !isClosed(j.transport.done()) {
		return j.transport, nil
	}
	t, err := d.connect(ctx, h)
	if err == nil {
		j.transport = t
	}
	return t, err
}

// maxHandshakes is how many connections may log in at once to one address, or through one jump host. sshd's default for
// MaxStartups drops connections at random above 10, and other users need some.
const maxHandshakes = 8

// slot waits until one more handshake may begin.
func (d *Dialer) slot(ctx context.Context, h host) (release func(), err error) {
	key := h.address()
	if len(h.Jump) > 0 {
		key = fmt.Sprintf("%#v", h.Jump)
	}
	slots := shared(&d.slots, key, make(chan struct{}, maxHandshakes))
	select {
	case slots <- struct{}{}:
		return func() { <-slots }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}
