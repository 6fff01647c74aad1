package remote

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/crypto/ssh"
)

const (
	connectTimeout   = 10 * time.Second
	handshakeTimeout = 30 * time.Second // sshd's name lookups take up to 20 s
	// A connection is closed if nothing at all has come for keepAliveLimit, whatever has no answer: on a slow link, a
	// question waits behind a copy. TCP sends again 13 s after a cut of 7 to 12 s (its pauses double from 0.2 s).
	keepAliveInterval = 5 * time.Second
	keepAliveLimit    = 25 * time.Second
	keepAlive         = "keepalive@openssh.com"
)

// native is a connection with the sessions of package ssh.
type native struct {
	client *ssh.Client
	ended  chan struct{}
}

// A socket is closed when nothing has come for keepAliveLimit, once its silence is watched.
type socket struct {
	net.Conn
	silent atomic.Int32 // how often it was looked at since the last byte
}

func (s *socket) Read(p []byte) (int, error) {
	n, err := s.Conn.Read(p)
	if n > 0 {
		s.silent.Store(0)
	}
	return n, err
}

// watch closes the socket after a silence. It counts looks, and not time: this process may have been stopped.
func (s *socket) watch(ended <-chan struct{}) {
	for {
		select {
		case <-ended:
			return
		case <-time.After(keepAliveInterval):
			if s.silent.Add(1) >= int32(keepAliveLimit/keepAliveInterval) {
				_ = s.Close()
				return
			}
		}
	}
}

// A login is what a handshake needs, what the user has answered so far, and what the host wanted.
type login struct {
	host
	dialer   *Dialer
	ctx      context.Context
	via      transport // nil: directly
	check    hostKeyCheck
	password *string
	offered  []identity // if the host takes keys
	keys     bool       // it does
	shown    bool       // the host has shown its key
	sent     bool       // the password: once, because hosts lock accounts
	wanted   bool       // the password, and there is none yet
}

// A question is the error of a handshake that may succeed after the user has answered.
type question struct {
	text string
	ask  func(context.Context) error
}

func (q *question) Error() string { return q.text }

// dialNative connects. It asks the user between two connections, because sshd does not wait as long as a user may need.
func (d *Dialer) dialNative(ctx context.Context, h host, via transport, password *string) (t transport, err error) {
	for drops := 0; ; {
		t, err = d.tryKeys(login{host: h, dialer: d, ctx: ctx, via: via, password: password})
		var q *question
		switch {
		case err == nil:
			return t, nil
		case errors.As(err, &q):
			if err = q.ask(ctx); errors.Is(err, errNobody) {
				err = fmt.Errorf("%s: %w", q.text, err)
			}
		case errors.Is(err, errNeedsPassword) && password == nil:
			refused := err
			// The hosts of the group share it.
			prompt := fmt.Sprintf("%s (%s): logging in as %s: %v\nPassword of %s on %s: ", h.name, h.address(), h.User, refused, h.User, h.of())
			err = d.useSecret(ctx, "password of "+h.account(), prompt, func(text string) (err error) {
				t, err = d.dialNative(ctx, h, via, &text)
				return err
			})
			if err == nil {
				return t, nil
			}
			if errors.Is(err, errNobody) {
				err = fmt.Errorf("%w, and %w", refused, err)
			}
		case errors.Is(err, errDropped) && drops < 5: // MaxStartups drops at random
			drops++
			err = nil
		}
		if err != nil {
			return nil, h.authenticationFailed(ctx, err)
		}
	}
}

// tryKeys shakes hands once for each list of algorithms, until the host shows the key that is pinned.
func (d *Dialer) tryKeys(l login) (t transport, err error) {
	if l.check, err = d.checkHostKey(l.host); err != nil {
		return nil, err
	}
	var refused error
	for _, algorithms := range l.check.algorithms {
		t, err = l.shakeHands(algorithms)
		var none *ssh.AlgorithmNegotiationError
		switch {
		case errors.As(err, &none):
			refused = cmp.Or(refused, err)
		case errors.Is(err, errHostKey):
			refused = err
		default:
			return t, err
		}
	}
	return nil, refused
}

