package loadbalancer

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// A world has one API with the table and the Leases, nodes that follow it as installer/loadbalancer/agent does, and clocks that
// agree. Each request takes effect at once; a process may stop before and after each of them, and a node may lose the API or its network.
type world struct {
	t       *rapid.T
	now     time.Time
	table   Table
	version int    // of the object with the table
	holder  string // of its Lease
	held    time.Time
	leases  map[string]lease
	nodes   []*simulated
	demands []Demand
}

type lease struct {
	renewed time.Time
	read    int64
	gone    bool
}

type simulated struct {
	*Speaker
	name      string
	dead      bool // no power
	cut       bool // no API
	asleep    time.Time
	step      int // of the cycle
	began     time.Time
	pending   Table
	next      time.Time
	heldSince time.Time
	seenHeld  time.Time
	observed  map[string]seen
	looked    time.Time
	rank      int
	writing   bool
	wrote     time.Time
	version   int
}

type seen struct {
	lease
	at time.Time
}

var subnet = netip.MustParsePrefix("10.0.0.0/24")

func (w *world) run(n *simulated) {
	if n.dead || w.now.Before(n.asleep) {
		return
	}
	n.Tick(w.now)
	if w.now.Before(n.next) {
		return
	}
	if rapid.IntRange(0, 60).Draw(w.t, "sleep") == 0 { // SIGSTOP, or a slow request
		n.asleep = w.now.Add(time.Duration(rapid.IntRange(100, 9000).Draw(w.t, "for")) * time.Millisecond)
		return
	}
	switch n.step {
	case 0:
		n.began, n.step = w.now, 1
	case 1: // the renewal arrives
		if n.cut {
			n.step, n.next = 0, w.now.Add(Cycle)
			return
		}
		w.leases[n.name] = lease{renewed: w.now, read: n.Version}
		n.step = 2
	case 2: // the table is read
		if n.cut {
			n.step, n.next = 0, w.now.Add(Cycle)
			return
		}
		n.pending, n.step = Table{Version: w.table.Version, Entries: slices.Clone(w.table.Entries)}, 3
	case 3: // the answer arrives
		changed := n.pending.Version != n.Version
		n.Read(n.pending, n.began)
		n.step = 0
		if !changed {
			n.next = w.now.Add(Cycle)
		}
	}
}

// write is what the writer does.
func (w *world) write(n *simulated) {
	if n.dead || n.cut || w.now.Before(n.asleep) {
		return
	}
	if n.writing && w.now.Sub(n.wrote) >= Valid {
		n.writing = false
	}
	if !n.writing {
		if n.seenHeld != w.held {
			n.seenHeld, n.heldSince = w.held, w.now
		}
		if w.holder != "" && w.holder != n.name && w.now.Sub(n.heldSince) < Silence {
			return
		}
		w.version++
		w.holder, w.held, n.writing, n.wrote, n.version = n.name, w.now, true, w.now, w.version
		return
	}
	if w.now.Sub(n.looked) > 2*time.Second {
		for name, s := range n.observed {
			s.at = w.now
			n.observed[name] = s
		}
	}
	n.looked = w.now
	for name, l := range w.leases {
		if s, known := n.observed[name]; !known || s.lease != l {
			n.observed[name] = seen{l, w.now}
		}
	}
	nodes := map[string]*Node{}
	for _, o := range w.nodes {
		s, known := n.observed[o.name]
		if !known {
			s.at = w.now
			n.observed[o.name] = s
		}
		nodes[o.name] = &Node{Name: o.name, Renewed: s.at, Read: s.read, Gone: s.gone, Subnets: []netip.Prefix{subnet}, Rank: o.rank}
	}
	next, changed := w.table.Next(w.now, w.demands, nodes)
	if n.version != w.version { // another node took the Lease: a conflict
		n.writing = false
		return
	}
	if changed {
		w.table = next
	}
	w.version++
	n.version, n.wrote, w.held = w.version, w.now, w.now
}

