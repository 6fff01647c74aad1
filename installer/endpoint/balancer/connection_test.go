package balancer

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"airlift/internal/fault"
)

func TestPortInUseIsReportedWithTheCommandThatFindsIt(t *testing.T) {
	taken := serve(t, "127.0.0.1:0", echo)
	_, err := Listen(Options{Listen: []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:0"), taken.address}, Log: quietLog})
	if want := fmt.Sprintf("listening on %s: another process uses this port", taken.address); text(err) != want {
		t.Errorf("%v, want %s", err, want)
	}
	if want := fmt.Sprintf("find the process: ss -ltnp 'sport = :%d'", taken.address.Port()); fault.Hint(err) != want {
		t.Errorf("hint %q, want %q", fault.Hint(err), want)
	}
}

func TestHostWithoutIPv6ListensOnIPv4(t *testing.T) {
	// No interface has this address, which is the error of a host without IPv6.
	none := netip.MustParseAddrPort("[2001:db8::1]:0")
	b := build(t, Options{Listen: []netip.AddrPort{none, netip.MustParseAddrPort("127.0.0.1:0")}}, healthy)
	run(t, b)
	if got := b.Status().Listen; len(got) != 1 || !got[0].Addr().Is4() {
		t.Errorf("listens on %v", got)
	}
	if _, err := Listen(Options{Listen: []netip.AddrPort{none}, Log: quietLog}); !errors.Is(err, syscall.EADDRNOTAVAIL) {
		t.Errorf("the only address: %v", err)
	}
}

func TestWithoutAPIServerClientsAreRefusedAtOnce(t *testing.T) {
	for name, o := range map[string]Options{
		"no API server":  {},
		"nobody listens": {Seeds: []netip.AddrPort{unused(), unused()}},
	} {
		b := start(t, o, healthy)
		// The client sees it while it connects, or after that.
		c, err := net.DialTCP("tcp", nil, net.TCPAddrFromAddrPort(b.Status().Listen[0]))
		if err == nil {
			c.SetDeadline(time.Now().Add(patienceOfTests))
			_, err = c.Read(make([]byte, 1))
			c.Close()
		}
		if !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAllChecksFailFailsOpen(t *testing.T) {
	t.Parallel()
	one, two := serve(t, "127.0.0.1:0", hello), serve(t, "127.0.0.1:0", hello)
	c := &checks{}
	b := start(t, Options{Seeds: []netip.AddrPort{one.address, two.address}}, c.check)
	becomes(t, b, one.address, Ready)
	becomes(t, b, two.address, Ready)
	before := greeted(t, b)
	c.set(true, one.address, two.address)
	becomes(t, b, one.address, Down)
	becomes(t, b, two.address, Down)
	greeted(t, b)
	greeted(t, b)
	var open int
	for _, s := range b.Status().Backends {
		open += s.Connections
	}
	// The first API server that is down gives its connections to the other one, which keeps what it has.
	if open < 2 || open > 3 {
		t.Errorf("%d open connections", open)
	}
	c.set(false, two.address)
	becomes(t, b, two.address, Ready)
	eventually(t, "connections of the one that is down are closed", func() bool { return b.Status().of(one.address).Connections == 0 })
	before.Close()
}

func TestLastAPIServerKeepsItsConnections(t *testing.T) {
	t.Parallel()
	only := serve(t, "127.0.0.1:0", hello)
	c := &checks{}
	b := start(t, Options{Seeds: []netip.AddrPort{only.address}}, c.check)
	client := greeted(t, b)
	c.set(true, only.address)
	becomes(t, b, only.address, Down)
	client.Write([]byte("x"))
	if _, err := io.ReadFull(client, make([]byte, 1)); err != nil {
		t.Error(err)
	}
}

func TestClientDoesNotNoticeADialThatFails(t *testing.T) {
	good := serve(t, "127.0.0.1:0", hello)
	dead := []netip.AddrPort{unused(), unused()}
	b := start(t, Options{Seeds: append(dead, good.address)}, healthy)
	eventually(t, "all are ready", func() bool {
		return !slices.ContainsFunc(b.Status().Backends, func(s BackendStatus) bool { return s.State != Ready })
	})
	for range 20 {
		greeted(t, b)
	}
	if n := b.Status().of(good.address).Connections; n != 20 {
		t.Errorf("%d connections", n)
	}
}

// After a restart the saved list may be old, and so may the configuration.
func TestSeedsAndCacheAreTriedTogether(t *testing.T) {
	good := serve(t, "127.0.0.1:0", hello)
	hung := serve(t, "127.0.0.1:0", func(*net.TCPConn) {})
	check := func(ctx context.Context, a netip.AddrPort) error {
		if a != good.address {
			<-ctx.Done()
		}
		return ctx.Err()
	}
	for name, o := range map[string]Options{
		"old configuration": {Seeds: []netip.AddrPort{hung.address, unused()}, Cached: []netip.AddrPort{good.address}},
		"old cache":         {Seeds: []netip.AddrPort{good.address}, Cached: []netip.AddrPort{hung.address, unused()}},
	} {
		t.Run(name, func(t *testing.T) {
			b := start(t, o, check)
			becomes(t, b, good.address, Ready)
			greeted(t, b)
		})
	}
	lists := make(follower)
	other := serve(t, "127.0.0.1:0", hello)
	b := start(t, Options{Seeds: []netip.AddrPort{hung.address}, Cached: []netip.AddrPort{good.address}, Follow: lists.follow}, check)
	lists <- []netip.AddrPort{other.address}
	eventually(t, "the cluster's list replaces both", func() bool { s := b.Status(); return len(s.Backends) == 1 && s.Source == FromCluster })
	greeted(t, b)
}

func TestConnectionsOfARemovedAPIServerAreClosed(t *testing.T) {
	stays, goes := serve(t, "127.0.0.1:0", hello), serve(t, "127.0.0.1:0", hello)
	lists := make(follower)
	b := start(t, Options{Seeds: []netip.AddrPort{stays.address, goes.address}, Follow: lists.follow}, healthy)
	becomes(t, b, stays.address, Ready)
	becomes(t, b, goes.address, Ready)
	var clients []*net.TCPConn
	for range 10 {
		clients = append(clients, greeted(t, b))
	}
	lists <- []netip.AddrPort{stays.address}
	var closed atomic.Int32
	for _, c := range clients {
		go func() {
			c.Read(make([]byte, 1))
			closed.Add(1)
		}()
	}
	eventually(t, "5 of 10 connections are closed", func() bool { return closed.Load() == 5 })
	if n := b.Status().of(stays.address).Connections; n != 5 {
		t.Errorf("%d connections stay", n)
	}
	// Also towards the API server.
	goes.mu.Lock()
	defer goes.mu.Unlock()
	for _, c := range goes.open {
		c.SetDeadline(time.Now().Add(patienceOfTests))
		ended(t, c)
	}
}

// k3s had a deadlock here.
func TestServersComeAndGoUnder1000Connections(t *testing.T) {
	t.Parallel()
	var all []netip.AddrPort
	for range 5 {
		all = append(all, serve(t, "127.0.0.1:0", echo).address)
	}
	lists := make(follower)
	var turn atomic.Uint64
	b := build(t, Options{Listen: []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:0")}, Seeds: all, Follow: lists.follow},
		func(_ context.Context, a netip.AddrPort) error {
			if turn.Add(1)%7 == 0 {
				return errors.New("bad")
			}
			return nil
		})
	run(t, b)
	end := make(chan struct{})
	var clients, storm sync.WaitGroup
	var answers atomic.Int64
	for range 1000 {
		clients.Go(func() {
			for {
				select {
				case <-end:
					return
				default:
				}
				c, err := net.DialTCP("tcp", nil, net.TCPAddrFromAddrPort(b.Status().Listen[0]))
				if err != nil {
					continue
				}
				c.SetDeadline(time.Now().Add(patienceOfTests))
				for range 10 {
					if _, err := c.Write([]byte("ping")); err != nil {
						break
					}
					if _, err := io.ReadFull(c, make([]byte, 4)); err != nil {
						if isTimeout(err) {
							t.Error("a connection hangs")
						}
						break
					}
					answers.Add(1)
				}
				c.Close()
			}
		})
	}
	random := rand.New(rand.NewPCG(1, 2))
	storm.Go(func() {
		for range 300 {
			list := slices.Clone(all)
			random.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
			lists <- list[:1+random.IntN(len(list))]
			time.Sleep(5 * time.Millisecond)
		}
	})
	storm.Wait()
	close(end)
	clients.Wait()
	if answers.Load() == 0 {
		t.Error("no client got an answer")
	}
	eventually(t, "no connection is left", func() bool {
		open := 0
		for _, s := range b.Status().Backends {
			open += s.Connections
		}
		return open == 0
	})
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, be := range b.backends {
		if be.dialing != 0 {
			t.Errorf("%s: %d dials never ended", be.address, be.dialing)
		}
	}
	t.Logf("%d answers", answers.Load())
}

// A client may end its request and still wait for the answer.
func TestEndOfOneDirectionIsPassedOn(t *testing.T) {
	s := serve(t, "127.0.0.1:0", func(c *net.TCPConn) {
		request, _ := io.ReadAll(c)
		fmt.Fprintf(c, "got %s", request)
		c.Close()
	})
	c := connect(t, start(t, Options{Seeds: []netip.AddrPort{s.address}}, healthy))
	c.Write([]byte("all of it"))
	c.CloseWrite()
	if got, err := io.ReadAll(c); string(got) != "got all of it" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}

func TestResetOfAnAPIServerReachesTheClient(t *testing.T) {
	s := serve(t, "127.0.0.1:0", func(c *net.TCPConn) {
		io.ReadFull(c, make([]byte, 1))
		reset(c)
	})
	c := connect(t, start(t, Options{Seeds: []netip.AddrPort{s.address}}, healthy))
	c.Write([]byte("x"))
	if _, err := io.ReadAll(c); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("%v", err)
	}
}

func TestLargeTransfersInBothDirectionsAreIntact(t *testing.T) {
	const size = 64 << 20
	stream := func(seed uint64) io.Reader {
		key := [32]byte{byte(seed)}
		return io.LimitReader(rand.NewChaCha8(key), size)
	}
	sum := func(r io.Reader) []byte {
		h := sha256.New()
		io.Copy(h, r)
		return h.Sum(nil)
	}
	for name, address := range map[string]string{"IPv4": "127.0.0.1:0", "IPv6": "[::1]:0"} {
		t.Run(name, func(t *testing.T) {
			received := make(chan []byte, 1)
			s := serve(t, address, func(c *net.TCPConn) {
				go func() {
					io.Copy(c, stream(1))
					c.CloseWrite()
				}()
				received <- sum(c)
			})
			b := start(t, Options{Listen: []netip.AddrPort{netip.MustParseAddrPort(address)}, Seeds: []netip.AddrPort{s.address}}, healthy)
			c := connect(t, b)
			go func() {
				io.Copy(c, stream(2))
				c.CloseWrite()
			}()
			if !bytes.Equal(sum(c), sum(stream(1))) {
				t.Error("the client received other bytes")
			}
			if !bytes.Equal(<-received, sum(stream(2))) {
				t.Error("the server received other bytes")
			}
		})
	}
}

func TestBalancerIsNotItsOwnBackend(t *testing.T) {
	good := serve(t, "127.0.0.1:0", hello)
	lists := make(follower)
	b := start(t, Options{Follow: lists.follow}, healthy)
	lists <- []netip.AddrPort{b.Status().Listen[0], good.address}
	becomes(t, b, good.address, Ready)
	if got := b.Status().Backends; len(got) != 1 {
		t.Errorf("%+v", got)
	}
	greeted(t, b)
}

func TestStatusShowsWhyAnAPIServerIsDown(t *testing.T) {
	t.Parallel()
	bad := unused()
	var log syncBuffer
	b := start(t, Options{Seeds: []netip.AddrPort{bad}, TLS: newAuthority(t).trust, Log: log.logger()}, nil)
	becomes(t, b, bad, Down)
	if s := b.Status().of(bad); !strings.Contains(s.Error, "connection refused") || s.Since.IsZero() {
		t.Errorf("%+v", s)
	}
	eventually(t, "the log has it", func() bool { return strings.Contains(log.String(), "API server is down") })
}

// Clients that connect and send nothing keep out nobody, and end no connection that is used.
func TestIdleConnectionsMakeRoom(t *testing.T) {
	t.Parallel()
	s := serve(t, "127.0.0.1:0", echo)
	b := start(t, Options{Seeds: []netip.AddrPort{s.address}}, healthy)
	becomes(t, b, s.address, Ready)
	dial := func() *net.TCPConn {
		c, err := net.DialTCP("tcp", nil, net.TCPAddrFromAddrPort(b.Status().Listen[0]))
		if err != nil { // it was closed for another one already
			return nil
		}
		t.Cleanup(func() { c.Close() })
		c.SetDeadline(time.Now().Add(patienceOfTests))
		return c
	}
	use := func(c *net.TCPConn) error {
		c.Write([]byte("x"))
		_, err := io.ReadFull(c, make([]byte, 1))
		return err
	}
	used := connect(t, b)
	used.SetDeadline(time.Time{})
	if err := use(used); err != nil {
		t.Fatal(err)
	}
	for range maxConnections + 200 {
		dial()
	}
	eventually(t, "a new client is served", func() bool { c := dial(); return c != nil && use(c) == nil })
	if err := use(used); err != nil {
		t.Errorf("the client that was there before: %v", err)
	}
	if n := b.Status().of(s.address).Connections; n > maxConnections {
		t.Errorf("%d connections", n)
	}
}
