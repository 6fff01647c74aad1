package balancer

import (
	"io"
	"net"
	"net/netip"
	"runtime"
	"testing"
)

// targets returns by name the address of a server, and the address of a balancer before it.
func targets(b *testing.B, serving func(*net.TCPConn)) map[string]netip.AddrPort {
	s := serve(b, "127.0.0.1:0", serving)
	through := start(b, Options{Seeds: []netip.AddrPort{s.address}}, healthy)
	becomes(b, through, s.address, Ready)
	return map[string]netip.AddrPort{"direct": s.address, "balancer": through.Status().Listen[0]}
}

func dialTo(b *testing.B, address netip.AddrPort) *net.TCPConn {
	c, err := net.DialTCP("tcp", nil, net.TCPAddrFromAddrPort(address))
	if err != nil {
		b.Fatal(err)
	}
	return c
}

func BenchmarkThroughput(b *testing.B) {
	const size = 1 << 20
	chunk := make([]byte, size)
	for name, address := range targets(b, func(c *net.TCPConn) { io.Copy(io.Discard, c); c.Write([]byte("x")); c.Close() }) {
		b.Run(name, func(b *testing.B) {
			c := dialTo(b, address)
			defer c.Close()
			b.SetBytes(size)
			for b.Loop() {
				if _, err := c.Write(chunk); err != nil {
					b.Fatal(err)
				}
			}
			c.CloseWrite()
			io.ReadFull(c, chunk[:1]) // all of it arrived
		})
	}
}

// A request of 200 bytes and its answer.
func BenchmarkRequest(b *testing.B) {
	message := make([]byte, 200)
	for name, address := range targets(b, echo) {
		b.Run(name, func(b *testing.B) {
			c := dialTo(b, address)
			defer c.Close()
			for b.Loop() {
				if _, err := c.Write(message); err != nil {
					b.Fatal(err)
				}
				if _, err := io.ReadFull(c, message); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// A connection, one byte, and its end.
func BenchmarkConnect(b *testing.B) {
	for name, address := range targets(b, hello) {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				c := dialTo(b, address)
				if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
					b.Fatal(err)
				}
				reset(c)
			}
		})
	}
}

// The memory of Go's heap and stacks for one open connection, with the ends of client and server in this process.
func BenchmarkMemoryPerConnection(b *testing.B) {
	for name, address := range targets(b, hello) {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				const n = 1000
				before := memory()
				open := make([]*net.TCPConn, n)
				for i := range open {
					open[i] = dialTo(b, address)
					io.ReadFull(open[i], make([]byte, 1))
				}
				b.ReportMetric(float64(memory()-before)/n, "B/connection")
				for _, c := range open {
					reset(c)
				}
			}
		})
	}
}

func memory() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse + m.StackInuse)
}
