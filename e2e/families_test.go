//go:build e2e

package e2e

import (
	"strings"
	"testing"

	"airlift/scripts/lab"
	"airlift/scripts/lab/site"
)

// TestAddressInRange: on a host whose only IPv4 address is in the default Service range, init
// names the range and its flag, although the host also has an IPv6 address. With only the IPv6
// address it creates an IPv6 cluster.
func TestAddressInRange(t *testing.T) {
	s := up(t, lab.Options{Name: "e2e-ipv6", Hosts: 1})
	h := s.Hosts[0]
	run(t, h, "sh", "-c", "ip address flush dev eth0 scope global && ip address add 10.99.0.21/24 dev eth0 && ip address add fd77::11/64 dev eth0 nodad")
	bare := untouched(t, h)
	contains(t, install(t, h, 2, "init"), "10.99.0.21 (interface eth0)", "Service addresses, 10.96.0.0/12", "--service-cidr=172.20.0.0/16")
	contains(t, install(t, h, 2, "init", "--apiserver-advertise-address", "fd77::11", "--service-cidr", "10.50.0.0/16"), "fd77::11 is an IPv6 address", "10.50.0.0/16 is an IPv4 range")
	same(t, bare, untouched(t, h))

	run(t, h, "ip", "address", "delete", "10.99.0.21/24", "dev", "eth0")
	install(t, h, 0, "init")
	systemIsUp(t, s, 1)
	contains(t, kubectl(t, s, "get", "service", "-A"), " fd00:10:96::1 ", " fd00:10:96::a ")
	nodes := kubectl(t, s, "get", "nodes", "-o", `jsonpath={.items[*].status.addresses[?(@.type=="InternalIP")].address} {.items[*].spec.podCIDRs}`)
	contains(t, nodes, `fd77::11 ["fd00:10:244::/64"]`)
	contains(t, install(t, h, 0, "init"), "Nothing was changed")
}

// TestDualStack: each node of a dual-stack cluster has an address of each family. A node whose
// address is in a range of the cluster cannot join.
func TestDualStack(t *testing.T) {
	s := up(t, lab.Options{Name: "e2e-dual", Hosts: 2})
	control, worker := s.Hosts[0], s.Hosts[1]
	run(t, control, "ip", "address", "add", "fd77::11/64", "dev", "eth0", "nodad")
	run(t, worker, "ip", "address", "add", "fd77::12/64", "dev", "eth0", "nodad")
	out := install(t, control, 0, "init", "--service-cidr", "10.77.0.16/28,fd00:10:96::/112", "--pod-network-cidr", "10.244.0.0/16,fd00:10:244::/56")
	join, err := site.JoinArgs(out)
	if err != nil {
		t.Fatal(err)
	}
	run(t, worker, "ip", "address", "add", "10.77.0.21/24", "dev", "eth0")
	contains(t, install(t, worker, 3, append(join, "--node-ip", "10.77.0.21")...), "NodeAddress", "10.77.0.21 (interface eth0)", "Service addresses, 10.77.0.16/28", "--node-ip")
	run(t, worker, "ip", "address", "delete", "10.77.0.21/24", "dev", "eth0")
	install(t, worker, 0, join...)
	systemIsUp(t, s, 2)
	addresses := kubectl(t, s, "get", "nodes", "-o", `jsonpath={range .items[*]}{.metadata.name} {.status.addresses[?(@.type=="InternalIP")].address}{"\n"}{end}`)
	if want := "host1 10.77.0.11 fd77::11\nhost2 10.77.0.12 fd77::12"; strings.TrimSpace(addresses) != want {
		t.Errorf("addresses:\n%s\nwant:\n%s", addresses, want)
	}
}
