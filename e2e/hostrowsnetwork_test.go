//go:build e2e

package e2e

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"airlift/scripts/lab"
	"airlift/scripts/lab/site"
)

// withPolkit adds packages that debootstrap does not find by itself, because they only provide
// what polkit depends on.
func withPolkit(packages ...string) lab.Options {
	return lab.Options{ExtraPackages: append(packages, "polkitd", "libpam-systemd")}
}

// withVirtual lets hosts use the virtual address.
func withVirtual(o lab.Options) lab.Options {
	o.Virtual = []netip.Addr{netip.MustParseAddr(virtual)}
	return o
}

// firewallRows are hosts whose rules drop what a node needs. The commands that preflight names
// must be enough.
var firewallRows = []hostRow{
	{
		name: "firewalld", about: "firewalld is active, with its default zone",
		options: withPolkit("firewalld"),
		prepare: "systemctl is-active firewalld; firewall-cmd --state",
		refused: []string{"[ERROR Firewall]", "TCP 10250", "UDP 8472", "firewall-cmd --permanent"}, fixOf: "Firewall",
		state: "firewall-cmd --list-all; firewall-cmd --zone trusted --list-all",
	},
	{
		name: "ufw", about: "ufw is active, with its defaults",
		options: lab.Options{ExtraPackages: []string{"ufw"}},
		prepare: "ufw --force enable",
		refused: []string{"[ERROR Firewall]", "TCP 10250", "UDP 8472", "ufw allow 10250/tcp"}, fixOf: "Firewall",
		state: "ufw status numbered",
	},
	{
		name: "firewalld-vip", about: "firewalld is active; the cluster has a virtual address and a balancer",
		options: withVirtual(withPolkit("firewalld")),
		prepare: "systemctl is-active firewalld; firewall-cmd --state",
		refused: []string{"[ERROR Firewall]", "TCP 10250", "UDP 8472", "firewall-cmd --permanent"}, fixOf: "Firewall",
		init:  []string{"--control-plane-vip", virtual, "--control-plane-balancer"},
		state: "firewall-cmd --list-all; firewall-cmd --zone trusted --list-all",
	},
	{
		name: "ufw-vip", about: "ufw is active; the cluster has a virtual address and a balancer",
		options: withVirtual(lab.Options{ExtraPackages: []string{"ufw"}}),
		prepare: "ufw --force enable",
		refused: []string{"[ERROR Firewall]", "TCP 10250", "UDP 8472", "ufw allow 10250/tcp"}, fixOf: "Firewall",
		init:  []string{"--control-plane-vip", virtual, "--control-plane-balancer"},
		state: "ufw status numbered",
	},
	{
		name: "iptables-drop", about: "iptables: the policy of INPUT and FORWARD is DROP; only loopback and replies are accepted", ci: true,
		prepare: `iptables -A INPUT -i lo -j ACCEPT
			iptables -A INPUT -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
			iptables -P INPUT DROP; iptables -P FORWARD DROP`,
		refused: []string{"[ERROR Firewall]", "TCP 10250", "UDP 8472", "iptables -I INPUT"}, fixOf: "Firewall",
	},
	{
		name: "nftables-drop", about: "nftables without the iptables commands: the policy of input and forward is drop; only replies are accepted, not even loopback",
		options: lab.Options{ExtraPackages: []string{"nftables"}},
		prepare: `dpkg --remove --force-depends iptables
			nft -f - <<'END'
			table inet filter {
				chain input { type filter hook input priority filter; policy drop; ct state established,related accept; }
				chain forward { type filter hook forward priority filter; policy drop; ct state established,related accept; }
			}
END`,
		refused: []string{"[ERROR Firewall]", "TCP 10250", "UDP 8472", "everything from this host itself", "between pods of different nodes", "nft insert rule"}, fixOf: "Firewall",
	},
	{
		name: "no-iptables", about: "no iptables commands, no rules",
		prepare: "dpkg --remove --force-depends iptables; ! command -v iptables",
	},
}

