package loadbalancer

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"math"
	"net/netip"
	"slices"
	"time"
)

const (
	// Cycle is the pause between two cycles of a node: it renews its Lease, and then reads the table.
	Cycle = time.Second
	// Valid is how long after the start of a cycle a node announces the addresses that the table gave it.
	Valid = 3 * time.Second
	// Silence is the time without a renewal of a node's Lease after which another node gets its addresses. It is longer than
	// Valid, because no two clocks are equal.
	Silence = Valid + 300*time.Millisecond
)

// A Table has the node that announces each address. One node writes it, the one that has its Lease.
type Table struct {
	// Version counts the changes.
	Version int64   `json:"version"`
	Entries []Entry `json:"entries"`
	// full are addresses that do not move, because MaxSize does not permit it.
	full map[netip.Addr]bool
}

// Full reports whether an address does not move, because the table has no room for that.
func (t Table) Full(a netip.Addr) bool { return t.full[a] }

// An Entry is an address of the table.
type Entry struct {
	Address netip.Addr `json:"address"`
	Service string     `json:"service,omitempty"` // namespace/name; empty if the address only waits for Leaving
	Node    string     `json:"node,omitempty"`    // who announces it
	// Leaving may still announce the address, if it has not read the version Left of the table. No node has it meanwhile.
	Leaving string `json:"leaving,omitempty"`
	Left    int64  `json:"left,omitempty"`
	// New means that no node has found the address free yet: its node first looks whether another host has it.
	New bool `json:"new,omitempty"`
}

// MaxSize is the largest size of a table, in bytes of JSON: Kubernetes limits all annotations of an object to 256 KiB together.
const MaxSize = 252 << 10

// size returns how many bytes an entry has in the JSON of the table.
func (e Entry) size() int {
	text, _ := json.Marshal(e) // of strings and numbers
	return len(text) + len(",")
}

// Reserve returns how many bytes an entry needs at most: the node with this name may leave the address.
func (e Entry) Reserve(longest string) int {
	return Entry{Address: e.Address, Service: e.Service, Leaving: longest, Left: math.MaxInt64, New: true}.size()
}

// Of returns the entries of a node.
func (t Table) Of(node string) (list []Entry) {
	for _, e := range t.Entries {
		if e.Node == node {
			list = append(list, e)
		}
	}
	return list
}

// Where returns the node that announces an address; "" if there is none now.
func (t Table) Where(a netip.Addr) string {
	for _, e := range t.Entries {
		if e.Address == a {
			return e.Node
		}
	}
	return ""
}

// A Node is what the writer of the table knows of a node.
type Node struct {
	Name    string
	Renewed time.Time // when the last renewal of its Lease was seen
	Read    int64     // the version of the table that it follows, by its last renewal
	Gone    bool      // it ended, and announces nothing
	Subnets []netip.Prefix
	// Looking are addresses that the node has not found free yet.
	Looking []netip.Addr
	// Conflicts are addresses that another host has, by its hardware address.
	Conflicts map[netip.Addr]string
	// Rank orders nodes that can announce: 0 a ready one, 1 one on which no new pods are scheduled, 2 one that is not ready. A
	// negative rank is a node that must not.
	Rank int
}

// maxRank is the highest rank of a Node.
const maxRank = 2

// alive reports whether a node may announce what a table gave it.
func (n *Node) alive(now time.Time) bool {
	return n != nil && !n.Gone && now.Sub(n.Renewed) < Silence
}

// A Demand is an address that should be announced.
type Demand struct {
	Address netip.Addr
	Service string
	// Nodes can serve it; nil means all. The value is whether a node has a ready endpoint: otherwise, its endpoints terminate and still serve.
	Nodes map[string]bool
}

// can reports whether a node could announce an address at a time.
func (d Demand) can(n *Node, now time.Time) bool {
	_, serves := d.Nodes[n.Name]
	return n.alive(now) && n.Rank >= 0 && (d.Nodes == nil || serves) &&
		slices.ContainsFunc(n.Subnets, func(p netip.Prefix) bool { return p.Contains(d.Address) })
}

// rank orders the nodes that can: each one with a ready endpoint precedes the others.
func (d Demand) rank(n *Node) int {
	if d.Nodes != nil && !d.Nodes[n.Name] {
		return n.Rank + maxRank + 1
	}
	return n.Rank
}

