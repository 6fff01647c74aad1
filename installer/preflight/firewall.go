package preflight

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"airlift/installer/config"
)

// Interfaces and the UDP port of Airlift's pod network.
const (
	podBridge  = "cni0"
	podTunnel  = "flannel.1"
	podTunnel6 = "flannel-v6.1"
	tunnelPort = 8472
	anySource  = "other hosts"
)

// A need is traffic without which a cluster does not work.
type need struct {
	ipv6     bool
	in, out  string // interfaces; out is empty for a packet to this host
	protocol string
	port     int    // 0 for any
	from, of string // where it comes from, and what receives it
	later    bool   // only other control planes need it
}

// what describes the traffic in a message.
func (n need) what() string {
	switch {
	case n.out != "":
		return "between pods of different nodes"
	case n.port == 0:
		return "everything from " + n.from
	}
	return fmt.Sprintf("%s %d (%s) from %s", strings.ToUpper(n.protocol), n.port, n.of, n.from)
}

// required lists the traffic that must reach this node, and its pods.
func (s *subject) required() (list []need) {
	c := s.Config
	for _, ip := range c.NodeIPs() {
		tunnel := podTunnel
		if ip.Is6() {
			tunnel = podTunnel6
		}
		to := func(protocol string, port int32, of string) need {
			return need{ipv6: ip.Is6(), in: c.Facts.Interface, protocol: protocol, port: int(port), from: anySource, of: of}
		}
		if s.runsAPIServer() {
			list = append(list, to("tcp", c.LocalAPIEndpoint.BindPort, "API server"))
		}
		if s.runsAPIServer() && c.Registry.Used {
			list = append(list, to("tcp", config.RegistryPort, "embedded registry"))
		}
		list = append(list, to("tcp", config.KubeletPort, "kubelet"))
		if s.runsEtcd() {
			for _, port := range []int32{config.EtcdClientPort, config.EtcdPeerPort} {
				etcd := to("tcp", port, "etcd")
				etcd.later = s.Role == Init
				list = append(list, etcd)
			}
		}
		list = append(list, need{ipv6: ip.Is6(), in: "lo", protocol: "tcp", from: "this host itself"})
		if c.CNI != "flannel" {
			continue // another pod network uses other ports
		}
		list = append(list, to("udp", tunnelPort, "pod network"))
		if s.runsAPIServer() {
			api := to("tcp", c.LocalAPIEndpoint.BindPort, "API server")
			api.in, api.from = podBridge, "pods"
			list = append(list, api)
		}
		for _, way := range [][2]string{{podBridge, tunnel}, {tunnel, podBridge}} {
			list = append(list, need{ipv6: ip.Is6(), in: way[0], out: way[1], protocol: "tcp", from: "pods"})
		}
	}
	return list
}

// A barrier drops traffic: a chain, or a firewall that manages its own.
type barrier struct {
	name    string
	dropped []need
	open    func([]need) []string // returns the commands that let traffic pass
}

// firewall reports the traffic that this node needs and that the host's rules drop, with the commands
// that let it pass. firewalld is asked for its zones. Of other rules, a chain is reported if it drops
// what no rule accepts, and no rule in it can accept the traffic.
func (s *subject) firewall(ctx context.Context) (found []Problem) {
	needs := s.required()
	barriers, err := s.chainBarriers(ctx, needs)
	firewalld, firewalldErr := s.firewalldBarriers(ctx, needs)
	barriers = append(barriers, firewalld...)
	if err := errors.Join(err, firewalldErr); err != nil {
		found = []Problem{{Message: fmt.Sprintf("reading this host's packet filter rules: %v", err), Fix: "no action needed if this host has no firewall", Warning: true, Minor: true}}
	}
	found = append(found, blocked(barriers, false, "this host's firewall drops traffic that this node needs", s.Rerun)...)
	return append(found, blocked(barriers, true, "this host's firewall drops traffic that other control planes need", true)...)
}

