package vip

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"airlift/internal/fault"
)

// lifetime is how long the kernel keeps the address after the agent has died. The kernel counts
// seconds, and is up to half a second late on a busy machine.
const lifetime = 3 * time.Second

// Find returns the interface on which the addresses belong: the one that is named, or the one
// with a subnet that contains the first address. Every address must be in a subnet of it.
func Find(addresses []netip.Addr, name string) (string, error) {
	links, err := netlink.LinkList()
	if err != nil {
		return "", fmt.Errorf("listing the network interfaces: %w", err)
	}
	var seen []string
	for _, link := range links {
		is := link.Attrs().Name
		if name != "" && is != name || link.Attrs().Flags&net.FlagLoopback != 0 {
			continue
		}
		subnets, own, err := subnets(link)
		if err != nil {
			return "", err
		}
		if i := slices.IndexFunc(addresses, func(a netip.Addr) bool { return slices.Contains(own, a) }); i >= 0 {
			return "", fault.New(fault.Preflight, "the virtual address %s is the address of this host on %s", addresses[i], is).
				Hint("use an unused address in the same subnet")
		}
		for _, s := range subnets {
			seen = append(seen, fmt.Sprintf("%s (%s)", s, is))
		}
		missing := slices.ContainsFunc(addresses, func(a netip.Addr) bool {
			return !slices.ContainsFunc(subnets, func(s netip.Prefix) bool { return s.Contains(a) })
		})
		if !missing {
			return is, nil
		}
	}
	return "", noSubnet(addresses, name, seen)
}

// noSubnet is the error of Find. name may be "".
func noSubnet(addresses []netip.Addr, name string, subnets []string) error {
	what := "address " + join(addresses)
	if len(addresses) > 1 {
		what = "addresses " + join(addresses)
	}
	hint := "use an unused address in one of the subnets " + strings.Join(subnets, ", ")
	switch {
	case name == "":
		return fault.New(fault.Preflight, "no interface of this host has a subnet with the virtual %s", what).Hint(hint)
	case len(subnets) == 0:
		return fault.New(fault.Preflight, "the interface %s does not exist or has no subnet", name).Hint("list the interfaces with: ip address")
	}
	return fault.New(fault.Preflight, "the interface %s does not have a subnet with the virtual %s", name, what).Hint(hint)
}

func join(addresses []netip.Addr) string {
	var list []string
	for _, a := range addresses {
		list = append(list, a.String())
	}
	return strings.Join(list, " and ")
}

// subnets returns the subnets of an interface, and the addresses in them.
func subnets(link netlink.Link) (list []netip.Prefix, own []netip.Addr, err error) {
	addrs, err := netlink.AddrList(link, netlink.FAMILY_ALL)
	if err != nil {
		return nil, nil, fmt.Errorf("listing the addresses of %s: %w", link.Attrs().Name, err)
	}
	for _, a := range addrs {
		ip, ok := netip.AddrFromSlice(a.IP)
		bits, size := a.Mask.Size()
		if ip = ip.Unmap(); !ok || bits == size || ip.IsLinkLocalUnicast() {
			continue
		}
		list = append(list, netip.PrefixFrom(ip, bits).Masked())
		own = append(own, ip)
	}
	return list, own, nil
}

// hasCarrier reports whether a link is up and its cable connected.
func hasCarrier(link netlink.Link) bool {
	const up = unix.IFF_UP | unix.IFF_LOWER_UP
	return link.Attrs().RawFlags&up == up
}

// hold adds an address to a link, or starts its lifetime again. The kernel neither uses the
// address as a source nor looks for a duplicate: the previous holder may still have it.
func hold(link netlink.Link, a netip.Addr) error {
	err := netlink.AddrReplace(link, &netlink.Addr{
		IPNet: single(a), ValidLft: int(lifetime / time.Second), Flags: unix.IFA_F_NODAD | unix.IFA_F_NOPREFIXROUTE,
	})
	if err != nil {
		return fmt.Errorf("adding %s to %s: %w", a, link.Attrs().Name, err)
	}
	return nil
}

func single(a netip.Addr) *net.IPNet {
	return &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(a.BitLen(), a.BitLen())}
}

// drop removes the addresses from every interface of this host.
func drop(addresses []netip.Addr) error {
	list, err := netlink.AddrList(nil, netlink.FAMILY_ALL)
	if err != nil {
		return fmt.Errorf("listing the addresses of this host: %w", err)
	}
	var failed error
	for _, l := range list {
		ip, _ := netip.AddrFromSlice(l.IP)
		bits, size := l.Mask.Size()
		if bits != size || !slices.Contains(addresses, ip.Unmap()) {
			continue
		}
		remove := &netlink.Addr{IPNet: l.IPNet, LinkIndex: l.LinkIndex}
		if err := netlink.AddrDel(nil, remove); err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) && !errors.Is(err, unix.ENODEV) {
			failed = errors.Join(failed, fmt.Errorf("removing %s: %w", ip, err))
		}
	}
	return failed
}
