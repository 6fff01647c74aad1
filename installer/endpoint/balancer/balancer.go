// Package balancer forwards TCP connections from loopback addresses of a node to the cluster's API servers.
// It checks the API servers, follows their addresses, and closes connections to an API server that is down
// or removed.
package balancer

import (
	"cmp"
	"context"
	"crypto/tls"
	"hash/maphash"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
)

// Options are what a balancer needs from its caller.
type Options struct {
	Listen []netip.AddrPort // loopback addresses
	Seeds  []netip.AddrPort // API servers in the node's configuration
	Cached []netip.AddrPort // API servers that Save was last called with

	// Save stores the API servers of the cluster for the next start. nil stores nothing.
	Save func([]netip.AddrPort) error
	// TLS returns the configuration for checks: the cluster's CA, and a client certificate if there is one.
	// Each new connection of a check calls it, so that it may return renewed files.
	TLS func() (*tls.Config, error)
	// Follow passes use the addresses of all API servers, now and after each change, until ctx ends. nil
	// keeps to Seeds and Cached.
	Follow func(ctx context.Context, use func([]netip.AddrPort))
	Log    *slog.Logger
}

// Source names where a balancer has its list of API servers from.
type Source string

const (
	FromNode    Source = "configuration and cache" // both together: each of them may be old
	FromCluster Source = "cluster"
)

// A Balancer forwards connections from its listeners to the API servers.
type Balancer struct {
	options   Options
	listeners []*net.TCPListener
	check     func(context.Context, netip.AddrPort) error
	dial      func(context.Context, netip.AddrPort) (*net.TCPConn, error)
	seed      maphash.Seed   // of the order of preference, which differs from node to node
	tasks     sync.WaitGroup // every goroutine of Run

	mu       sync.Mutex
	backends []*backend // sorted by address
	source   Source
}

// Listen opens the listeners: after it, connections wait until Run accepts them. It fails with a hint if
// an address is in use.
func Listen(o Options) (*Balancer, error) {
	listeners, err := listen(o.Listen, o.Log)
	if err != nil {
		return nil, err
	}
	return &Balancer{options: o, listeners: listeners, check: NewCheck(o.TLS), dial: dialBackend, seed: maphash.MakeSeed(), source: FromNode}, nil
}

// Run forwards connections until ctx ends, and then closes all of them. It must be called once. It returns
// an error only if a listener fails.
func (b *Balancer) Run(ctx context.Context) error {
	parent := ctx
	ctx, stop := context.WithCancelCause(parent)
	defer stop(nil)
	b.use(ctx, slices.Concat(b.options.Seeds, b.options.Cached), FromNode)
	for _, l := range b.listeners {
		b.tasks.Go(func() { stop(b.accept(ctx, l)) })
	}
	if b.options.Follow != nil {
		b.tasks.Go(func() {
			b.options.Follow(ctx, func(list []netip.AddrPort) { b.follow(ctx, list) })
		})
	}
	b.tasks.Go(func() { b.rebalance(ctx) })

	<-ctx.Done()
	for _, l := range b.listeners {
		l.Close()
	}
	b.tasks.Wait()
	if parent.Err() != nil {
		return nil
	}
	return context.Cause(ctx)
}

// follow uses and saves the cluster's list of API servers.
func (b *Balancer) follow(ctx context.Context, list []netip.AddrPort) {
	if !b.use(ctx, list, FromCluster) || b.options.Save == nil {
		return
	}
	if err := b.options.Save(list); err != nil {
		b.options.Log.Warn("saving the list of API servers", "error", err)
	}
}

// use makes list the API servers, and reports whether anything changed. It ignores an empty list: the
// API servers of before may still answer. An address of the balancer itself would be a loop.
func (b *Balancer) use(ctx context.Context, list []netip.AddrPort, source Source) (changed bool) {
	list = slices.DeleteFunc(slices.Clone(list), func(a netip.AddrPort) bool { return slices.Contains(b.listens(), a) })
	slices.SortFunc(list, netip.AddrPort.Compare)
	list = slices.Compact(list)
	if len(list) == 0 {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	changed = b.source != source
	b.source = source
	b.backends = slices.DeleteFunc(b.backends, func(be *backend) bool {
		removed := !slices.Contains(list, be.address)
		if removed {
			changed = true
			be.remove()
			b.options.Log.Info("API server removed", "address", be.address)
		}
		return removed
	})
	for _, address := range list {
		if !slices.ContainsFunc(b.backends, func(be *backend) bool { return be.address == address }) {
			changed = true
			b.add(ctx, address)
			b.options.Log.Info("API server added", "address", address, "source", source)
		}
	}
	slices.SortFunc(b.backends, func(x, y *backend) int { return x.address.Compare(y.address) })
	return changed
}

// add adds a backend, and the goroutine that checks it until it is removed. b.mu is locked.
func (b *Balancer) add(ctx context.Context, address netip.AddrPort) {
	checks, remove := context.WithCancel(ctx)
	be := newBackend(address, maphash.Comparable(b.seed, address), remove)
	b.backends = append(b.backends, be)
	b.tasks.Go(func() {
		b.keepChecking(checks, be)
		sleep(ctx, drainTime)
		b.disconnect(be)
	})
}

// disconnect closes all connections of a backend.
func (b *Balancer) disconnect(be *backend) {
	b.mu.Lock()
	open := be.takeConnections()
	b.mu.Unlock()
	closeAll(open)
}

// Status is the state of a balancer.
type Status struct {
	Listen   []netip.AddrPort `json:"listen"`
	Source   Source           `json:"source"`
	Backends []BackendStatus  `json:"backends"` // sorted by address
}

// Status returns the current state. It waits for a lock that is held only for moments, so it is fit for a
// watchdog: it does not return if the balancer hangs.
func (b *Balancer) Status() Status {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := Status{Listen: b.listens(), Source: b.source, Backends: make([]BackendStatus, 0, len(b.backends))}
	for _, be := range b.backends {
		s.Backends = append(s.Backends, be.status())
	}
	return s
}

// listens returns the addresses of the listeners.
func (b *Balancer) listens() (addresses []netip.AddrPort) {
	for _, l := range b.listeners {
		addresses = append(addresses, l.Addr().(*net.TCPAddr).AddrPort())
	}
	return addresses
}

// candidate returns the backend for the next attempt to dial, and counts the attempt as its load; nil if
// every backend was tried, or if there is no room. Ready backends come first, then backends whose state is not known, then backends that
// are down: if all checks fail, the checks may be what is wrong.
func (b *Balancer) candidate(tried []*backend) *backend {
	b.mu.Lock()
	defer b.mu.Unlock()
	var best *backend
	for _, be := range b.backends {
		if !slices.Contains(tried, be) && (best == nil || byChoice(be, best) < 0) {
			best = be
		}
	}
	if best == nil || !b.makeRoom() {
		return nil
	}
	best.dialing++
	return best
}

func byChoice(x, y *backend) int {
	return cmp.Or(cmp.Compare(x.state.rank(), y.state.rank()), byLoad(x, y))
}

// takeUseless takes the connections of backends that are down, if another backend is ready to get them.
// b.mu is locked. The caller closes them after it has unlocked b.mu.
func (b *Balancer) takeUseless() (open []*connection) {
	if !slices.ContainsFunc(b.backends, func(be *backend) bool { return be.state == Ready }) {
		return nil
	}
	for _, be := range b.backends {
		if be.state == Down {
			open = append(open, be.takeConnections()...)
		}
	}
	return open
}
