package service

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// An attack opens connections until ctx ends, each of many clients one after the other. The handshakes of all attacks take turns:
// their clients need the processors of the server.
type attack struct {
	name    string
	clients int
	from    string // address
	tls     bool
	send    func(net.Conn) // until the connection is closed
}

func (a attack) run(ctx context.Context, tasks *sync.WaitGroup, opened *atomic.Int64, turns chan struct{}, to string, trust *tls.Config) {
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(a.from)}}
	for range a.clients {
		tasks.Go(func() {
			for ctx.Err() == nil {
				turns <- struct{}{}
				conn, err := dialer.DialContext(ctx, "tcp", to)
				opened.Add(1)
				if err == nil {
					_ = conn.(*net.TCPConn).SetReadBuffer(4 << 10) // what is not read is soon in the way
				}
				if err == nil && a.tls {
					secure := tls.Client(conn, trust)
					_ = conn.SetDeadline(time.Now().Add(patience))
					err = secure.HandshakeContext(ctx)
					conn = secure
				}
				<-turns
				if conn != nil {
					stop := context.AfterFunc(ctx, func() { drop(conn) })
					if err == nil {
						a.send(conn)
					}
					stop()
					drop(conn)
				}
				select {
				case <-ctx.Done():
				case <-time.After(time.Second + rand.N(2*time.Second)):
				}
			}
		})
	}
}

// Nodes are served while strangers, from the node's own address too, hold all that they get: they send invented tokens while the
// API is slow, many requests whose answers they do not read, requests that do not end, and nothing.
func TestNodesAreServedUnderAttack(t *testing.T) {
	r := start(t, nil)
	r.api.mu.Lock()
	r.api.blocking = make(chan struct{}) // a review takes until its limit
	r.api.mu.Unlock()
	ctx, cancel := context.WithCancel(t.Context())
	var tasks sync.WaitGroup
	var opened atomic.Int64
	turns := make(chan struct{}, 4)
	defer tasks.Wait()
	defer cancel()
	wait := func(c net.Conn) { _, _ = io.Copy(io.Discard, c) }
	many := bytes.Repeat([]byte("GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n"), 1000)
	attacks := []attack{
		{"invented tokens", 434, "127.0.0.1", true, func(c net.Conn) {
			fmt.Fprintf(c, "GET /bundles HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %06x.%016x\r\n\r\n", rand.N(1<<24), rand.Uint64())
			wait(c)
		}},
		{"answers that are not read", 300, "127.0.0.1", true, func(c net.Conn) {
			for err := error(nil); err == nil; {
				_, err = c.Write(many)
			}
		}},
		{"answers that are not read, from elsewhere", 300, "127.0.0.2", true, func(c net.Conn) {
			for err := error(nil); err == nil; {
				_, err = c.Write(many)
			}
		}},
		{"half a request", 100, "127.0.0.3", true, func(c net.Conn) { _, _ = io.WriteString(c, "GET /readyz HTTP/1.1\r\nHost:"); wait(c) }},
		{"nothing", 100, "127.0.0.1", false, wait},
	}
	for _, a := range attacks {
		a.run(ctx, &tasks, &opened, turns, r.connections.Addr().String(), r.trust(nil))
	}
	eventually(t, func() bool { return opened.Load() >= 1234 }) // each has begun
	const requests = 200
	kept := r.client(t, r.kubelet(t, node))
	served, failed := 0, map[string]int{}
	for n := range requests {
		client := kept
		if n%2 == 0 {
			client = r.client(t, r.kubelet(t, node))
			client.Transport.(*http.Transport).DisableKeepAlives = true
		}
		client.Timeout = 30 * time.Second
		resp, _, err := r.send(t, client, sending{path: "/v2/"})
		switch {
		case err != nil:
			failed["no answer"]++
		case resp.StatusCode != 200:
			failed[resp.Status]++
		default:
			served++
		}
		if n+1-served > requests/100 {
			t.Fatalf("a node was served %d of %d times: %v; %d connections", served, n+1, failed, r.connections.count())
		}
	}
	t.Logf("a node was served %d of %d times: %v; %d connections", served, requests, failed, r.connections.count())
}
