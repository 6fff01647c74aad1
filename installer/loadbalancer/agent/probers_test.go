package agent

import (
	"log/slog"
	"net"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"airlift/installer/daemon"
	"airlift/installer/endpoint/neighbours"
	"airlift/installer/loadbalancer"
)

// A wire connects the segments of several nodes for one address.
type wire []*end

// An end hears what the others send.
type end struct {
	*wire
	mac    net.HardwareAddr
	answer func(prober net.HardwareAddr) bool
	heard  chan net.HardwareAddr
}

func (e *end) others(do func(*end)) error {
	for _, o := range *e.wire {
		if o != e {
			go do(o)
		}
	}
	return nil
}

func (e *end) Announce() error { return e.others(func(o *end) { o.heard <- e.mac }) }
func (e *end) Solicit() error {
	return e.others(func(o *end) {
		if o.answer(e.mac) {
			e.heard <- o.mac
		}
	})
}
func (e *end) Ask() error { return nil }
func (e *end) Hear() (net.HardwareAddr, error) {
	mac, ok := <-e.heard
	if !ok {
		return nil, net.ErrClosed
	}
	return mac, nil
}
func (e *end) Close() error { close(e.heard); return nil }

// TestProbesAtTheSameTime: of the nodes of several clusters that look for an address at the same time, one takes it.
func TestProbesAtTheSameTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, w := netip.MustParseAddr("10.98.0.9"), &wire{}
		var nodes []*lines
		for i := range 3 {
			o := Options{Log: slog.New(slog.DiscardHandler),
				Interfaces: func() ([]Interface, error) {
					return []Interface{{Subnets: []netip.Prefix{netip.MustParsePrefix("10.98.0.0/24")}}}, nil
				},
				Open: func(_ *net.Interface, _ netip.Addr, answer func(net.HardwareAddr) bool) (neighbours.Segment, error) {
					e := &end{wire: w, mac: net.HardwareAddr{2, 0, 0, 0, 0, byte(i)}, answer: answer, heard: make(chan net.HardwareAddr, 1000)}
					*w = append(*w, e)
					return e, nil
				}}
			nodes = append(nodes, &lines{Options: o, doubt: func() {}, speaker: loadbalancer.NewSpeaker("n"), open: map[netip.Addr]*line{}})
		}
		table := loadbalancer.Table{Version: 1, Entries: []loadbalancer.Entry{{Address: a, Service: "s", Node: "n", New: true}}}
		free := func() (n int) {
			for _, l := range nodes {
				if l.open[a].free {
					n++
				}
			}
			return n
		}
		for range 10 * time.Minute / tick {
			for _, l := range nodes {
				l.read(table, daemon.Now())
				l.act(daemon.Now())
			}
			time.Sleep(tick)
			synctest.Wait()
			if free() > 1 {
				t.Fatal("several nodes have the address")
			}
		}
		if free() != 1 {
			t.Errorf("%d nodes have the address", free())
		}
		for _, l := range nodes {
			l.close()
		}
	})
}
