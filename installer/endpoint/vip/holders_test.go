package vip

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"airlift/installer/etcd"
)

func mac(t *testing.T, text string) net.HardwareAddr {
	t.Helper()
	a, err := net.ParseMAC(text)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// TestHolders: this host and the hosts that announced the address lately are its holders.
func TestHolders(t *testing.T) {
	now := time.Now()
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	link := &netlink.Dummy{LinkAttrs: netlink.LinkAttrs{HardwareAddr: mac(t, "02:00:00:00:00:01")}}
	heard := func(name, last string, since, silent time.Duration) announcer {
		return announcer{Holder: Holder{Name: name, Address: "10.0.0." + last, MAC: "02:00:00:00:00:0" + last, Since: ago(since)}, last: ago(silent)}
	}
	for _, c := range []struct {
		name       string
		held       bool
		announcers []announcer
		where      string
	}{
		{"nobody", false, nil, "on no host that this host sees"},
		{"this host", true, nil, "on this host (eth0)"},
		{"another host", false, []announcer{heard("cp2", "2", time.Hour, time.Second)}, "on cp2 (10.0.0.2)"},
		{"a host that is no member", false, []announcer{heard("", "2", time.Hour, time.Second)}, "on the host with the hardware address 02:00:00:00:00:02"},
		{"a host that is silent", false, []announcer{heard("cp2", "2", time.Hour, 2*vacancy)}, "on no host that this host sees"},
		{"it has just moved", false, []announcer{heard("cp2", "2", time.Hour, 2*time.Second), heard("cp3", "3", time.Second, 0)}, "on cp3 (10.0.0.3)"},
		{"two hosts", false, []announcer{heard("cp3", "3", time.Minute, time.Second), heard("cp2", "2", time.Hour, 0)}, "on cp2 (10.0.0.2) and cp3 (10.0.0.3)"},
		{"this host and another one", true, []announcer{heard("cp2", "2", time.Hour, 0)}, "on cp2 (10.0.0.2) and this host (eth0)"},
	} {
		l := &loop{agent: &Agent{}, options: &Options{}, announcers: c.announcers, nic: nic{name: "eth0", link: link}}
		l.role = etcd.Role{Self: 1, Members: []etcd.Member{{ID: 1, Name: "cp1", PeerURL: "https://10.0.0.1:2380"}}}
		l.held, l.since = c.held, ago(time.Minute)
		l.publish("", now)
		if got := l.agent.Status().Where(now); got != c.where {
			t.Errorf("%s: %q, want %q", c.name, got, c.where)
		}
		if h := l.agent.Status().Holders; c.held && len(h) == 1 && (h[0].Name != "cp1" || h[0].Address != "10.0.0.1" || h[0].MAC != "02:00:00:00:00:01" || !h[0].Since.Equal(l.since)) {
			t.Errorf("%s: %+v", c.name, h)
		}
	}
}

// TestHardwareAddressOfAMember: the kernel's neighbours show which member has a hardware address.
func TestHardwareAddressOfAMember(t *testing.T) {
	neighbours := []netlink.Neigh{
		{IP: netip.MustParseAddr("10.0.0.100").AsSlice(), HardwareAddr: mac(t, "02:00:00:00:00:02")}, // the virtual address
		{IP: netip.MustParseAddr("10.0.0.3").AsSlice()},                                              // that has not answered
		{IP: netip.MustParseAddr("10.0.0.2").AsSlice(), HardwareAddr: mac(t, "02:00:00:00:00:02")},
		{IP: netip.MustParseAddr("fd00::3").AsSlice(), HardwareAddr: mac(t, "02:00:00:00:00:03")},
	}
	for url, want := range map[string]string{
		"https://10.0.0.2:2380": "02:00:00:00:00:02", "https://[fd00::3]:2380": "02:00:00:00:00:03", "https://10.0.0.3:2380": "", "https://cp2:2380": "", "": "",
	} {
		for _, a := range []string{"02:00:00:00:00:02", "02:00:00:00:00:03"} {
			if got := hasMAC(neighbours, etcd.Member{PeerURL: url}, mac(t, a)); got != (a == want) {
				t.Errorf("%q has %s: %t", url, a, got)
			}
		}
	}
}
