package detection_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"

	"airlift/installer/config"
	"airlift/installer/host/detection"
	"airlift/internal/fault"
	"airlift/scripts/fixtures/testhost"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

func TestChoosingTheNodesAddress(t *testing.T) {
	for _, c := range []struct {
		name  string
		setup func(*testing.T)
		want  string // "" is an error
	}{
		{"the only one", func(t *testing.T) { testhost.NIC(t, "eth0", "10.1.0.5/24") }, "eth0 10.1.0.5"},
		{"none", func(t *testing.T) { testhost.NIC(t, "eth0", "169.254.3.4/16") }, ""},
		{"two without a default route", func(t *testing.T) { testhost.NIC(t, "eth0", "10.1.0.5/24"); testhost.NIC(t, "eth1", "10.2.0.5/24") }, ""},
		{"two with a default route", func(t *testing.T) {
			testhost.NIC(t, "eth0", "10.1.0.5/24")
			testhost.NIC(t, "eth1", "10.2.0.5/24")
			testhost.DefaultRoute(t, "eth1", "10.2.0.1", "", 0)
		}, "eth1 10.2.0.5"},
		{"two default routes: the lower metric", func(t *testing.T) {
			testhost.NIC(t, "eth0", "10.1.0.5/24")
			testhost.NIC(t, "eth1", "10.2.0.5/24")
			testhost.DefaultRoute(t, "eth0", "10.1.0.1", "", 200)
			testhost.DefaultRoute(t, "eth1", "10.2.0.1", "", 100)
		}, "eth1 10.2.0.5"},
		{"the default route's preferred source", func(t *testing.T) {
			testhost.NIC(t, "eth0", "10.1.0.5/24", "10.3.0.5/24")
			testhost.DefaultRoute(t, "eth0", "10.1.0.1", "10.3.0.5", 0)
		}, "eth0 10.3.0.5"},
		{"a second address in the same range", func(t *testing.T) { testhost.NIC(t, "eth0", "10.1.0.5/24", "10.1.0.100/24") }, "eth0 10.1.0.5"},
		{"a virtual address in the same range", func(t *testing.T) { testhost.NIC(t, "eth0", "10.1.0.100/32", "10.1.0.5/24") }, "eth0 10.1.0.5"},
		{"a virtual address of IPv6", func(t *testing.T) { held(t, testhost.NIC(t, "eth0", "fd00::5/64"), "fd00::100/128") }, "eth0 fd00::5"},
		{"a DHCPv6 address", func(t *testing.T) { testhost.NIC(t, "eth0", "fd00::100/128") }, "eth0 fd00::100"},
		{"only a single address", func(t *testing.T) { testhost.NIC(t, "eth0", "10.1.0.5/32") }, "eth0 10.1.0.5"},
		{"IPv4 before IPv6", func(t *testing.T) { testhost.NIC(t, "eth0", "fd00::5/64", "10.1.0.5/24") }, "eth0 10.1.0.5"},
		{"only IPv6", func(t *testing.T) { testhost.NIC(t, "eth0", "fd00::5/64") }, "eth0 fd00::5"},
		{"an interface that is down", func(t *testing.T) {
			testhost.NIC(t, "eth0", "10.1.0.5/24")
			down := testhost.NIC(t, "eth1", "10.2.0.5/24")
			if err := netlink.LinkSetDown(down); err != nil {
				t.Fatal(err)
			}
		}, "eth0 10.1.0.5"},
		{"container runtimes' bridges and the pod network", func(t *testing.T) {
			testhost.NIC(t, "eth0", "10.1.0.5/24")
			testhost.Up(t, "veth-eth0", "10.203.0.1/32") // a /32 address on a veth interface, as with Calico
			testhost.Bridge(t, "docker0", nil, "172.17.0.1/16")
			testhost.Bridge(t, "cni0", nil, "10.244.0.1/24")
			testhost.Bridge(t, "empty0", nil, "10.9.0.1/24")
			attrs := netlink.NewLinkAttrs()
			attrs.Name = "flannel.1"
			testhost.AddLink(t, &netlink.Vxlan{LinkAttrs: attrs, VxlanId: 1, Port: 8472})
			testhost.Up(t, "flannel.1", "10.200.0.1/32")
		}, "eth0 10.1.0.5"},
		{"a bridge that holds the network card", func(t *testing.T) {
			testhost.NIC(t, "eth0")
			testhost.Bridge(t, "br0", []string{"eth0"}, "10.1.0.5/24")
		}, "br0 10.1.0.5"},
		{"an address within the pod range", func(t *testing.T) {
			testhost.NIC(t, "eth0", "10.1.0.5/24")
			testhost.NIC(t, "eth1", "10.244.3.1/24")
		}, "eth0 10.1.0.5"},
	} {
		t.Run(c.name, func(t *testing.T) {
			testhost.InNetwork(t)
			c.setup(t)
			candidates, err := detection.Addresses()
			if err != nil {
				t.Fatal(err)
			}
			a, err := detection.ChooseAddress(candidates, "--apiserver-advertise-address", config.Networking{PodSubnet: config.ParseCIDRs("10.244.0.0/16")}.Ranges()...)
			if c.want == "" {
				if fault.ExitCode(err) != fault.Usage || !strings.Contains(fault.Hint(err), "--apiserver-advertise-address") {
					t.Errorf("chose %v, err = %v", a, err)
				}
				for _, candidate := range candidates {
					if !strings.Contains(err.Error(), candidate.String()) {
						t.Errorf("%q does not list %s", err, candidate)
					}
				}
				return
			}
			if err != nil || a.String() != c.want || a.MTU == 0 {
				t.Errorf("chose %v (mtu %d), %v; want %s", a, a.MTU, err, c.want)
			}
		})
	}
}

