package host_test

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"airlift/installer/host/firewall"
	"airlift/scripts/fixtures/rig"
)

// neighbour adds an interface eth0 whose other end is in another network namespace, and
// returns a function that runs there.
func neighbour(t *testing.T) (there func(func())) {
	t.Helper()
	const here, peer = "10.77.0.11/24", "10.77.0.12/24"
	calls, namespace := make(chan func()), make(chan *os.File)
	go func() {
		runtime.LockOSThread() // never unlocked: the namespace ends with the thread
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			close(namespace)
			return
		}
		f, _ := os.Open(fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid()))
		namespace <- f
		for call := range calls {
			call()
		}
	}()
	t.Cleanup(func() { close(calls) })
	ns := <-namespace
	if ns == nil {
		t.Fatal("making a network namespace failed")
	}
	defer ns.Close()
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "eth0"
	add(t, &netlink.Veth{LinkAttrs: attrs, PeerName: "peer"})
	link, err := netlink.LinkByName("peer")
	if err != nil {
		t.Fatal(err)
	}
	if err := netlink.LinkSetNsFd(link, int(ns.Fd())); err != nil {
		t.Fatal(err)
	}
	there = func(f func()) {
		done := make(chan struct{})
		calls <- func() { defer close(done); f() }
		<-done
	}
	there(func() { up(t, "peer", peer, "fd77::12/64") })
	up(t, "eth0", here, "fd77::11/64")
	return there
}

