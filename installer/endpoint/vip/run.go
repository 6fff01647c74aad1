package vip

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"airlift/installer/endpoint/neighbours"
	"airlift/installer/etcd"
)

const (
	// pollInterval is the pause between two questions for the role, and to the API server of the
	// leader. Other hosts ask their API server less often.
	pollInterval = 250 * time.Millisecond
	idleInterval = time.Second
	// Timeouts of one question for the role, to the local API server, and to another one.
	roleTimeout  = time.Second
	readyTimeout = 700 * time.Millisecond
	peerTimeout  = time.Second
	// moveTimeout limits one move of the leadership; etcd itself gives up after its election timeout.
	moveTimeout = 2 * time.Second
	// endTimeout limits the handover when the agent ends.
	endTimeout = 4 * time.Second
	// tick is how often the agent looks at its timers, lookInterval how often at the interface.
	tick         = 250 * time.Millisecond
	lookInterval = 500 * time.Millisecond
	// refresh is the pause between two renewals of the address's lifetime.
	refresh = 500 * time.Millisecond
	// For the time of burst after a takeover, the agent announces the address whenever it acts, more than
	// five times in a second, then once in announce.
	burst    = 500 * time.Millisecond
	announce = time.Second
	// defend is the pause between two messages about a conflict, like RFC 5227's between two defenses.
	defend = 10 * time.Second
	// retry is the pause after a failed attempt to move the leadership or to open a segment.
	retry = time.Second
	// A host that found the address vacant, and took it, waits before it does so again, unless it heard
	// another holder meanwhile: from minClaim, twice as long each time, up to maxClaim.
	minClaim, maxClaim = 30 * time.Second, 5 * time.Minute
)

// A loop is one run of an agent. Only its goroutine uses the fields; others send it functions.
type loop struct {
	facts
	agent   *Agent
	options *Options
	events  chan func()
	leading atomic.Bool // the API server's health is urgent
	wg      sync.WaitGroup

	nic       nic
	moves     moves
	refreshed time.Time
	announced time.Time
	since     time.Time // the time of day when held changed
	conflict  *Conflict

	announcers []announcer
}

// moves are the attempts to move the leadership.
type moves struct {
	busy    bool           // a search or a claim runs
	next    time.Time      // no search before
	claim   time.Time      // no claim before
	backoff time.Duration  // after a claim
	waiting []chan<- error // handovers
}

// Run holds the address whenever this host should have it, until ctx ends. Then it gives the address
// to another control plane, if there is one, and removes it here.
func (a *Agent) Run(ctx context.Context) error {
	if err := drop(a.options.Addresses); err != nil { // of an earlier process
		return err
	}
	inner, cancel := context.WithCancel(context.WithoutCancel(ctx))
	l := &loop{agent: a, options: &a.options, events: make(chan func()), moves: moves{backoff: minClaim}, nic: nic{options: &a.options, name: a.options.Interface}}
	now := a.now()
	l.elected, l.moves.claim = now, now.Add(jitter())
	defer func() {
		cancel()
		l.nic.close()
		l.wg.Wait()
	}()
	l.wg.Go(func() { l.pollRole(inner) })
	l.wg.Go(func() { l.pollAPI(inner) })
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	end, ended := ctx.Done(), make(chan error, 1)
	var late <-chan time.Time
	for {
		select {
		case <-end:
			end, late = nil, time.After(endTimeout)
			l.startHandover(ended)
		case <-ended:
			return l.release("the agent ends")
		case <-late:
			return l.release("the agent ends")
		case event := <-l.events:
			event()
		case done := <-a.handovers:
			l.startHandover(done)
		case <-ticker.C:
		}
		l.act(inner, a.now())
	}
}

// send runs a function in the loop's goroutine.
func (l *loop) send(ctx context.Context, event func()) {
	select {
	case l.events <- event:
	case <-ctx.Done():
	}
}

func (l *loop) pollRole(ctx context.Context) {
	poll(ctx, func() time.Duration { return pollInterval }, func() {
		asked := l.agent.now()
		limited, cancel := context.WithTimeout(ctx, roleTimeout)
		defer cancel()
		role, err := l.options.Election.Role(limited)
		l.send(ctx, func() { l.setRole(role, err, asked, l.agent.now()) })
	})
}