// init chooses an address of the family of the cluster's ranges, and never one in
// a range.
func TestDetectAddressForRanges(t *testing.T) {
	type m = func(t *testing.T)
	networking := func(services, pods string) config.Networking {
		return config.Networking{ServiceSubnet: config.ParseCIDRs(services), PodSubnet: config.ParseCIDRs(pods)}
	}
	inServices := m(func(t *testing.T) { testhost.NIC(t, "eth0", "10.99.0.21/24") })
	for _, c := range []struct {
		name        string
		setup       m
		networking  config.Networking
		cni         string
		want, other string // the addresses
		fails, hint string
	}{
		{name: "in the Service range", setup: inServices,
			fails: "10.99.0.21 (interface eth0) is in the cluster's range of Service addresses, 10.96.0.0/12", hint: "--service-cidr=172.20.0.0/16 (networking.serviceSubnet"},
		{name: "in the Service range, and an address of a router advertisement", setup: func(t *testing.T) { testhost.NIC(t, "eth0", "10.99.0.21/24", "fd77::21/64") },
			fails: "10.99.0.21 (interface eth0)", hint: "--service-cidr=172.20.0.0/16"},
		{name: "outside of another Service range", setup: inServices, networking: networking("10.50.0.0/16", ""), want: "10.99.0.21"},
		{name: "in the pod range", setup: func(t *testing.T) { testhost.NIC(t, "eth0", "10.244.7.7/24") },
			fails: "10.244.7.7 (interface eth0) is in the cluster's range of pod addresses, 10.244.0.0/16", hint: "--pod-network-cidr=172.24.0.0/16"},
		{name: "without a pod range", setup: func(t *testing.T) { testhost.NIC(t, "eth0", "10.244.7.7/24") }, cni: "none", want: "10.244.7.7"},
		{name: "the default route's address is in a range", setup: func(t *testing.T) {
			testhost.NIC(t, "eth0", "10.99.0.21/24")
			testhost.NIC(t, "eth1", "172.20.1.5/16")
			testhost.DefaultRoute(t, "eth0", "10.99.0.1", "", 0)
		}, fails: "10.99.0.21", hint: "--service-cidr=192.168.192.0/18 (networking.serviceSubnet in a configuration file), or another address of this host: --x=172.20.1.5"},
		{name: "only IPv6", setup: func(t *testing.T) { testhost.NIC(t, "eth0", "fd77::21/64") }, want: "fd77::21"},
		{name: "IPv6 in the default range", setup: func(t *testing.T) { testhost.NIC(t, "eth0", "fd00:10:96::21/64") },
			fails: "fd00:10:96::21", hint: "--service-cidr=fd00:20:96::/112"},
		{name: "both, IPv6 ranges", setup: func(t *testing.T) { testhost.NIC(t, "eth0", "10.1.0.5/24", "fd77::21/64") }, networking: networking("", "fd00:10:244::/56"), want: "fd77::21", other: "10.1.0.5"},
		{name: "both, no ranges", setup: func(t *testing.T) { testhost.NIC(t, "eth0", "10.1.0.5/24", "fd77::21/64") }, want: "10.1.0.5", other: "fd77::21"},
		{name: "the other one of the same interface", setup: func(t *testing.T) {
			testhost.NIC(t, "eth0", "fd78::21/64")
			testhost.NIC(t, "eth1", "10.1.0.5/24", "fd77::21/64")
		}, want: "10.1.0.5", other: "fd77::21"},
		{name: "several others", setup: func(t *testing.T) {
			testhost.NIC(t, "eth0", "10.1.0.5/24")
			testhost.NIC(t, "eth1", "fd77::21/64")
			testhost.NIC(t, "eth2", "fd78::21/64")
		}, want: "10.1.0.5"},
		{name: "IPv4, IPv6 ranges", setup: func(t *testing.T) { testhost.NIC(t, "eth0", "10.1.0.5/24") }, networking: networking("fd00:10:96::/112", ""),
			fails: "Service range fd00:10:96::/112 is IPv6, and this host has no IPv6 address; it has:\n  eth0 10.1.0.5", hint: "give none"},
	} {
		t.Run(c.name, func(t *testing.T) {
			testhost.InNetwork(t)
			c.setup(t)
			f, err := detection.Detect(t.Context(), "/", detection.Options{AddressFlag: "--x", Networking: c.networking, NewCluster: true, CNI: c.cni})
			if c.fails != "" {
				if err == nil || !strings.Contains(err.Error(), c.fails) || !strings.Contains(fault.Hint(err), c.hint) || fault.ExitCode(err) != fault.Usage {
					t.Errorf("%q: %v; hint: %s", f.NodeIP, err, fault.Hint(err))
				}
				return
			}
			if err != nil || f.NodeIP != c.want || f.OtherIP != c.other {
				t.Errorf("%q and %q, %v; want %q and %q", f.NodeIP, f.OtherIP, err, c.want, c.other)
			}
		})
	}
	t.Run("the user's", func(t *testing.T) {
		testhost.InNetwork(t)
		testhost.NIC(t, "eth0", "10.1.0.5/24", "fd77::21/64", "fd77::22/64")
		f, err := detection.Detect(t.Context(), "/", detection.Options{AddressFlag: "--node-ip", NodeIP: "10.1.0.5,fd77::22"})
		if err != nil || f.NodeIP != "10.1.0.5" || f.OtherIP != "fd77::22" {
			t.Errorf("%q and %q, %v", f.NodeIP, f.OtherIP, err)
		}
		for _, given := range []string{"fd77::21,fd77::22", "10.1.0.5,10.1.0.6"} {
			if f, err := detection.Detect(t.Context(), "/", detection.Options{AddressFlag: "--node-ip", NodeIP: given}); fault.ExitCode(err) != fault.Usage {
				t.Errorf("%s: %q and %q, %v", given, f.NodeIP, f.OtherIP, err)
			}
		}
	})
}

