package preflight

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"airlift/installer/config"
	"airlift/installer/host/firewall"
)

// dropping are rules that drop some packets, in a chain for each hook.
type dropping struct {
	input, forward firewall.Drop
	drops          func(firewall.Packet) bool
	chains         []string
}

func (d dropping) Drops(p firewall.Packet) ([]firewall.Drop, error) {
	switch {
	case d.drops == nil || !d.drops(p):
		return nil, nil
	case p.Out != "":
		return []firewall.Drop{d.forward}, nil
	}
	return []firewall.Drop{d.input}, nil
}
func (d dropping) HasChain(name string) bool { return slices.Contains(d.chains, name) }
func (dropping) Close()                      {}

func TestFirewall(t *testing.T) {
	everything := func(p firewall.Packet) bool { return true }
	fromOutside := func(p firewall.Packet) bool { return p.In == "eth0" }
	iptables := dropping{input: firewall.Drop{Family: "ip", Table: "filter", Chain: "INPUT", Policy: true}, forward: firewall.Drop{Family: "ip", Table: "filter", Chain: "FORWARD", Policy: true}}
	nft := dropping{input: firewall.Drop{Family: "inet", Table: "filter", Chain: "input", Policy: true}, forward: firewall.Drop{Family: "inet", Table: "filter", Chain: "forward", Policy: true}}
	virtual := netip.MustParseAddr("10.1.0.100")
	firewalld := dropping{input: firewall.Drop{Family: "inet", Table: "firewalld", Chain: "filter_INPUT"}, forward: firewall.Drop{Family: "inet", Table: "firewalld", Chain: "filter_FORWARD"}}
	for _, c := range []struct {
		name      string
		role      Role
		rules     dropping
		drops     func(firewall.Packet) bool
		cni       string
		tools     string
		says, fix []string
		never     string
	}{
		{name: "iptables", role: Init, rules: iptables, drops: everything, cni: "flannel", tools: "iptables",
			says:  []string{"TCP 6443 (API server) from other hosts", "TCP 10250 (kubelet)", "UDP 8472 (pod network)", "TCP 6443 (API server) from pods", "everything from this host itself"},
			fix:   []string{"iptables -I INPUT -p tcp --dport 6443 -j ACCEPT && ", "iptables -I INPUT -p udp --dport 8472 -j ACCEPT", "iptables -I INPUT -i cni0 -j ACCEPT", "iptables -I INPUT -i lo -j ACCEPT", " # until the next boot"},
			never: "FORWARD"}, // flannel accepts there
		{name: "iptables without its command", role: Join, rules: iptables, drops: fromOutside, cni: "flannel",
			says: []string{"TCP 10250"}, fix: []string{"nft insert rule ip filter INPUT tcp dport 10250 accept"}, never: "6443"},
		{name: "only the virtual address", role: Init, rules: iptables, drops: func(p firewall.Packet) bool { return p.To.Addr() == virtual || p.Port == config.EtcdClientPort }, cni: "flannel", tools: "iptables",
			says: []string{"needs: TCP 6443 (virtual address 10.1.0.100) from other hosts (nftables"}, fix: []string{"iptables -I INPUT -p tcp --dport 6443 -j ACCEPT"}, never: "API server"},
		{name: "only the embedded registry", role: JoinControlPlane, rules: iptables, drops: func(p firewall.Packet) bool { return p.Port == config.RegistryPort }, cni: "flannel", tools: "iptables",
			says: []string{"needs: TCP 7444 (embedded registry) from other hosts (nftables"}, fix: []string{"iptables -I INPUT -p tcp --dport 7444 -j ACCEPT"}, never: "API server"},
		{name: "nftables", role: Init, rules: nft, drops: everything, cni: "flannel",
			says: []string{"between pods of different nodes", "nftables chain inet filter input, inet filter forward"},
			fix:  []string{"nft insert rule inet filter input tcp dport 6443 accept", "nft insert rule inet filter forward iifname cni0 accept", "nft insert rule inet filter forward oifname cni0 accept"}},
		{name: "another pod network", role: Join, rules: nft, drops: everything, cni: "none",
			says: []string{"TCP 10250"}, fix: []string{"dport 10250"}, never: "cni0"},
		{name: "firewalld", role: Init, rules: firewalld, drops: func(p firewall.Packet) bool { return p.In != "lo" }, cni: "flannel",
			fix: []string{"firewall-cmd --permanent --add-port=6443/tcp --add-port=10250/tcp --add-port=8472/udp && ", "firewall-cmd --permanent --zone=trusted --add-interface=cni0 --add-interface=flannel.1 && ", "firewall-cmd --reload"}, never: "#"},
		{name: "firewalld drops in two chains", role: Join, rules: firewalld, drops: func(p firewall.Packet) bool { return p.In != "lo" }, cni: "flannel",
			fix: []string{"firewall-cmd --permanent --add-port=10250/tcp --add-port=8472/udp && firewall-cmd --permanent --zone=trusted --add-interface=cni0 --add-interface=flannel.1 && firewall-cmd --reload"}},
		{name: "ufw", role: Join, rules: dropping{input: iptables.input, forward: firewall.Drop{Family: "ip", Table: "filter", Chain: "FORWARD"}, chains: []string{"ufw-user-input"}},
			drops: func(p firewall.Packet) bool { return p.In != "lo" }, cni: "flannel", tools: "iptables ufw",
			fix: []string{"ufw allow 10250/tcp && ", "ufw allow 8472/udp", "ufw route allow in on cni0", "ufw route allow out on cni0"}, never: "iptables -I"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := healthy(t)
			s.Role, s.Config.CNI, s.Config.LocalAPIEndpoint.BindPort, s.Config.Facts.Interface = c.role, c.cni, 6443, "eth0"
			s.Config.Registry.Used = strings.Contains(c.name, "registry")
			s.Config.Endpoint.VIPs = []string{virtual.String(), "fd01::100"}
			if !strings.Contains(c.tools, "iptables") {
				remove(t, s, "/sbin/iptables")
			}
			if strings.Contains(c.tools, "ufw") {
				write(t, s.Root, "/usr/sbin/ufw", "")
			}
			c.rules.drops = c.drops
			s.rules = func() (rules, error) { return c.rules, nil }
			found := s.runOne(t, "Firewall")
			if len(found) == 0 || found[0].warning {
				t.Fatalf("%+v", found)
			}
			for _, want := range c.says {
				if !strings.Contains(found[0].message, want) {
					t.Errorf("%q is not in %q", want, found[0].message)
				}
			}
			for _, want := range c.fix {
				if !strings.Contains(found[0].fix, want) {
					t.Errorf("%q is not in %q", want, found[0].fix)
				}
			}
			if c.never != "" && strings.Contains(found[0].message+found[0].fix, c.never) {
				t.Errorf("%q is in %q, %q", c.never, found[0].message, found[0].fix)
			}
			if etcd := len(found) == 2 && found[1].warning && strings.Contains(found[1].fix, "2379"); etcd != (c.role == Init) {
				t.Errorf("etcd's ports: %+v", found)
			}
			s.Rerun = true
			for _, f := range s.runOne(t, "Firewall") {
				if !f.warning {
					t.Errorf("an error on a running node: %+v", f)
				}
			}
		})
	}
}