func (l *loop) pollAPI(ctx context.Context) {
	interval := func() time.Duration {
		if l.leading.Load() {
			return pollInterval
		}
		return idleInterval
	}
	poll(ctx, interval, func() {
		err := l.ready(ctx, "", readyTimeout)
		l.send(ctx, func() { l.api.answer(err) })
	})
}

// poll asks until ctx ends. The interval is from start to start.
func poll(ctx context.Context, interval func() time.Duration, ask func()) {
	for ctx.Err() == nil {
		started := time.Now()
		ask()
		select {
		case <-time.After(interval() - time.Since(started)):
		case <-ctx.Done():
		}
	}
}

func (l *loop) ready(ctx context.Context, host string, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return l.options.Ready(ctx, host)
}

func (l *loop) startHandover(done chan<- error) {
	l.away = l.agent.now().Add(absence)
	l.moves.next = time.Time{}
	l.moves.waiting = append(l.moves.waiting, done)
}

// endHandovers answers everybody who waits for the end of a handover.
func (l *loop) endHandovers(err error) {
	for _, done := range l.moves.waiting {
		done <- err
	}
	l.moves.waiting = nil
}

// act does what follows from the facts.
func (l *loop) act(ctx context.Context, now time.Time) {
	l.look(ctx, now)
	hold, reason := l.judge(now)
	fresh := l.leads(now, staleAfter)
	var err error
	switch {
	case hold && (!l.held || fresh && now.Sub(l.refreshed) >= refresh):
		err = l.hold(now, reason)
	case !hold && l.held:
		err = l.release(reason)
	}
	if err != nil {
		reason = err.Error()
	}
	switch {
	case !l.held:
		l.endHandovers(nil)
	case fresh:
		l.announce(now)
	}
	switch {
	case l.moves.busy:
	case l.mustMove(now) && now.After(l.moves.next):
		l.startSearch(ctx)
	case l.vacant(now) && now.After(l.moves.claim):
		l.startClaim(ctx)
	}
	l.leading.Store(l.role.Leads())
	l.publish(reason, now)
}

func (l *loop) publish(reason string, now time.Time) {
	s := Status{Addresses: l.options.Addresses, Interface: l.nic.name, Held: l.held, Since: l.since, Reason: reason,
		MAC: l.mac(), Leader: l.leaderName(), Holders: l.holders(now), Conflict: l.conflict}
	if !l.api.ready && l.api.err != nil {
		s.APIServer = l.api.err.Error()
	}
	l.agent.mu.Lock()
	defer l.agent.mu.Unlock()
	l.agent.status = s
}

// hold takes the address, or renews its lifetime.
func (l *loop) hold(now time.Time, reason string) error {
	if err := l.nic.hold(); err != nil {
		return err
	}
	l.refreshed = now
	if !l.held {
		l.held, l.taken, l.since = true, now, time.Now()
		l.options.Log.Info("took the virtual address", "address", join(l.options.Addresses), "interface", l.nic.name, "reason", reason)
	}
	return nil
}

func (l *loop) release(reason string) error {
	if err := drop(l.options.Addresses); err != nil {
		return err
	}
	if l.held {
		l.held, l.since = false, time.Now()
		l.options.Log.Info("removed the virtual address", "address", join(l.options.Addresses), "reason", reason)
	}
	return nil
}

func (l *loop) announce(now time.Time) {
	if since := now.Sub(l.announced); l.announced.After(l.taken) && now.Sub(l.taken) > burst && since < announce {
		return
	}
	l.announced = now
	l.nic.announce()
}

// look looks at the interface, and listens on new segments.
func (l *loop) look(ctx context.Context, now time.Time) {
	opened := l.nic.look(now)
	l.carrier = l.nic.fault
	for i, s := range opened {
		l.wg.Go(func() { l.listen(ctx, s, l.options.Addresses[i]) })
	}
}