// held adds an address as the process does that moves the virtual address.
func held(t *testing.T, link netlink.Link, address string) {
	t.Helper()
	a, err := netlink.ParseAddr(address)
	if err != nil {
		t.Fatal(err)
	}
	a.ValidLft, a.Flags = 3, unix.IFA_F_NODAD|unix.IFA_F_NOPREFIXROUTE
	if err := netlink.AddrReplace(link, a); err != nil {
		t.Fatal(err)
	}
}

// TestDetectOwnAddress: the node's address does not depend on which host has the endpoint's address now.
func TestDetectOwnAddress(t *testing.T) {
	for _, c := range []struct {
		endpoint string // as an address of this host; "" if it is not
		peer     string
		want     string
	}{
		{"", "10.1.0.100", "10.1.0.5"},
		{"10.1.0.100/32", "10.1.0.100", "10.1.0.5"},
		{"10.1.0.100/24", "10.1.0.100", "10.1.0.5"}, // keepalived's may have the mask of the subnet
		{"10.1.0.100/32", "10.1.0.9", "10.1.0.5"},
		{"", "10.1.0.5", "10.1.0.5"},
		{"", "10.2.0.5", "10.2.0.5"},
		{"10.9.0.1/32", "10.9.0.1", "10.9.0.1"}, // no subnet: an address that is routed to this host
		{"fd00::100/128", "fd00::100", "fd00::5"},
		{"", "fd00::5", "fd00::5"},
	} {
		t.Run(c.endpoint+" "+c.peer, func(t *testing.T) {
			testhost.InNetwork(t)
			link := testhost.NIC(t, "eth0", "10.1.0.5/24", "fd00::5/64")
			testhost.NIC(t, "eth1", "10.2.0.5/24")
			if c.endpoint != "" {
				held(t, link, c.endpoint)
			}
			f, err := detection.Detect(t.Context(), testhost.Open(t, "/").Root, detection.Options{Peer: net.JoinHostPort(c.peer, "6443")})
			if err != nil || f.NodeIP != c.want {
				t.Errorf("%s, %v, want %s", f.NodeIP, err, c.want)
			}
		})
	}
}

