package balancer

import (
	"bytes"
	"hash/maphash"
	"io"
	"log/slog"
	"net/netip"
	"sync"
	"testing"
	"time"
)

// syncBuffer is a log for tests.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func (s *syncBuffer) logger() *slog.Logger { return slog.New(slog.NewTextHandler(s, nil)) }

// aNode returns a balancer whose backends have been ready for long.
func aNode(t *testing.T, addresses ...netip.AddrPort) *Balancer {
	b := build(t, Options{}, healthy)
	for _, a := range addresses {
		be := newBackend(a, maphash.Comparable(b.seed, a), nil)
		be.state, be.since = Ready, time.Now().Add(-time.Hour)
		b.backends = append(b.backends, be)
	}
	return b
}

// open adds n connections without sockets.
func (b *Balancer) opens(n int) {
	for range n {
		be := b.candidate(nil)
		be.dialing--
		be.open[&connection{}] = struct{}{}
	}
}

// moves repeats what rebalance does until nothing is to move, and returns the number of moves.
func (b *Balancer) moves() (n int) {
	for open := b.surplus(); len(open) > 0 && n < 10000; open = b.surplus() {
		for _, be := range b.backends {
			delete(be.open, open[0])
		}
		b.opens(1)
		n++
	}
	return n
}

func TestConnectionsSpreadOverReadyAPIServers(t *testing.T) {
	b := aNode(t, first, second, third)
	b.opens(31)
	for _, s := range b.Status().Backends {
		if s.Connections < 10 || s.Connections > 11 {
			t.Errorf("%+v", s)
		}
	}
	if n := b.moves(); n != 0 {
		t.Errorf("%d connections move although they are spread", n)
	}
}

// After each API server in turn was restarted, the last one has no connections, and HTTP/2 clients open none.
func TestConnectionsReturnAfterARollingUpgrade(t *testing.T) {
	for _, perNode := range []int{1, 2, 5, 9} {
		total := map[netip.AddrPort]int{}
		const nodes = 600
		for range nodes {
			b := aNode(t, first, second, third)
			b.opens(perNode)
			for _, be := range b.backends {
				be.state = Down
				lost := be.takeConnections()
				b.opens(len(lost))
				be.state = Ready
			}
			if n := b.moves(); n > perNode {
				t.Errorf("%d moves of %d connections", n, perNode)
			}
			for _, s := range b.Status().Backends {
				total[s.Address] += s.Connections
			}
		}
		t.Logf("%d connections on each of %d nodes: %v", perNode, nodes, total)
		for a, n := range total {
			if fair := nodes * perNode / 3; n < fair*3/4 || n > fair*5/4 {
				t.Errorf("%d connections per node: %s has %d, fair is %d", perNode, a, n, fair)
			}
		}
	}
}

func TestNothingMovesToAnAPIServerThatHasJustReturned(t *testing.T) {
	b := aNode(t, first, second, third)
	b.backends[2].state = Down
	b.opens(9)
	b.backends[2].become(Ready)
	if open := b.surplus(); open != nil {
		// The two others may differ by one.
		if n := b.moves(); n > 1 || b.backends[2].load() != 0 {
			t.Errorf("%d connections move", n)
		}
	}
}

func TestOnlyQuietConnectionsMove(t *testing.T) {
	t.Parallel()
	one, two := serve(t, "127.0.0.1:0", hello), serve(t, "127.0.0.1:0", hello)
	c := &checks{}
	c.set(true, two.address)
	b := start(t, Options{Seeds: []netip.AddrPort{one.address, two.address}}, c.check)
	becomes(t, b, one.address, Ready)
	becomes(t, b, two.address, Down)
	busy := greeted(t, b)
	for range 3 {
		greeted(t, b)
	}
	use := func() {
		busy.Write([]byte("x"))
		if _, err := io.ReadFull(busy, make([]byte, 1)); err != nil {
			t.Fatalf("the busy connection was closed: %v", err)
		}
	}
	use() // until then, it is the most quiet one
	c.set(false, two.address)
	becomes(t, b, two.address, Ready)
	b.mu.Lock()
	for _, be := range b.backends {
		be.since = time.Now().Add(-time.Hour)
	}
	b.mu.Unlock()
	moved := func() bool { return b.Status().of(one.address).Connections <= 2 }
	eventually(t, "two connections are closed", func() bool {
		use()
		return moved()
	})
}