// listen reports who announces an address, until the segment is closed or fails.
func (l *loop) listen(ctx context.Context, s neighbours.Segment, a netip.Addr) {
	for {
		mac, err := s.Hear()
		if err != nil {
			break
		}
		l.send(ctx, func() { l.heard(a, mac, l.agent.now()) })
	}
	l.send(ctx, func() {
		if slices.Contains(l.nic.segments, s) { // it was not closed, but failed: the interface was down
			l.nic.close()
		}
	})
}

func (l *loop) heard(a netip.Addr, mac net.HardwareAddr, now time.Time) {
	l.moves.backoff, l.moves.claim = minClaim, now.Add(vacancy+jitter())
	l.setAnnouncer(mac, now)
	if !l.setForeign(now) {
		return
	}
	if l.conflict == nil || time.Since(l.conflict.Time) > defend || l.conflict.MAC != mac.String() {
		l.options.Log.Error("another host has the virtual address", "address", a, "mac", mac)
	}
	l.conflict = &Conflict{Address: a, MAC: mac.String(), Time: time.Now()}
}

// startSearch looks for a ready API server on another host, and moves the leadership there.
func (l *loop) startSearch(ctx context.Context) {
	peers := l.role.Peers()
	l.moves.busy = true
	l.wg.Go(func() {
		to, err := l.moveToReady(ctx, peers)
		l.send(ctx, func() { l.searched(to, err, l.agent.now()) })
	})
}

func (l *loop) searched(to uint64, err error, now time.Time) {
	l.moves.busy, l.moves.next = false, now.Add(retry)
	l.alone = errors.Is(err, ErrNoPeer)
	switch {
	case err == nil:
		l.role.Leader, l.elected = to, now
		l.options.Log.Info("moved etcd's leadership", "to", l.leaderName())
		return
	case !l.alone:
		l.options.Log.Warn("the leadership of etcd could not be moved", "error", err)
	case len(l.moves.waiting) > 0:
		l.away = time.Time{}
	}
	l.endHandovers(err)
}

// moveToReady moves the leadership to the first of the peers that is ready and accepts it.
func (l *loop) moveToReady(ctx context.Context, peers []etcd.Member) (to uint64, err error) {
	ready := make(chan etcd.Member, len(peers))
	var asked sync.WaitGroup
	for _, p := range peers {
		asked.Go(func() {
			if l.ready(ctx, p.Host(), peerTimeout) == nil {
				ready <- p
			}
		})
	}
	l.wg.Go(func() { asked.Wait(); close(ready) })
	err = ErrNoPeer
	for p := range ready {
		if err = l.move(ctx, p.ID); err == nil {
			return p.ID, nil
		}
	}
	return 0, err
}

func (l *loop) move(ctx context.Context, to uint64) error {
	ctx, cancel := context.WithTimeout(ctx, moveTimeout)
	defer cancel()
	return l.options.Election.Move(ctx, to)
}

// startClaim moves the leadership to this host if no host answers for the address.
func (l *loop) startClaim(ctx context.Context) {
	l.moves.busy = true
	self, name := l.role.Self, l.nic.name
	l.wg.Go(func() {
		free, err := l.isFree(ctx, name)
		if err == nil && free {
			err = l.move(ctx, self)
		}
		l.send(ctx, func() { l.claimed(free, err, l.agent.now()) })
	})
}

func (l *loop) claimed(free bool, err error, now time.Time) {
	l.moves.busy = false
	if !free {
		l.moves.claim = now.Add(retry) // the lifetime of the address may end soon
		return
	}
	l.options.Log.Warn("no host had the virtual address: asked etcd for the leadership", "error", err)
	l.moves.claim = now.Add(l.moves.backoff + jitter())
	l.moves.backoff = min(2*l.moves.backoff, maxClaim)
}

// isFree reports whether no host answers for any of the addresses.
func (l *loop) isFree(ctx context.Context, name string) (bool, error) {
	for _, a := range l.options.Addresses {
		if mac, err := neighbours.Probe(ctx, a, name); err != nil || mac != nil {
			return false, err
		}
	}
	return true, nil
}

// jitter makes it unlikely that two hosts act at the same time.
func jitter() time.Duration { return rand.N(time.Second) }