// blocked returns a finding if traffic is dropped that is needed now, or later.
func blocked(barriers []barrier, later bool, summary string, isWarning bool) []Problem {
	var what, where, commands []string
	for _, b := range barriers {
		dropped := slices.DeleteFunc(slices.Clone(b.dropped), func(n need) bool { return n.later != later })
		if len(dropped) == 0 {
			continue
		}
		for _, n := range dropped {
			what = appendNew(what, n.what())
		}
		where = appendNew(where, b.name)
		commands = appendNew(commands, b.open(dropped)...)
	}
	if len(what) == 0 {
		return nil
	}
	fix := strings.Join(commands, " && ")
	if slices.ContainsFunc(commands, func(c string) bool { return !strings.HasPrefix(c, "firewall-cmd") && !strings.HasPrefix(c, "ufw") }) {
		fix += " # until the next boot; also add these rules where this host loads its rules from"
	}
	return []Problem{{Message: fmt.Sprintf("%s: %s (%s)", summary, strings.Join(what, ", "), strings.Join(where, ", ")), Fix: fix, Warning: isWarning}}
}

func appendNew(list []string, items ...string) []string {
	for _, item := range items {
		if !slices.Contains(list, item) {
			list = append(list, item)
		}
	}
	return list
}

// An opening has the commands that let traffic pass a chain.
type opening struct {
	port, from string // PROTOCOL, PORT and INTERFACE of the traffic
	forward    []string
}

func (o opening) commands(list []need) (commands []string) {
	for _, n := range list {
		command := o.from
		if n.from == anySource {
			command = o.port
		}
		command = strings.NewReplacer("PROTOCOL", n.protocol, "PORT", strconv.Itoa(n.port), "INTERFACE", n.in).Replace(command)
		if n.out != "" {
			commands = append(commands, o.forward...)
		} else {
			commands = append(commands, command)
		}
	}
	return commands
}

// openingOf returns the commands for a chain, with the tool that manages it.
func (s *subject) openingOf(name chainName, ufw bool) opening {
	tool := map[string]string{"ip": "iptables", "ip6": "ip6tables"}[name.family]
	switch {
	case name.isIptables() && ufw:
		return opening{"ufw allow PORT/PROTOCOL", "ufw allow in on INTERFACE", []string{"ufw route allow in on " + podBridge, "ufw route allow out on " + podBridge}}
	case name.isIptables() && s.inPath(tool):
		add := tool + " -I " + name.chain + " "
		return opening{add + "-p PROTOCOL --dport PORT -j ACCEPT", add + "-i INTERFACE -j ACCEPT", []string{add + "-i " + podBridge + " -j ACCEPT", add + "-o " + podBridge + " -j ACCEPT"}}
	}
	add := "nft insert rule " + name.String() + " "
	return opening{add + "PROTOCOL dport PORT accept", add + "iifname INTERFACE accept", []string{add + "iifname " + podBridge + " accept", add + "oifname " + podBridge + " accept"}}
}

// chainBarriers returns the chains that drop traffic.
func (s *subject) chainBarriers(ctx context.Context, needs []need) (list []barrier, err error) {
	chains, err := s.readChains(ctx)
	out, _ := s.run(ctx, "ufw", "status", "verbose") // if it fails, the commands of iptables do
	ufw, rejects := strings.Contains(string(out), "Status: active"), strings.Contains(string(out), "reject (routed)")
	for name, chain := range chains {
		b := barrier{name: "chain " + name.String(), open: s.openingOf(name, ufw).commands}
		for _, n := range needs {
			hook := "input"
			if n.out != "" {
				hook = "forward"
			}
			flannels := hook == "forward" && name.isIptables() && !rejects && !chain.last // flannel appends rules to this chain
			if chain.hook == hook && !flannels && !(chain.last && chains.isFirewallds(name)) && name.family != map[bool]string{true: "ip", false: "ip6"}[n.ipv6] && !chains.mayAccept(name, n) {
				b.dropped = append(b.dropped, n)
			}
		}
		list = append(list, b)
	}
	slices.SortFunc(list, func(a, b barrier) int { return cmp.Compare(b.name, a.name) }) // input before forward
	return list, err
}
