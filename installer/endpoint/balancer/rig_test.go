package balancer

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// patienceOfTests is for what takes moments, also on a loaded machine.
const patienceOfTests = time.Minute

// quietLog is the log of tests that do not read it.
var quietLog = slog.New(slog.DiscardHandler)

// healthy is a check that always succeeds.
func healthy(context.Context, netip.AddrPort) error { return nil }

// checks are checks whose results a test sets.
type checks struct {
	mu  sync.Mutex
	bad map[netip.AddrPort]bool
}

func (c *checks) set(bad bool, addresses ...netip.AddrPort) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.bad == nil {
		c.bad = map[netip.AddrPort]bool{}
	}
	for _, a := range addresses {
		c.bad[a] = bad
	}
}

func (c *checks) check(_ context.Context, a netip.AddrPort) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.bad[a] {
		return errors.New("bad")
	}
	return nil
}

// build returns a balancer with a check that a test controls.
func build(t testing.TB, o Options, check func(context.Context, netip.AddrPort) error) *Balancer {
	t.Helper()
	if o.Log == nil {
		o.Log = quietLog
	}
	b, err := Listen(o)
	if err != nil {
		t.Fatal(err)
	}
	if check != nil {
		b.check = check
	}
	return b
}

// run runs a balancer until the test ends. The test fails if it then does not end: some goroutine leaks.
func run(t testing.TB, b *Balancer) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- b.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("Run: %v", err)
			}
		case <-time.After(patienceOfTests):
			t.Error("Run does not end")
		}
	})
}

// start builds and runs a balancer on a free port.
func start(t testing.TB, o Options, check func(context.Context, netip.AddrPort) error) *Balancer {
	t.Helper()
	if o.Listen == nil {
		o.Listen = []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:0")}
	}
	b := build(t, o, check)
	run(t, b)
	return b
}

// follower is a Follow that a test feeds.
type follower chan []netip.AddrPort

func (f follower) follow(ctx context.Context, use func([]netip.AddrPort)) {
	for {
		select {
		case list := <-f:
			use(list)
		case <-ctx.Done():
			return
		}
	}
}

// A server is a backend of tests: it answers each connection with serve.
type server struct {
	address  netip.AddrPort
	listener *net.TCPListener
	mu       sync.Mutex
	open     []*net.TCPConn
}

// echo returns what it gets.
func echo(c *net.TCPConn) {
	io.Copy(c, c)
	c.Close()
}

// hello sends a byte, and then waits for the client to end.
func hello(c *net.TCPConn) {
	c.Write([]byte("h"))
	echo(c)
}

func serve(t testing.TB, address string, do func(*net.TCPConn)) *server {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	s := &server{address: l.Addr().(*net.TCPAddr).AddrPort(), listener: l.(*net.TCPListener)}
	go func() {
		for {
			c, err := s.listener.AcceptTCP()
			if err != nil {
				return
			}
			s.mu.Lock()
			s.open = append(s.open, c)
			s.mu.Unlock()
			go do(c)
		}
	}()
	t.Cleanup(s.kill)
	return s
}

// kill ends a server as the kernel does it for a process.
func (s *server) kill() {
	s.listener.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.open {
		reset(c)
	}
}

// unused returns an address that nobody listens on: not of a port that the kernel may give to another test.
func unused() netip.AddrPort {
	n := unusedCount.Add(1)
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 1, byte(n >> 8), byte(n)}), 1)
}

var unusedCount atomic.Uint32

func connect(t testing.TB, b *Balancer) *net.TCPConn {
	t.Helper()
	c, err := net.DialTCP("tcp", nil, net.TCPAddrFromAddrPort(b.Status().Listen[0]))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(patienceOfTests))
	return c
}

// greeted connects, and waits for the byte of hello.
func greeted(t testing.TB, b *Balancer) *net.TCPConn {
	t.Helper()
	c := connect(t, b)
	if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	return c
}

// ended waits until a connection is closed from the other side.
func ended(t testing.TB, c *net.TCPConn) {
	t.Helper()
	if _, err := io.Copy(io.Discard, c); errors.Is(err, context.DeadlineExceeded) || isTimeout(err) {
		t.Error("the connection was not closed")
	}
}

func isTimeout(err error) bool {
	var e net.Error
	return errors.As(err, &e) && e.Timeout()
}

func eventually(t testing.TB, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(patienceOfTests); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it did not happen: %s", what)
		}
	}
}

// of returns the status of one backend; the zero value if it does not exist.
func (s Status) of(a netip.AddrPort) (found BackendStatus) {
	if i := slices.IndexFunc(s.Backends, func(b BackendStatus) bool { return b.Address == a }); i >= 0 {
		found = s.Backends[i]
	}
	return found
}

func becomes(t testing.TB, b *Balancer, a netip.AddrPort, s State) {
	t.Helper()
	eventually(t, a.String()+" becomes "+string(s), func() bool { return b.Status().of(a).State == s })
}
