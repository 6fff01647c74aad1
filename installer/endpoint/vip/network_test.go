package vip

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"airlift/installer/daemon"
	"airlift/installer/endpoint/neighbours"
	"airlift/installer/etcd"
	"airlift/internal/fault"
	"airlift/scripts/fixtures/rig"
)

// newNetwork returns a lab with a switch and no hosts.
func newNetwork(t *testing.T) *lab {
	t.Helper()
	l := &lab{TB: t}
	l.makeSwitch()
	return l
}

func TestFind(t *testing.T) {
	l := newNetwork(t)
	ns := l.connect("h1", "10.99.0.1/24", "fd99::1/64", "10.99.0.77/32")
	l.ip("-n", ns, "link", "add", "eth1", "up", "type", "veth", "peer", "name", "eth2")
	l.ip("-n", ns, "address", "add", "10.98.0.1/24", "dev", "eth1")
	l.ip("-n", ns, "address", "add", "10.97.0.1/24", "dev", "lo")
	for _, c := range []struct{ addresses, name, want, message string }{
		{"10.99.0.100", "", "eth0", ""},
		{"10.99.0.100 fd99::100", "", "eth0", ""},
		{"fd99::100", "eth0", "eth0", ""},
		{"10.98.0.100", "", "eth1", ""},
		{"10.98.0.100", "eth0", "", "the interface eth0 does not have a subnet with the virtual address 10.98.0.100"},
		{"10.98.0.100 fd99::100", "", "", "no interface of this host has a subnet with the virtual addresses 10.98.0.100 and fd99::100"},
		{"10.96.0.100", "", "", "no interface of this host has a subnet with the virtual address 10.96.0.100"},
		{"10.97.0.100", "", "", "no interface of this host has a subnet"},
		{"10.99.0.100", "eth7", "", "eth7 does not exist or has no subnet"},
		{"10.99.0.1", "", "", "10.99.0.1 is the address of this host on eth0"},
	} {
		var list []netip.Addr
		for _, a := range strings.Fields(c.addresses) {
			list = append(list, netip.MustParseAddr(a))
		}
		inNamespace(t, ns, func() {
			got, err := Find(list, c.name)
			if got != c.want || (err == nil) != (c.message == "") {
				t.Errorf("%+v: %q, %v", c, got, err)
			}
			if err != nil && (!strings.Contains(err.Error(), c.message) || fault.Hint(err) == "" || fault.ExitCode(err) != fault.Preflight) {
				t.Errorf("%+v: %v, hint %q", c, err, fault.Hint(err))
			}
		})
	}
}

