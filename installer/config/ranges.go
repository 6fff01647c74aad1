package config

import (
	"fmt"
	"net/netip"
	"slices"
)

// A Range is one of the cluster's address ranges, with its names in messages.
type Range struct {
	netip.Prefix
	Of    string // "Service" or "pod"
	Flag  string // that sets it: "--service-cidr"
	Field string // of a configuration file: "networking.serviceSubnet"
}

// Ranges returns the cluster's address ranges.
func (n Networking) Ranges() (ranges []Range) {
	for _, p := range n.ServiceSubnet.Prefixes() {
		ranges = append(ranges, Range{p, "Service", "--service-cidr", "networking.serviceSubnet"})
	}
	for _, p := range n.PodSubnet.Prefixes() {
		ranges = append(ranges, Range{p, "pod", "--pod-network-cidr", "networking.podSubnet"})
	}
	return ranges
}

// RangeOf returns the range that contains an address.
func (n Networking) RangeOf(addr netip.Addr) (Range, bool) {
	ranges := n.Ranges()
	i := slices.IndexFunc(ranges, func(r Range) bool { return r.Contains(addr) })
	if i < 0 {
		return Range{}, false
	}
	return ranges[i], true
}

// examples are ranges for hints, by their purpose. The API server and the controller manager accept
// their sizes.
var examples = map[string][]string{
	"Service": {"10.96.0.0/12", "172.20.0.0/16", "192.168.192.0/18", DefaultServiceSubnetIPv6, "fd00:20:96::/112"},
	"pod":     {"10.244.0.0/16", "172.24.0.0/16", "192.168.0.0/17", DefaultPodSubnetIPv6, "fd00:20:244::/56"},
}

// Another returns a hint to choose another range of the same family, with an
// example that overlaps none of the taken ranges.
func (r Range) Another(taken ...netip.Prefix) string {
	for _, text := range examples[r.Of] {
		p := netip.MustParsePrefix(text)
		if p.Addr().Is4() == r.Addr().Is4() && !slices.ContainsFunc(taken, p.Overlaps) {
			return fmt.Sprintf("choose another %s range, for example %s=%s (%s in a configuration file)", r.Of, r.Flag, text, r.Field)
		}
	}
	return fmt.Sprintf("choose another %s range with %s (%s in a configuration file)", r.Of, r.Flag, r.Field)
}

// Family is an address family.
type Family string

const (
	IPv4 Family = "IPv4"
	IPv6 Family = "IPv6"
)

// FamilyOf returns an address' family.
func FamilyOf(addr netip.Addr) Family {
	if addr.Is6() && !addr.Is4In6() {
		return IPv6
	}
	return IPv4
}

// Family returns the cluster's address family, the family of the first Service range or, without
// one, of the first pod range. It is "" without any range. The API server's address must have this
// family.
func (n Networking) Family() Family {
	for _, list := range []CIDRs{n.ServiceSubnet, n.PodSubnet} {
		if p := list.Prefixes(); len(p) > 0 {
			return FamilyOf(p[0].Addr())
		}
	}
	return ""
}

// WithDefaults sets the ranges that are not given to the defaults of a family.
// Without a pod network of Airlift, pods have no default range.
func (n Networking) WithDefaults(family Family, cni string) Networking {
	services, pods := DefaultServiceSubnet, DefaultPodSubnet
	if family == IPv6 {
		services, pods = DefaultServiceSubnetIPv6, DefaultPodSubnetIPv6
	}
	n.ServiceSubnet.setDefault(services)
	if cni != "none" {
		n.PodSubnet.setDefault(pods)
	}
	return n
}

// completeRanges sets the default ranges: in the family of the given ranges, or else in the family
// of the API server's address.
func (c *Config) completeRanges() {
	family := c.Networking.Family()
	if addr, err := netip.ParseAddr(c.LocalAPIEndpoint.AdvertiseAddress); family == "" && err == nil {
		family = FamilyOf(addr)
	}
	c.Networking = c.Networking.WithDefaults(family, c.CNI)
}
