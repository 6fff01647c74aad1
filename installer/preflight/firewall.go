package preflight

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"airlift/childprocess"
	"airlift/installer/config"
	"airlift/installer/host/firewall"
)

// rules are the packet filter rules of a host.
type rules interface {
	Drops(firewall.Packet) ([]firewall.Drop, error)
	HasChain(name string) bool
	Close()
}

// Interfaces and the UDP port of Airlift's pod network.
const (
	podBridge   = "cni0"
	podTunnel   = "flannel.1"
	podTunnel6  = "flannel-v6.1"
	tunnelPort  = 8472
	anySource   = "other hosts"
	podSource   = "pods"
	localSource = "this host itself"
)

// A need is traffic without which a cluster does not work.
type need struct {
	firewall.Packet
	from, of string // where it comes from, and what receives it
	later    bool   // only other control planes need it
}

// what describes the traffic in a message.
func (n need) what() string {
	switch {
	case n.Out != "":
		return "between pods of different nodes"
	case n.Port == 0:
		return "everything from " + n.from
	}
	return fmt.Sprintf("%s %d (%s) from %s", strings.ToUpper(n.Protocol), n.Port, n.of, n.from)
}

// required lists the traffic that must reach this node, and its pods.
func (s networkChecks) required() (list []need) {
	c := s.subject.Config
	for _, ip := range c.NodeIPs() {
		self, anywhere := netip.PrefixFrom(ip, ip.BitLen()), netip.PrefixFrom(ip, 0)
		loopback, tunnel := netip.MustParsePrefix("127.0.0.1/32"), podTunnel
		if ip.Is6() {
			loopback, tunnel = netip.MustParsePrefix("::1/128"), podTunnel6
		}
		to := func(protocol string, port int32, of string) need {
			p := firewall.Packet{In: c.Facts.Interface, From: anywhere, To: self, Protocol: protocol, Port: uint16(port)}
			return need{Packet: p, from: anySource, of: of}
		}
		if s.subject.runsAPIServer() {
			list = append(list, to("tcp", c.LocalAPIEndpoint.BindPort, "API server"))
			for _, a := range c.Endpoint.Addresses() {
				if a.Is4() == ip.Is4() {
					virtual := to("tcp", c.LocalAPIEndpoint.BindPort, "virtual address "+a.String())
					virtual.To = netip.PrefixFrom(a, a.BitLen())
					list = append(list, virtual)
				}
			}
		}
		if s.subject.runsAPIServer() && c.Registry.Used {
			list = append(list, to("tcp", config.RegistryPort, "embedded registry"))
		}
		list = append(list, to("tcp", config.KubeletPort, "kubelet"))
		if s.subject.runsEtcd() {
			for _, port := range []int32{config.EtcdClientPort, config.EtcdPeerPort} {
				etcd := to("tcp", port, "etcd")
				etcd.later = s.subject.Role == Init
				list = append(list, etcd)
			}
		}
		list = append(list, need{Packet: firewall.Packet{In: "lo", From: loopback, To: loopback, Protocol: "tcp"}, from: localSource})
		if c.CNI != "flannel" {
			continue // another pod network uses other ports
		}
		list = append(list, to("udp", tunnelPort, "pod network"))
		if s.subject.runsAPIServer() {
			api := to("tcp", c.LocalAPIEndpoint.BindPort, "API server")
			api.In, api.from = podBridge, podSource
			list = append(list, api)
		}
		for _, way := range [][2]string{{podBridge, podTunnel}, {podTunnel, podBridge}} {
			way = [2]string{strings.Replace(way[0], podTunnel, tunnel, 1), strings.Replace(way[1], podTunnel, tunnel, 1)}
			list = append(list, need{Packet: firewall.Packet{In: way[0], Out: way[1], From: anywhere, To: anywhere, Protocol: "tcp"}, from: podSource})
		}
	}
	return list
}

// firewall reports the traffic that this node needs and that the host's rules
// certainly drop, with the commands that let it pass.
func (s networkChecks) firewall(ctx context.Context) []finding {
	r, err := s.subject.rules()
	if err != nil {
		return warning("no action needed if this host has no firewall", "reading this host's nftables rules: %v", err)
	}
	defer r.Close()
	now, later := blocked{}, blocked{}
	for _, n := range s.required() {
		drops, err := r.Drops(n.Packet)
		if err != nil {
			return warning("no action needed if this host has no firewall", "reading this host's nftables rules: %v", err)
		}
		for _, d := range drops {
			if d.Policy && isIptables(d, "FORWARD") && n.Out != "" {
				continue // flannel adds rules that accept these packets
			}
			if n.later {
				later[d] = append(later[d], n)
			} else {
				now[d] = append(now[d], n)
			}
		}
	}
	found := now.findings("this host's firewall drops traffic that this node needs", s.subject.Rerun, s.opener(ctx, r))
	return append(found, later.findings("this host's firewall drops traffic that other control planes need", true, s.opener(ctx, r))...)
}

// isIptables reports whether iptables-nft created a chain.
func isIptables(d firewall.Drop, chain string) bool {
	return d.Family != "inet" && d.Table == "filter" && d.Chain == chain
}

// blocked has the needs that each chain drops.
type blocked map[firewall.Drop][]need

