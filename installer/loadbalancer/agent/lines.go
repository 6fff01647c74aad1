package agent

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"

	"net"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/vishvananda/netlink"

	"airlift/installer/daemon"
	"airlift/installer/endpoint/neighbours"
	"airlift/installer/loadbalancer"
)

const (
	// A node that gets an address announces it in each tick for the time of burst, then once in announce.
	tick, burst, announce = 250 * time.Millisecond, 2 * time.Second, time.Second
	// An address that nobody announced before is asked for in each tick for the time of probe, and again after one to two times probeAgain if
	// another host has it.
	probe, probeAgain = 1500 * time.Millisecond, 10 * time.Second
)

// lines are the addresses for which this node answers.
type lines struct {
	Options
	doubt func() // another host announces an address of this node: the table may have changed

	mu      sync.Mutex // for all that follows, also in lines
	speaker *loadbalancer.Speaker
	open    map[netip.Addr]*line
	doubted time.Time
	wg      sync.WaitGroup
	// failures of the last attempts, which are logged once
	listing, opening, sending failure
}

// A line is an address on the interface that leads to its subnet.
type line struct {
	loadbalancer.Entry
	segment   neighbours.Segment
	ifi       net.Interface
	asked     time.Time // the present probe began
	again     time.Time // the next one begins, if another host has the address
	free      bool      // no other host has the address
	taken     time.Time // free became true
	announced time.Time
	other     string    // the hardware address of another host that has it
	heard     time.Time // from that host
	closed    bool
}

// read takes a table.
func (l *lines) read(t loadbalancer.Table, began time.Time) {
	l.mu.Lock()
	l.speaker.Read(t, began)
	l.mu.Unlock()
	l.refresh(daemon.Now())
}

// refresh closes the lines that this node should not have or whose interface changed, and opens the missing ones. When it
// returns, nothing answers for another address.
func (l *lines) refresh(now time.Time) {
	list, err := l.Interfaces()
	l.mu.Lock()
	if l.listing.isNew(err) {
		l.Log.Warn("the interfaces cannot be listed", "error", err)
	}
	if err != nil {
		l.mu.Unlock()
		return
	}
	var failed []string
	var surplus []*line
	want := l.speaker.Addresses()
	for a, n := range l.open {
		i := slices.IndexFunc(want, func(e loadbalancer.Entry) bool { return e.Address == a })
		ifi := interfaceFor(list, a)
		if i >= 0 && !n.closed && ifi != nil && ifi.Index == n.ifi.Index && ifi.HardwareAddr.String() == n.ifi.HardwareAddr.String() {
			continue
		}
		surplus = append(surplus, n)
		delete(l.open, a)
	}
	slices.SortFunc(want, func(a, b loadbalancer.Entry) int { return a.Address.Compare(b.Address) })
	for _, e := range want {
		ifi := interfaceFor(list, e.Address)
		if l.open[e.Address] != nil || ifi == nil {
			continue
		}
		n := &line{Entry: e, ifi: ifi.Interface, free: !e.New, asked: now, taken: now}
		if n.segment, err = l.Open(&n.ifi, e.Address, func(prober net.HardwareAddr) bool { return l.answers(n, prober) }); err != nil {
			failed = append(failed, err.Error())
			continue
		}
		l.open[e.Address] = n
		l.wg.Go(func() { l.listen(n) })
		l.Log.Info("got an address", "address", e.Address, "service", e.Service, "interface", n.ifi.Name)
	}
	if err := joined(failed); l.opening.isNew(err) {
		l.Log.Warn("this node cannot answer for addresses", "error", err)
	}
	l.mu.Unlock()
	for _, n := range surplus {
		_ = n.segment.Close()
		l.Log.Info("gave up an address", "address", n.Address, "service", n.Service)
	}
}

// answers reports whether this node answers a request for an address. If another host looks at the same time whether the address is free,
// neither takes it (RFC 5227, 2.1.1; RFC 4862, 5.4.3).
func (l *lines) answers(n *line, prober net.HardwareAddr) bool {
	now := daemon.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if prober != nil && !n.free {
		l.found(n, prober.String(), now)
	}
	return n.free && l.open[n.Address] == n && l.speaker.Answers(n.Address, now)
}

// listen takes what other hosts announce, until the line is closed or its interface fails.
func (l *lines) listen(n *line) {
	for {
		mac, err := n.segment.Hear()
		if err != nil {
			break
		}
		l.hear(n, mac.String(), daemon.Now())
	}
	l.mu.Lock()
	n.closed = true
	l.mu.Unlock()
}

func (l *lines) hear(n *line, mac string, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n.free && !l.speaker.Heard(n.Address, now) {
		return
	}
	if n.free && now.Sub(l.doubted) > loadbalancer.Cycle { // perhaps the clock of this host stood still, and another node has the address
		l.doubted = now
		l.doubt()
	}
	l.found(n, mac, now)
}

