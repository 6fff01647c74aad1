package vip

import (
	"bytes"
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/vishvananda/netlink"

	"airlift/installer/etcd"
)

// A Holder is a host that has the addresses, as far as this host sees it.
type Holder struct {
	// Name and Address are the etcd member's on that host; "" if no member that this host knows
	// has the hardware address.
	Name    string `json:"name,omitempty"`
	Address string `json:"address,omitempty"`
	MAC     string `json:"mac"`
	// Since is when this host first saw the addresses there.
	Since time.Time `json:"since"`
}

func (h Holder) String() string {
	switch {
	case h.Name == "":
		return "the host with the hardware address " + h.MAC
	case h.Address == "":
		return h.Name
	}
	return fmt.Sprintf("%s (%s)", h.Name, h.Address)
}

// overlap is how long a status may have two holders while the addresses move: the former one announces
// them up to settle, and counts for vacancy after that.
const overlap = settle + vacancy

// Lasting returns the holders at a time, without a former one from which the addresses have just moved.
func (s Status) Lasting(now time.Time) []Holder {
	if len(s.Holders) > 1 && now.Sub(s.Holders[len(s.Holders)-1].Since) < overlap {
		return s.Holders[len(s.Holders)-1:]
	}
	return s.Holders
}

// Where returns which host has the addresses, for people.
func (s Status) Where(now time.Time) string {
	var places []string
	for _, h := range s.Lasting(now) {
		place := h.String()
		if s.Held && h.MAC == s.MAC {
			place = "this host (" + s.Interface + ")"
		}
		places = append(places, place)
	}
	if len(places) == 0 {
		return "on no host that this host sees"
	}
	return "on " + strings.Join(places, " and ")
}

// An announcer is another host that announces the addresses.
type announcer struct {
	Holder
	last time.Time // of its announcements
}

// setAnnouncer records that a host announced an address.
func (l *loop) setAnnouncer(mac net.HardwareAddr, now time.Time) {
	i := slices.IndexFunc(l.announcers, func(a announcer) bool { return a.MAC == mac.String() })
	if i < 0 {
		i = len(l.announcers)
		l.announcers = append(l.announcers, announcer{Holder: Holder{MAC: mac.String(), Since: time.Now()}})
	}
	a := &l.announcers[i]
	a.last = now
	if a.Name != "" {
		return
	}
	neighbours, err := netlink.NeighList(l.nic.link.Attrs().Index, netlink.FAMILY_ALL)
	if err != nil {
		l.options.Log.Debug("the neighbours cannot be listed", "error", err)
		return
	}
	for _, m := range l.role.Peers() {
		if hasMAC(neighbours, m, mac) {
			a.Name, a.Address = m.Name, m.Host()
		}
	}
}

// hasMAC reports whether a hardware address belongs to a member's host, as far as the kernel knows.
func hasMAC(neighbours []netlink.Neigh, m etcd.Member, mac net.HardwareAddr) bool {
	host, err := netip.ParseAddr(m.Host())
	return err == nil && slices.ContainsFunc(neighbours, func(n netlink.Neigh) bool {
		ip, ok := netip.AddrFromSlice(n.IP)
		return ok && ip.Unmap() == host && bytes.Equal(n.HardwareAddr, mac)
	})
}

// holders returns the hosts that have the addresses: this one, and other hosts that announced them lately. The
// one that has them for the longest time is the first.
func (l *loop) holders(now time.Time) []Holder {
	l.announcers = slices.DeleteFunc(l.announcers, func(a announcer) bool { return now.Sub(a.last) > vacancy })
	list := []Holder{}
	if l.held {
		self := Holder{MAC: l.mac(), Since: l.since}
		for _, m := range l.role.Members {
			if m.ID == l.role.Self {
				self.Name, self.Address = m.Name, m.Host()
			}
		}
		list = append(list, self)
	}
	for _, a := range l.announcers {
		list = append(list, a.Holder)
	}
	slices.SortFunc(list, func(a, b Holder) int { return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.MAC, b.MAC)) })
	return list
}

// mac returns the hardware address of the interface; "" until it is known.
func (l *loop) mac() string {
	if l.nic.link == nil {
		return ""
	}
	return l.nic.link.Attrs().HardwareAddr.String()
}
