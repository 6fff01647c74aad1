package remote

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"golang.org/x/crypto/ssh"
)

const (
	connectTimeout   = 10 * time.Second
	handshakeTimeout = 30 * time.Second // sshd's name lookups take up to 20 s
	// A connection is closed if a question has no answer and nothing at all has come for keepAliveLimit: on a slow link,
	// the question waits behind a copy. TCP sends again 13 s after a cut of 7 to 12 s (its pauses double from 0.2 s).
	keepAliveInterval = 5 * time.Second
	keepAliveLimit    = 20 * time.Second
	keepAlive         = "keepalive@openssh.com"
)

// native is a connection by this process.
type native struct {
	client *ssh.Client
	socket *socket
	ended  chan struct{}
}

// A socket knows when something came last.
type socket struct {
	net.Conn
	heard atomic.Int64 // Unix time in nanoseconds
}

func (s *socket) Read(p []byte) (int, error) {
	n, err := s.Conn.Read(p)
	if n > 0 {
		s.heard.Store(time.Now().UnixNano())
	}
	return n, err
}

// A login is what a handshake needs, and what the user has answered so far.
type login struct {
	host
	via      transport // nil: directly
	check    hostKeyCheck
	password *string
}

// dialNative connects. It asks the user between two connections, because sshd does not wait as long as a user may need.
func (d *Dialer) dialNative(ctx context.Context, h host, via transport) (t transport, err error) {
	l := login{host: h, via: via}
	for drops := 0; ; {
		t, err = d.tryKeys(ctx, l)
		var unknown *unknownKey
		var locked *lockedKey
		switch {
		case err == nil:
			return t, nil
		case errors.As(err, &unknown):
			err = d.learnHostKey(ctx, h, unknown.key)
		case errors.As(err, &locked):
			_, err = d.openKey(ctx, locked.path)
		case errors.Is(err, errNeedsPassword) && l.password == nil:
			return d.dialWithPassword(ctx, l)
		case errors.Is(err, errDropped) && drops < 5: // MaxStartups drops at random
			drops++
			err = nil
		}
		if err != nil {
			return nil, h.authenticationFailed(ctx, err)
		}
	}
}

