package detection

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"airlift/installer/config"
	"airlift/internal/fault"
)

// Address is an address at which other hosts could reach this host.
type Address struct {
	Interface string
	IP        netip.Addr
	Network   netip.Prefix // that the interface is connected to
	MTU       int
	// Default reports whether the host's default route uses this address.
	Default bool
}

func (a Address) String() string { return a.Interface + " " + a.IP.String() }

// Addresses returns the addresses that could be the node's, IPv4 first: the addresses of real
// interfaces that are up. It leaves out loopback, link-local and point-to-point addresses, the
// bridges and tunnels of container runtimes and pod networks, and addresses that move between hosts.
func Addresses() ([]Address, error) {
	links, err := netlink.LinkList()
	if err != nil {
		return nil, fmt.Errorf("listing network interfaces: %w", err)
	}
	defaults, err := defaultRoutes()
	if err != nil {
		return nil, err
	}
	var found []Address
	for _, link := range links {
		if !usable(link, links) {
			continue
		}
		list, err := netlink.AddrList(link, netlink.FAMILY_ALL)
		if err != nil {
			return nil, fmt.Errorf("listing the addresses of %s: %w", link.Attrs().Name, err)
		}
		for _, a := range list {
			ip, ok := netip.AddrFromSlice(a.IP)
			ip = ip.Unmap()
			// Secondary, temporary and currently invalid addresses are
			// not suitable.
			const unfit = unix.IFA_F_SECONDARY | unix.IFA_F_TENTATIVE | unix.IFA_F_DEPRECATED | unix.IFA_F_DADFAILED
			if !ok || !ip.IsGlobalUnicast() || a.Flags&unfit != 0 || moves(a, list) {
				continue
			}
			ones, _ := a.Mask.Size()
			found = append(found, Address{
				Interface: link.Attrs().Name, IP: ip, Network: netip.PrefixFrom(ip, ones).Masked(), MTU: link.Attrs().MTU,
				Default: carriesDefault(defaults, link.Attrs().Index, ip),
			})
		}
	}
	slices.SortStableFunc(found, func(a, b Address) int {
		switch {
		case a.IP.Is4() == b.IP.Is4():
			return 0
		case a.IP.Is4():
			return -1
		}
		return 1
	})
	return found, nil
}

// lease is the longest time in seconds for which this host keeps a virtual address of ours without renewing it: see
// lifetime in installer/endpoint/vip. Leases of DHCP are longer.
const lease = 4

// moves reports whether an address of an interface is a virtual one, of ours or of keepalived, which another host may have
// in a moment. It is a single address, and ours has a short lease, or the interface has an IPv4 subnet with it. A DHCPv6
// address is single, too.
func moves(a netlink.Addr, all []netlink.Addr) bool {
	ones, bits := a.Mask.Size()
	if ones != bits {
		return false
	}
	return a.ValidLft > 0 && a.ValidLft <= lease || bits == 32 && slices.ContainsFunc(all, func(b netlink.Addr) bool {
		ones, bits := b.Mask.Size()
		return ones != bits && b.Contains(a.IP)
	})
}

// virtualPrefixes are the name prefixes of interfaces that container runtimes,
// pod networks and hypervisors create.
var virtualPrefixes = []string{
	"cni", "flannel", "veth", "docker", "br-", "cali", "cilium", "lxc", "lxd", "kube-", "tunl", "virbr", "vnet", "podman", "weave", "nerdctl", "dummy",
}