// TestProbe finds the host that has an address, and no host for an unused one.
func TestProbe(t *testing.T) {
	l := newNetwork(t)
	here, there := l.connect("h1", "10.99.0.1/24", "fd99::1/64"), l.connect("h2", "10.99.0.2/24", "fd99::2/64")
	var mac net.HardwareAddr
	inNamespace(t, there, func() {
		ifi, err := net.InterfaceByName("eth0")
		if err != nil {
			t.Error(err)
			return
		}
		mac = ifi.HardwareAddr
	})
	for address, taken := range map[string]bool{"10.99.0.2": true, "fd99::2": true, "10.99.0.3": false, "fd99::3": false, "10.99.0.1": false} {
		inNamespace(t, here, func() {
			by, err := neighbours.Probe(t.Context(), netip.MustParseAddr(address), "eth0")
			if err != nil || (by != nil) != taken || taken && by.String() != mac.String() {
				t.Errorf("%s: taken by %q, %v; want %t", address, by, err, taken)
			}
		})
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	inNamespace(t, here, func() {
		for _, iface := range []string{"lo", "eth9"} {
			if _, err := neighbours.Probe(t.Context(), netip.MustParseAddr("10.99.0.3"), iface); err == nil {
				t.Errorf("a probe on %s", iface)
			}
		}
		if _, err := neighbours.Probe(ended, netip.MustParseAddr("10.99.0.3"), "eth0"); err == nil {
			t.Error("a probe that was cancelled found a free address")
		}
	})
}

// TestAnnouncerIsAMember: a host is known by the name of the etcd member to which this host sends packets.
func TestAnnouncerIsAMember(t *testing.T) {
	n := newNetwork(t)
	here, there := n.connect("h1", "10.99.0.1/24"), n.connect("h2", "10.99.0.2/24")
	var other net.HardwareAddr
	inNamespace(t, there, func() {
		ifi, err := net.InterfaceByName("eth0")
		if err != nil {
			t.Error(err)
			return
		}
		other = ifi.HardwareAddr
	})
	inNamespace(t, here, func() {
		link, err := netlink.LinkByName("eth0")
		if err != nil {
			t.Error(err)
			return
		}
		l := &loop{agent: &Agent{}, options: &Options{Log: slog.New(slog.DiscardHandler)}, nic: nic{name: "eth0", link: link}}
		l.role = etcd.Role{Self: 1, Members: []etcd.Member{{ID: 1, Name: "cp1", PeerURL: "https://10.99.0.1:2380"}, {ID: 2, Name: "cp2", PeerURL: "https://10.99.0.2:2380"}}}
		l.setAnnouncer(other, time.Now())
		if got := l.holders(time.Now()); len(got) != 1 || got[0].Name != "" || got[0].MAC != other.String() {
			t.Errorf("before any packet to it: %v", got)
		}
		conn, err := net.Dial("udp", "10.99.0.2:2380")
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		for deadline := time.Now().Add(10 * time.Second); len(l.holders(time.Now())) != 1 || l.holders(time.Now())[0].String() != "cp2 (10.99.0.2)"; time.Sleep(50 * time.Millisecond) {
			_, _ = conn.Write([]byte{0}) // no process has the port
			if l.setAnnouncer(other, time.Now()); time.Now().After(deadline) {
				t.Errorf("%v", l.holders(time.Now()))
				return
			}
		}
	})
}

// TestLifetime: the address goes away without its agent, is no source of packets, and drop removes it from
// all interfaces.
func TestLifetime(t *testing.T) {
	l := newNetwork(t)
	ns := l.connect("h1")
	addresses := func() string {
		out, err := exec.Command("ip", "-n", ns, "-o", "address").CombinedOutput()
		if err != nil {
			t.Errorf("%v: %s", err, out)
		}
		return string(out)
	}
	has := func() (n int) {
		out := addresses()
		for _, a := range vips {
			n += strings.Count(out, " "+a.String()+"/")
		}
		return n
	}
	inNamespace(t, ns, func() {
		link, err := netlink.LinkByName("eth0")
		if err != nil {
			t.Error(err)
			return
		}
		holdAll := func() {
			for _, a := range vips {
				if err := hold(link, a); err != nil {
					t.Error(err)
				}
			}
		}
		holdAll() // before the host's own address, as after a restart of the network service
		l.ip("-n", ns, "address", "add", "10.99.0.1/24", "dev", "eth0")
		l.ip("-n", ns, "address", "add", "fd99::1/64", "dev", "eth0", "nodad")
		l.ip("-n", ns, "route", "add", "default", "via", "10.99.0.254")
		l.ip("-n", ns, "route", "add", "default", "via", "fd99::ffff")
		for _, to := range []string{"10.99.0.9", "192.0.2.1", "fd99::9", "2001:db8::1"} {
			routes, err := netlink.RouteGet(net.ParseIP(to))
			if err != nil || len(routes) == 0 {
				t.Errorf("the route to %s: %v", to, err)
			} else if src := routes[0].Src.String(); src != "10.99.0.1" && src != "fd99::1" {
				t.Errorf("packets to %s come from %s", to, src)
			}
		}
		if out := addresses(); has() != 2 || strings.Contains(out, "nodad deprecated tentative") || strings.Count(out, "deprecated") != 2 {
			t.Errorf("the addresses are\n%s", out)
		}
		started := time.Now()
		holdAll()
		for has() > 0 && time.Since(started) < 10*time.Second {
			time.Sleep(10 * time.Millisecond)
		}
		if took := time.Since(started); took < lifetime-time.Second || took >= 10*time.Second {
			t.Errorf("the addresses ended after %s:\n%s", took, addresses())
		} else {
			t.Logf("the addresses ended after %s", took)
		}
		holdAll()
		l.ip("-n", ns, "address", "add", vips[0].String()+"/32", "dev", "lo")
		for range 2 {
			if err := drop(vips); err != nil || has() > 0 {
				t.Errorf("%v:\n%s", err, addresses())
			}
		}
		if out := addresses(); !strings.Contains(out, "10.99.0.1/24") || !strings.Contains(out, "fd99::1/64") {
			t.Errorf("the host's own addresses were removed:\n%s", out)
		}
	})
}

// TestHolder: what may happen to the holder without a move of the address.
func TestHolder(t *testing.T) {
	l := newLab(t, 3, agentConfig{Addresses: vips})
	h := l.settle()
	stays := func(what string) {
		t.Helper()
		if now := l.settle(); now != h {
			t.Errorf("%s: the address moved from %s to %s", what, h.name, now.name)
			h = now
		}
		double, gap, failed := l.client.measured()
		t.Logf("%-40s longest gap %5.2f s, %d failed requests", what, gap.Seconds(), failed)
		if double > announce {
			t.Errorf("%s: two hosts answered for %s", what, double)
		}
		l.client.reset()
	}
	l.client.reset()

	// A network service that starts again removes addresses that it does not know.
	for _, a := range vips {
		l.ip("-n", h.ns, "address", "del", netip.PrefixFrom(a, a.BitLen()).String(), "dev", "eth0")
	}
	for deadline := time.Now().Add(2 * time.Second); !h.hasAddress(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the address is not restored after two seconds")
		}
	}
	stays("addresses removed")
	l.agree(h)

	// A follower that stalls is no reason to move. On a busy machine etcd itself may elect another leader meanwhile, but not
	// each time.
	for attempt := 1; ; attempt++ {
		o := l.others(h)[0]
		o.etcd.signal(syscall.SIGSTOP)
		time.Sleep(2 * time.Second)
		o.etcd.signal(syscall.SIGCONT)
		if now := l.settle(); now == h || attempt == 3 {
			stays("a follower's etcd stalls for 2 s")
			break
		} else {
			t.Logf("the address moved from %s to %s while a follower's etcd stalled", h.name, now.name)
			h = now
			l.client.reset()
		}
	}

	// A process that was killed left the address; the next one begins with no address.
	h.agent.kill()
	h.startAgent()
	h2 := l.settle()
	if h2 != h {
		t.Logf("the address moved to %s", h2.name)
	}
	h = h2
	stays("agent restarted")

	// No API server is ready: the leader keeps the address, so that clients are refused at once.
	for _, o := range append(l.others(h), h) {
		o.api.kill()
	}
	time.Sleep(3 * time.Second)
	// All API servers stay stopped until the answer is there. On a busy machine etcd itself may elect another leader meanwhile:
	// then the address left this host.
	for attempt := 1; ; attempt++ {
		holder := l.onlyHolder()
		err := holder.handover()
		if err != nil && err.Error() == ErrNoPeer.Error() {
			break
		}
		if now := l.onlyHolder(); err != nil || now == holder || attempt == 3 {
			t.Errorf("a handover from %s to nobody: %v; %s has the address", holder.name, err, now.name)
			break
		}
	}
	for _, o := range l.hosts {
		o.startAPI()
	}
	l.settle()

	// Another host that has the address is reported.
	h = l.settle()
	cl := l.prefix + "cl"
	inNamespace(t, cl, func() {
		ifi, err := net.InterfaceByName("eth0")
		if err != nil {
			t.Error(err)
			return
		}
		s, err := neighbours.Open(ifi, vips[0], nil)
		if err != nil {
			t.Error(err)
			return
		}
		defer s.Close()
		for deadline := time.Now().Add(10 * time.Second); h.status().Conflict == nil; time.Sleep(100 * time.Millisecond) {
			if err := s.Announce(); err != nil || time.Now().After(deadline) {
				t.Errorf("the conflict is not reported: %v", err)
				return
			}
		}
		if c := h.status().Conflict; c.MAC != ifi.HardwareAddr.String() || c.Address != vips[0] {
			t.Errorf("conflict %+v", c)
		}
		for deadline := time.Now().Add(2 * overlap); len(l.others(h)[0].status().Lasting(time.Now())) < 2; time.Sleep(100 * time.Millisecond) {
			if err := s.Announce(); err != nil || time.Now().After(deadline) {
				t.Errorf("a third host does not see two holders: %v", err)
				return
			}
		}
	})

	// An agent that ends gives the address away and removes it.
	h.agent.signal(syscall.SIGTERM)
	<-h.agent.ended
	if h.hasAddress() {
		t.Error("the agent has ended, and the address is still there")
	}
	l.waitServed(20*time.Second, l.others(h)...)
	h.startAgent()
	l.settle()
}

