package vip

import (
	"fmt"
	"net"
	"time"

	"github.com/vishvananda/netlink"

	"airlift/installer/endpoint/neighbours"
)

// A nic is the interface of the addresses.
type nic struct {
	options  *Options
	name     string // "" until it is known
	link     netlink.Link
	fault    error                // why the addresses cannot be on it; nil if they can
	segments []neighbours.Segment // one for each address; nil while they are closed
	next     time.Time            // no attempt to open them before
	looked   time.Time
}

// look finds the interface. It returns the segments that it opened on it, one for each address.
func (n *nic) look(now time.Time) (opened []neighbours.Segment) {
	if now.Sub(n.looked) < lookInterval {
		return nil
	}
	n.looked = now
	if n.fault = n.find(now); n.fault != nil {
		n.close()
		return nil
	}
	if n.segments != nil || now.Before(n.next) {
		return nil
	}
	n.next = now.Add(retry)
	if err := n.open(); err != nil {
		n.close()
		n.options.Log.Warn("hosts with the virtual address cannot be heard", "error", err)
	}
	return n.segments
}

// find looks the interface up. It returns why the addresses cannot be on it.
func (n *nic) find(now time.Time) error {
	if n.name == "" || n.link == nil {
		if now.Before(n.next) {
			return n.fault
		}
		n.next = now.Add(retry)
		name, err := Find(n.options.Addresses, n.name)
		if err != nil {
			return err
		}
		n.name, n.next = name, time.Time{}
	}
	link, err := netlink.LinkByName(n.name)
	if err != nil {
		return fmt.Errorf("looking for the interface %s: %w", n.name, err)
	}
	if n.link != nil && (n.link.Attrs().Index != link.Attrs().Index || n.link.Attrs().HardwareAddr.String() != link.Attrs().HardwareAddr.String()) {
		n.close()
	}
	n.link = link
	if !hasCarrier(link) {
		return fmt.Errorf("the interface %s is down or has no carrier", n.name)
	}
	return nil
}

// open opens the segments.
func (n *nic) open() error {
	attrs := n.link.Attrs()
	ifi := &net.Interface{Index: attrs.Index, MTU: attrs.MTU, Name: attrs.Name, HardwareAddr: attrs.HardwareAddr}
	for _, a := range n.options.Addresses {
		s, err := neighbours.Open(ifi, a, nil)
		if err != nil {
			return err
		}
		n.segments = append(n.segments, s)
	}
	return nil
}

func (n *nic) close() {
	for _, s := range n.segments {
		_ = s.Close()
	}
	n.segments = nil
}

// hold takes the addresses, or renews their lifetime.
func (n *nic) hold() error {
	for _, a := range n.options.Addresses {
		if err := hold(n.link, a); err != nil {
			return err
		}
	}
	return nil
}

func (n *nic) announce() {
	for _, s := range n.segments {
		if err := s.Announce(); err != nil {
			n.options.Log.Warn("announcing the virtual address failed", "error", err)
		}
	}
}
