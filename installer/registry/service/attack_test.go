package service

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// An attack opens one connection after the other, until its context ends.
type attack struct {
	clients int           // that do so at once
	from    func() string // address
	do      func(net.Conn) error
	hold    int // connections that each client keeps open after do
	pause   time.Duration
}

func (a attack) run(ctx context.Context, tasks *sync.WaitGroup, opened *atomic.Int64, to string) {
	for range a.clients {
		tasks.Go(func() {
			var held []net.Conn
			defer func() {
				for _, conn := range held {
					conn.Close()
				}
			}()
			for ctx.Err() == nil {
				dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(a.from())}}
				conn, err := dialer.DialContext(ctx, "tcp", to)
				if err != nil {
					continue
				}
				opened.Add(1)
				tcp := conn.(*net.TCPConn)
				_ = tcp.SetLinger(0)           // its port is free at once
				_ = tcp.SetReadBuffer(4 << 10) // what is not read is soon in the way
				stop := context.AfterFunc(ctx, func() { tcp.Close() })
				if a.do(conn) != nil {
					conn.Close()
				} else if held = append(held, conn); len(held) > a.hold {
					held[0].Close()
					held = slices.Delete(held, 0, 1)
				}
				stop()
				if a.pause != 0 {
					select {
					case <-ctx.Done():
					case <-time.After(a.pause/2 + rand.N(a.pause)):
					}
				}
			}
		})
	}
}

// sends returns an attack that makes a TLS handshake without a certificate, calls write, and waits until the connection is closed.
// The handshakes of such attacks take turns: many clients need the processors of the server.
func sends(write func(net.Conn) error) func(net.Conn) error {
	return func(conn net.Conn) error {
		secure := tls.Client(conn, &tls.Config{InsecureSkipVerify: true})
		turns <- struct{}{}
		err := secure.Handshake()
		<-turns
		if err == nil {
			err = write(secure)
		}
		if err == nil {
			_, _ = io.Copy(io.Discard, secure)
		}
		return err
	}
}

var turns = make(chan struct{}, 4)

// clientHello returns the first bytes of a TLS client.
func clientHello(t *testing.T) []byte {
	client, server := net.Pipe()
	defer server.Close()
	go tls.Client(client, &tls.Config{InsecureSkipVerify: true}).Handshake()
	b := make([]byte, 16<<10)
	n, err := server.Read(b)
	if err != nil {
		t.Fatal(err)
	}
	return b[:n]
}

// A node that makes a new TLS connection for each request is served, whatever strangers do, from any address. What is counted are
// requests, each of which may take long: attackers and the server share the processors of the test.
func TestNodesAreServedUnderAttack(t *testing.T) {
	own := func() string { return "127.0.0.1" } // as a pod whose connections get the address of its node
	other := func() string { return "127.0.0.9" }
	ofNode := func() string { return "127.0.0.8" } // of another node
	many := func() string { return fmt.Sprintf("127.9.%d.%d", rand.N(256), 1+rand.N(250)) }
	hello := clientHello(t)
	write := func(b []byte) func(net.Conn) error {
		return func(c net.Conn) error { _, err := c.Write(b); return err }
	}
	nothing, half, whole := write(nil), write(hello[:len(hello)/2]), write(hello)
	handshake := func(conn net.Conn) error {
		return tls.Client(conn, &tls.Config{InsecureSkipVerify: true}).Handshake()
	}
	tokens := sends(func(c net.Conn) error {
		_, err := fmt.Fprintf(c, "GET /bundles HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %06x.%016x\r\n\r\n", rand.N(1<<24), rand.Uint64())
		return err
	})
	pipelined := bytes.Repeat([]byte("GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n"), 1000)
	unread := sends(func(c net.Conn) error {
		for {
			if _, err := c.Write(pipelined); err != nil {
				return err
			}
		}
	})
	slow := sends(write([]byte("GET /readyz HTTP/1.1\r\nHost:")))
	const flood, seldom = 1000, 2 * time.Second // connections that each of two clients holds
	for _, row := range []struct {
		name    string
		attacks []attack
	}{
		{"none", nil},
		{"nothing, own address", []attack{{2, own, nothing, flood, 0}}},
		{"nothing, another address", []attack{{2, other, nothing, flood, 0}}},
		{"nothing, many addresses", []attack{{2, many, nothing, flood, 0}}},
		{"half a ClientHello, own address", []attack{{2, own, half, flood, 0}}},
		{"half a ClientHello, another address", []attack{{2, other, half, flood, 0}}},
		{"half a ClientHello, many addresses", []attack{{2, many, half, flood, 0}}},
		// Without a pause, the processor is the limit: the answers need more of it than the attack.
		{"a ClientHello, own address", []attack{{2, own, whole, flood, 20 * time.Millisecond}}},
		{"a ClientHello, another address", []attack{{2, other, whole, flood, 0}}},
		{"a ClientHello, address of another node", []attack{{2, ofNode, whole, flood, 0}}},
		{"a ClientHello, many addresses", []attack{{2, many, whole, flood, 0}}},
		{"handshakes, own address", []attack{{8, own, handshake, 50, 0}}},
		{"handshakes, another address", []attack{{8, other, handshake, 50, 0}}},
		{"handshakes, many addresses", []attack{{8, many, handshake, 50, 0}}},
		{"invented tokens, own address", []attack{{434, own, tokens, 0, seldom}}},
		{"answers that are not read, own address", []attack{{300, own, unread, 0, seldom}}},
		{"all", []attack{
			{2, many, nothing, flood, 10 * time.Millisecond}, {1, own, whole, flood, 20 * time.Millisecond}, {434, own, tokens, 0, seldom}, {300, own, unread, 0, seldom},
			{300, other, unread, 0, seldom}, {100, many, slow, 0, seldom},
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := start(t, nil)
			r.api.mu.Lock()
			r.api.blocking = make(chan struct{}) // a review of a token takes until its limit
			r.api.mu.Unlock()
			neighbour := r.client(t, r.kubelet(t, "host2"))
			neighbour.Transport.(*http.Transport).DialContext = (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(ofNode())}}).DialContext
			if got := r.status(t, neighbour, sending{path: "/readyz"}); got != 200 {
				t.Fatalf("another node: %d", got)
			}
			kept := r.client(t, r.kubelet(t, node))
			if got := r.status(t, kept, sending{path: "/v2/"}); got != 200 {
				t.Fatalf("before the attack: %d", got)
			}
			var tasks sync.WaitGroup
			var opened atomic.Int64
			ctx, cancel := context.WithCancel(t.Context())
			defer tasks.Wait()
			defer cancel()
			for _, a := range row.attacks {
				a.run(ctx, &tasks, &opened, r.connections.Addr().String())
			}
			if row.attacks != nil {
				eventually(t, func() bool { return opened.Load() >= 100 })
			}
			const clients, each = 4, 25
			begun := time.Now()
			var served, keptServed atomic.Int64
			failed := map[string]int{}
			var mu sync.Mutex
			ask := func(client *http.Client, count *atomic.Int64) {
				client.Timeout = 30 * time.Second
				resp, _, err := r.send(t, client, sending{path: "/v2/"})
				if err == nil && resp.StatusCode == 200 {
					count.Add(1)
					return
				}
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					failed[resp.Status]++
				} else {
					failed[err.Error()[max(0, len(err.Error())-40):]]++
				}
			}
			var nodes sync.WaitGroup
			for range clients {
				nodes.Go(func() {
					for range each {
						client := r.client(t, r.kubelet(t, node))
						client.Transport.(*http.Transport).DisableKeepAlives = true
						ask(client, &served)
					}
				})
			}
			nodes.Go(func() {
				for range each {
					ask(kept, &keptServed)
				}
			})
			nodes.Wait()
			t.Logf("served %d of %d over new connections, %d of %d over a kept one, in %s; %d connections of attackers, %d open: %v",
				served.Load(), clients*each, keptServed.Load(), each, time.Since(begun).Round(time.Millisecond), opened.Load(), r.connections.count(), failed)
			if served.Load() < clients*each*99/100 || keptServed.Load() < each {
				t.Errorf("a node is not served: %v", failed)
			}
		})
	}
}