// dialWithPassword logs in with a password that the hosts of the group share.
func (d *Dialer) dialWithPassword(ctx context.Context, l login) (t transport, err error) {
	prompt := fmt.Sprintf("Password of %s on %s: ", l.User, l.of())
	err = d.useSecret(ctx, "password of "+l.account(), prompt, func(text string) (err error) {
		l.password = &text
		if t, err = d.tryKeys(ctx, l); err != nil && classOf(err) == Authentication {
			err = fmt.Errorf("%w: %w", errWrong, err)
		}
		return err
	})
	if err != nil {
		return nil, l.authenticationFailed(ctx, err)
	}
	return t, nil
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// tryKeys shakes hands once for each list of algorithms, until the host shows the key that is pinned.
func (d *Dialer) tryKeys(ctx context.Context, l login) (t transport, err error) {
	if l.check, err = d.checkHostKey(l.host); err != nil {
		return nil, err
	}
	var refused error
	for _, algorithms := range l.check.algorithms {
		t, err = d.handshake(ctx, l, algorithms)
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
	// errNeedsPassword ends a handshake with a host that did not accept a key and wants a password.
	errNeedsPassword = errors.New("no key was accepted, and the host asks for a password")
)

func (d *Dialer) handshake(ctx context.Context, l login, algorithms []string) (transport, error) {
	signers, done, err := d.identities(ctx, l.host)
	if err != nil {
		return nil, err
	}
	defer done()
	release, err := d.slot(ctx, l.host)
	if err != nil {
		return nil, err
	}
	defer release()
	tcp, err := dialTCP(ctx, l)
	if err != nil {
		return nil, err
	}
	socket := &socket{Conn: tcp}
	limited, cancel := context.WithTimeoutCause(ctx, handshakeTimeout, errors.New("no answer in the handshake for 30 s"))
	defer cancel()
	stop := context.AfterFunc(limited, func() { _ = socket.Close() })
	a := &answers{login: l, dialer: d, ctx: ctx}
	config := &ssh.ClientConfig{User: l.User, HostKeyAlgorithms: algorithms, HostKeyCallback: a.hostKey,
		Auth: []ssh.AuthMethod{ssh.PublicKeys(signers...), ssh.KeyboardInteractive(a.challenge), ssh.PasswordCallback(a.once)}}
	client, err := a.logIn(socket, config, signers)
	if !stop() { // the socket is closed
		return nil, l.failed(ctx, context.Cause(limited), a.shown)
	}
	if err != nil {
		_ = socket.Close()
		err = l.failed(ctx, err, a.shown)
		if errors.Is(err, errDropped) {
			_ = sleep(ctx, dropPause)
		}
		return nil, err
	}
	return watch(client, socket), nil
}

// logIn shakes hands, and waits for an answer to a question: then sshd no longer counts it as a handshake.
func (a *answers) logIn(socket net.Conn, config *ssh.ClientConfig, signers []ssh.Signer) (*ssh.Client, error) {
	c, channels, requests, err := ssh.NewClientConn(socket, a.address(), config)
	if err != nil {
		return nil, a.replace(signers, err)
	}
	client := ssh.NewClient(c, channels, requests)
	_, _, err = client.SendRequest(keepAlive, true, nil)
	return client, err
}

// dropPause is how long a handshake that was dropped keeps its slot.
const dropPause = time.Second

func dialTCP(ctx context.Context, l login) (socket net.Conn, err error) {
	limited, cancel := context.WithTimeoutCause(ctx, connectTimeout, errors.New("no answer for 10 s"))
	defer cancel()
	if n, ok := l.via.(*native); ok {
		socket, err = n.client.DialContext(limited, "tcp", l.address())
	} else {
		socket, err = new(net.Dialer).DialContext(limited, "tcp", l.address())
	}
	if err != nil && limited.Err() != nil {
		err = context.Cause(limited)
	}
	if err != nil {
		return nil, l.failed(ctx, err, false)
	}
	return socket, nil
}

// answers are what the host gets in a handshake, and what it wanted.
type answers struct {
	login
	dialer *Dialer
	ctx    context.Context
	shown  bool // the host has shown its key
	sent   bool // the password: once, because hosts lock accounts
	wanted bool // the password, and there is none yet
}

func (a *answers) hostKey(address string, from net.Addr, key ssh.PublicKey) error {
	a.shown = true
	return a.check.accept(address, from, key)
}

// once returns the password.
func (a *answers) once() (string, error) {
	switch {
	case a.password == nil:
		a.wanted = true
		return "", errNeedsPassword
	case a.sent:
		return "", errWrong
	}
	a.sent = true
	return *a.password, nil
}

// challenge answers the first hidden question with the password. Other questions are for the user, such as for a code. Each
// is one line behind the name of the host, so that it cannot look like a question of this program.
func (a *answers) challenge(_, instruction string, questions []string, echos []bool) (list []string, err error) {
	list = make([]string, len(questions))
	for i, question := range questions {
		if !a.sent && !echos[i] {
			list[i], err = a.once()
		} else {
			list[i], err = a.dialer.askSecret(a.ctx, a.name+": "+oneLine(instruction+" "+question)+" ")
		}
		if err != nil {
			return nil, err
		}
	}
	return list, nil
}

// replace returns what to ask the user for, instead of the error of a handshake. Package ssh returns the error of the
// last method only.
func (a *answers) replace(signers []ssh.Signer, err error) error {
	for _, s := range signers {
		if k, ok := s.(*lockedKey); ok && k.accepted {
			return k
		}
	}
	if a.wanted {
		return errNeedsPassword
	}
	return err
}

// watch keeps a connection alive, and closes it if the host no longer answers.
func watch(client *ssh.Client, socket *socket) *native {
	n := &native{client, socket, make(chan struct{})}
	go func() {
		_ = client.Wait()
		close(n.ended)
	}()
	go func() {
		for {
			select {
			case <-n.ended:
				return
			case <-time.After(keepAliveInterval):
				n.ping()
			}
		}
	}()
	return n
}

// ping asks a question, and returns when there is an answer, or when the connection has ended.
func (n *native) ping() {
	answered := make(chan struct{})
	go func() {
		_, _, _ = n.client.SendRequest(keepAlive, true, nil) // also a refusal is an answer
		close(answered)
	}()
	asked := time.Now().UnixNano()
	for {
		select {
		case <-answered:
			return
		case <-n.ended:
			return
		case <-time.After(time.Second):
		}
		if silent := time.Duration(time.Now().UnixNano() - max(asked, n.socket.heard.Load())); silent > keepAliveLimit {
			_ = n.client.Close() // ends the question, too
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
	return &stream{stdin, stdout, stderr, wait, func() { _ = session.Close() }}, nil
}