func TestDetectAddressTowardsPeer(t *testing.T) {
	testhost.InNetwork(t)
	testhost.NIC(t, "eth0", "10.1.0.5/24")
	testhost.NIC(t, "eth1", "10.2.0.5/24")
	h := testhost.Open(t, "/")
	ctx := context.Background()
	for _, c := range []struct {
		options detection.Options
		want    string
	}{
		{detection.Options{Peer: "10.2.0.9:6443"}, "eth1 10.2.0.5 1400"},
		{detection.Options{Peer: "10.1.0.9:6443"}, "eth0 10.1.0.5 1400"},
		{detection.Options{NodeIP: "10.1.0.5", Peer: "10.2.0.9:6443"}, "eth0 10.1.0.5 1400"},
	} {
		f, err := detection.Detect(ctx, h.Root, c.options)
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(f.Interface, " ", f.NodeIP, " ", f.MTU); got != c.want {
			t.Errorf("%+v: %s, want %s", c.options, got, c.want)
		}
		if f.DefaultRoute {
			t.Error("a default route was seen where there is none")
		}
	}
	for _, o := range []detection.Options{
		{AddressFlag: "--x"},                           // two candidates
		{AddressFlag: "--x", NodeIP: "10.1.0.6"},       // not this host's address
		{AddressFlag: "--x", NodeIP: "10.1.0"},         // not an address
		{AddressFlag: "--x", Peer: "192.168.0.1:6443"}, // no route, two candidates
		{NodeIP: "", Networking: config.Networking{PodSubnet: config.ParseCIDRs("10.244.0.0/33")}, AddressFlag: "--x"},
	} {
		if f, err := detection.Detect(ctx, h.Root, o); fault.ExitCode(err) != fault.Usage {
			t.Errorf("%+v: %s %v", o, f.NodeIP, err)
		}
	}
}