func isVirtual(name string) bool {
	return slices.ContainsFunc(virtualPrefixes, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}

// usable reports whether other hosts can reach the node through a link. A bridge
// is usable if it has a port that belongs to no container or virtual machine. A
// veth is usable: eth0 has this type if the host itself is a container.
func usable(link netlink.Link, all []netlink.Link) bool {
	attrs := link.Attrs()
	const loopbackOrTunnel = unix.IFF_LOOPBACK | unix.IFF_POINTOPOINT
	if attrs.RawFlags&unix.IFF_UP == 0 || attrs.RawFlags&loopbackOrTunnel != 0 || isVirtual(attrs.Name) {
		return false
	}
	switch link.Type() {
	case "bridge":
		return slices.ContainsFunc(all, func(port netlink.Link) bool {
			return port.Attrs().MasterIndex == attrs.Index && !isVirtual(port.Attrs().Name) && port.Type() != "tuntap"
		})
	case "vxlan", "geneve", "dummy", "ipvs", "tuntap", "ifb":
		return false
	}
	return true
}

// defaultRoutes returns the host's default routes, the preferred one first.
func defaultRoutes() ([]netlink.Route, error) {
	routes, err := netlink.RouteListFiltered(netlink.FAMILY_ALL, &netlink.Route{Table: unix.RT_TABLE_MAIN}, netlink.RT_FILTER_TABLE)
	if err != nil {
		return nil, fmt.Errorf("listing routes: %w", err)
	}
	routes = slices.DeleteFunc(routes, func(r netlink.Route) bool {
		ones := 0
		if r.Dst != nil {
			ones, _ = r.Dst.Mask.Size()
		}
		return ones != 0 || r.Type != unix.RTN_UNICAST
	})
	slices.SortStableFunc(routes, func(a, b netlink.Route) int { return a.Priority - b.Priority })
	return routes, nil
}

// carriesDefault reports whether ip is the source address of packets on the
// default route of its family: the route's preferred source, or, if the route
// has none, any address of its interface.
func carriesDefault(defaults []netlink.Route, index int, ip netip.Addr) bool {
	for _, r := range defaults {
		if (r.Family == unix.AF_INET) != ip.Is4() {
			continue
		}
		via := r.LinkIndex == index || slices.ContainsFunc(r.MultiPath, func(hop *netlink.NexthopInfo) bool { return hop.LinkIndex == index })
		if !via {
			return false // a more preferred default route leaves elsewhere
		}
		src, ok := netip.AddrFromSlice(r.Src)
		return !ok || src.Unmap() == ip
	}
	return false
}

// ChooseAddress chooses the node's address: as in kubeadm the address of the default route or,
// without a default route, the only candidate. IPv4 is preferred. Addresses in one of the cluster's
// ranges are not candidates. The error (fault.Usage) names the flag to use. If several candidates
// remain, it is the flag for the address. If the only address, or the default route's address, is
// in a range, it is the flag for the range.
func ChooseAddress(candidates []Address, flag string, ranges ...config.Range) (Address, error) {
	if len(candidates) > 0 && candidates[0].IP.Is4() {
		candidates = slices.DeleteFunc(slices.Clone(candidates), func(a Address) bool { return !a.IP.Is4() })
	}
	var choices, inRange []Address
	for _, a := range candidates {
		if slices.ContainsFunc(ranges, func(r config.Range) bool { return r.Contains(a.IP) }) {
			inRange = append(inRange, a)
		} else {
			choices = append(choices, a)
		}
	}
	isDefault := func(a Address) bool { return a.Default }
	switch i := slices.IndexFunc(inRange, isDefault); {
	case i >= 0:
		return Address{}, collision(inRange[i], choices, flag, ranges)
	case len(choices) == 0 && len(inRange) > 0:
		return Address{}, collision(inRange[0], nil, flag, ranges)
	case len(choices) == 0:
		return Address{}, fault.New(fault.Usage, "choosing this node's address: no network interface that is up has a usable address").
			Hint("give this host an address, or choose one with " + flag)
	}
	if i := slices.IndexFunc(choices, isDefault); i >= 0 {
		return choices[i], nil
	}
	if len(choices) > 1 {
		return Address{}, fault.New(fault.Usage, "choosing this node's address: there is no default route and there are %d addresses:%s", len(choices), list(choices)).
			Hint(fmt.Sprintf("choose one, for example %s=%s", flag, choices[0].IP))
	}
	return choices[0], nil
}

// collision is the error for an address in one of the cluster's ranges. others are this host's
// addresses outside of all ranges.
func collision(a Address, others []Address, flag string, ranges []config.Range) error {
	r := ranges[slices.IndexFunc(ranges, func(r config.Range) bool { return r.Contains(a.IP) })]
	taken := []netip.Prefix{a.Network, netip.PrefixFrom(a.IP, a.IP.BitLen())}
	for _, other := range others {
		taken = append(taken, other.Network)
	}
	for _, other := range ranges {
		taken = append(taken, other.Prefix)
	}
	hint := r.Another(taken...)
	if len(others) > 0 {
		hint += fmt.Sprintf(", or another address of this host: %s=%s", flag, others[0].IP)
	}
	return fault.New(fault.Usage, "choosing this node's address: %s (interface %s) is in the cluster's range of %s addresses, %s",
		a.IP, a.Interface, r.Of, r.Prefix).Hint(hint)
}

// ownAddress returns the source address of packets to a peer. If the peer is an address that moves, and that this host
// has now, it is the host's address in the same subnet.
func ownAddress(peer netip.Addr) (netip.Addr, error) {
	source, err := addressTowards(peer)
	if err != nil || source != peer {
		return source, err
	}
	list, err := Addresses()
	if err != nil || slices.ContainsFunc(list, func(a Address) bool { return a.IP == peer }) {
		return source, err
	}
	if i := slices.IndexFunc(list, func(a Address) bool { return a.Network.Contains(peer) }); i >= 0 {
		return list[i].IP, nil
	}
	return source, nil
}

// addressTowards returns the source address of packets to a peer.
func addressTowards(peer netip.Addr) (netip.Addr, error) {
	routes, err := netlink.RouteGet(peer.AsSlice())
	if err != nil {
		return netip.Addr{}, fmt.Errorf("finding the route to %s: %w", peer, err)
	}
	for _, r := range routes {
		if ip, ok := netip.AddrFromSlice(r.Src); ok {
			return ip.Unmap(), nil
		}
	}
	return netip.Addr{}, fmt.Errorf("finding the route to %s: it has no source address", peer)
}