// TestSlowChecks: checks that take longer, and that are lost, do not move the address.
func TestSlowChecks(t *testing.T) {
	l := newLab(t, 3, agentConfig{Addresses: vips[:1], Lost: 0.05, Latency: 100 * time.Millisecond})
	h := l.settle()
	l.client.reset()
	time.Sleep(20 * time.Second)
	data, err := os.ReadFile(filepath.Join(l.dir, h.name+"-agent.log"))
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(data), "moved etcd's leadership") {
		t.Errorf("the address moved:\n%s", data)
	}
}

// TestSingle: the only control plane takes the address, also before its API server is ready.
func TestSingle(t *testing.T) {
	l := newLab(t, 1, agentConfig{Addresses: vips[1:]})
	h := l.settle()
	if err := h.handover(); err == nil || !h.hasAddress() {
		t.Errorf("a handover to nobody: %v", err)
	}
	stays := func(what string) {
		t.Helper()
		for until := time.Now().Add(4 * time.Second); time.Now().Before(until); time.Sleep(50 * time.Millisecond) {
			if !h.hasAddress() {
				t.Fatalf("%s: the address is gone", what)
			}
		}
	}
	h.api.kill()
	stays("the API server restarts")
	h.startAPI()
	l.settle()
	h.etcd.signal(syscall.SIGSTOP)
	stays("etcd stalls")
	h.etcd.signal(syscall.SIGCONT)
	l.settle()
}

