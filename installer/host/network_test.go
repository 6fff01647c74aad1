package host_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"airlift/installer/config"
	"airlift/installer/host/detection"
	"airlift/installer/host/kernel"
	"airlift/installer/host/ledger"
	"airlift/installer/host/podnetwork"
	"airlift/internal/fault"
	"airlift/scripts/fixtures/rig"
)

// inNetwork runs the rest of the test in a new network namespace, so that the
// test does not change the machine. The scheduler never reuses the thread: it
// ends with the test, and the namespace with it.
func inNetwork(t *testing.T) {
	t.Helper()
	rig.Root(t) // to create a network namespace
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatalf("making a network namespace: %v", err)
	}
	link, err := netlink.LinkByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	if err := netlink.LinkSetUp(link); err != nil {
		t.Fatal(err)
	}
}

// nic adds an interface that looks like a network card: one end of a veth pair,
// like eth0 in a container or a card in a bridge.
func nic(t *testing.T, name string, addresses ...string) netlink.Link {
	t.Helper()
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU = name, 1400
	add(t, &netlink.Veth{LinkAttrs: attrs, PeerName: "veth-" + name})
	up(t, "veth-"+name)
	return up(t, name, addresses...)
}

func add(t *testing.T, link netlink.Link) {
	t.Helper()
	if err := netlink.LinkAdd(link); err != nil {
		t.Fatalf("adding %s: %v", link.Attrs().Name, err)
	}
}

func up(t *testing.T, name string, addresses ...string) netlink.Link {
	t.Helper()
	link, err := netlink.LinkByName(name)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addresses {
		addr, err := netlink.ParseAddr(a)
		if err != nil {
			t.Fatal(err)
		}
		addr.Flags |= unix.IFA_F_NODAD // usable at once
		if err := netlink.AddrAdd(link, addr); err != nil {
			t.Fatal(err)
		}
	}
	if err := netlink.LinkSetUp(link); err != nil {
		t.Fatal(err)
	}
	return link
}

func bridge(t *testing.T, name string, ports []string, addresses ...string) {
	t.Helper()
	attrs := netlink.NewLinkAttrs()
	attrs.Name = name
	b := &netlink.Bridge{LinkAttrs: attrs}
	add(t, b)
	for _, p := range ports {
		link, err := netlink.LinkByName(p)
		if err != nil {
			t.Fatal(err)
		}
		if err := netlink.LinkSetMaster(link, b); err != nil {
			t.Fatal(err)
		}
	}
	up(t, name, addresses...)
}

func defaultRoute(t *testing.T, dev, via, src string, metric int) {
	t.Helper()
	link, err := netlink.LinkByName(dev)
	if err != nil {
		t.Fatal(err)
	}
	r := &netlink.Route{LinkIndex: link.Attrs().Index, Gw: net.ParseIP(via), Src: net.ParseIP(src), Priority: metric}
	if err := netlink.RouteAdd(r); err != nil {
		t.Fatal(err)
	}
}

