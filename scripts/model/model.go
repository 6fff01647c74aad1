// Package model runs the flows of the installer against hosts, an etcd and a cluster in memory. A test draws
// sequences of commands, with crashes between their changes, and checks after each what must always hold:
// docs/architecture.md lists that, and what the model does not have.
package model

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// A World is the site: its hosts, and what they have in common. It lives in one synctest bubble.
type World struct {
	ctx  context.Context // ends with the world
	end  context.CancelFunc
	done sync.WaitGroup

	mu        sync.Mutex // guards everything in the world
	hosts     []*Host
	listeners map[string]*listener // by address, see Host.address
	clusters  map[uint64]*etcdCluster
	conns     map[*conn]bool
	log       []string      // what happened, for a failure
	managed   int64         // the revision at which the controllers had nothing to do
	violation error         // what must not happen, and has happened
	jumping   chan struct{} // closed at the end of a jump of the clocks; nil if there is none
	holder    int           // the index of the host that has the address of the endpoint
	network   lan           // on which addresses of Services are announced
}

// NewWorld creates a site whose hosts are directories below dir.
func NewWorld(dir string, hosts int) (*World, error) {
	w := &World{listeners: map[string]*listener{}, clusters: map[uint64]*etcdCluster{}, conns: map[*conn]bool{}}
	time.Sleep(time.Until(start))
	w.ctx, w.end = context.WithCancel(context.Background())
	for i := range hosts {
		h := &Host{
			world: w, Name: fmt.Sprintf("host%d", i+1), IP: fmt.Sprintf("10.0.0.%d", i+1),
			Root: filepath.Join(dir, fmt.Sprintf("host%d", i+1)), units: map[string]*unit{}, store: newImageStore(), pods: map[string]*pod{}, waiting: map[string]waiting{}, timer: make(chan struct{}, 1),
		}
		if err := h.prepare(i + 1); err != nil {
			return nil, err
		}
		w.hosts = append(w.hosts, h)
	}
	w.run(time.Second/2, w.controllers)
	for _, h := range w.hosts {
		w.run(time.Minute, h.fireTimer)
		w.run(time.Second, h.approve)
		w.run(time.Second, h.syncSpeaker)
	}
	return w, w.writeInstallers()
}

// Close ends everything that runs in the world.
func (w *World) Close() {
	w.end()
	w.mu.Lock()
	var left []*conn
	for c := range w.conns {
		left = append(left, c)
	}
	listeners := w.listeners
	w.listeners = map[string]*listener{}
	w.mu.Unlock()
	for _, l := range listeners {
		l.Close()
	}
	for _, c := range left {
		c.Close()
	}
	w.done.Wait()
}

// run calls do again and again, until the world ends.
func (w *World) run(every time.Duration, do func()) (stop func()) {
	ctx, cancel := context.WithCancel(w.ctx)
	w.done.Go(func() {
		timer := time.NewTimer(every)
		defer timer.Stop()
		for {
			select {
			case <-timer.C:
			case <-ctx.Done():
				return
			}
			w.mu.Lock()
			jump := w.jumping
			w.mu.Unlock()
			if jump != nil {
				<-jump
			} else {
				do()
			}
			timer.Reset(every)
		}
	})
	return cancel
}

// jump lets the clocks jump.
func (w *World) jump(d time.Duration) {
	for _, h := range w.hosts {
		h.endSpeaker()
	}
	ended := make(chan struct{})
	w.mu.Lock()
	w.jumping = ended
	w.mu.Unlock()
	time.Sleep(d)
	w.mu.Lock()
	w.jumping = nil
	w.mu.Unlock()
	close(ended)
}