// announce lets other nodes hear who announces an address, and checks that only one does, and that only one answers then.
func (w *world) announce() {
	for _, d := range w.demands {
		var announcing []string
		for _, n := range w.nodes {
			if !n.dead && !w.now.Before(n.asleep) && n.Announces(d.Address, w.now) {
				announcing = append(announcing, n.name)
				for _, o := range w.nodes {
					if o != n && !o.dead && !w.now.Before(o.asleep) { // a process that is stopped hears nothing
						if o.Heard(d.Address, w.now) {
							w.t.Fatalf("%s and %s announce %s; %+v", n.name, o.name, d.Address, w.table)
						}
					}
				}
			}
		}
		if len(announcing) > 1 {
			w.t.Fatalf("%v announce %s; %+v", announcing, d.Address, w.table)
		}
		var answering []string
		for _, n := range w.nodes {
			if !n.dead && !w.now.Before(n.asleep) && n.Answers(d.Address, w.now) {
				answering = append(answering, n.name)
			}
		}
		if len(announcing) == 1 && !slices.Equal(answering, announcing) {
			w.t.Fatalf("%v announces %s, and %v answer", announcing, d.Address, answering)
		}
	}
	seen := map[netip.Addr]bool{}
	for _, e := range w.table.Entries {
		if seen[e.Address] || e.Node != "" && e.Leaving != "" {
			w.t.Fatalf("the table has %+v", w.table)
		}
		seen[e.Address] = true
	}
}

func (w *world) pass(d time.Duration) {
	for end := w.now.Add(d); w.now.Before(end); w.now = w.now.Add(100 * time.Millisecond) {
		for _, n := range w.nodes {
			w.run(n)
			w.announce()
			w.write(n)
			w.announce()
		}
	}
}

// Whatever happens to nodes and to the API, no two nodes announce an address at a time, and when the faults end, one that can does.
func TestGeneratedFaults(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &world{t: t, now: time.Unix(1000, 0), leases: map[string]lease{}}
		for i := range rapid.IntRange(2, 4).Draw(t, "nodes") {
			name := fmt.Sprint("n", i)
			w.nodes = append(w.nodes, &simulated{Speaker: NewSpeaker(name), name: name, observed: map[string]seen{}})
		}
		for i := range rapid.IntRange(1, 3).Draw(t, "addresses") {
			w.demands = append(w.demands, Demand{Address: netip.AddrFrom4([4]byte{10, 0, 0, byte(100 + i)}), Service: fmt.Sprint("s", i)})
		}
		w.pass(3 * time.Second)
		saved, leases := w.table, maps.Clone(w.leases)
		for range rapid.IntRange(1, 12).Draw(t, "faults") {
			n := rapid.SampledFrom(w.nodes).Draw(t, "node")
			switch rapid.IntRange(0, 8).Draw(t, "fault") {
			case 0:
				n.dead = true
			case 1: // it starts again
				n.dead, n.Speaker, n.step, n.writing = false, NewSpeaker(n.name), 0, false
			case 2, 3:
				n.cut = !n.cut
			case 4: // everything is cut
				for _, o := range w.nodes {
					o.cut = true
				}
			case 5:
				n.rank = rapid.IntRange(-1, 2).Draw(t, "rank")
			case 6:
				w.demands[0].Service += "x" // deleted, and created again with the address
			case 7:
				saved, leases = w.table, maps.Clone(w.leases)
			case 8: // a backup is restored
				for _, o := range w.nodes {
					o.cut = true
				}
				w.pass(Silence + time.Second)
				w.table, w.leases = saved, maps.Clone(leases)
				w.version++
				for _, o := range w.nodes {
					o.cut = false
				}
			}
			w.pass(time.Duration(rapid.IntRange(100, 6000).Draw(t, "pause")) * time.Millisecond)
		}
		for _, n := range w.nodes {
			n.cut, n.asleep = false, time.Time{}
			if n.dead {
				n.dead, n.Speaker, n.step, n.writing = false, NewSpeaker(n.name), 0, false
			}
			n.rank = 0
		}
		for range 40 { // processes may still stop for a while
			w.pass(time.Second)
			for _, n := range w.nodes {
				n.asleep = time.Time{}
			}
			all := true
			for _, d := range w.demands {
				at := slices.IndexFunc(w.nodes, func(n *simulated) bool { return n.Announces(d.Address, w.now) })
				all = all && at >= 0
			}
			if all {
				return
			}
		}
		t.Fatalf("an address has no node: %+v", w.table)
	})
}

