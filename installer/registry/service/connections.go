package service

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"time"
)

// A kind of connections has limits of its own: whoever is not known takes nothing from nodes.
type kind int

const (
	handshaking kind = iota // who it is from is not known yet
	stranger                // its client has no certificate of a kubelet, and no token that is valid
	identified              // a node, or a joining host whose token was valid
)

// limits are for all connections of a kind, and for those of one owner: a node by the name in its certificate, everybody else by
// address. Pods have the address of their node, so its kubelet may share a limit with them until its handshake has ended. Each
// connection needs some 50 KiB. A node pulls several layers at once, with a connection for each.
var limits = map[kind]struct{ all, each int }{handshaking: {256, 64}, stranger: {128, 32}, identified: {512, 48}}

// A connections is a listener for TLS. It ends handshakes before it returns a connection. Beyond a limit, it closes another
// connection for a new one: of the owner who has the most, the oldest one. A busy connection of somebody who is known stays;
// if all are busy, the new one is closed.
type connections struct {
	net.Listener
	config *tls.Config
	ready  chan net.Conn
	ended  context.Context // its cause is the error of the listener
	end    context.CancelCauseFunc
	tasks  sync.WaitGroup

	mu   sync.Mutex
	open map[net.Conn]connection
}

type connection struct {
	kind  kind
	owner string
	since time.Time // when it came, or, if it is known, since when it waits for a request
	busy  bool      // known, and it has a request
}

// newConnections begins to accept connections.
func newConnections(l net.Listener, config *tls.Config) *connections {
	c := &connections{Listener: l, config: config, ready: make(chan net.Conn), open: map[net.Conn]connection{}}
	c.ended, c.end = context.WithCancelCause(context.Background())
	if l != nil {
		c.tasks.Go(c.run)
	}
	return c
}

// outOfFiles is how long to wait after an accept that failed with one of lacks.
const outOfFiles = 50 * time.Millisecond

var lacks = []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM}

// run begins handshakes until the listener is closed.
func (c *connections) run() {
	for {
		raw, err := c.Listener.Accept()
		if slices.ContainsFunc(lacks, func(lack error) bool { return errors.Is(err, lack) }) {
			time.Sleep(outOfFiles)
			continue
		}
		if err != nil {
			c.end(err)
			return
		}
		conn := tls.Server(raw, c.config)
		if c.admit(conn, handshaking, addressOf(raw)) {
			c.tasks.Go(func() { c.handshake(conn) })
		}
	}
}

// handshake ends the handshake of a connection, and passes it on.
func (c *connections) handshake(conn *tls.Conn) {
	ctx, cancel := context.WithTimeout(c.ended, headerTimeout)
	defer cancel()
	_ = conn.SetDeadline(time.Now().Add(headerTimeout))
	if conn.HandshakeContext(ctx) != nil {
		c.forget(conn)
		drop(conn)
		return
	}
	_ = conn.SetDeadline(time.Time{})
	k, owner := stranger, addressOf(conn)
	if name := nodeName(conn.ConnectionState()); name != "" {
		k, owner = identified, nodeUserPrefix+name
	}
	if !c.admit(conn, k, owner) {
		return
	}
	select {
	case c.ready <- conn:
	case <-c.ended.Done():
		c.forget(conn)
		drop(conn)
	}
}

// Accept returns a connection after its handshake.
func (c *connections) Accept() (net.Conn, error) {
	select {
	case conn := <-c.ready:
		return conn, nil
	case <-c.ended.Done():
		return nil, context.Cause(c.ended)
	}
}

// Close ends handshakes, too.
func (c *connections) Close() error {
	err := c.Listener.Close()
	c.end(net.ErrClosed)
	c.tasks.Wait()
	return err
}

// admit counts a connection as one of a kind, and makes room for it. If there is none, it closes the connection.
func (c *connections) admit(conn net.Conn, k kind, owner string) bool {
	c.mu.Lock()
	before, counted := c.open[conn]
	if !counted && k != handshaking { // it was closed for another one
		c.mu.Unlock()
		return false
	}
	delete(c.open, conn)
	victim, room := c.room(k, owner)
	delete(c.open, victim)
	if room {
		c.open[conn] = connection{kind: k, owner: owner, since: time.Now(), busy: before.busy}
	} else {
		victim = conn
	}
	c.mu.Unlock()
	if victim != nil {
		drop(victim)
	}
	return room
}

// room reports whether there is room for one more connection, after victim is closed, which may be nil.
func (c *connections) room(k kind, owner string) (victim net.Conn, room bool) {
	counts, all := map[string]int{}, 0
	for _, is := range c.open {
		if is.kind == k {
			counts[is.owner]++
			all++
		}
	}
	full := counts[owner] >= limits[k].each
	if !full && all < limits[k].all {
		return nil, true
	}
	for conn, is := range c.open {
		if is.kind != k || is.busy || full && is.owner != owner {
			continue
		}
		if v := c.open[victim]; victim == nil || counts[is.owner] > counts[v.owner] || counts[is.owner] == counts[v.owner] && is.since.Before(v.since) {
			victim = conn
		}
	}
	return victim, victim != nil
}

// identify counts the connection of a request, whose token is valid, as known.
func (c *connections) identify(r *http.Request) {
	conn, _ := r.Context().Value(connectionKey{}).(net.Conn)
	if conn == nil || c.isIdentified(r) {
		return
	}
	if c.admit(conn, identified, addressOf(conn)) {
		c.follow(conn, http.StateActive)
	}
}

// isIdentified reports whether the connection of a request is known.
func (c *connections) isIdentified(r *http.Request) bool {
	conn, _ := r.Context().Value(connectionKey{}).(net.Conn)
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.open[conn].kind == identified
}

// connectionKey is the key of the connection in the context of its requests.
type connectionKey struct{}

// remember is the hook ConnContext of the server.
func (c *connections) remember(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, connectionKey{}, conn)
}

// addressOf returns the address of a client without its port.
func addressOf(conn net.Conn) string { return withoutPort(conn.RemoteAddr().String()) }

func withoutPort(address string) string {
	a, err := netip.ParseAddrPort(address)
	if err != nil {
		return address
	}
	return a.Addr().Unmap().String()
}

// drop closes a connection without the end of TLS, which would wait for a client that does not read. The kernel still sends
// what it has of the last answer.
func drop(conn net.Conn) {
	if t, ok := conn.(*tls.Conn); ok {
		conn = t.NetConn()
	}
	conn.Close()
}

// follow is the hook ConnState of the server.
func (c *connections) follow(conn net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	is, counted := c.open[conn]
	switch {
	case !counted:
	case state == http.StateClosed || state == http.StateHijacked:
		delete(c.open, conn)
	case is.kind == identified && (state == http.StateActive || state == http.StateIdle):
		is.busy, is.since = state == http.StateActive, time.Now()
		c.open[conn] = is
	}
}

func (c *connections) forget(conn net.Conn) { c.follow(conn, http.StateClosed) }

func (c *connections) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.open)
}