var (
	// errDropped is in the error of a host that closed the connection before it showed its key.
	errDropped = errors.New("the host closed the connection before the login")
	// errTooMany is in the error of a host that closed the connection before all keys were offered.
	errTooMany = errors.New("they are more than it lets a login try")
	// errNeedsPassword ends a handshake with a host that did not accept a key and wants a password.
	errNeedsPassword = errors.New("it asks for a password")
)

func (l login) shakeHands(algorithms []string) (transport, error) {
	using, done := context.WithCancel(l.ctx)
	defer done()
	var err error
	if l.offered, err = l.dialer.identities(using, l.host); err != nil {
		return nil, err
	}
	release, err := l.dialer.slot(l.ctx, l.host)
	if err != nil {
		return nil, err
	}
	defer release()
	tcp, err := l.dialTCP()
	if err != nil {
		return nil, err
	}
	s := &socket{Conn: tcp}
	limited, cancel := context.WithTimeoutCause(l.ctx, handshakeTimeout, errors.New("no answer in the handshake for 30 s"))
	defer cancel()
	stop := context.AfterFunc(limited, func() { _ = s.Close() })
	client, err := l.logIn(s, algorithms)
	if !stop() { // the socket is closed
		return nil, l.failed(l.ctx, context.Cause(limited), l.shown)
	}
	if err != nil {
		_ = s.Close()
		err = l.failed(l.ctx, err, l.shown)
		if errors.Is(err, errDropped) { // keeps its slot
			select {
			case <-time.After(dropPause):
			case <-l.ctx.Done():
			}
		}
		return nil, err
	}
	n := newNative(client)
	go n.keepAlive(s)
	return n, nil
}

const dropPause = time.Second

// logIn waits for an answer to a question at the end: then sshd no longer counts the connection as a handshake. Package ssh returns
// the error of the last method only, which need not be what to ask the user for.
func (l *login) logIn(socket net.Conn, algorithms []string) (*ssh.Client, error) {
	c, channels, requests, err := ssh.NewClientConn(socket, l.address(), &ssh.ClientConfig{User: l.User, HostKeyAlgorithms: algorithms, HostKeyCallback: l.hostKey,
		Auth: []ssh.AuthMethod{ssh.PublicKeysCallback(l.signers), ssh.KeyboardInteractive(l.challenge), ssh.PasswordCallback(l.once)}})
	if err == nil {
		client := ssh.NewClient(c, channels, requests)
		_, _, err = client.SendRequest(keepAlive, true, nil)
		return client, err
	}
	for _, i := range l.offered {
		if k, ok := i.signer.(*lockedKey); ok && k.accepted {
			return nil, &question{k.path + " has a passphrase", func(ctx context.Context) error {
				_, err := l.dialer.openKey(ctx, k.path)
				return err
			}}
		}
	}
	return nil, l.refusal(err)
}

// signers returns the keys to a host that takes keys.
func (l *login) signers() (list []ssh.Signer, err error) {
	l.keys = true
	for _, i := range l.offered {
		list = append(list, i.signer)
	}
	return list, nil
}

// refusal is the error of a login with what the host refused. Package ssh lists only the names of methods.
func (l *login) refusal(err error) error {
	tried := describeAll(l.offered)
	switch {
	case len(l.offered) == 0:
		tried = "there is no key to offer"
	case l.keys:
		tried = "the host refused " + tried
	default:
		tried = "the host takes no keys"
	}
	if l.KeyFile == "" && l.keys {
		tried += agentState()
	}
	text := err.Error()
	switch {
	case l.wanted:
		return fmt.Errorf("%s; %w", tried, errNeedsPassword)
	case !l.shown:
		return err
	case errors.Is(err, errNobody):
		return l.authenticationFailed(l.ctx, fmt.Errorf("%s; it asks a question: %w", tried, errNobody))
	case errors.Is(err, errWrong), l.sent && strings.Contains(text, "unable to authenticate"):
		return l.authenticationFailed(l.ctx, fmt.Errorf("%s; %w", tried, errWrong))
	case strings.Contains(text, "unable to authenticate"):
		return l.authenticationFailed(l.ctx, errors.New(tried))
	case strings.Contains(text, "authentication failures"):
		return l.authenticationFailed(l.ctx, fmt.Errorf("%s: %w", tried, errTooMany))
	}
	return err
}