func (b blocked) findings(summary string, isWarning bool, open func(firewall.Drop, []need) []string) []finding {
	var what, where, commands []string
	temporary := false
	chains := make([]firewall.Drop, 0, len(b))
	for d := range b {
		chains = append(chains, d)
	}
	slices.SortFunc(chains, func(x, y firewall.Drop) int {
		return cmp.Or(cmp.Compare(x.Table, y.Table), cmp.Compare(y.Chain, x.Chain), cmp.Compare(x.Family, y.Family))
	})
	for _, d := range chains {
		for _, n := range b[d] {
			what = appendNew(what, n.what())
		}
		where = appendNew(where, fmt.Sprintf("%s %s %s", d.Family, d.Table, d.Chain))
		for _, command := range open(d, b[d]) {
			commands = appendNew(commands, command)
			temporary = temporary || !strings.HasPrefix(command, "firewall-cmd") && !strings.HasPrefix(command, "ufw")
		}
	}
	if len(what) == 0 {
		return nil
	}
	if slices.ContainsFunc(commands, func(c string) bool { return strings.HasPrefix(c, "firewall-cmd") }) {
		commands = append(commands, "firewall-cmd --reload") // once, after all changes
	}
	fix := strings.Join(commands, " && ")
	if temporary {
		fix += " # until the next boot; also add these rules where this host loads its rules from"
	}
	message := fmt.Sprintf("%s: %s (nftables chain %s)", summary, strings.Join(what, ", "), strings.Join(where, ", "))
	return []finding{{message: message, fix: fix, warning: isWarning}}
}

func appendNew(list []string, s string) []string {
	if slices.Contains(list, s) {
		return list
	}
	return append(list, s)
}

// opener returns the function that lists the commands that let traffic pass a
// chain, with the tool that manages the chain.
func (s networkChecks) opener(ctx context.Context, r rules) func(firewall.Drop, []need) []string {
	return func(d firewall.Drop, list []need) []string {
		if d.Table == "firewalld" {
			return s.openFirewalld(ctx, list)
		}
		tool := "iptables"
		if d.Family == "ip6" {
			tool = "ip6tables"
		}
		iptables := isIptables(d, "INPUT") || isIptables(d, "FORWARD")
		if iptables && r.HasChain("ufw-user-input") && s.subject.fileChecks().inPath("ufw") {
			return openUFW(list)
		}
		if iptables && s.subject.fileChecks().inPath(tool) {
			return openIptables(tool, d.Chain, list)
		}
		return openNftables(d, list)
	}
}

// zoneTimeout limits the time of firewall-cmd.
const zoneTimeout = 10 * time.Second

func (s networkChecks) openFirewalld(ctx context.Context, list []need) []string {
	ctx, cancel := context.WithTimeout(ctx, zoneTimeout)
	defer cancel()
	zone := ""
	// It fails if the interface is in the default zone without being listed there.
	if out, err := childprocess.Command(ctx, "firewall-cmd", "--get-zone-of-interface="+s.subject.Config.Facts.Interface).Output(); err == nil {
		zone = " --zone=" + strings.TrimSpace(string(out))
	}
	var ports []string
	pods := false
	for _, n := range list {
		if n.from == anySource {
			ports = appendNew(ports, fmt.Sprintf(" --add-port=%d/%s", n.Port, n.Protocol))
		} else {
			pods = true
		}
	}
	var commands []string
	if len(ports) > 0 {
		commands = append(commands, "firewall-cmd --permanent"+zone+strings.Join(ports, ""))
	}
	if pods {
		commands = append(commands, "firewall-cmd --permanent --zone=trusted --add-interface="+podBridge+" --add-interface="+podTunnel)
	}
	return commands
}

func openUFW(list []need) (commands []string) {
	for _, n := range list {
		switch {
		case n.Out != "":
			commands = append(commands, "ufw route allow in on "+podBridge, "ufw route allow out on "+podBridge)
		case n.from == anySource:
			commands = append(commands, fmt.Sprintf("ufw allow %d/%s", n.Port, n.Protocol))
		default:
			commands = append(commands, "ufw allow in on "+n.In)
		}
	}
	return commands
}

func openIptables(tool, chain string, list []need) (commands []string) {
	for _, n := range list {
		switch {
		case n.Out != "":
			commands = append(commands, tool+" -I "+chain+" -i "+podBridge+" -j ACCEPT", tool+" -I "+chain+" -o "+podBridge+" -j ACCEPT")
		case n.from == anySource:
			commands = append(commands, fmt.Sprintf("%s -I %s -p %s --dport %d -j ACCEPT", tool, chain, n.Protocol, n.Port))
		default:
			commands = append(commands, tool+" -I "+chain+" -i "+n.In+" -j ACCEPT")
		}
	}
	return commands
}

func openNftables(d firewall.Drop, list []need) (commands []string) {
	insert := fmt.Sprintf("nft insert rule %s %s %s ", d.Family, d.Table, d.Chain)
	for _, n := range list {
		switch {
		case n.Out != "":
			commands = append(commands, insert+"iifname "+podBridge+" accept", insert+"oifname "+podBridge+" accept")
		case n.from == anySource:
			commands = append(commands, fmt.Sprintf("%s%s dport %d accept", insert, n.Protocol, n.Port))
		default:
			commands = append(commands, insert+"iifname "+n.In+" accept")
		}
	}
	return commands
}
