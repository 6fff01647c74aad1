package model

import (
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// A stream is one direction of a connection. It takes everything that is written.
type stream struct {
	mu       sync.Mutex
	changed  sync.Cond
	data     []byte
	ended    bool // by the writer
	broken   bool // by the reader
	deadline time.Time
	timer    *time.Timer
}

func newStream() *stream {
	s := &stream{}
	s.changed.L = &s.mu
	return s
}

func (s *stream) read(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		switch {
		case s.broken:
			return 0, net.ErrClosed
		case !s.deadline.IsZero() && !time.Now().Before(s.deadline):
			return 0, os.ErrDeadlineExceeded
		case len(s.data) > 0:
			n := copy(p, s.data)
			s.data = s.data[n:]
			return n, nil
		case s.ended:
			return 0, io.EOF
		}
		s.changed.Wait()
	}
}

func (s *stream) write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return 0, net.ErrClosed
	}
	if s.broken {
		return 0, &net.OpError{Op: "write", Net: "tcp", Err: os.NewSyscallError("write", syscall.ECONNRESET)}
	}
	s.data = append(s.data, p...)
	s.changed.Broadcast()
	return len(p), nil
}

func (s *stream) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
	s.changed.Broadcast()
}

// An end is one end of a connection.
type end struct {
	in, out *stream
	addr    net.Addr
}

// newPipe returns the two ends of a connection.
func newPipe() (one, other *end) {
	a, b := newStream(), newStream()
	return &end{in: a, out: b, addr: addr("model")}, &end{in: b, out: a, addr: addr("model")}
}

func (e *end) Read(p []byte) (int, error)  { return e.in.read(p) }
func (e *end) Write(p []byte) (int, error) { return e.out.write(p) }
func (e *end) LocalAddr() net.Addr         { return e.addr }
func (e *end) RemoteAddr() net.Addr        { return e.addr }

func (e *end) Close() error {
	e.in.set(func() { e.in.broken, e.in.data = true, nil })
	e.out.set(func() { e.out.ended = true })
	return nil
}

func (e *end) SetDeadline(t time.Time) error  { return e.SetReadDeadline(t) }
func (*end) SetWriteDeadline(time.Time) error { return nil }

func (e *end) SetReadDeadline(t time.Time) error {
	e.in.set(func() {
		if e.in.timer != nil {
			e.in.timer.Stop()
		}
		e.in.deadline = t
		if wait := time.Until(t); !t.IsZero() && wait > 0 {
			e.in.timer = time.AfterFunc(wait, func() { e.in.set(func() {}) })
		}
	})
	return nil
}