// A node without power loses its addresses 3.3 s after its last renewal, a node that is drained when it has read the table.
func TestHowLongAMoveTakes(t *testing.T) {
	at := func(s float64) time.Time { return time.Unix(100, 0).Add(time.Duration(s * float64(time.Second))) }
	a := netip.MustParseAddr("10.0.0.100")
	demands := []Demand{{Address: a, Service: "s"}}
	node := func(name string, renewed float64, read int64) *Node {
		return &Node{Name: name, Renewed: at(renewed), Read: read, Subnets: []netip.Prefix{subnet}}
	}
	table, _ := Table{}.Next(at(0), demands, map[string]*Node{"n1": node("n1", 0, 0)})
	if table.Where(a) != "n1" || !table.Entries[0].New {
		t.Fatalf("%+v", table)
	}
	table, _ = table.Next(at(0.1), demands, map[string]*Node{"n1": node("n1", 0, 1)}) // n1 has found it free
	lost, changed := table.Next(at(3.2), demands, map[string]*Node{"n1": node("n1", 0, 1), "n2": node("n2", 3, 1)})
	if changed {
		t.Fatalf("moved after 3.2 s: %+v", lost)
	}
	lost, _ = table.Next(at(3.4), demands, map[string]*Node{"n1": node("n1", 0, 1), "n2": node("n2", 3, 1)})
	if e := lost.Entries[0]; e.Node != "" || e.Leaving != "n1" || e.New {
		t.Fatalf("%+v", lost)
	}
	next, _ := lost.Next(at(3.5), demands, map[string]*Node{"n1": node("n1", 0, 1), "n2": node("n2", 3, 1)})
	if next.Where(a) != "n2" {
		t.Errorf("%+v", next)
	}
	drained := node("n1", 1, 1)
	drained.Rank = 1
	moving, _ := table.Next(at(1), demands, map[string]*Node{"n1": drained, "n2": node("n2", 1, 1)})
	for read, want := range map[int64]string{2: "", 3: "n2"} {
		drained.Read = read
		next, _ := moving.Next(at(1.5), demands, map[string]*Node{"n1": drained, "n2": node("n2", 1, 1)})
		if next.Where(a) != want {
			t.Errorf("n1 read %d: %+v", read, next)
		}
	}
	alone, changed := table.Next(at(1), demands, map[string]*Node{"n1": drained})
	if changed || alone.Where(a) != "n1" {
		t.Errorf("the only node lost it: %+v", alone)
	}
}

// Without the API, a node goes on to answer, and stops when another one announces the address.
func TestSpeaker(t *testing.T) {
	a, start := netip.MustParseAddr("10.0.0.100"), time.Unix(100, 0)
	s := NewSpeaker("n1")
	if s.Answers(a, start) {
		t.Error("a node that read nothing answers")
	}
	table := Table{Version: 1, Entries: []Entry{{Address: a, Service: "s", Node: "n1"}}}
	s.Read(table, start)
	late := start.Add(Valid)
	for at := start; !at.After(late); at = at.Add(pauseLimit / 2) {
		s.Tick(at)
	}
	if !s.Announces(a, start) || s.Announces(a, late) || !s.Answers(a, late) {
		t.Error("it announces late, or does not answer")
	}
	if !s.Heard(a, start) || s.Heard(a, late) || s.Answers(a, late) || len(s.Addresses()) != 0 {
		t.Error("it did not yield")
	}
	s.Read(table, late)
	if !s.Answers(a, late) || !s.Announces(a, late) {
		t.Error("it does not come back")
	}
	s.Read(Table{Version: 2}, late)
	if s.Answers(a, late) {
		t.Error("it answers for an address that it lost")
	}
}

