package loadbalancer

import (
	"net/netip"
	"time"
)

const (
	// pauseLimit is the time without a Tick after which the process was stopped, and may have missed announcements.
	pauseLimit = time.Second
	// listenTime is longer than the pause between two announcements of another node.
	listenTime = 1500 * time.Millisecond
)

// A Speaker decides for which addresses a node answers, from the tables that the node read. It needs no other clock.
type Speaker struct {
	node string
	// Version is the version of the last table.
	Version int64
	until   time.Time // the node announces until then
	ticked  time.Time
	listens time.Time // until then, the process may not have heard who announces
	claims  map[netip.Addr]*claim
}

// A claim is an address that the last table gave to this node.
type claim struct {
	Entry
	// yielded means that another host announced the address after this node stopped to.
	yielded bool
}

// NewSpeaker returns a speaker that has read no table.
func NewSpeaker(node string) *Speaker { return &Speaker{node: node, claims: map[netip.Addr]*claim{}} }

// Read takes a table that was read in a cycle, which began at a time by renewing the Lease of the node.
func (s *Speaker) Read(t Table, began time.Time) {
	if until := began.Add(Valid); until.After(s.until) {
		s.until = until
	}
	s.Version = t.Version
	s.claims = map[netip.Addr]*claim{}
	for _, e := range t.Of(s.node) {
		s.claims[e.Address] = &claim{Entry: e}
	}
}

// Tick takes that the process runs, at least once in pauseLimit. After a pause, it first listens: what it did not hear meanwhile is in no
// queue for sure.
func (s *Speaker) Tick(now time.Time) {
	if now.Sub(s.ticked) > pauseLimit {
		s.listens = now.Add(listenTime)
	}
	s.ticked = now
}

// Addresses returns the entries for which this node answers, or should when it has found them free.
func (s *Speaker) Addresses() (list []Entry) {
	for _, c := range s.claims {
		if !c.yielded {
			list = append(list, c.Entry)
		}
	}
	return list
}

// Announces reports whether the node may announce an address: no other node got it meanwhile.
func (s *Speaker) Announces(a netip.Addr, now time.Time) bool {
	return s.claims[a] != nil && now.Before(s.until)
}

// Answers reports whether the node answers a host that asks for an address. It goes on after it must not announce it any more: if nobody
// reaches the API, no node gets the address, and this one still serves it. Another node that gets it announces it at once. A process that was
// stopped meanwhile first listens for that.
func (s *Speaker) Answers(a netip.Addr, now time.Time) bool {
	c := s.claims[a]
	return c != nil && (now.Before(s.until) || !c.yielded && now.Sub(s.ticked) <= pauseLimit && !now.Before(s.listens))
}

// Heard takes that another host announced an address. It reports whether two hosts have it.
func (s *Speaker) Heard(a netip.Addr, now time.Time) (conflict bool) {
	c := s.claims[a]
	if c == nil {
		return false
	}
	if now.Before(s.until) {
		return true
	}
	c.yielded = true
	return false
}
