package service

import (
	"crypto/tls"
	"net"
	"net/http"
	"sync"
	"time"
)

// maxConnections limits memory and descriptors: each needs some 50 KiB. The nodes of a cluster have up to three each.
const maxConnections = 512

// A connections is a listener with a limit. Beyond it, the connection that waits longest for its next request is closed
// for a new one; if all of them are busy, the new one is closed.
type connections struct {
	net.Listener
	limit int

	mu   sync.Mutex
	open map[net.Conn]connection
}

type connection struct {
	quiet time.Time // since when it waits for a request
	busy  bool
}

func newConnections(l net.Listener, limit int) *connections {
	return &connections{Listener: l, limit: limit, open: map[net.Conn]connection{}}
}

func (c *connections) Accept() (net.Conn, error) {
	for {
		conn, err := c.Listener.Accept()
		if err != nil {
			return nil, err
		}
		close, admitted := c.admit(conn)
		if close != nil {
			drop(close)
		}
		if admitted {
			return conn, nil
		}
	}
}

// admit counts a new connection. close is the one to close for it, perhaps itself.
func (c *connections) admit(conn net.Conn) (close net.Conn, admitted bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.open) >= c.limit {
		close = c.quietest()
		if close == nil {
			return conn, false
		}
		delete(c.open, close)
	}
	c.open[conn] = connection{quiet: time.Now()}
	return close, true
}

// quietest returns the connection that waits longest for a request, nil if all are busy.
func (c *connections) quietest() (oldest net.Conn) {
	for conn, is := range c.open {
		if !is.busy && (oldest == nil || is.quiet.Before(c.open[oldest].quiet)) {
			oldest = conn
		}
	}
	return oldest
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
	if _, counted := c.open[conn]; !counted {
		return
	}
	switch state {
	case http.StateActive:
		c.open[conn] = connection{busy: true}
	case http.StateIdle:
		c.open[conn] = connection{quiet: time.Now()}
	case http.StateClosed, http.StateHijacked:
		delete(c.open, conn)
	}
}

func (c *connections) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.open)
}