// A waiting client takes the turn of the server before its second message.
type waiting struct {
	net.Conn
	turn             chan struct{}
	writes, received int
	before           int // what was received before the second message
}

func (c *waiting) Write(b []byte) (int, error) {
	if c.writes++; c.writes == 2 {
		c.turn <- struct{}{}
		c.before = c.received
	}
	return c.Conn.Write(b)
}

// buffered are connections whose writes do not wait for the other side.
type buffered struct {
	net.Conn
	sent chan<- []byte
}

func (c buffered) Write(b []byte) (int, error) {
	c.sent <- bytes.Clone(b)
	return len(b), nil
}

func (c *waiting) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.received += n
	return n, err
}

// All that is computed in a handshake has its turn, also the answer to a second ClientHello and the key exchange of TLS 1.2.
func TestHandshakesComputeInTheirTurn(t *testing.T) {
	cert := newAuthority(t).issue(t, "server", nil, x509.ExtKeyUsageServerAuth)
	for name, config := range map[string]*tls.Config{
		"a second ClientHello": {CurvePreferences: []tls.CurveID{tls.CurveP256, tls.CurveP384}}, // it offers a share of the first
		"TLS 1.2":              {MaxVersion: tls.VersionTLS12},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newConnections(nil, func(*tls.ClientHelloInfo) (*tls.Config, error) {
					return &tls.Config{Certificates: []tls.Certificate{*cert}, CurvePreferences: []tls.CurveID{tls.CurveP384}}, nil
				})
				far, near := net.Pipe()
				sent := make(chan []byte, 100)
				go func() {
					for b := range sent {
						_, _ = near.Write(b)
					}
				}()
				conn := &connection{Conn: buffered{near, sent}, address: "192.0.2.1", network: "192.0.2.1"}
				if !c.admit(conn, arriving) {
					t.Fatal("not admitted")
				}
				go c.handshake(conn)
				client := &waiting{Conn: far, turn: c.turn}
				config.InsecureSkipVerify = true
				go tls.Client(client, config).Handshake()
				synctest.Wait()
				if client.writes < 2 || client.received != client.before {
					t.Errorf("after message %d: %d B, and without the turn %d B more", client.writes, client.before, client.received-client.before)
				}
				<-c.turn
				synctest.Wait()
				if client.received <= client.before {
					t.Error("no answer in its turn")
				}
				_, _ = far.Close(), near.Close() // the handshake may have closed them
				c.end(net.ErrClosed)
				synctest.Wait()
				close(sent)
			})
		})
	}
}