// note adds a line to the log of the world. The caller holds w.mu.
func (w *World) note(format string, args ...any) {
	w.log = append(w.log, time.Now().UTC().Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
}

// violate records what must not happen.
func (w *World) violate(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.violateLocked(format, args...)
}

func (w *World) violateLocked(format string, args ...any) {
	w.note("VIOLATION: "+format, args...)
	if w.violation == nil {
		w.violation = fmt.Errorf(format, args...)
	}
}

// stops records that a component of a host stops, and that two control planes must not restart at once. The
// caller holds w.mu.
func (w *World) stops(h *Host, component string) {
	if component != "etcd" && component != "kube-apiserver" || h.current == nil || h.current.dead || h.current.resets {
		return
	}
	h.restarting[component] = true
	for _, o := range w.hosts {
		if o == h || o.current == nil || o.current.dead {
			continue
		}
		if c := o.waitsFor(); c != "" {
			w.violateLocked("%s of %s stops while %s of %s restarts", component, h.Name, c, o.Name)
		}
	}
}

// removes records that a command removes a member of etcd: only that of the host that it is to remove. The caller holds w.mu.
func (w *World) removes(r *run, m *etcdMember) {
	for _, h := range w.hosts {
		if r != nil && r.removes != "" && strings.Contains(m.peer, "//"+h.IP+":") && h.Name != r.removes {
			w.violateLocked("the removal of %s removes the etcd member of %s", r.removes, h.Name)
		}
	}
}

// waitsFor returns a component that the current command has stopped, and that does not work yet.
func (h *Host) waitsFor() string {
	for component := range h.restarting {
		p := h.pods[component]
		var up bool
		if p != nil && p.container != nil {
			switch process := p.container.process.(type) {
			case *etcdServer:
				up = process.member.up()
			case *apiServer:
				up = !time.Now().Before(process.ready)
			}
		}
		if !up {
			return component
		}
		delete(h.restarting, component)
	}
	return ""
}

// A listener accepts the connections to one address.
type listener struct {
	world   *World
	address string
	accept  chan net.Conn
	closed  chan struct{}
	once    sync.Once
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.accept:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close also ends the connections, as the end of a process does.
func (l *listener) Close() error {
	l.once.Do(func() {
		close(l.closed)
		l.world.mu.Lock()
		if l.world.listeners[l.address] == l {
			delete(l.world.listeners, l.address)
		}
		var ended []*conn
		for c := range l.world.conns {
			if c.to == l {
				ended = append(ended, c)
			}
		}
		l.world.mu.Unlock()
		for _, c := range ended {
			c.Close()
		}
	})
	return nil
}

func (l *listener) Addr() net.Addr { return addr(l.address) }

type addr string

func (addr) Network() string  { return "model" }
func (a addr) String() string { return string(a) }

// listen returns the listener of an address. The caller holds w.mu.
func (w *World) listen(address string) *listener {
	l := &listener{world: w, address: address, accept: make(chan net.Conn), closed: make(chan struct{})}
	w.listeners[address] = l
	return l
}

// A conn is one end of a connection. run is the command that opened it.
type conn struct {
	net.Conn
	world *World
	to    *listener
	run   *run
	moves bool // it leads to the endpoint
}

func (c *conn) Close() error {
	c.world.mu.Lock()
	delete(c.world.conns, c)
	c.world.mu.Unlock()
	return c.Conn.Close()
}

// dial opens a connection for a command on a host.
func (w *World) dial(ctx context.Context, r *run, h *Host, network, address string) (net.Conn, error) {
	w.mu.Lock()
	l := w.listeners[h.address(network, address)]
	dead := r != nil && r.dead
	w.mu.Unlock()
	if l == nil || dead {
		return nil, &net.OpError{Op: "dial", Net: network, Addr: addr(address), Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	}
	near, far := newPipe()
	moves := strings.HasPrefix(address, Endpoint+":") || strings.HasPrefix(address, otherEndpoint+":")
	client, server := &conn{Conn: near, world: w, to: l, run: r, moves: moves}, &conn{Conn: far, world: w, to: l, run: r}
	w.mu.Lock()
	if w.ctx.Err() != nil { // the world ends, and nobody would close them
		w.mu.Unlock()
		return nil, w.ctx.Err()
	}
	w.conns[client], w.conns[server] = true, true
	w.mu.Unlock()
	select {
	case l.accept <- server:
		if r != nil && address == targetAddress {
			return cable{client, r}, nil
		}
		return client, nil
	case <-l.closed:
		client.Close()
		return nil, &net.OpError{Op: "dial", Net: network, Addr: addr(address), Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	case <-ctx.Done():
		client.Close()
		return nil, ctx.Err()
	}
}

// moveEndpoint gives the address of the endpoint to a host, as a virtual address or a balancer does. The connections to it end.
func (w *World) moveEndpoint(to int) {
	var ended []*conn
	w.mu.Lock()
	w.holder = to
	for c := range w.conns {
		if c.moves {
			ended = append(ended, c)
		}
	}
	w.mu.Unlock()
	for _, c := range ended {
		c.Close()
	}
}

// Endpoint is the address of the control plane's endpoint. It leads to the API server of its holder, or to another one that answers.
const Endpoint = "10.0.0.100"

// address returns the name of a listener. Loopback addresses and sockets are different ones on each host.
func (h *Host) address(network, address string) string {
	if network == "unix" {
		return h.Name + "|" + strings.TrimPrefix(address, h.Root)
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return address
	}
	switch host {
	case "127.0.0.1", "localhost", "::1":
		return h.Name + "|" + port
	case Endpoint, otherEndpoint:
		to := address
		for i := range h.world.hosts {
			other := h.world.hosts[(h.world.holder+i)%len(h.world.hosts)]
			at := net.JoinHostPort(other.IP, port)
			if h.world.listeners[at] == nil {
				continue
			}
			if s := other.apiServer(); s != nil && s.ready.Before(time.Now()) && s.data() != nil {
				return at
			}
			to = at
		}
		return to
	}
	return address
}

// start is when the worlds begin: later than the times of this machine's files.
var start = time.Date(2031, time.January, 1, 0, 0, 0, 0, time.UTC)