func TestChoosingTheNodesAddress(t *testing.T) {
	for _, c := range []struct {
		name  string
		setup func(*testing.T)
		want  string // "" is an error
	}{
		{"the only one", func(t *testing.T) { nic(t, "eth0", "10.1.0.5/24") }, "eth0 10.1.0.5"},
		{"none", func(t *testing.T) { nic(t, "eth0", "169.254.3.4/16") }, ""},
		{"two without a default route", func(t *testing.T) { nic(t, "eth0", "10.1.0.5/24"); nic(t, "eth1", "10.2.0.5/24") }, ""},
		{"two with a default route", func(t *testing.T) {
			nic(t, "eth0", "10.1.0.5/24")
			nic(t, "eth1", "10.2.0.5/24")
			defaultRoute(t, "eth1", "10.2.0.1", "", 0)
		}, "eth1 10.2.0.5"},
		{"two default routes: the lower metric", func(t *testing.T) {
			nic(t, "eth0", "10.1.0.5/24")
			nic(t, "eth1", "10.2.0.5/24")
			defaultRoute(t, "eth0", "10.1.0.1", "", 200)
			defaultRoute(t, "eth1", "10.2.0.1", "", 100)
		}, "eth1 10.2.0.5"},
		{"the default route's preferred source", func(t *testing.T) {
			nic(t, "eth0", "10.1.0.5/24", "10.3.0.5/24")
			defaultRoute(t, "eth0", "10.1.0.1", "10.3.0.5", 0)
		}, "eth0 10.3.0.5"},
		{"a second address in the same range", func(t *testing.T) { nic(t, "eth0", "10.1.0.5/24", "10.1.0.100/24") }, "eth0 10.1.0.5"},
		{"IPv4 before IPv6", func(t *testing.T) { nic(t, "eth0", "fd00::5/64", "10.1.0.5/24") }, "eth0 10.1.0.5"},
		{"only IPv6", func(t *testing.T) { nic(t, "eth0", "fd00::5/64") }, "eth0 fd00::5"},
		{"an interface that is down", func(t *testing.T) {
			nic(t, "eth0", "10.1.0.5/24")
			down := nic(t, "eth1", "10.2.0.5/24")
			if err := netlink.LinkSetDown(down); err != nil {
				t.Fatal(err)
			}
		}, "eth0 10.1.0.5"},
		{"container runtimes' bridges and the pod network", func(t *testing.T) {
			nic(t, "eth0", "10.1.0.5/24")
			up(t, "veth-eth0", "10.203.0.1/32") // a /32 address on a veth interface, as with Calico
			bridge(t, "docker0", nil, "172.17.0.1/16")
			bridge(t, "cni0", nil, "10.244.0.1/24")
			bridge(t, "empty0", nil, "10.9.0.1/24")
			attrs := netlink.NewLinkAttrs()
			attrs.Name = "flannel.1"
			add(t, &netlink.Vxlan{LinkAttrs: attrs, VxlanId: 1, Port: 8472})
			up(t, "flannel.1", "10.200.0.1/32")
		}, "eth0 10.1.0.5"},
		{"a bridge that holds the network card", func(t *testing.T) {
			nic(t, "eth0")
			bridge(t, "br0", []string{"eth0"}, "10.1.0.5/24")
		}, "br0 10.1.0.5"},
		{"an address within the pod range", func(t *testing.T) {
			nic(t, "eth0", "10.1.0.5/24")
			nic(t, "eth1", "10.244.3.1/24")
		}, "eth0 10.1.0.5"},
	} {
		t.Run(c.name, func(t *testing.T) {
			inNetwork(t)
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
	inServices := m(func(t *testing.T) { nic(t, "eth0", "10.99.0.21/24") })
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
		{name: "in the Service range, and an address of a router advertisement", setup: func(t *testing.T) { nic(t, "eth0", "10.99.0.21/24", "fd77::21/64") },
			fails: "10.99.0.21 (interface eth0)", hint: "--service-cidr=172.20.0.0/16"},
		{name: "outside of another Service range", setup: inServices, networking: networking("10.50.0.0/16", ""), want: "10.99.0.21"},
		{name: "in the pod range", setup: func(t *testing.T) { nic(t, "eth0", "10.244.7.7/24") },
			fails: "10.244.7.7 (interface eth0) is in the cluster's range of pod addresses, 10.244.0.0/16", hint: "--pod-network-cidr=172.24.0.0/16"},
		{name: "without a pod range", setup: func(t *testing.T) { nic(t, "eth0", "10.244.7.7/24") }, cni: "none", want: "10.244.7.7"},
		{name: "the default route's address is in a range", setup: func(t *testing.T) {
			nic(t, "eth0", "10.99.0.21/24")
			nic(t, "eth1", "172.20.1.5/16")
			defaultRoute(t, "eth0", "10.99.0.1", "", 0)
		}, fails: "10.99.0.21", hint: "--service-cidr=192.168.192.0/18 (networking.serviceSubnet in a configuration file), or another address of this host: --x=172.20.1.5"},
		{name: "only IPv6", setup: func(t *testing.T) { nic(t, "eth0", "fd77::21/64") }, want: "fd77::21"},
		{name: "IPv6 in the default range", setup: func(t *testing.T) { nic(t, "eth0", "fd00:10:96::21/64") },
			fails: "fd00:10:96::21", hint: "--service-cidr=fd00:20:96::/112"},
		{name: "both, IPv6 ranges", setup: func(t *testing.T) { nic(t, "eth0", "10.1.0.5/24", "fd77::21/64") }, networking: networking("", "fd00:10:244::/56"), want: "fd77::21", other: "10.1.0.5"},
		{name: "both, no ranges", setup: func(t *testing.T) { nic(t, "eth0", "10.1.0.5/24", "fd77::21/64") }, want: "10.1.0.5", other: "fd77::21"},
		{name: "the other one of the same interface", setup: func(t *testing.T) {
			nic(t, "eth0", "fd78::21/64")
			nic(t, "eth1", "10.1.0.5/24", "fd77::21/64")
		}, want: "10.1.0.5", other: "fd77::21"},
		{name: "several others", setup: func(t *testing.T) {
			nic(t, "eth0", "10.1.0.5/24")
			nic(t, "eth1", "fd77::21/64")
			nic(t, "eth2", "fd78::21/64")
		}, want: "10.1.0.5"},
		{name: "IPv4, IPv6 ranges", setup: func(t *testing.T) { nic(t, "eth0", "10.1.0.5/24") }, networking: networking("fd00:10:96::/112", ""),
			fails: "Service range fd00:10:96::/112 is IPv6, and this host has no IPv6 address; it has:\n  eth0 10.1.0.5", hint: "give none"},
	} {
		t.Run(c.name, func(t *testing.T) {
			inNetwork(t)
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
		inNetwork(t)
		nic(t, "eth0", "10.1.0.5/24", "fd77::21/64", "fd77::22/64")
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

func TestDetectAddressTowardsPeer(t *testing.T) {
	inNetwork(t)
	nic(t, "eth0", "10.1.0.5/24")
	nic(t, "eth1", "10.2.0.5/24")
	h := open(t, "/")
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
	inNetwork(t)
	nic(t, "eth0", "10.1.0.5/24")
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
		write(t, root+ledger.Path, `{"version": 1, "entries": [
			{"kind": "route", "name": "10.96.0.0/12", "device": "eth0"},
			{"kind": "route", "name": "fd02::/112", "device": "eth0"},
			{"kind": "route", "name": "10.200.0.0/16", "device": "gone0"}]}`, 0o600)
		for range 2 {
			h := open(t, root)
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

func TestRemoveInterfacesLeavesOthers(t *testing.T) {
	inNetwork(t)
	nic(t, "eth0", "10.1.0.5/24")
	nic(t, "pod1")
	nic(t, "guest1")
	bridge(t, "cni0", []string{"veth-pod1"}, "10.244.0.1/24")
	bridge(t, "docker0", []string{"veth-guest1"}, "172.17.0.1/16")
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "flannel.1"
	add(t, &netlink.Vxlan{LinkAttrs: attrs, VxlanId: 1, Port: 8472})
	root := t.TempDir()
	there := func(names ...string) {
		t.Helper()
		for _, name := range names {
			if _, err := netlink.LinkByName(name); err != nil {
				t.Errorf("%s is gone", name)
			}
		}
	}
	// A name alone does not prove that Airlift created the interface.
	if err := podnetwork.RemoveInterfaces(context.Background(), open(t, root)); err != nil {
		t.Fatal(err)
	}
	there("cni0", "pod1", "veth-pod1", "flannel.1")
	write(t, root+ledger.Path, `{"version": 1, "entries": [
		{"kind": "interface", "name": "cni0"}, {"kind": "interface", "name": "flannel.1"}, {"kind": "interface", "name": "kube-ipvs0"}]}`, 0o600)
	for range 2 {
		if err := podnetwork.RemoveInterfaces(context.Background(), open(t, root)); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"cni0", "pod1", "veth-pod1", "flannel.1"} {
		if _, err := netlink.LinkByName(name); !errors.As(err, &netlink.LinkNotFoundError{}) {
			t.Errorf("%s is still there (%v)", name, err)
		}
	}
	there("eth0", "veth-eth0", "docker0", "guest1", "veth-guest1")
}

// node is the ledger of a host that was bare before init.
const node = `{"version": 1, "entries": [
	{"kind": "owned", "name": "/var/lib/kubelet"}, {"kind": "network", "name": "cbr0"}, {"kind": "chains", "name": "CNI-HOSTPORT-"}]}`

// iptables runs Debian's own iptables, so that the rules are the same that
// kube-proxy and the CNI plugins create.
func iptables(t *testing.T, program, rules string) {
	t.Helper()
	cmd := exec.Command(program+"-restore", "--noflush")
	cmd.Stdin = strings.NewReader(rules)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s-restore: %v\n%s", program, err, out)
	}
}

func saved(t *testing.T, program string) string {
	t.Helper()
	out, err := exec.Command(program + "-save").CombinedOutput()
	if err != nil {
		t.Fatalf("%s-save: %v\n%s", program, err, out)
	}
	var lines []string
	for _, line := range strings.Split(string(out), "\n") {
		if !strings.HasPrefix(line, "#") { // times
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "\n")
}

func TestRemoveNetfilterLeavesOthersRules(t *testing.T) {
	inNetwork(t)
	rig.Tool(t, "iptables-nft-restore")
	for _, program := range []string{"iptables-nft", "ip6tables-nft"} {
		pods, lan := "10.244.0.0/16", "10.1.0.0/24"
		if program == "ip6tables-nft" {
			pods, lan = "fd01::/48", "fd00::/64"
		}
		iptables(t, program, strings.ReplaceAll(`*filter
:MINE - [0:0]
-A INPUT -p tcp -m multiport --dports 22,443 -m comment --comment "KUBE-SERVICES is only mentioned here" -j ACCEPT
-A INPUT -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A FORWARD -j MINE
:CNI-FORWARD - [0:0]
:CNI-ADMIN - [0:0]
-A FORWARD -m comment --comment "CNI firewall plugin rules" -j CNI-FORWARD
-A CNI-FORWARD -m comment --comment "CNI firewall plugin admin overrides" -j CNI-ADMIN
-A MINE -s LAN -m limit --limit 5/min -j LOG --log-prefix "KUBE-"
-A MINE -j RETURN
COMMIT
*nat
:CNI-2bbe0c48b91a7d1b8a6753a8 - [0:0]
-A POSTROUTING -s LAN -j MASQUERADE
-A POSTROUTING -s LAN -m comment --comment "name: \"test\" id: \"1234\"" -j CNI-2bbe0c48b91a7d1b8a6753a8
-A CNI-2bbe0c48b91a7d1b8a6753a8 -j ACCEPT
COMMIT
*mangle
-A POSTROUTING -p tcp -m tcp --tcp-flags SYN,RST SYN -j TCPMSS --clamp-mss-to-pmtu
COMMIT
`, "LAN", lan))
		before := saved(t, program)
		// The rules that iptables-save prints on a node.
		iptables(t, program, strings.ReplaceAll(`*mangle
:KUBE-KUBELET-CANARY - [0:0]
:KUBE-IPTABLES-HINT - [0:0]
COMMIT
*filter
:KUBE-EXTERNAL-SERVICES - [0:0]
:KUBE-FIREWALL - [0:0]
:KUBE-FORWARD - [0:0]
:FLANNEL-FWD - [0:0]
-I INPUT 1 -m conntrack --ctstate NEW -m comment --comment "kubernetes externally-visible service portals" -j KUBE-EXTERNAL-SERVICES
-A INPUT -j KUBE-FIREWALL
-I FORWARD 1 -m comment --comment "kubernetes forwarding rules" -j KUBE-FORWARD
-A FORWARD -m comment --comment "flanneld forward" -j FLANNEL-FWD
-A KUBE-FORWARD -m conntrack --ctstate INVALID -j DROP
-A KUBE-FORWARD -m mark --mark 0x4000/0x4000 -j ACCEPT
-A FLANNEL-FWD -s PODS -m comment --comment "flanneld forward" -j ACCEPT
COMMIT
*nat
:KUBE-SERVICES - [0:0]
:KUBE-NODEPORTS - [0:0]
:KUBE-POSTROUTING - [0:0]
:KUBE-MARK-MASQ - [0:0]
:KUBE-SVC-NPX46M4PTMTKRN6Y - [0:0]
:KUBE-SEP-AAAAAAAAAAAAAAAA - [0:0]
:KUBE-SEP-BBBBBBBBBBBBBBBB - [0:0]
:FLANNEL-POSTRTG - [0:0]
:CNI-1f2e3d4c5b6a79881726354a - [0:0]
:CNI-HOSTPORT-DNAT - [0:0]
:CNI-HOSTPORT-SETMARK - [0:0]
-A PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A PREROUTING -m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT
-A OUTPUT -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-I POSTROUTING 1 -m comment --comment "kubernetes postrouting rules" -j KUBE-POSTROUTING
-A POSTROUTING -m comment --comment "flanneld masq" -j FLANNEL-POSTRTG
-A POSTROUTING -s PODS -m comment --comment "name: \"cbr0\"" -j CNI-1f2e3d4c5b6a79881726354a
-A KUBE-SERVICES -p tcp -m comment --comment "default/kubernetes:https cluster IP" -m tcp --dport 443 -j KUBE-SVC-NPX46M4PTMTKRN6Y
-A KUBE-SERVICES -m addrtype --dst-type LOCAL -j KUBE-NODEPORTS
-A KUBE-SVC-NPX46M4PTMTKRN6Y -m statistic --mode random --probability 0.50000000000 -j KUBE-SEP-AAAAAAAAAAAAAAAA
-A KUBE-SVC-NPX46M4PTMTKRN6Y -j KUBE-SEP-BBBBBBBBBBBBBBBB
-A KUBE-SEP-AAAAAAAAAAAAAAAA -p tcp -m tcp -j REDIRECT --to-ports 6443
-A KUBE-MARK-MASQ -j MARK --set-xmark 0x4000/0x4000
-A KUBE-POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN
-A KUBE-POSTROUTING -j MASQUERADE --random-fully
-A FLANNEL-POSTRTG -s PODS -d PODS -j RETURN
-A CNI-HOSTPORT-SETMARK -j MARK --set-xmark 0x2000/0x2000
COMMIT
`, "PODS", pods))
		if saved(t, program) == before {
			t.Fatal("the rules did not go in")
		}
		defer func() {
			after := saved(t, program)
			// Everything else must be as before.
			if diff := cmp.Diff(before, after); diff != "" {
				t.Errorf("%s-save differs:\n%s", program, diff)
			}
		}()
	}
	nft := exec.Command("nft", "-f", "-")
	nft.Stdin = strings.NewReader(`
table ip kube-proxy {
  chain services {
  }
}
table inet kube-network-policies {
  set podips-v4 {
    type ipv4_addr
    elements = { 10.244.1.7 }
  }
  chain postrouting {
    type filter hook postrouting priority 95;
    ip saddr @podips-v4 counter
  }
}
table inet cni_plugins_masquerade {
  chain masq_checks {
    type nat hook postrouting priority 100;
    ip saddr 10.244.0.0/16 masquerade
  }
}
table inet firewall {
  set blocked {
    type ipv4_addr
    flags interval
    elements = { 192.0.2.0/24 }
  }
  chain web {
    counter accept
  }
  chain input {
    type filter hook input priority 0;
    ip saddr @blocked drop
    tcp dport vmap { 22 : accept, 80 : jump web }
    ct state established,related accept
  }
}
table arp filter {
  chain input {
    type filter hook input priority 0;
  }
}
`)
	if out, err := nft.CombinedOutput(); err != nil {
		t.Fatalf("nft: %v\n%s", err, out)
	}
	root := t.TempDir()
	complete := saved(t, "iptables-nft")
	if _, err := podnetwork.RemoveRules(context.Background(), open(t, root)); err != nil || saved(t, "iptables-nft") != complete {
		t.Errorf("without a ledger rules were removed (%v)", err)
	}
	write(t, root+ledger.Path, node, 0o600)
	for range 2 {
		warnings, err := podnetwork.RemoveRules(context.Background(), open(t, root))
		if err != nil {
			t.Fatal(err)
		}
		if len(warnings) != 0 {
			t.Errorf("warnings: %v", warnings)
		}
	}
	out, err := exec.Command("nft", "list", "tables").CombinedOutput()
	if err != nil {
		t.Fatal(err)
	}
	for _, table := range []string{"inet firewall", "arp filter", "cni_plugins_masquerade"} {
		if !strings.Contains(string(out), table) {
			t.Errorf("table %s is gone:\n%s", table, out)
		}
	}
	for _, table := range []string{"kube-proxy", "kube-network-policies"} {
		if strings.Contains(string(out), table) {
			t.Errorf("table %s is left:\n%s", table, out)
		}
	}
}

// Two CNI networks publish ports. The portmap plugin's chains of the other
// network must stay. Its shared chains must stay if they are used or existed
// before init.
func TestRemoveNetfilterLeavesOthersPorts(t *testing.T) {
	rig.Tool(t, "iptables-nft-restore")
	const mine, theirs = "CNI-DN-111111111111111111111", "CNI-DN-222222222222222222222"
	rules := func(ours, others bool) string {
		text := "*nat\n:CNI-HOSTPORT-DNAT - [0:0]\n:CNI-HOSTPORT-MASQ - [0:0]\n:CNI-HOSTPORT-SETMARK - [0:0]\n"
		chains, jumps := "", ""
		for _, c := range []struct {
			yes                bool
			name, chain, where string
		}{{ours, "cbr0", mine, "10.244.0.2:80"}, {others, "other", theirs, "10.90.0.2:80"}} {
			if c.yes {
				chains += ":" + c.chain + " - [0:0]\n"
				jumps += "-A CNI-HOSTPORT-DNAT -p tcp -m comment --comment \"dnat name: \\\"" + c.name + "\\\" id: \\\"abc\\\"\" -m multiport --dports 8080 -j " + c.chain + "\n" +
					"-A " + c.chain + " -p tcp -m tcp --dport 8080 -j CNI-HOSTPORT-SETMARK\n-A " + c.chain + " -p tcp -m tcp --dport 8080 -j DNAT --to-destination " + c.where + "\n"
			}
		}
		return text + chains + "-A PREROUTING -m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT\n-A OUTPUT -m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT\n" +
			"-A POSTROUTING -m comment --comment \"CNI portfwd requiring masquerade\" -j CNI-HOSTPORT-MASQ\n" +
			"-A CNI-HOSTPORT-MASQ -m mark --mark 0x2000/0x2000 -j MASQUERADE\n-A CNI-HOSTPORT-SETMARK -j MARK --set-xmark 0x2000/0x2000\n" + jumps + "COMMIT\n"
	}
	for _, tt := range []struct {
		name   string
		others bool
		ledger string
		shared bool // the shared chains stay
	}{
		{"another's port is published", true, node, true},
		{"they were there before init", false, strings.Replace(node, `, {"kind": "chains", "name": "CNI-HOSTPORT-"}`, "", 1), true},
		{"nobody else", false, node, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inNetwork(t)
			iptables(t, "iptables-nft", rules(false, tt.others))
			before := saved(t, "iptables-nft")
			if out, err := exec.Command("iptables-nft", "-t", "nat", "-F").CombinedOutput(); err != nil {
				t.Fatalf("%v %s", err, out)
			}
			iptables(t, "iptables-nft", rules(true, tt.others))
			nft := exec.Command("nft", "-f", "-")
			nft.Stdin = strings.NewReader(`table ip cni_hostport {
				chain hostports {
					tcp dport 8081 dnat to 10.244.0.2:80 comment "pod1"
					tcp dport 8082 dnat to 10.90.0.2:80 comment "other1"
				}
				chain prerouting {
					type nat hook prerouting priority dstnat
					jump hostports
				}
			}`)
			if out, err := nft.CombinedOutput(); err != nil {
				t.Fatalf("nft: %v\n%s", err, out)
			}
			root := t.TempDir()
			write(t, root+ledger.Path, tt.ledger, 0o600)
			write(t, root+"/var/lib/cni/networks/cbr0/10.244.0.2", "pod1\r\neth0", 0o600)
			for range 2 {
				if _, err := podnetwork.RemoveRules(context.Background(), open(t, root)); err != nil {
					t.Fatal(err)
				}
			}
			after := saved(t, "iptables-nft")
			if tt.shared {
				if diff := cmp.Diff(before, after); diff != "" {
					t.Errorf("iptables-save differs:\n%s", diff)
				}
			} else if strings.Contains(after, "CNI-") {
				t.Errorf("left:\n%s", after)
			}
			out, err := exec.Command("nft", "list", "table", "ip", "cni_hostport").CombinedOutput()
			if err != nil || strings.Contains(string(out), "pod1") || !strings.Contains(string(out), "other1") {
				t.Errorf("nftables: %v\n%s", err, out)
			}
		})
	}
}

// A node of a large cluster has more rules than fit into one netlink message.
func TestRemoveNetfilterOfALargeCluster(t *testing.T) {
	inNetwork(t)
	rig.Tool(t, "iptables-nft-restore")
	var chains, rules strings.Builder
	for i := range 5000 {
		fmt.Fprintf(&chains, ":KUBE-SVC-%05d - [0:0]\n", i)
		fmt.Fprintf(&rules, "-A PREROUTING -d 10.96.%d.%d/32 -j KUBE-SVC-%05d\n-A KUBE-SVC-%05d -j KUBE-SVC-%05d\n", i/250, i%250, i, i, (i+1)%5000)
	}
	// The last chain must not jump to the first: the kernel refuses loops.
	text := strings.Replace(rules.String(), "-A KUBE-SVC-04999 -j KUBE-SVC-00000\n", "", 1)
	// The kernel refuses jumps that are nested deeper than 16.
	text = regexp.MustCompile(`(?m)^-A KUBE-SVC-\d+ -j KUBE-SVC-\d*0\n`).ReplaceAllString(text, "")
	iptables(t, "iptables-nft", "*nat\n"+chains.String()+text+"-A PREROUTING -d 10.1.0.1/32 -j ACCEPT\nCOMMIT\n")
	root := t.TempDir()
	write(t, root+ledger.Path, node, 0o600)
	if _, err := podnetwork.RemoveRules(context.Background(), open(t, root)); err != nil {
		t.Fatal(err)
	}
	after := saved(t, "iptables-nft")
	if strings.Contains(after, "KUBE-") || !strings.Contains(after, "-A PREROUTING -d 10.1.0.1/32 -j ACCEPT") {
		t.Errorf("after:\n%.2000s", after)
	}
}