func (l *login) dialTCP() (socket net.Conn, err error) {
	limited, cancel := context.WithTimeoutCause(l.ctx, connectTimeout, errors.New("no answer for 10 s"))
	defer cancel()
	dial := new(net.Dialer).DialContext
	if n, ok := l.via.(*native); ok {
		dial = n.client.DialContext
	}
	if socket, err = dial(limited, "tcp", l.address()); err != nil {
		return nil, l.failed(l.ctx, cmp.Or(context.Cause(limited), err), false)
	}
	return socket, nil
}

func (l *login) hostKey(address string, from net.Addr, key ssh.PublicKey) error {
	l.shown = true
	return l.check.accept(address, from, key)
}

// once returns the password.
func (l *login) once() (string, error) {
	switch {
	case l.password == nil:
		l.wanted = true
		return "", errNeedsPassword
	case l.sent:
		return "", errWrong
	}
	l.sent = true
	return *l.password, nil
}

// challenge answers the first hidden question with the password. Other questions are for the user, such as for a code. Each
// is one line behind the name of the host, so that it cannot look like a question of this program.
func (l *login) challenge(_, instruction string, questions []string, echos []bool) (list []string, err error) {
	list = make([]string, len(questions))
	for i, question := range questions {
		if !l.sent && !echos[i] {
			list[i], err = l.once()
		} else {
			list[i], err = l.dialer.askSecret(l.ctx, l.name+": "+oneLine(instruction+" "+question)+" ")
		}
		if err != nil {
			return nil, err
		}
	}
	return list, nil
}

func newNative(client *ssh.Client) *native {
	n := &native{client, make(chan struct{})}
	go func() {
		_ = client.Wait()
		close(n.ended)
	}()
	return n
}

// keepAlive asks questions until the connection ends. The socket is closed if the host no longer answers.
func (n *native) keepAlive(s *socket) {
	go s.watch(n.ended)
	for {
		select {
		case <-n.ended:
			return
		case <-time.After(keepAliveInterval):
			_, _, _ = n.client.SendRequest(keepAlive, true, nil) // also a refusal is an answer
		}
	}
}

func (n *native) done() <-chan struct{} { return n.ended }

// closeLimit is how long a jump host may take to end the connection through it.
const closeLimit = 2 * time.Second

func (n *native) Close() error {
	_ = n.client.Close() // it may be closed
	select {
	case <-n.ended:
	case <-time.After(closeLimit):
	}
	return nil
}

// open starts a session. A host that does not answer is left alone at the end of ctx.
func (n *native) open(ctx context.Context, command string, terminal bool) (*stream, error) {
	type opening struct {
		*stream
		err error
	}
	opened := make(chan opening, 1)
	go func() {
		s, err := n.session(command, terminal)
		opened <- opening{s, err}
	}()
	select {
	case o := <-opened:
		return o.stream, o.err
	case <-ctx.Done():
		go func() {
			if o := <-opened; o.err == nil {
				o.close()
			}
		}()
		return nil, context.Cause(ctx)
	}
}

func (n *native) session(command string, terminal bool) (*stream, error) {
	session, err := n.client.NewSession()
	if err != nil {
		return nil, err
	}
	if terminal {
		err = session.RequestPty("dumb", 24, 80, nil)
	}
	stdin, err1 := session.StdinPipe()
	stdout, err2 := session.StdoutPipe()
	stderr, err3 := session.StderrPipe()
	if err = errors.Join(err, err1, err2, err3); err == nil {
		err = session.Start(command)
	}
	if err != nil {
		return nil, errors.Join(err, session.Close())
	}
	wait := func() (int, error) {
		err := session.Wait()
		var exit *ssh.ExitError
		if errors.As(err, &exit) && exit.Signal() == "" {
			return exit.ExitStatus(), nil
		}
		return 0, err
	}
	r, w := io.Pipe() // whose two ends may be closed while it writes, which a channel of package ssh does not allow
	go func() {
		_, err := io.Copy(stdin, r)
		_ = r.CloseWithError(err)
		_ = stdin.Close()
	}()
	return &stream{w, stdout, stderr, wait, func() { _ = w.Close(); _ = session.Close() }}, nil
}
