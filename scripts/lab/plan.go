package lab

import (
	"fmt"
	"net/netip"
	"regexp"

	"airlift/internal/fault"
)

// Limits of the address plan: host addresses end in .11 and higher, and each additional
// interface uses the next /16 after 10.77.
const (
	maxHosts      = 200
	maxInterfaces = 8
)

// clusterPrefixes are the default Service and pod networks of a cluster in the lab. Host
// addresses are in neither of them.
var clusterPrefixes = []netip.Prefix{
	netip.MustParsePrefix("10.96.0.0/12"),
	netip.MustParsePrefix("10.244.0.0/16"),
}

// hostPrefix6 is for the IPv6 addresses that a test gives to hosts, and clusterPrefixes6 are a
// cluster's default networks.
const hostPrefix6 = "fd77::/32"

var clusterPrefixes6 = []string{"fd00:10:96::/112", "fd00:10:244::/56"}

var validName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,18}[a-z0-9])?$`)

// CheckName refuses a name that a lab cannot have, as part of names of interfaces and units.
func CheckName(name string) error {
	if !validName.MatchString(name) {
		return fault.New(fault.Usage, "lab name %q is not usable", name).
			Hint("use up to 20 lower-case letters, digits and inner dashes")
	}
	return nil
}

// nic is one network interface of a host and its bridge.
type nic struct {
	MAC     string
	Address netip.Prefix
	Bridge  string
}

// planNICs returns the interfaces of the host with the given number (the first is 1). The same
// number always has the same addresses: labs are isolated from each other, so all use one
// plan.
func planNICs(number, interfaces int) []nic {
	nics := make([]nic, interfaces)
	for i := range nics {
		addr := netip.AddrFrom4([4]byte{10, byte(77 + i), 0, byte(10 + number)})
		nics[i] = nic{
			MAC:     fmt.Sprintf("02:77:00:00:%02x:%02x", i, number), // 02: locally administered
			Address: netip.PrefixFrom(addr, 24),
			Bridge:  bridgeName(i),
		}
	}
	return nics
}

func bridgeName(i int) string { return fmt.Sprintf("net%d", i) }

// qualified is the unique name of an object of one host (or of the switch) of one lab: its
// network namespace, its machine name, its cgroup. Lab names have no dot, so the parts can be
// separated again.
func qualified(lab, part string) string { return "airlift." + lab + "." + part }

const switchPart = "switch"