// reaches reports whether a connection from the neighbour, or from this host itself, is accepted.
func reaches(t *testing.T, from func(func()), protocol, address string, port uint16) bool {
	t.Helper()
	target := net.JoinHostPort(address, fmt.Sprint(port))
	if protocol == "tcp" {
		l, err := net.Listen("tcp", target)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		from(func() {
			var c net.Conn
			if c, err = net.DialTimeout("tcp", target, time.Second); err == nil {
				c.Close()
			}
		})
		return err == nil
	}
	l, err := net.ListenPacket("udp", target)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	from(func() {
		var c net.Conn
		if c, err = net.Dial("udp", target); err == nil {
			_, err = c.Write([]byte("x"))
			c.Close()
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
		t.Fatal(err)
	}
	_, _, err = l.ReadFrom(make([]byte, 1))
	return err == nil
}

// firewalls are rules as administrators and firewall tools write them.
var firewalls = map[string]string{
	"no rules": "",
	"iptables, policy drop": `iptables
*filter
:INPUT DROP [0:0]
-A INPUT -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A INPUT -i lo -j ACCEPT
-A INPUT -p tcp -m tcp --dport 6443 -j ACCEPT
COMMIT`,
	"iptables, multiport and reject": `iptables
*filter
:INPUT ACCEPT [0:0]
:mine - [0:0]
-A INPUT -m state --state RELATED,ESTABLISHED -j ACCEPT
-A INPUT -m state --state NEW -m multiport -p tcp --dports 22,6000:7000 -j ACCEPT
-A INPUT -m comment --comment "the rest" -j mine
-A mine -i lo -j RETURN
-A mine -m addrtype ! --dst-type LOCAL -j RETURN
-A mine -m limit --limit 1/hour -j LOG
-A mine -j REJECT --reject-with icmp-host-prohibited
COMMIT`,
	"iptables, another network and another interface": `iptables
*filter
:INPUT DROP [0:0]
-A INPUT -s 192.168.0.0/16 -j ACCEPT
-A INPUT -i eth1 -j ACCEPT
-A INPUT -i l+ -j ACCEPT
-A INPUT ! -s 10.77.0.0/16 -j ACCEPT
-A INPUT -p udp ! --dport 8472 -j ACCEPT
COMMIT`,
	"iptables, invalid and not syn": `iptables
*filter
:INPUT ACCEPT [0:0]
-A INPUT -m conntrack --ctstate INVALID -j DROP
-A INPUT -p tcp ! --syn -m conntrack --ctstate NEW -j DROP
-A INPUT -p tcp --syn --dport 10250 -j REJECT --reject-with tcp-reset
COMMIT`,
	"nftables, sets and maps": `
table inet filter {
	set open { type inet_service; flags interval; elements = { 22, 6000-7000 } }
	set trusted { type ipv4_addr; flags interval; elements = { 10.99.0.0/16, 192.0.2.1 } }
	chain web { ip saddr @trusted accept; tcp dport @open accept; }
	chain input {
		type filter hook input priority filter; policy drop;
		ct state vmap { established : accept, related : accept, invalid : drop }
		iifname { "lo", "eth7" } accept
		meta l4proto ipv6-icmp accept
		meta l4proto { tcp, udp } jump web
		udp dport 8000-9000 ip protocol udp accept
	}
}`,
	"nftables, map of interfaces as firewalld's": `
table inet firewalld {
	chain filter_INPUT {
		type filter hook input priority filter + 10; policy accept;
		ct state { established, related } accept
		ct status dnat accept
		iifname "lo" accept
		meta l4proto ipv6-icmp accept
		ct state invalid drop
		jump zones
		reject with icmpx admin-prohibited
	}
	chain zones { iifname vmap { "eth0" : goto public, "eth1" : accept }; goto trusted; }
	chain public { tcp dport 22 accept; tcp dport vmap { 6443 : accept, 9000-9100 : drop }; udp dport { 53, 8472 } ct state new accept; }
	chain trusted { accept; }
}`,
	"nftables, two chains": `
table ip one {
	chain input { type filter hook input priority -10; policy accept; tcp dport 6443 accept; }
}
table ip two {
	chain input { type filter hook input priority 10; policy accept; tcp dport { 6443, 10250 } drop; }
}
table ip6 three {
	chain input { type filter hook input priority 10; policy drop; icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert, nd-router-advert } accept; }
}`,
	"nftables, a prefix of the addresses": `
table ip filter {
	chain input {
		type filter hook input priority 0; policy drop;
		iif "lo" accept
		ip saddr 10.77.0.0/24 tcp dport 6443 accept
		ip saddr { 10.77.0.0-10.77.0.9, 10.77.1.0/24 } accept
		tcp dport > 10000 accept
	}
}`,
}

// TestFirewall compares what is said of rules with what the kernel does with packets.
func TestFirewall(t *testing.T) {
	for name, rules := range firewalls {
		t.Run(name, func(t *testing.T) {
			rig.Tool(t, "nft")
			rig.Tool(t, "iptables-nft-restore")
			inNetwork(t)
			there := neighbour(t)
			for _, address := range []string{"10.77.0.11", "fd77::11"} { // until the interface is ready
				for range 10 {
					if reaches(t, there, "tcp", address, 6443) {
						break
					}
				}
			}
			if text, ok := strings.CutPrefix(rules, "iptables\n"); ok {
				iptables(t, "iptables-nft", text+"\n")
			} else {
				nft := exec.Command("nft", "-f", "-")
				nft.Stdin = strings.NewReader(rules)
				if out, err := nft.CombinedOutput(); err != nil {
					t.Fatalf("nft: %v\n%s", err, out)
				}
			}
			f, err := firewall.Read()
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			for _, p := range []firewall.Packet{
				{In: "eth0", From: netip.MustParsePrefix("10.77.0.12/32"), To: netip.MustParsePrefix("10.77.0.11/32")},
				{In: "lo", From: netip.MustParsePrefix("127.0.0.1/32"), To: netip.MustParsePrefix("127.0.0.1/32")},
				{In: "eth0", From: netip.MustParsePrefix("fd77::12/128"), To: netip.MustParsePrefix("fd77::11/128")},
			} {
				from := there
				if p.In == "lo" {
					from = func(f func()) { f() }
				}
				for _, to := range []struct {
					protocol string
					port     uint16
				}{{"tcp", 6443}, {"tcp", 10250}, {"udp", 8472}} {
					p.Protocol, p.Port = to.protocol, to.port
					drops, err := f.Drops(p)
					if err != nil {
						t.Fatal(err)
					}
					if reached := reaches(t, from, to.protocol, p.To.Addr().String(), to.port); reached != (len(drops) == 0) {
						t.Errorf("%+v: it arrived: %v, but dropped by %+v", p, reached, drops)
					}
				}
			}
		})
	}
}

// TestFirewallDoesNotGuess: what may depend on the source is not reported.
func TestFirewallDoesNotGuess(t *testing.T) {
	rig.Tool(t, "nft")
	inNetwork(t)
	nft := exec.CommandContext(context.Background(), "nft", "-f", "-")
	nft.Stdin = strings.NewReader(`
table ip filter {
	set hosts { type ipv4_addr; elements = { 10.77.0.12, 10.77.0.13 } }
	chain input {
		type filter hook input priority 0; policy drop;
		ip saddr @hosts tcp dport 6443 accept
		tcp dport 10250 limit rate 10/second accept
		ip saddr 10.77.0.0/16 udp dport 8472 accept
	}
	chain forward {
		type filter hook forward priority 0; policy drop;
		iifname "cni0" accept
	}
}`)
	if out, err := nft.CombinedOutput(); err != nil {
		t.Fatalf("nft: %v\n%s", err, out)
	}
	f, err := firewall.Read()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	anywhere, self := netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("10.77.0.11/32")
	network, far := netip.MustParsePrefix("10.77.0.0/24"), netip.MustParsePrefix("10.88.0.0/24")
	for _, c := range []struct {
		packet firewall.Packet
		drops  bool
	}{
		{firewall.Packet{In: "eth0", From: anywhere, To: self, Protocol: "tcp", Port: 6443}, false},
		{firewall.Packet{In: "eth0", From: network, To: self, Protocol: "tcp", Port: 6443}, false},
		{firewall.Packet{In: "eth0", From: far, To: self, Protocol: "tcp", Port: 6443}, true},
		{firewall.Packet{In: "eth0", From: anywhere, To: self, Protocol: "tcp", Port: 10250}, false},
		{firewall.Packet{In: "eth0", From: network, To: self, Protocol: "udp", Port: 8472}, false},
		{firewall.Packet{In: "eth0", From: far, To: self, Protocol: "udp", Port: 8472}, true},
		{firewall.Packet{In: "eth0", From: anywhere, To: self, Protocol: "tcp", Port: 2379}, true},
		{firewall.Packet{In: "lo", From: self, To: self, Protocol: "tcp"}, false}, // some ports are accepted
		{firewall.Packet{In: "cni0", Out: "flannel.1", From: anywhere, To: anywhere, Protocol: "tcp"}, false},
		{firewall.Packet{In: "flannel.1", Out: "cni0", From: anywhere, To: anywhere, Protocol: "tcp"}, true},
	} {
		drops, err := f.Drops(c.packet)
		if err != nil {
			t.Fatal(err)
		}
		if (len(drops) > 0) != c.drops {
			t.Errorf("%+v: %+v, want dropped: %v", c.packet, drops, c.drops)
		}
		if len(drops) > 0 && (!drops[0].Policy || drops[0].Table != "filter" || drops[0].Family != "ip") {
			t.Errorf("%+v", drops)
		}
	}
}