// routeRows differ in their routes and addresses.
var routeRows = []hostRow{
	{
		name: "two-interfaces", about: "two networks, no default route: init requires `--apiserver-advertise-address`",
		options: lab.Options{Interfaces: 2},
		refused: []string{"eth0 10.77.0.", "eth1 10.78.0.", "--apiserver-advertise-address"}, refusedCode: 2, fix: "true",
		init:  []string{"--apiserver-advertise-address", "10.78.0.11"},
		check: nodesAre("host1 10.78.0.11", "host2 10.78.0.12"),
	},
	{
		name: "second-endpoint", about: "two networks; in /etc/hosts, the name of `--control-plane-endpoint` has the address on the second one, and the API server advertises the first",
		options: lab.Options{Interfaces: 2},
		prepare: "echo 10.78.0.11 api.site.example >>/etc/hosts",
		init:    []string{"--apiserver-advertise-address", "10.77.0.11", "--control-plane-endpoint", "api.site.example"},
		check:   nodesAre("host1 10.77.0.11", "host2 10.78.0.12"),
	},
	{
		name: "default-route", about: "a default route to a gateway that does not answer",
		prepare: "ip route add default via 10.77.0.1",
		check:   nodesAre("host1 10.77.0.11", "host2 10.77.0.12"),
	},
	{
		name: "two-defaults", about: "two networks with a default route each, of different metrics: the preferred one decides",
		options: lab.Options{Interfaces: 2},
		prepare: "ip route add default via 10.77.0.1 metric 200; ip route add default via 10.78.0.1 metric 100",
		check:   nodesAre("host1 10.78.0.11", "host2 10.78.0.12"),
	},
	{
		name: "ipv6-only", about: "only IPv6 addresses",
		prepare: "n=$(hostname | tr -d a-z); ip address flush dev eth0 scope global; ip address add fd77::1$n/64 dev eth0 nodad",
		check:   nodesAre("host1 fd77::11", "host2 fd77::12"),
	},
	{
		name: "dual-stack", about: "an address of each family, a dual-stack cluster",
		prepare: "n=$(hostname | tr -d a-z); ip address add fd77::1$n/64 dev eth0 nodad",
		init:    []string{"--service-cidr", "10.96.0.0/16,fd00:10:96::/112", "--pod-network-cidr", "10.244.0.0/16,fd00:10:244::/56"},
		check: func(t *testing.T, s *site.Site) {
			nodesAre("host1 10.77.0.11 fd77::11", "host2 10.77.0.12 fd77::12")(t, s)
			podsReachEachOther(t, s, ":")
		},
	},
}

// nameRows differ in how names are resolved: the names of others, and the host's own.
var nameRows = []hostRow{
	{
		name: "resolved-stub", about: "systemd-resolved: /etc/resolv.conf is its stub; it has a server that does not answer",
		options: lab.Options{ExtraPackages: []string{"systemd-resolved"}},
		prepare: `mkdir -p /etc/systemd/resolved.conf.d; printf '[Resolve]\nDNS=10.77.0.250\n' >/etc/systemd/resolved.conf.d/dns.conf
			systemctl enable systemd-resolved; systemctl restart systemd-resolved
			ln -sf ../run/systemd/resolve/stub-resolv.conf /etc/resolv.conf; grep '^nameserver 127.0.0.53' /etc/resolv.conf`,
	},
	{name: "no-resolv-conf", about: "/etc/resolv.conf is missing", prepare: "rm /etc/resolv.conf"},
	{name: "no-nameserver", about: "/etc/resolv.conf has a search domain and no nameserver", prepare: "echo search site.example >/etc/resolv.conf"},
	{
		name: "no-own-name", about: "the host's name resolves to nothing",
		prepare: "sed -i /127.0.1.1/d /etc/hosts; ! getent hosts $(hostname)",
	},
	{
		name: "capitals", about: "a host name in capitals with a dot",
		prepare: "hostname $(hostname | tr a-z A-Z).Site.Example; hostname >/etc/hostname",
		check:   nodesAre("host1.site.example 10.77.0.11", "host2.site.example 10.77.0.12"),
	},
	{
		name: "proxy", about: "proxy variables in the environment of the commands, to a proxy that does not answer, with the networks in NO_PROXY",
		environment: []string{"HTTP_PROXY=http://10.77.0.250:3128", "HTTPS_PROXY=http://10.77.0.250:3128", "NO_PROXY=10.77.0.0/24,10.96.0.0/12,10.244.0.0/16"},
	},
}

