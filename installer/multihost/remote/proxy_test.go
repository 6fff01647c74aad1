package remote

import (
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"testing"
)

// A proxy is a TCP port in front of another one.
type proxy struct {
	port     int
	accepted atomic.Int64
	sent     atomic.Int64  // bytes to the host
	cutAfter atomic.Int64  // bytes to the host, after which all connections end; 0: never
	frozen   chan struct{} // closed: nothing moves any more
}

func startProxy(t *testing.T, to int) *proxy {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	p := &proxy{port: l.Addr().(*net.TCPAddr).Port, frozen: make(chan struct{})}
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			p.accepted.Add(1)
			out, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", to))
			if err != nil {
				_ = in.Close()
				continue
			}
			go p.move(in, out, nil)
			go p.move(out, in, &p.sent)
		}
	}()
	return p
}

func (p *proxy) move(to, from net.Conn, count *atomic.Int64) {
	defer to.Close()
	defer from.Close()
	buffer := make([]byte, 16<<10)
	for {
		n, err := from.Read(buffer)
		select {
		case <-p.frozen:
			_, _ = io.Copy(io.Discard, from)
			return
		default:
		}
		if count != nil {
			if cut := p.cutAfter.Load(); count.Add(int64(n)) > cut && cut > 0 {
				return
			}
		}
		if _, werr := to.Write(buffer[:n]); err != nil || werr != nil {
			return
		}
	}
}