// A leaderUntil is an election in which this host is the leader, until etcd does not answer any more.
type leaderUntil struct{ ended atomic.Bool }

func (e *leaderUntil) Role(context.Context) (etcd.Role, error) {
	if e.ended.Load() {
		return etcd.Role{}, errors.New("etcd does not answer")
	}
	return etcd.Role{Self: 1, Leader: 1, Members: []etcd.Member{{ID: 1}, {ID: 2}, {ID: 3}}}, nil
}

func (e *leaderUntil) Move(context.Context, uint64) error { return errors.New("etcd does not answer") }

// TestSuspended: a host that was suspended gives the address up as soon as it goes on, because another host may have it. A confirmation
// from before the suspension counts for nothing.
func TestSuspended(t *testing.T) {
	l := newNetwork(t)
	ns := l.connect("h1", "10.99.0.1/24", "fd99::1/64")
	election := &leaderUntil{}
	a, err := New(Options{Addresses: vips, Election: election, Ready: func(context.Context, string) error { return nil }, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	var slept atomic.Int64
	a.now = func() time.Time { return daemon.Now().Add(time.Duration(slept.Load())) }
	ctx, end := context.WithCancel(t.Context())
	defer end()
	ended := make(chan error, 1)
	go inNamespace(t, ns, func() { ended <- a.Run(ctx) })
	until := func(limit time.Duration, held bool) {
		t.Helper()
		for began := time.Now(); a.Status().Held != held; time.Sleep(10 * time.Millisecond) {
			if time.Since(began) > limit {
				t.Fatalf("after %s: %+v", limit, a.Status())
			}
		}
	}
	until(time.Minute, true)
	if since := time.Since(a.Status().Since); since < 0 || since > time.Minute {
		t.Errorf("it has the address since %s", a.Status().Since)
	}
	election.ended.Store(true)
	began := time.Now()
	slept.Store(int64(time.Hour))
	until(grace-2*tick, false)
	t.Logf("the address was given up after %s", time.Since(began))
	if since := time.Since(a.Status().Since); since < 0 || since > time.Minute {
		t.Errorf("the time of day of the change is %s", a.Status().Since)
	}
	end()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestClock: the clock of deadlines goes on while the host is suspended, as in a time namespace whose CLOCK_BOOTTIME is ahead.
func TestClock(t *testing.T) {
	rig.Root(t)
	rig.Tool(t, "unshare")
	cmd := exec.Command("unshare", "--time", "--boottime", "500000", "--fork", os.Args[0])
	cmd.Env = append(os.Environ(), helperVariable+"=clock")
	out, err := cmd.CombinedOutput()
	if ahead, parsed := strconv.ParseFloat(strings.TrimSpace(string(out)), 64); err != nil || parsed != nil || ahead < 499999 {
		t.Errorf("the clock is %q s ahead: %v", out, err)
	}
}

// helpClock prints how far the clock of an agent is ahead of CLOCK_MONOTONIC.
func helpClock() error {
	a, err := New(Options{Addresses: vips})
	if err == nil {
		fmt.Println(time.Until(a.now()).Seconds())
	}
	return err
}
