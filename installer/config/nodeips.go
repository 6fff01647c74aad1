package config

import (
	"net/netip"
	"strings"
)

// NodeIPs returns the addresses that the kubelet reports for this node: the addresses of the user's
// flag node-ip, or else NodeIP. In a dual-stack cluster, OtherIP is added. The family of the first
// Service range comes first, because pods on the host's network get the addresses in this order.
func (c *Config) NodeIPs() (ips []netip.Addr) {
	if users, ok := LastArg(c.NodeRegistration.KubeletExtraArgs, "node-ip"); ok {
		return parseIPs(strings.Split(users, ",")...)
	}
	ips = parseIPs(c.Facts.NodeIP)
	if len(ips) == 0 || !c.Networking.dualStack() {
		return ips
	}
	for _, other := range parseIPs(c.Facts.OtherIP) {
		if _, taken := c.Networking.RangeOf(other); taken || FamilyOf(other) == FamilyOf(ips[0]) {
			continue
		}
		if FamilyOf(other) == c.Networking.Family() {
			return []netip.Addr{other, ips[0]}
		}
		return append(ips, other)
	}
	return ips
}

// parseIPs returns those texts that are addresses.
func parseIPs(texts ...string) (ips []netip.Addr) {
	for _, text := range texts {
		if ip, err := netip.ParseAddr(strings.TrimSpace(text)); err == nil {
			ips = append(ips, ip)
		}
	}
	return ips
}

// dualStack reports whether Services or pods have addresses of both families.
func (n Networking) dualStack() bool {
	for _, list := range []CIDRs{n.ServiceSubnet, n.PodSubnet} {
		if ipv4, ipv6 := list.Families(); ipv4 && ipv6 {
			return true
		}
	}
	return false
}
