package balancer

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// dialTimeout has room for one lost packet: Linux sends the second SYN after 1 s.
	dialTimeout = 1500 * time.Millisecond
	// userTimeout is after how long without an acknowledgement the kernel closes the connection to an API
	// server. It is for the last API server, whose connections no check closes.
	userTimeout = 8 * time.Second
)

// dialBackend connects to an API server.
func dialBackend(ctx context.Context, address netip.AddrPort) (*net.TCPConn, error) {
	dialer := net.Dialer{
		Timeout:         dialTimeout,
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: userTimeout / 2, Interval: userTimeout / 4, Count: 2},
		Control: func(_, _ string, c syscall.RawConn) (err error) {
			return errors.Join(c.Control(func(fd uintptr) {
				err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(userTimeout.Milliseconds()))
			}), err)
		},
	}
	return dialer.DialTCP(ctx, "tcp", netip.AddrPort{}, address)
}

// A connection is a client's connection and the one to an API server that belongs to it.
type connection struct{ client, server *net.TCPConn }

// close ends both halves at once, with RST. It may be called more than once.
func (c *connection) close() {
	reset(c.client)
	reset(c.server)
}

func reset(c *net.TCPConn) {
	c.SetLinger(0)
	c.Close()
}

func closeAll(open []*connection) {
	for _, c := range open {
		c.close()
	}
}

// relay copies both directions until both have ended. The kernel moves the bytes (splice), so there are no
// buffers.
func (c *connection) relay() {
	defer c.client.Close()
	defer c.server.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.copy(c.server, c.client)
	}()
	c.copy(c.client, c.server)
	<-done
}

// copy passes on the end of one direction only, as a client that sends no more may still read. A reset
// ends both directions.
func (c *connection) copy(to, from *net.TCPConn) {
	if _, err := to.ReadFrom(from); err != nil {
		c.close()
		return
	}
	to.CloseWrite()
}

// info is what the kernel knows of the connection to the API server. It is empty after the end.
func (c *connection) info() *unix.TCPInfo {
	raw, err := c.server.SyscallConn()
	if err != nil {
		return new(unix.TCPInfo)
	}
	var info *unix.TCPInfo
	if controlErr := raw.Control(func(fd uintptr) {
		info, err = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
	}); controlErr != nil || err != nil {
		return new(unix.TCPInfo)
	}
	return info
}

// quiet is how long no byte went to or came from the API server.
func (c *connection) quiet() time.Duration {
	info := c.info()
	return time.Duration(min(info.Last_data_sent, info.Last_data_recv)) * time.Millisecond
}

// idle is as quiet, and an hour longer for a client that has sent nothing that an API server answers.
func (c *connection) idle() time.Duration {
	if c.info().Bytes_received == 0 {
		return time.Hour + c.quiet()
	}
	return c.quiet()
}

// maxConnections is how many connections are forwarded at once. A node has some ten. Each needs six files (two sockets, and two
// pipes of splice), of LimitNOFILE in the unit, and some 10 KiB of memory.
const maxConnections = 1024

// makeRoom closes a connection if there are maxConnections: of a sample, the one that has been idle for the longest time. So clients
// that connect and send nothing keep out no others. It returns false if there is none to close. b.mu is locked.
func (b *Balancer) makeRoom() bool {
	const sample = 16 // each takes system calls
	all := 0
	var open []*connection
	for _, be := range b.backends {
		all += be.load()
		open = slices.AppendSeq(open, maps.Keys(be.open))
	}
	if all < maxConnections {
		return true
	}
	rand.Shuffle(len(open), func(i, j int) { open[i], open[j] = open[j], open[i] })
	c := longest(open[:min(sample, len(open))], 0, (*connection).idle)
	if c == nil {
		return false
	}
	for _, be := range b.backends {
		delete(be.open, c)
	}
	b.tasks.Go(c.close) // it waits for who reads from it
	return true
}

// handle forwards one client's connection.
func (b *Balancer) handle(ctx context.Context, client *net.TCPConn) {
	c, be := b.connect(ctx, client)
	if c == nil {
		reset(client)
		return
	}
	c.relay()
	b.mu.Lock()
	delete(be.open, c)
	b.mu.Unlock()
}

// connect dials one backend after the other, until one answers. It returns nil if none does, or if there is no room.
func (b *Balancer) connect(ctx context.Context, client *net.TCPConn) (*connection, *backend) {
	var tried []*backend
	for ctx.Err() == nil {
		be := b.candidate(tried)
		if be == nil {
			return nil, nil
		}
		tried = append(tried, be)
		server, err := b.dial(ctx, be.address)
		if c := b.dialed(ctx, be, client, server, err); c != nil {
			return c, be
		}
	}
	return nil, nil
}

// dialed ends an attempt to dial. It returns nil if the dial failed, or if meanwhile the backend was removed
// or the balancer ended.
func (b *Balancer) dialed(ctx context.Context, be *backend, client, server *net.TCPConn, err error) *connection {
	b.mu.Lock()
	defer b.mu.Unlock()
	be.dialing--
	useless := ctx.Err() != nil || !slices.Contains(b.backends, be)
	switch {
	case err != nil && !useless:
		be.dialFailed(err)
		return nil
	case err != nil:
		return nil
	case useless:
		server.Close()
		return nil
	}
	c := &connection{client, server}
	be.open[c] = struct{}{}
	return c
}
