//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"strings"
	"testing"
	"time"

	"airlift/scripts/lab"
	"airlift/scripts/lab/kubeadm"
	"airlift/scripts/lab/site"
)

const virtual6 = "fd77::100"

// dropAll lets a host drop every packet that Kubernetes does not need, of both families. Neighbour discovery is ICMP.
const dropAll = `for filter in iptables ip6tables; do
	$filter -A INPUT -i lo -j ACCEPT
	$filter -A INPUT -m conntrack --ctstate ESTABLISHED,RELATED -j ACCEPT
	$filter -A INPUT -p tcp -m multiport --dports 6443,2379,2380,10250 -j ACCEPT
	$filter -A INPUT -p udp --dport 8472 -j ACCEPT
	$filter -A INPUT -i cni0 -j ACCEPT
	$filter -A INPUT -i flannel.1 -j ACCEPT
done
ip6tables -A INPUT -p ipv6-icmp -j ACCEPT
iptables -P INPUT DROP
ip6tables -P INPUT DROP`

// TestEndpointFamilies: an address of each family, on two interfaces, behind packet filters that drop what is not needed;
// and then IPv6 alone.
func TestEndpointFamilies(t *testing.T) {
	s := up(t, lab.Options{Name: "e2e-vip6", Hosts: 2, Interfaces: 2, Virtual: []netip.Addr{netip.MustParseAddr(virtual)}}) // every address of fd77::/64 is inside
	first, second := s.Hosts[0], s.Hosts[1]
	own := map[*lab.Host]string{first: "fd77::11", second: "fd77::12"}
	bare := map[*lab.Host]string{}
	for _, h := range s.Hosts {
		run(t, h, "ip", "address", "add", own[h]+"/64", "dev", "eth0", "nodad")
		bare[h] = untouched(t, h)
		run(t, h, "sh", "-c", dropAll)
	}
	dual := true
	nodeIPs := func(h *lab.Host) string { // of a host with two interfaces, the user chooses
		if dual {
			return h.Addr.String() + "," + own[h]
		}
		return own[h]
	}
	cluster := func(t *testing.T, addresses []string, balancer string, args ...string) {
		t.Helper()
		args = append([]string{"init", "--apiserver-advertise-address", strings.Split(nodeIPs(first), ",")[0], "--control-plane-vip", strings.Join(addresses, ","), "--control-plane-balancer", "--upload-certs"}, args...)
		out := install(t, first, 0, args...)
		join, err := site.JoinArgs(out)
		if err != nil {
			t.Fatal(err)
		}
		install(t, second, 0, append(join, "--node-ip", nodeIPs(second), "--apiserver-advertise-address", strings.Split(nodeIPs(second), ",")[0], "--control-plane", "--certificate-key", certificateKey(t, out))...)
		systemIsUp(t, s, 2)
		for _, h := range s.Hosts {
			contains(t, install(t, h, 0, "endpoint", "status"), balancer)
			contains(t, run(t, h, "cat", "/etc/kubernetes/kubelet.conf"), "server: https://"+balancer)
		}
		both := func() *lab.Host { return holderOf(t, s.Hosts, addresses...) }
		at := both()
		for _, address := range addresses {
			ready(t, second, netip.AddrPortFrom(netip.MustParseAddr(address), 6443).String())
			ready(t, first, netip.AddrPortFrom(netip.MustParseAddr(address), 6443).String())
		}
		contains(t, install(t, at, 0, "endpoint", "handover"), "Another control plane")
		if both() == at {
			t.Error("the addresses are still there")
		}
		for _, address := range addresses {
			ready(t, at, netip.AddrPortFrom(netip.MustParseAddr(address), 6443).String())
		}
	}
	clean := func(t *testing.T) {
		for _, h := range []*lab.Host{second, first} {
			install(t, h, 0, "reset", "--force")
			run(t, h, "sh", "-c", "iptables -P INPUT ACCEPT; ip6tables -P INPUT ACCEPT; iptables -F INPUT; ip6tables -F INPUT")
			same(t, bare[h], untouched(t, h))
		}
	}
	inOrder(t, s, []stage{
		{"dual-stack behind DROP", func(t *testing.T) {
			cluster(t, []string{virtual, virtual6}, balancer, "--service-cidr", "10.96.0.0/16,fd00:10:96::/112", "--pod-network-cidr", "10.244.0.0/16,fd00:10:244::/56")
		}},
		{"reset", clean},
		{"IPv6 only", func(t *testing.T) {
			dual = false
			for _, h := range s.Hosts {
				run(t, h, "sh", "-c", "ip -4 address flush dev eth0 scope global; ip -4 address flush dev eth1 scope global")
				bare[h] = untouched(t, h)
			}
			contains(t, install(t, first, 3, "init", "--control-plane-vip", "fd99::1"), "fd99::1", "hint: ")
			cluster(t, []string{virtual6}, "[::1]:7443")
		}},
		{"reset of IPv6", clean},
	})
}