// Next returns the table that follows from demands and nodes, and whether it differs. A node loses an address before another one
// gets it: in between is a table in which nobody has it, until the node has read that table, or is silent. All Leases must have been
// read from the API, not from a cache, after this table was written: a node that renewed its Lease before this and reads an earlier
// table may announce until Valid after that renewal, and one that renews it later reads this table.
func (t Table) Next(now time.Time, demands []Demand, nodes map[string]*Node) (next Table, changed bool) {
	next = Table{Version: t.Version + 1}
	seen := map[netip.Addr]bool{}
	// A node that follows a later version has it from the time before a backup was restored, and not this table.
	follows := func(n *Node, version int64) bool { return n.Read >= version && n.Read <= t.Version }
	left := func(e Entry) bool {
		n := nodes[e.Leaving]
		return !n.alive(now) || follows(n, e.Left)
	}
	leave := func(e Entry) Entry {
		e.Node, e.Leaving, e.Left = "", e.Node, next.Version
		return e
	}
	for _, d := range demands {
		seen[d.Address] = true
		e := Entry{Address: d.Address, New: true}
		if i := slices.IndexFunc(t.Entries, func(e Entry) bool { return e.Address == d.Address }); i >= 0 {
			e = t.Entries[i]
		}
		e.Service = d.Service
		best := d.best(nodes, now)
		if e.Leaving != "" && left(e) {
			e.Leaving, e.Left = "", 0
		}
		switch holder := nodes[e.Node]; {
		case e.Leaving != "":
		case e.Node == "" && best != nil:
			e.Node = best.Name
		case e.Node == "":
		case holder != nil && d.can(holder, now) && (best == nil || d.rank(holder) <= d.rank(best)):
		case best != nil || !holder.alive(now) || holder.Rank < 0 || !d.can(holder, now):
			e = leave(e)
		}
		if n := nodes[e.Node]; e.New && n != nil && follows(n, t.Version) && t.Where(e.Address) == e.Node && !slices.Contains(n.Looking, e.Address) {
			e.New = false
		}
		next.Entries = append(next.Entries, e)
	}
	for _, e := range t.Entries {
		if seen[e.Address] {
			continue
		}
		e.Service = ""
		if e.Node != "" {
			e = leave(e)
		}
		if e.Leaving != "" && !left(e) {
			next.Entries = append(next.Entries, e)
		}
	}
	next.Entries, next.full = t.fitting(next.Entries)
	slices.SortFunc(next.Entries, func(a, b Entry) int { return a.Address.Compare(b.Address) })
	if slices.Equal(t.Entries, next.Entries) {
		t.full = next.full
		return t, false
	}
	return next, true
}

// fitting returns entries that MaxSize permits: of those that do not fit, what the table had before.
func (t Table) fitting(entries []Entry) (kept []Entry, full map[netip.Addr]bool) {
	full = map[netip.Addr]bool{}
	before := map[netip.Addr]Entry{}
	room := MaxSize - len(`{"version":,"entries":[]}`) - len("9223372036854775807")
	for _, e := range t.Entries {
		before[e.Address] = e
		room -= e.size()
	}
	for _, e := range entries {
		old, exists := before[e.Address]
		grows := e.size()
		if exists {
			grows -= old.size()
			delete(before, e.Address)
		}
		switch {
		case grows <= max(room, 0):
			room -= grows
			kept = append(kept, e)
		default:
			full[e.Address] = true
			if exists {
				kept = append(kept, old)
			}
		}
	}
	return kept, full
}

// best returns the node that should get an address, nil if there is none. Of nodes with the same rank, a hash decides, so that the
// Services are spread, and both addresses of a Service are on one node.
func (d Demand) best(nodes map[string]*Node, now time.Time) (best *Node) {
	weight := func(n *Node) string {
		sum := sha256.Sum256([]byte(d.Service + "\x00" + n.Name))
		return string(sum[:])
	}
	for _, n := range nodes {
		if !d.can(n, now) {
			continue
		}
		if best == nil || cmp.Or(cmp.Compare(d.rank(n), d.rank(best)), cmp.Compare(weight(n), weight(best))) < 0 {
			best = n
		}
	}
	return best
}
