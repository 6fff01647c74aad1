package configfile

import (
	"net/netip"
	"os"
	"slices"
	"strings"

	"airlift/installer/config"
	"airlift/installer/host/detection"
)

// anyHost returns facts for checking a file that may be for another host. The
// address is reserved for documentation (RFC 5737, RFC 3849), has the family of
// the cluster's ranges and is in none of them.
func anyHost(o detection.Options) config.Facts {
	f := config.Facts{Hostname: "node"}
	for _, ip := range []string{"192.0.2.1", "198.51.100.1", "203.0.113.1", "2001:db8::1"} {
		addr := netip.MustParseAddr(ip)
		if _, taken := o.Networking.RangeOf(addr); !taken && fitsFamily(addr, o) {
			f.NodeIP = ip
			break
		}
	}
	return f
}

// fitsFamily reports whether an address has the family of the cluster's ranges.
func fitsFamily(addr netip.Addr, o detection.Options) bool {
	family := o.Networking.Family()
	return family == "" || family == config.FamilyOf(addr)
}

// thisHost returns facts about this host. If this host has no address, or
// several that qualify, it uses the address of anyHost.
func thisHost(o detection.Options) config.Facts {
	f := anyHost(o)
	if name, err := os.Hostname(); err == nil {
		f.Hostname = strings.ToLower(strings.TrimSpace(name))
	}
	if all, err := detection.Addresses(); err == nil {
		all = slices.DeleteFunc(all, func(a detection.Address) bool { return !fitsFamily(a.IP, o) })
		if a, err := detection.ChooseAddress(all, ""); err == nil {
			f.NodeIP = a.IP.String()
		}
	}
	return f
}
