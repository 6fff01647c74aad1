package installer

import (
	"cmp"
	"context"
	"net/netip"
	"strconv"

	"airlift/installer/config"
	"airlift/installer/timeline"
)

// assignPodCIDR assigns to the first node of a new cluster the pod CIDRs that
// the controller manager would assign. The controller manager takes seconds to
// become the leader. Up to v1.30 it then waits ten more seconds before it lists
// the nodes (nodeipam's listNodes), and it keeps the CIDRs that it finds. If
// its configuration is unusual, assignPodCIDR does nothing.
func (a *api) assignPodCIDR(ctx context.Context) error {
	flags, _, err := readStaticPod(a.host, "kube-controller-manager")
	if err != nil {
		return err
	}
	ranges := firstPodCIDRs(flags)
	if ranges == nil {
		return nil
	}
	defer timeline.Wait(ctx, "the node").End()
	changed, err := a.client.AssignPodCIDRs(ctx, a.config.NodeRegistration.Name, ranges)
	a.changed(changed)
	return err
}

// Flags of the controller manager, and its default mask sizes
// (defaultNodeMaskCIDRIPv4 and defaultNodeMaskCIDRIPv6 in its core.go).
const (
	maskSizeFlag     = "node-cidr-mask-size"
	maskSizeIPv4Flag = "node-cidr-mask-size-ipv4"
	maskSizeIPv6Flag = "node-cidr-mask-size-ipv6"

	defaultMaskSizeIPv4 = 24
	defaultMaskSizeIPv6 = 64
)

// firstPodCIDRs returns the pod CIDRs that a controller manager with these
// flags assigns to the first node: the first subnet of each cluster CIDR. It
// returns nil if the controller manager assigns none or uses another method.
func firstPodCIDRs(flags map[string]string) []string {
	if flags["allocate-node-cidrs"] != "true" || cmp.Or(flags["cidr-allocator-type"], "RangeAllocator") != "RangeAllocator" {
		return nil
	}
	services := config.ParseCIDRs(flags["service-cluster-ip-range"]).Prefixes()
	clusters := config.ParseCIDRs(flags["cluster-cidr"]).Prefixes()
	if services == nil {
		return nil
	}
	var ranges []string
	for _, cluster := range clusters {
		if cluster != cluster.Masked() {
			return nil
		}
		size, ok := maskSize(flags, cluster, len(clusters) > 1)
		if !ok || size < cluster.Bits() || size > cluster.Addr().BitLen() {
			return nil
		}
		for _, service := range services {
			if service.Overlaps(cluster) { // the controller manager skips overlapping subnets
				return nil
			}
		}
		ranges = append(ranges, netip.PrefixFrom(cluster.Addr(), size).String())
	}
	return ranges
}

// maskSize returns the prefix length of a node's CIDR within a cluster CIDR.
func maskSize(flags map[string]string, cluster netip.Prefix, dual bool) (size int, ok bool) {
	name, size := maskSizeIPv4Flag, defaultMaskSizeIPv4
	if cluster.Addr().Is6() {
		name, size = maskSizeIPv6Flag, defaultMaskSizeIPv6
	}
	if flags[maskSizeFlag] != "" {
		if dual || flags[maskSizeIPv4Flag] != "" || flags[maskSizeIPv6Flag] != "" {
			return 0, false // the controller manager refuses these flags
		}
		name = maskSizeFlag
	}
	if text, set := flags[name]; set {
		size, err := strconv.Atoi(text)
		return size, err == nil && size > 0
	}
	return size, true
}