// ready waits until an API server answers at an address.
func ready(t *testing.T, from *lab.Host, address string) {
	t.Helper()
	eventually(t, 30*time.Second, func() string {
		ctx, stop := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer stop()
		p := startProbe(ctx, from, address)
		<-p.done
		if p.sent == p.failed {
			return "no answer from " + address
		}
		return ""
	})
}

// TestEndpointKubeadm: real kubeadm joins a cluster with a virtual address through it, as a worker and as a control plane.
func TestEndpointKubeadm(t *testing.T) {
	s := up(t, lab.Options{Name: "e2e-vip-kubeadm", Hosts: 3, Virtual: []netip.Addr{netip.MustParseAddr(virtual)}})
	kit, err := kubeadm.Gather(t.Context(), version, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	own, second, hand := s.Hosts[0], s.Hosts[1], s.Hosts[2]
	for _, h := range s.Hosts {
		run(t, h, "sh", "-c", "echo nameserver "+kubeadm.Nameserver(h)+" >/etc/resolv.conf")
	}
	i := &interop{kit: kit, site: s, own: own, hand: hand}
	inOrder(t, s, []stage{
		{"two control planes of Airlift, and a host prepared by hand", func(t *testing.T) {
			prepared := make(chan error, 1)
			go func() { prepared <- prepareByHand(t.Context(), kit, hand, t.Logf) }()
			// The configuration lets kubeadm's kubelet run on this machine.
			run(t, own, "sh", "-c", "cat >/root/kubeadm.yaml <<'END'\n"+kubeadm.Config(own, kubeadm.ConfigOptions{Version: version, Endpoint: virtual + ":6443"})+"END")
			out := install(t, own, 0, "init", "--config", "/root/kubeadm.yaml", "--control-plane-vip", virtual, "--upload-certs")
			join, err := site.JoinArgs(out)
			if err != nil {
				t.Fatal(err)
			}
			i.join, i.key = join[1:], certificateKey(t, out)
			if i.join[0] != virtual+":6443" {
				t.Errorf("the join command names %s", i.join[0])
			}
			install(t, second, 0, append(join, "--control-plane", "--certificate-key", i.key)...)
			if err := <-prepared; err != nil {
				t.Fatal(err)
			}
		}},
		{"kubeadm joins a worker", func(t *testing.T) {
			i.kubeadmJoin(t)
			nodeIsReady(t, own, hand)
			contains(t, run(t, hand, "cat", "/etc/kubernetes/kubelet.conf"), "server: https://"+virtual+":6443")
			if done, err := kit.Reset(t.Context(), hand); err != nil {
				t.Fatal(err, done.Output)
			}
			forget(t, own, hand)
		}},
		{"kubeadm joins a control plane", func(t *testing.T) {
			i.kubeadmJoin(t, "--control-plane", "--certificate-key", i.key, "--apiserver-advertise-address", hand.Addr.String())
			nodeIsReady(t, own, hand)
			systemIsUp(t, s, 3)
			contains(t, servedNames(t, hand), "\n"+virtual+"\n") // kubeadm found the name in certSANs
		}},
		{"the holder is off, and kubeadm's control plane votes", func(t *testing.T) {
			h := holder(t, []*lab.Host{own, second})
			if err := h.PowerCut(t.Context()); err != nil {
				t.Fatal(err)
			}
			ready(t, hand, virtual+":6443")
			if err := h.Boot(t.Context()); err != nil {
				t.Fatal(err)
			}
			systemIsUp(t, s, 3)
		}},
		{"kubeadm's answers", func(t *testing.T) {
			for _, line := range []string{"kubeadm certs check-expiration", "kubeadm upgrade plan " + version + " --ignore-preflight-errors=" + kit.IgnoredChecks()} {
				out, err := hand.Output(t.Context(), strings.Fields(line)...)
				if err != nil {
					t.Errorf("%s: %v\n%s", line, err, out)
				}
			}
		}},
	})
}

// holderOf waits until exactly one host has all the addresses, and no other host has any, and returns it.
func holderOf(t *testing.T, hosts []*lab.Host, addresses ...string) (found *lab.Host) {
	t.Helper()
	eventually(t, time.Minute, func() string {
		found = nil
		total := 0
		for _, h := range hosts {
			out, count := run(t, h, "ip", "-o", "addr", "show"), 0
			for _, a := range addresses {
				addr := netip.MustParseAddr(a)
				if strings.Contains(out, fmt.Sprintf(" %s/%d ", a, addr.BitLen())) {
					count++
				}
			}
			if total += count; count == len(addresses) {
				found = h
			}
		}
		if found == nil || total != len(addresses) {
			return fmt.Sprintf("%d of %d addresses are on hosts", total, len(addresses))
		}
		return ""
	})
	t.Logf("%s has %s", found.Name, strings.Join(addresses, ", "))
	return found
}