// found takes that another host has an address, or is about to take it.
func (l *lines) found(n *line, mac string, now time.Time) {
	if now.Sub(n.heard) > probeAgain {
		l.Log.Error("another host has the address of a Service", "address", n.Address, "service", n.Service, "mac", mac)
	}
	n.other, n.heard = mac, now
}

// act sends what is due.
func (l *lines) act(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.speaker.Tick(now)
	var failed []string
	for _, a := range slices.SortedFunc(maps.Keys(l.open), netip.Addr.Compare) {
		n := l.open[a]
		var err error
		switch {
		case n.closed || !l.speaker.Announces(n.Address, now):
		case n.free:
			if now.Sub(n.taken) < burst || now.Sub(n.announced) >= announce {
				n.announced = now
				err = n.segment.Announce()
			}
		case now.Sub(n.asked) < probe:
			err = n.segment.Solicit()
		case !n.heard.Before(n.asked): // it is taken
			switch {
			case n.again.Before(n.asked): // not always after the same time: another cluster may look for the address, too
				n.again = n.asked.Add(probeAgain + rand.N(probeAgain))
			case now.After(n.again):
				n.asked = now
			}
		default:
			n.free, n.taken, n.other = true, now, ""
		}
		if err != nil {
			failed = append(failed, err.Error())
		}
	}
	if err := joined(failed); l.sending.isNew(err) {
		l.Log.Warn("addresses cannot be announced", "error", err)
	}
}

var digits = regexp.MustCompile("[0-9]+")

// A failure is the last error of something that is done again and again.
type failure struct{ text string }

// isNew reports whether an error should be logged: it is not the one before. Another number in it, such as the time, makes no other one.
func (f *failure) isNew(err error) bool {
	before := f.text
	if f.text = ""; err != nil {
		f.text = digits.ReplaceAllString(err.Error(), "0")
	}
	return err != nil && f.text != before
}

// joined returns an error with all texts, nil if there are none.
func joined(texts []string) error {
	if len(texts) == 0 {
		return nil
	}
	return errors.New(strings.Join(texts, "; "))
}

// conflicts returns the addresses that other hosts have, with their hardware addresses.
func (l *lines) conflicts(now time.Time) map[netip.Addr]string {
	l.mu.Lock()
	defer l.mu.Unlock()
	list := map[netip.Addr]string{}
	for a, n := range l.open {
		if n.other != "" && now.Sub(n.heard) < 3*probeAgain {
			list[a] = n.other
		}
	}
	return list
}

// looking returns the new addresses of this node that it has not found free yet.
func (l *lines) looking() (list []netip.Addr) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.speaker.Addresses() {
		if n := l.open[e.Address]; e.New && (n == nil || !n.free) {
			list = append(list, e.Address)
		}
	}
	return list
}

func (l *lines) version() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.speaker.Version
}

// close closes all lines.
func (l *lines) close() {
	l.read(loadbalancer.Table{Version: l.version()}, time.Time{})
	l.wg.Wait()
}

// An Interface leads to a network on which hosts look for addresses.
type Interface struct {
	net.Interface
	Subnets []netip.Prefix
}

// interfaces lists the interfaces of this host that are up and have subnets. A node has an interface for each pod, without one.
func interfaces() (list []Interface, err error) {
	addresses, err := netlink.AddrList(nil, netlink.FAMILY_ALL)
	if err != nil {
		return nil, fmt.Errorf("listing the addresses of this host: %w", err)
	}
	byIndex := map[int][]netip.Prefix{}
	for _, a := range addresses {
		ip, ok := netip.AddrFromSlice(a.IP)
		bits, size := a.Mask.Size()
		if ip = ip.Unmap(); ok && bits < size && !ip.IsLinkLocalUnicast() && !ip.IsLoopback() {
			byIndex[a.LinkIndex] = append(byIndex[a.LinkIndex], netip.PrefixFrom(ip, bits).Masked())
		}
	}
	for _, index := range slices.Sorted(maps.Keys(byIndex)) {
		// It may be gone meanwhile.
		if ifi, err := net.InterfaceByIndex(index); err == nil && ifi.Flags&net.FlagUp != 0 && ifi.Flags&net.FlagRunning != 0 && len(ifi.HardwareAddr) == 6 {
			list = append(list, Interface{*ifi, byIndex[index]})
		}
	}
	return list, nil
}

func interfaceFor(list []Interface, a netip.Addr) *Interface {
	for _, i := range list {
		if slices.ContainsFunc(i.Subnets, func(p netip.Prefix) bool { return p.Contains(a) }) {
			return &i
		}
	}
	return nil
}
