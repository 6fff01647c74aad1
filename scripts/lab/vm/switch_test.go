package vm

import (
	"net"
	"net/netip"
	"slices"
	"testing"
)

// TestReceivers: a frame goes to the machine with its address, or to all, and never to its sender.
func TestReceivers(t *testing.T) {
	cables, err := connect(t.Context(), 3)
	if err != nil {
		t.Fatal(err)
	}
	destinations := []net.HardwareAddr{{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, {2, 0, 0, 0, 0, 1}}
	for i, c := range cables {
		if slices.ContainsFunc(cables[:i], func(o cable) bool { return o.machine == c.machine || o.mac.String() == c.mac.String() }) || c.machine == c.network {
			t.Fatalf("one address of two machines: %v", cables)
		}
		destinations = append(destinations, c.mac)
	}
	for _, from := range cables {
		for _, to := range destinations {
			var want []netip.AddrPort
			for _, c := range cables {
				if c.machine != from.machine && (c.mac.String() == to.String() || slices.ContainsFunc(destinations[:2], func(a net.HardwareAddr) bool { return a.String() == to.String() })) {
					want = append(want, c.machine)
				}
			}
			if got := receivers(cables, from.machine, append(slices.Clone(to), 1, 2, 3)); !slices.Equal(got, want) {
				t.Errorf("a frame from %s to %s goes to %v, want %v", from.mac, to, got, want)
			}
		}
	}
}