// A process that was stopped, and whose time is over, listens before it answers: another node may have the address.
func TestStoppedSpeaker(t *testing.T) {
	a, start := netip.MustParseAddr("10.0.0.100"), time.Unix(100, 0)
	s := NewSpeaker("n1")
	s.Read(Table{Version: 1, Entries: []Entry{{Address: a, Service: "s", Node: "n1"}}}, start)
	s.Tick(start)
	if at := start.Add(Valid - 1); !s.Answers(a, at) {
		t.Error("it was stopped for a while, and no other node can have the address")
	}
	wakes := start.Add(10 * time.Second)
	if s.Answers(a, wakes) {
		t.Error("it answers before it noticed that it was stopped")
	}
	for at := wakes; at.Before(wakes.Add(listenTime)); at = at.Add(pauseLimit / 4) {
		if s.Tick(at); s.Answers(a, at) {
			t.Errorf("it answers %s after it went on", at.Sub(wakes))
		}
	}
	at := wakes.Add(listenTime)
	if s.Tick(at); !s.Answers(a, at) {
		t.Error("nobody announces the address, and it does not answer")
	}
	if s.Heard(a, at); s.Answers(a, at) {
		t.Error("it heard another node, and answers")
	}
}

// A node with endpoints that terminate and still serve answers as long as no node with a ready one can.
func TestTerminatingEndpoints(t *testing.T) {
	a, now := netip.MustParseAddr("10.0.0.100"), time.Unix(100, 0)
	nodes := map[string]*Node{}
	for _, name := range []string{"n1", "n2", "n3"} {
		nodes[name] = &Node{Name: name, Renewed: now, Subnets: []netip.Prefix{subnet}}
	}
	table := Table{}
	at := func(want string, serve map[string]bool) {
		t.Helper()
		for range 4 {
			table, _ = table.Next(now, []Demand{{Address: a, Service: "s", Nodes: serve}}, nodes)
			for _, n := range nodes {
				n.Read = table.Version
			}
		}
		if got := table.Where(a); got != want {
			t.Errorf("%v: %q has the address, want %q", serve, got, want)
		}
	}
	at("n1", map[string]bool{"n1": true})
	at("n1", map[string]bool{"n1": false}) // the only pod ends
	at("n2", map[string]bool{"n1": false, "n2": true})
	at("n2", map[string]bool{"n1": true, "n2": true})
	nodes["n1"].Rank = 2
	at("n1", map[string]bool{"n1": true, "n2": false})
	nodes["n1"].Rank = -1
	at("n2", map[string]bool{"n1": true, "n2": false})
	at("", map[string]bool{})
}

// An address is new until a node has found it free, also if the first node is lost while it looks.
func TestNewAddress(t *testing.T) {
	a, now := netip.MustParseAddr("10.0.0.100"), time.Unix(100, 0)
	nodes := map[string]*Node{"n1": {Name: "n1"}, "n2": {Name: "n2", Rank: 1}}
	for _, n := range nodes {
		n.Renewed, n.Subnets = now, []netip.Prefix{subnet}
	}
	table := Table{}
	step := func(node string, isNew bool) {
		t.Helper()
		table, _ = table.Next(now, []Demand{{Address: a, Service: "s"}}, nodes)
		if e := table.Entries[0]; e.Node != node || e.New != isNew {
			t.Errorf("%+v, want %s, new %t", e, node, isNew)
		}
	}
	step("n1", true)
	step("n1", true) // it has not read that
	nodes["n1"].Read, nodes["n1"].Looking = table.Version, []netip.Addr{a}
	step("n1", true)
	nodes["n1"].Gone = true // while it looks
	step("", true)
	step("n2", true)
	nodes["n2"].Read, nodes["n2"].Looking, nodes["n2"].Conflicts = table.Version, []netip.Addr{a}, map[netip.Addr]string{a: "02:00:00:00:00:01"}
	step("n2", true)
	nodes["n2"].Looking, nodes["n2"].Conflicts = nil, nil
	step("n2", false)
	nodes["n1"].Gone = false
	step("", false)
	nodes["n2"].Read = table.Version
	step("n1", false)
}