// managerRows differ in what manages the interface. Its restart must not cut the cluster.
var managerRows = []hostRow{
	{
		name: "networkd", about: "systemd-networkd manages the interface; it is restarted while the cluster runs",
		prepare: `n=$(hostname | tr -d a-z)
			mount -o remount,bind,ro /sys # tells systemd that there is no udev
			printf "[Match]\nName=eth0\n[Network]\nAddress=10.77.0.1$n/24\n" >/etc/systemd/network/10-eth0.network
			systemctl enable --now systemd-networkd; /lib/systemd/systemd-networkd-wait-online --timeout 30; networkctl --no-pager status eth0`,
		check: survives("systemctl restart systemd-networkd"),
	},
	{
		name: "wait-online", about: "the network manager waits two minutes for another interface, then network-online.target follows",
		prepare: `printf '[Unit]\nBefore=network-online.target\n[Service]\nType=oneshot\nExecStart=sh -c "sleep 120; exit 1"\n' >/etc/systemd/system/wait-online.service
			systemctl daemon-reload; systemctl add-wants network-online.target wait-online.service`,
	},
	{
		name: "networkmanager", about: "NetworkManager manages the interface; it is restarted while the cluster runs",
		options: withPolkit("network-manager"),
		prepare: `n=$(hostname | tr -d a-z)
			mount -o remount,bind,ro /sys # tells NetworkManager that there is no udev
			systemctl restart NetworkManager
			nmcli connection add type ethernet ifname eth0 con-name site ipv4.method manual ipv4.addresses 10.77.0.1$n/24 ipv6.method disabled
			nmcli connection up site; nmcli device status`,
		check: survives("systemctl restart NetworkManager"),
	},
	{
		name: "ifupdown", about: "ifupdown manages the interface; networking.service is restarted while the cluster runs",
		options: lab.Options{ExtraPackages: []string{"ifupdown"}},
		prepare: `n=$(hostname | tr -d a-z)
			printf "auto lo\niface lo inet loopback\nauto eth0\niface eth0 inet static\n  address 10.77.0.1$n/24\n" >/etc/network/interfaces
			ip -4 address flush dev eth0 # ifupdown fails to add an address that exists
			systemctl restart networking`,
		check: survives("systemctl restart networking"),
	},
}

// nodesAre requires the nodes to have these names and addresses.
func nodesAre(want ...string) func(*testing.T, *site.Site) {
	return func(t *testing.T, s *site.Site) {
		t.Helper()
		got := kubectl(t, s, "get", "nodes", "-o", `jsonpath={range .items[*]}{.metadata.name} {.status.addresses[?(@.type=="InternalIP")].address}{"\n"}{end}`)
		if strings.TrimSpace(got) != strings.Join(want, "\n") {
			t.Errorf("nodes:\n%s\nwant:\n%s", got, strings.Join(want, "\n"))
		}
	}
}

// podsReachEachOther sends requests from the first host to each pod's address that contains a
// string, such as a colon for IPv6.
func podsReachEachOther(t *testing.T, s *site.Site, part string) {
	t.Helper()
	found := 0
	for _, ip := range strings.Fields(kubectl(t, s, "get", "pods", "-l", "app=hello", "-o", "jsonpath={.items[*].status.podIPs[*].ip}")) {
		if !strings.Contains(ip, part) {
			continue
		}
		found++
		for _, h := range s.Hosts {
			run(t, h, "curl", "--silent", "--show-error", "--fail", "--max-time", "10", "http://["+ip+"]:8080/hostname")
		}
	}
	if found != len(s.Hosts) {
		t.Errorf("%d pods have such an address, want %d", found, len(s.Hosts))
	}
}

// survives requires the cluster to work after a script ran on each host: pods across the hosts,
// and Services from the hosts themselves.
func survives(script string) func(*testing.T, *site.Site) {
	return func(t *testing.T, s *site.Site) {
		t.Helper()
		for _, h := range s.Hosts {
			run(t, h, "sh", "-ec", script)
		}
		ip := kubectl(t, s, "get", "service", "hello", "-o", "jsonpath={.spec.clusterIP}")
		eventually(t, time.Minute, func() string {
			for _, h := range s.Hosts {
				if _, err := h.Output(t.Context(), "curl", "--silent", "--show-error", "--fail", "--max-time", "5", "http://"+ip+"/hostname"); err != nil {
					return h.Name + " does not reach the Service: " + err.Error()
				}
			}
			return ""
		})
		pods, err := s.Pods(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		answersAcrossHosts(t, s, pods)
	}
}
