package balancer

import (
	"context"
	"slices"
	"time"
)

const (
	// rebalanceInterval is the time between two connections that move: slowly, because a client repeats
	// its watches on a new connection.
	rebalanceInterval = 2 * time.Second
	// settleTime is how long a backend must be ready before connections move to it.
	settleTime = 10 * time.Second
	// quietTime is how long a connection must have been silent to be closed for the sake of balance. Most
	// requests take less; what such a connection still carries are watches, which clients repeat.
	quietTime = 5 * time.Second
)

// rebalance moves connections to backends that returned, one at a time, until ctx ends: an HTTP/2 client
// keeps its connection for as long as it can, so an API server that was restarted would get none.
func (b *Balancer) rebalance(ctx context.Context) {
	for ctx.Err() == nil {
		sleep(ctx, rebalanceInterval)
		if c := longest(b.surplus(), quietTime, (*connection).quiet); c != nil {
			c.close()
		}
	}
}

// surplus returns the connections of the backend that has too many, if another ready backend should have
// more: two fewer, or one fewer if this node prefers it. The order of preference is random for each node, so
// that nodes with one connection each spread over all API servers too.
func (b *Balancer) surplus() (open []*connection) {
	b.mu.Lock()
	defer b.mu.Unlock()
	settled := slices.DeleteFunc(slices.Clone(b.backends), func(be *backend) bool {
		return be.state != Ready || time.Since(be.since) < settleTime
	})
	if len(settled) < 2 {
		return nil
	}
	most, least := slices.MaxFunc(settled, byLoad), slices.MinFunc(settled, byLoad)
	excess := most.load() - least.load()
	if excess < 1 || excess == 1 && most.preference < least.preference {
		return nil
	}
	for c := range most.open {
		open = append(open, c)
	}
	return open
}

// longest returns the connection for which a time is the longest, nil if it is less than least for all.
func longest(open []*connection, least time.Duration, of func(*connection) time.Duration) (found *connection) {
	for _, c := range open {
		if d := of(c); d >= least {
			found, least = c, d
		}
	}
	return found
}
