package balancer

import (
	"cmp"
	"context"
	"maps"
	"net/netip"
	"slices"
	"time"
)

// State is what checks show of a backend.
type State string

const (
	Unknown State = "unknown" // no check has ended well yet
	Ready   State = "ready"
	Failing State = "failing" // was ready, but a check or a dial failed: no new connections, if another is ready
	Down    State = "down"    // len(patience) checks in a row failed: connections are closed, if another is ready
)

// rank orders states for new connections.
func (s State) rank() int {
	switch s {
	case Ready:
		return 0
	case Down:
		return 2
	}
	return 1
}

const (
	// checkInterval is the time between two checks of a backend that does not change, less a random tenth:
	// a node sends each API server two requests in three seconds.
	checkInterval = 1500 * time.Millisecond
	// successesToReturn is the number of checks in a row that must succeed after Down.
	successesToReturn = 2
	// drainTime is how long a removed backend keeps its connections. An API server leaves the list when it
	// gets SIGTERM, and then ends requests that it has begun.
	drainTime = 750 * time.Millisecond
)

// patience has the time limits of checks in a row: after a check that failed, the next one follows at once.
// A hung API server is down after checkInterval and their sum, 4 s, at the latest. Four failures, because
// losing 5 % of all checks must not take an API server down. The last limit is the longest, so that a slow API
// server stays. The sum is above 2 s, so that all of them stay if etcd stalls for 2 s.
var patience = []time.Duration{500 * time.Millisecond, 500 * time.Millisecond, 600 * time.Millisecond, 900 * time.Millisecond}

// A backend is an API server. The balancer's mutex guards it.
type backend struct {
	address    netip.AddrPort
	preference uint64 // the lower one gets the connection that cannot be spread evenly
	remove     context.CancelFunc
	recheck    chan struct{} // requests a check at once

	state               State
	since               time.Time
	err                 error // of the last check or dial; nil if it succeeded
	failures, successes int   // checks in a row
	dialing             int
	open                map[*connection]struct{}
}

func newBackend(address netip.AddrPort, preference uint64, remove context.CancelFunc) *backend {
	return &backend{
		address: address, preference: preference, remove: remove, recheck: make(chan struct{}, 1),
		state: Unknown, since: time.Now(), open: map[*connection]struct{}{},
	}
}

// observe counts a check, and reports whether it changed the state.
func (be *backend) observe(err error) (changed bool) {
	be.err = err
	if err == nil {
		be.failures = 0
		be.successes++
		if be.state != Down || be.successes >= successesToReturn {
			return be.become(Ready)
		}
		return false
	}
	be.successes = 0
	be.failures++
	switch {
	case be.failures >= len(patience):
		return be.become(Down)
	case be.state == Ready:
		return be.become(Failing)
	}
	return false
}

// dialFailed makes a backend that was ready Failing, and has it checked at once.
func (be *backend) dialFailed(err error) {
	be.err = err
	if be.state != Ready {
		return
	}
	be.become(Failing)
	select {
	case be.recheck <- struct{}{}:
	default: // one is requested already
	}
}

func (be *backend) become(s State) (changed bool) {
	if be.state == s {
		return false
	}
	be.state, be.since = s, time.Now()
	return true
}

// limit is how long the next check may take.
func (be *backend) limit() time.Duration { return patience[min(be.failures, len(patience)-1)] }

// pause is the time from the start of one check to the start of the next. jitter is in [0, 1).
func (be *backend) pause(jitter float64) time.Duration {
	switch {
	case be.state == Down && be.successes > 0:
		return patience[0]
	case be.state != Down && be.failures > 0:
		return patience[be.failures-1]
	}
	return time.Duration(float64(checkInterval) * (1 - jitter/10))
}

// load counts the connections, also connections that are being opened.
func (be *backend) load() int { return len(be.open) + be.dialing }

// takeConnections returns the connections, which no longer belong to the backend.
func (be *backend) takeConnections() []*connection {
	open := slices.Collect(maps.Keys(be.open))
	clear(be.open)
	return open
}

// byLoad orders backends, the one first that should get the next connection.
func byLoad(x, y *backend) int {
	return cmp.Or(cmp.Compare(x.load(), y.load()), cmp.Compare(x.preference, y.preference))
}

// BackendStatus is the state of one API server.
type BackendStatus struct {
	Address     netip.AddrPort `json:"address"`
	State       State          `json:"state"`
	Since       time.Time      `json:"since"`           // of State
	Error       string         `json:"error,omitempty"` // of the last check or dial
	Connections int            `json:"connections"`
}

func (be *backend) status() BackendStatus {
	s := BackendStatus{Address: be.address, State: be.state, Since: be.since, Connections: len(be.open)}
	if be.err != nil {
		s.Error = be.err.Error()
	}
	return s
}