// However many addresses are demanded, and however long names are, the table is not larger than what Kubernetes stores, an entry stays until
// its address is not demanded any more, and the addresses of a lost node move.
func TestFullTable(t *testing.T) {
	long := strings.Repeat("x", 240)
	rapid.Check(t, func(t *rapid.T) {
		now := time.Unix(1000, 0)
		nodes := map[string]*Node{}
		for i, length := range rapid.SliceOfN(rapid.IntRange(0, 240), 2, 4).Draw(t, "names") {
			name := fmt.Sprint("n", i, long[:length])
			nodes[name] = &Node{Name: name, Renewed: now, Subnets: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}
		}
		count, length := rapid.IntRange(1, 3000).Draw(t, "addresses"), rapid.IntRange(1, 127).Draw(t, "length of names")
		var demands []Demand
		a := netip.MustParseAddr("10.1.0.0")
		for i := range count {
			demands = append(demands, Demand{Address: a, Service: fmt.Sprint(long[:length-1], i)})
			a = a.Next()
		}
		table := Table{Version: rapid.Int64Range(0, math.MaxInt64/2).Draw(t, "version")}
		step := func() (before Table) {
			before = table
			table, _ = table.Next(now, demands, nodes)
			text, err := json.Marshal(table)
			if err != nil || len(text) > MaxSize {
				t.Fatalf("%d entries have %d bytes: %v", len(table.Entries), len(text), err)
			}
			if len(table.Entries) < len(before.Entries) {
				t.Fatalf("an entry was lost: %d of %d", len(table.Entries), len(before.Entries))
			}
			for _, n := range nodes {
				n.Renewed, n.Read = now, table.Version
			}
			return before
		}
		step()
		if len(table.Entries) < min(count, 300) {
			t.Fatalf("%d entries", len(table.Entries))
		}
		for name := range nodes { // one is drained, and no address stays there if it has room to move
			nodes[name].Rank = 1
			for range 6 {
				step()
			}
			for _, e := range table.Entries {
				if (count < 300 || !table.Full(e.Address)) && e.Node == name {
					t.Fatalf("%s has %v", name, e.Address)
				}
			}
			break
		}
		// All nodes are lost, and one with the longest name is left: an address that does not fit is reported, and moves when there is room.
		last := &Node{Name: long + "12345678", Renewed: now, Read: table.Version, Subnets: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}
		nodes = map[string]*Node{last.Name: last}
		for range 3 {
			step()
		}
		for _, e := range table.Entries {
			if e.Node != last.Name && !table.Full(e.Address) {
				t.Fatalf("%v is at %q, and the table has room", e.Address, e.Node)
			}
		}
		demands = demands[:min(count, 300)]
		table.Entries = slices.DeleteFunc(table.Entries, func(e Entry) bool {
			return !slices.ContainsFunc(demands, func(d Demand) bool { return d.Address == e.Address })
		})
		for range 3 {
			step()
		}
		if list := table.Of(last.Name); len(list) != len(demands) {
			t.Fatalf("%d of %d addresses have a node", len(list), len(demands))
		}
	})
}

// TestReadBeforeRestore: a node that followed a later table before a backup was restored has not read the restored one.
func TestReadBeforeRestore(t *testing.T) {
	a, now := netip.MustParseAddr("10.0.0.100"), time.Unix(100, 0)
	nodes := map[string]*Node{
		"n1": {Name: "n1", Renewed: now, Read: 9, Rank: 1, Subnets: []netip.Prefix{subnet}}, "n2": {Name: "n2", Renewed: now, Read: 9, Subnets: []netip.Prefix{subnet}},
	}
	table := Table{Version: 5, Entries: []Entry{{Address: a, Service: "s", Node: "n1", New: true}}}
	for range 3 {
		table, _ = table.Next(now, []Demand{{Address: a, Service: "s"}}, nodes)
	}
	if e := table.Entries[0]; e.Leaving != "n1" || e.Node != "" || !e.New {
		t.Fatalf("n1 may still announce the address, or has not found it free: %+v", e)
	}
	nodes["n1"].Read = table.Version
	for range 2 {
		table, _ = table.Next(now, []Demand{{Address: a, Service: "s"}}, nodes)
	}
	if got := table.Where(a); got != "n2" {
		t.Fatalf("%q has the address", got)
	}
}
