package lab

import (
	"fmt"
	"net/netip"
	"regexp"

	"airlift/fault"
)

// Limits of the address plan: host addresses end in .11 and up, and each
// further interface takes the next /16 after 10.77.
const (
	maxHosts      = 200
	maxInterfaces = 8
)

// clusterPrefixes are the default Service and pod networks of a cluster
// installed in the lab. Host addresses stay outside both.
var clusterPrefixes = []netip.Prefix{
	netip.MustParsePrefix("10.96.0.0/12"),
	netip.MustParsePrefix("10.244.0.0/16"),
}

var validName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,18}[a-z0-9])?$`)

func checkName(name string) error {
	if !validName.MatchString(name) {
		return fault.New(fault.Usage, "use up to 20 lower-case letters, digits and inner dashes",
			"lab name %q is not usable", name)
	}
	return nil
}

// nic is one network interface of a host and the switch bridge it is plugged
// into.
type nic struct {
	MAC     string
	Address netip.Prefix
	Bridge  string
}

// planNICs returns the interfaces of the host with the given number, counted
// from 1. The same number always gets the same addresses: labs never see each
// other, so they share one plan.
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

// qualified names a thing that belongs to one host (or to the switch) of one
// lab: its network namespace, its machine name, its cgroup. Lab names hold no
// dot, so the parts can be told apart again.
func qualified(lab, part string) string { return "airlift." + lab + "." + part }

const switchPart = "switch"
