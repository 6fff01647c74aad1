package kernel_test

import (
	"context"
	"net"
	"slices"
	"strings"
	"testing"

	"airlift/installer/host/kernel"
	"airlift/installer/host/ledger"
	"airlift/internal/fault"
	"airlift/scripts/fixtures/testhost"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
)

func routes(t *testing.T) []string {
	t.Helper()
	list, err := netlink.RouteList(nil, netlink.FAMILY_ALL)
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, r := range list {
		if !r.Dst.IP.IsLinkLocalUnicast() { // they come and go with the interface
			found = append(found, r.Dst.String())
		}
	}
	slices.Sort(found)
	return found
}

func TestServiceRoute(t *testing.T) {
	testhost.InNetwork(t)
	testhost.NIC(t, "eth0", "10.1.0.5/24")
	before := routes(t)
	ctx := context.Background()
	for range 2 {
		if err := kernel.AddRoute(ctx, "10.96.0.0/12", "eth0"); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(append(slices.Clone(before), "10.96.0.0/12"), routes(t)); diff != "" {
		t.Error(diff)
	}
	root := t.TempDir()
	defer func() {
		testhost.Write(t, root+ledger.Path, `{"version": 1, "entries": [
			{"kind": "route", "name": "10.96.0.0/12", "device": "eth0"},
			{"kind": "route", "name": "fd02::/112", "device": "eth0"},
			{"kind": "route", "name": "10.200.0.0/16", "device": "gone0"}]}`, 0o600)
		for range 2 {
			h := testhost.Open(t, root)
			if err := kernel.RemoveRoutes(ctx, h); err != nil {
				t.Error(err)
			}
			if h.Records().Used() {
				t.Error("the ledger still lists routes")
			}
		}
		if diff := cmp.Diff(before, routes(t)); diff != "" {
			t.Errorf("after removing: %s", diff)
		}
	}()
	if err := kernel.AddRoute(ctx, "fd02::/112", "eth0"); err != nil {
		t.Errorf("IPv6: %v", err)
	}
	// The kernel must now find a route from the node's address.
	got, err := netlink.RouteGet(net.ParseIP("10.96.0.1"))
	if err != nil || !got[0].Src.Equal(net.ParseIP("10.1.0.5")) {
		t.Errorf("route to 10.96.0.1: %v %v", got, err)
	}

	expired, cancel := context.WithCancel(ctx)
	cancel()
	if err := kernel.AddRoute(expired, "10.96.0.0/12", "eth9"); err == nil || !strings.Contains(err.Error(), `"eth9"`) {
		t.Errorf("a missing interface: %v", err)
	}
	if err := kernel.AddRoute(ctx, "10.96.0.0", "eth0"); fault.ExitCode(err) != fault.Usage {
		t.Errorf("a bad range: %v", err)
	}
}
