package lab

import (
	"net/netip"
	"strings"
	"testing"

	"airlift/internal/fault"
)

func TestAddressesAreUniqueAndOutsideTheClustersNetworks(t *testing.T) {
	addrs, macs := map[netip.Addr]bool{}, map[string]bool{}
	for number := 1; number <= maxHosts; number++ {
		for _, n := range planNICs(number, maxInterfaces) {
			addr := n.Address.Addr()
			if addrs[addr] || macs[n.MAC] {
				t.Fatalf("host %d: %s or %s is taken", number, addr, n.MAC)
			}
			addrs[addr], macs[n.MAC] = true, true
			for _, p := range clusterPrefixes {
				if p.Overlaps(n.Address) {
					t.Fatalf("host %d: %s is in %s", number, n.Address, p)
				}
			}
		}
	}
	if got := planNICs(1, 1)[0].Address.String(); got != "10.77.0.11/24" {
		t.Errorf("first host has %s", got)
	}
}

func TestNames(t *testing.T) {
	for _, name := range []string{"a", "demo", "e2e-1", strings.Repeat("x", 20)} {
		if err := CheckName(name); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	// With a dot, one lab's names could begin with another's; a slash would leave the state
	// directory.
	for _, name := range []string{"", "-a", "a-", "a.b", "a/b", "..", "A", "a b", strings.Repeat("x", 21)} {
		if err := CheckName(name); fault.ExitCode(err) != fault.Usage {
			t.Errorf("%q: %v", name, err)
		}
	}
	longest := qualified(strings.Repeat("x", 20), "host200")
	if len(longest) > 64 { // the kernel's limit for a host name, nspawn's for a machine name
		t.Errorf("%s is too long", longest)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	for _, o := range []Options{
		{Name: "x", Hosts: -1}, {Name: "x", Hosts: maxHosts + 1},
		{Name: "x", Interfaces: -1}, {Name: "x", Interfaces: maxInterfaces + 1},
	} {
		if _, err := o.completed(); fault.ExitCode(err) != fault.Usage {
			t.Errorf("%+v: %v", o, err)
		}
	}
	if o, err := (Options{Name: "x"}).completed(); err != nil || o.Hosts != 2 || o.Interfaces != 1 {
		t.Errorf("defaults: %+v, %v", o, err)
	}
}
