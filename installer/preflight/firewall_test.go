package preflight

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"airlift/installer/config"
	"airlift/scripts/fixtures/rig"
	_ "airlift/scripts/fixtures/seed"
)

// printing runs no command: it returns texts, by command lines. A command without a text is not on the host;
// a text that begins with FAILED is its error.
func printing(texts map[string]string) func(context.Context, string, ...string) ([]byte, error) {
	return func(_ context.Context, name string, args ...string) ([]byte, error) {
		text, ok := texts[strings.Join(append([]string{name}, args...), " ")]
		switch {
		case !ok:
			return nil, errNoCommand
		case strings.HasPrefix(text, "FAILED"):
			return nil, fmt.Errorf("%s", text)
		}
		return []byte(text), nil
	}
}

// What commands print on hosts.
const (
	iptablesDrop = `*nat
:INPUT DROP [0:0]
COMMIT
*filter
:INPUT DROP [0:0]
:FORWARD DROP [0:0]
:OUTPUT ACCEPT [0:0]
-A INPUT -i lo -j ACCEPT
-A INPUT -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
COMMIT
`
	nftablesDrop = `{"nftables": [{"metainfo": {"version": "1.0.6", "json_schema_version": 1}}, {"table": {"family": "inet", "name": "filter", "handle": 1}},
		{"chain": {"family": "inet", "table": "filter", "name": "input", "handle": 1, "type": "filter", "hook": "input", "prio": 0, "policy": "drop"}},
		{"chain": {"family": "inet", "table": "filter", "name": "forward", "handle": 2, "type": "filter", "hook": "forward", "prio": 0, "policy": "drop"}},
		{"rule": {"family": "inet", "table": "filter", "chain": "input", "handle": 3, "expr": [{"match": {"op": "in", "left": {"ct": {"key": "state"}}, "right": ["established", "related"]}}, {"accept": null}]}},
		{"rule": {"family": "inet", "table": "filter", "chain": "forward", "handle": 4, "expr": [{"match": {"op": "in", "left": {"ct": {"key": "state"}}, "right": ["established", "related"]}}, {"accept": null}]}}]}`
	firewalldZones = `public (default, active)
  target: default
  icmp-block-inversion: no
  interfaces: %s
  sources: 
  services: dhcpv6-client ssh %s
  ports: 6443/tcp %s
  protocols: 
  forward: yes
  rich rules: 
	%s

trusted%s
  target: ACCEPT
  interfaces: %s
  sources: %s
  services: 
  rich rules: 
`
)

func firewalld(eth, services, ports, rich, cni, sources string) map[string]string {
	active := ""
	if cni+sources != "" {
		active = " (active)"
	}
	service := func(name, ports, includes string) string {
		return name + "\n  ports: " + ports + "\n  protocols: \n  destination: \n  includes: " + includes + "\n  helpers: \n"
	}
	return map[string]string{
		"firewall-cmd --state": "running\n", "firewall-cmd --get-default-zone": "public\n",
		"firewall-cmd --list-all-zones":              fmt.Sprintf(firewalldZones, eth, services, ports, rich, active, cni, sources),
		"firewall-cmd --info-service=ssh":            service("ssh", "22/tcp", ""),
		"firewall-cmd --info-service=dhcpv6-client":  service("dhcpv6-client", "546/udp", ""),
		"firewall-cmd --info-service=kube-worker":    service("kube-worker", "30000-32767/tcp", "kubelet-worker"),
		"firewall-cmd --info-service=kubelet-worker": service("kubelet-worker", "10250/tcp", ""),
	}
}

// iptablesServices is what the package iptables-services of RHEL loads by default.
const iptablesServices = `*filter
:INPUT ACCEPT [0:0]
:FORWARD ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
-A INPUT -m state --state RELATED,ESTABLISHED -j ACCEPT
-A INPUT -p icmp -j ACCEPT
-A INPUT -i lo -j ACCEPT
-A INPUT -p tcp -m state --state NEW -m tcp --dport 22 -j ACCEPT
-A INPUT -j REJECT --reject-with icmp-host-prohibited
-A FORWARD -j REJECT --reject-with icmp-host-prohibited
COMMIT
`

// nftablesLast accepts by its policy, and its last rule drops.
const nftablesLast = `{"nftables": [{"chain": {"family": "inet", "table": "filter", "name": "input", "hook": "input", "policy": "accept"}},
	{"rule": {"family": "inet", "table": "filter", "chain": "input", "expr": [{"match": {"op": "==", "left": {"payload": {"protocol": "tcp", "field": "dport"}}, "right": 22}}, {"accept": null}]}},
	{"rule": {"family": "inet", "table": "filter", "chain": "input", "expr": [{"counter": {"packets": 0, "bytes": 0}}, {"drop": null}]}}]}`

// firewalldTrusts is a firewalld whose default zone accepts all.
var firewalldTrusts = map[string]string{"firewall-cmd --state": "running\n", "firewall-cmd --get-default-zone": "trusted\n",
	"firewall-cmd --list-all-zones": "trusted\n  target: ACCEPT\n  interfaces: \n  sources: \n  services: \n  ports: \n  protocols: \n  rich rules: \n"}

func TestFirewall(t *testing.T) {
	ufwRules, err := os.ReadFile("testdata/ufw.rules")
	if err != nil {
		t.Fatal(err)
	}
	ufw := func(routed, more string) map[string]string {
		return map[string]string{"iptables-save": strings.Replace(string(ufwRules), "COMMIT", more+"COMMIT", 1),
			"ufw status verbose": "Status: active\nLogging: on (low)\nDefault: deny (incoming), allow (outgoing), " + routed + " (routed)\nNew profiles: skip\n"}
	}
	for _, c := range []struct {
		name      string
		role      Role
		prints    map[string]string
		cni       string
		tools     string
		says, fix []string
		never     string
	}{
		{name: "iptables", role: Init, prints: map[string]string{"iptables-save": strings.Replace(iptablesDrop, "-A INPUT -i lo -j ACCEPT\n", "", 1)}, cni: "flannel", tools: "iptables",
			says:  []string{"TCP 6443 (API server) from other hosts", "TCP 10250 (kubelet)", "UDP 8472 (pod network)", "TCP 6443 (API server) from pods", "everything from this host itself", "(chain ip filter INPUT)"},
			fix:   []string{"iptables -I INPUT -p tcp --dport 6443 -j ACCEPT && ", "iptables -I INPUT -p udp --dport 8472 -j ACCEPT", "iptables -I INPUT -i cni0 -j ACCEPT", "iptables -I INPUT -i lo -j ACCEPT", " # until the next boot"},
			never: "FORWARD"}, // flannel accepts there
		{name: "iptables without its command", role: Join, prints: map[string]string{"iptables-save": iptablesDrop}, cni: "flannel",
			says: []string{"TCP 10250"}, fix: []string{"nft insert rule ip filter INPUT tcp dport 10250 accept"}, never: "6443"},
		{name: "only the embedded registry", role: JoinControlPlane, prints: map[string]string{"iptables-save": strings.Replace(iptablesDrop, "COMMIT", "-A INPUT -p udp -j ACCEPT\n-A INPUT -p tcp -m multiport --dports 2379:2380,6443,10250 -j ACCEPT\nCOMMIT", 2)}, cni: "flannel", tools: "iptables",
			says: []string{"needs: TCP 7444 (embedded registry) from other hosts (chain"}, fix: []string{"iptables -I INPUT -p tcp --dport 7444 -j ACCEPT"}, never: "API server"},
		{name: "the last rule of iptables-services", role: Init, prints: map[string]string{"iptables-save": iptablesServices}, cni: "flannel", tools: "iptables",
			says: []string{"TCP 6443 (API server) from other hosts", "between pods of different nodes", "(chain ip filter INPUT, chain ip filter FORWARD)"}, fix: []string{"iptables -I INPUT -p tcp --dport 6443 -j ACCEPT"}, never: "from this host itself"},
		{name: "the last rule of nftables", role: Join, prints: map[string]string{"nft -j list ruleset": nftablesLast}, cni: "none",
			says: []string{"TCP 10250"}, fix: []string{"nft insert rule inet filter input tcp dport 10250 accept"}},
		{name: "nftables", role: Init, prints: map[string]string{"nft -j list ruleset": nftablesDrop}, cni: "flannel",
			says: []string{"between pods of different nodes", "chain inet filter input, chain inet filter forward"},
			fix:  []string{"nft insert rule inet filter input tcp dport 6443 accept", "nft insert rule inet filter forward iifname cni0 accept", "nft insert rule inet filter forward oifname cni0 accept"}},
		{name: "another pod network", role: Join, prints: map[string]string{"nft -j list ruleset": nftablesDrop}, cni: "none",
			says: []string{"TCP 10250"}, fix: []string{"dport 10250"}, never: "cni0"},
		{name: "firewalld", role: Init, prints: firewalld("", "", "", "", "", ""), cni: "flannel", says: []string{"TCP 10250", "(firewalld, zone public)"},
			fix:   []string{"firewall-cmd --permanent --add-port=10250/tcp --add-port=8472/udp && firewall-cmd --permanent --zone=trusted --add-interface=cni0 --add-interface=flannel.1 && firewall-cmd --reload"},
			never: "#"},
		{name: "firewalld, a service", role: Join, prints: firewalld("eth0", "kube-worker", "", "", "", ""), cni: "flannel",
			fix: []string{"firewall-cmd --permanent --zone=public --add-port=8472/udp && "}, never: "10250"},
		{name: "ufw", role: Join, prints: ufw("disabled", ""), cni: "flannel", tools: "iptables", says: []string{"TCP 10250", "UDP 8472"},
			fix: []string{"ufw allow 10250/tcp && ufw allow 8472/udp"}, never: "iptables -I"},
		{name: "ufw rejects what it routes", role: Join, prints: ufw("reject", "-A ufw-reject-forward -j REJECT\n-A ufw-user-input -p tcp -m tcp --dport 10250 -j ACCEPT\n"), cni: "flannel", tools: "iptables",
			fix: []string{"ufw allow 8472/udp", "ufw route allow in on cni0", "ufw route allow out on cni0"}, never: "10250"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := healthy(t)
			s.Role, s.Config.CNI, s.Config.LocalAPIEndpoint.BindPort, s.Config.Facts.Interface = c.role, c.cni, 6443, "eth0"
			s.Config.Registry.Used = strings.Contains(c.name, "registry")
			if c.tools == "" {
				remove(t, s, "/sbin/iptables")
			}
			s.run = printing(c.prints)
			found := s.runOne(t, "Firewall")
			if len(found) == 0 || found[0].Warning {
				t.Fatalf("%+v", found)
			}
			for _, want := range c.says {
				if !strings.Contains(found[0].Message, want) {
					t.Errorf("%q is not in %q", want, found[0].Message)
				}
			}
			for _, want := range c.fix {
				if !strings.Contains(found[0].Fix, want) {
					t.Errorf("%q is not in %q", want, found[0].Fix)
				}
			}
			if c.never != "" && strings.Contains(found[0].Message+found[0].Fix, c.never) {
				t.Errorf("%q is in %q, %q", c.never, found[0].Message, found[0].Fix)
			}
			if etcd := len(found) == 2 && found[1].Warning && strings.Contains(found[1].Fix, "2379"); etcd != (c.role == Init) {
				t.Errorf("etcd's ports: %+v", found)
			}
			s.Rerun = true
			for _, f := range s.runOne(t, "Firewall") {
				if !f.Warning {
					t.Errorf("an error on a running node: %+v", f)
				}
			}
		})
	}
}

// TestOpenFirewall: what may accept the traffic is not reported.
func TestOpenFirewall(t *testing.T) {
	for name, prints := range map[string]map[string]string{
		"nothing":                           {},
		"a policy that accepts":             {"iptables-save": strings.ReplaceAll(iptablesDrop, " DROP ", " ACCEPT ")},
		"the site's network":                {"iptables-save": strings.ReplaceAll(iptablesDrop, "-i lo", "-s 10.0.0.0/8")},
		"an interface":                      {"iptables-save": strings.Replace(iptablesDrop, "-i lo", "-i eth+ -j ACCEPT\n-A INPUT -i lo", 1), "ip6tables-save": iptablesDrop},
		"a chain of the site":               {"iptables-save": strings.Replace(iptablesDrop, "-A INPUT -i lo -j ACCEPT", ":SITE - [0:0]\n-A SITE -j ACCEPT\n-A INPUT -m comment --comment \"a -j DROP \\\" b\" -g SITE", 1)},
		"a chain in a map":                  {"nft -j list ruleset": strings.Replace(nftablesDrop, `{"accept": null}]}}]}`, `{"accept": null}]}}, {"rule": {"family": "inet", "table": "filter", "chain": "input", "expr": [{"vmap": {"key": {"meta": {"key": "iifname"}}, "data": {"set": [["lo", {"accept": null}], ["eth0", {"goto": {"target": "site"}}]]}}}]}}, {"rule": {"family": "inet", "table": "filter", "chain": "site", "expr": [{"match": {"op": "==", "left": {"payload": {"protocol": "tcp", "field": "dport"}}, "right": {"set": [22, {"range": [10000, 11000]}]}}}, {"accept": null}]}}, {"rule": {"family": "inet", "table": "filter", "chain": "site", "expr": [{"match": {"op": "==", "left": {"payload": {"protocol": "udp", "field": "dport"}}, "right": "@open"}}, {"accept": null}]}}]}`, 1)},
		"chains of firewalld":               {"nft -j list ruleset": strings.ReplaceAll(nftablesLast, `"filter"`, `"firewalld"`), "iptables-save": strings.Replace(iptablesServices, "COMMIT", ":INPUT_ZONES - [0:0]\n:FORWARD_ZONES - [0:0]\nCOMMIT", 1)},
		"firewalld is off":                  {"firewall-cmd --state": "FAILED"},
		"ports of firewalld":                firewalld("eth0", "", "10000-11000/tcp 8472/udp", "", "", ""),
		"a rich rule of firewalld":          firewalld("eth0", "", "", `rule family="ipv4" source address="10.0.0.0/8" accept`, "", ""),
		"sources of a zone that is trusted": firewalld("", "", "", "", "", "10.0.0.0/8"),
	} {
		s := healthy(t)
		s.Role, s.Config.CNI, s.Config.Facts.Interface = Join, "none", "eth0"
		s.run = printing(prints)
		if found := s.runOne(t, "Firewall"); len(found) > 0 {
			t.Errorf("%s: %+v", name, found)
		}
	}
	s := healthy(t)
	s.Config.Facts.Interface, s.Config.CNI = "eth0", "flannel"
	s.run = printing(firewalld("eth0", "", "10250/tcp 8472/udp 2379-2380/tcp "+fmt.Sprint(s.Config.LocalAPIEndpoint.BindPort)+"/tcp", "", "cni0 flannel.1", ""))
	if found := s.runOne(t, "Firewall"); len(found) > 0 {
		t.Errorf("after the commands of the fix: %+v", found)
	}
	s.run = printing(firewalldTrusts)
	if found := s.runOne(t, "Firewall"); len(found) > 0 {
		t.Errorf("firewalld trusts all, also between pods: %+v", found)
	}
	s.run = printing(map[string]string{"nft -j list ruleset": "FAILED"})
	if found := s.runOne(t, "Firewall"); len(found) != 1 || !found[0].Minor || !strings.Contains(found[0].Message, "FAILED") {
		t.Errorf("rules that cannot be read: %+v", found)
	}
}

// TestPacketRules writes random rules into the kernel. Read from nft and from iptables-save, they accept the same; nft does not
// print everything of a rule of iptables, and then it may accept more.
func TestPacketRules(t *testing.T) {
	rig.Root(t)
	rig.Tool(t, "nft")
	rig.Tool(t, "iptables-nft-restore")
	rapid.Check(t, func(t *rapid.T) {
		pick := func(name string, choices ...string) string { return rapid.SampledFrom(choices).Draw(t, name) }
		rules := "*filter\n:INPUT DROP [0:0]\n:SITE - [0:0]\n:MORE - [0:0]\n"
		for range rapid.IntRange(0, 6).Draw(t, "rules") {
			protocol := pick("protocol", "", "-p tcp ", "-p udp ")
			rule := "-A " + pick("chain", "INPUT", "SITE", "MORE") + " " + pick("interface", "", "", "-i lo ", "-i eth0 ", "-i eth+ ", "! -i eth0 ") + protocol
			if protocol != "" {
				rule += pick("port", "", "--dport 6443 ", "--dport 10000:11000 ", "! --dport 6443 ", "-m multiport --dports 22,10250,8000:9000 ")
			}
			rule += pick("state", "", "", "-m conntrack --ctstate NEW ", "-m conntrack --ctstate RELATED,ESTABLISHED ")
			rules += rule + "-j " + pick("verdict", "ACCEPT", "ACCEPT", "DROP", "RETURN") + "\n"
		}
		rules += "-A INPUT -j SITE\n-A SITE -p tcp -g MORE\nCOMMIT\n"
		command := exec.Command("unshare", "-n", "sh", "-ec", "iptables-nft-restore; nft -j list ruleset; iptables-nft-save")
		command.Stdin = strings.NewReader(rules)
		out, err := command.Output()
		if err != nil {
			t.Fatalf("%v\n%s", err, rules)
		}
		json, save, _ := strings.Cut(string(out), "\n")
		saved, listed := packetChains{}, packetChains{}
		saved.addIptables("ip", save)
		if err := listed.addNftables([]byte(json)); err != nil {
			t.Fatal(err)
		}
		input := chainName{"ip", "filter", "INPUT"}
		if saved[input].hook != "input" || listed[input].hook != "input" {
			t.Fatalf("%+v, %+v", saved, listed)
		}
		opaque := strings.Contains(rules, "multiport") || strings.Contains(rules, "conntrack")
		for _, n := range []need{{in: "eth0", protocol: "tcp", port: 6443}, {in: "eth0", protocol: "tcp", port: 10250}, {in: "eth0", protocol: "udp", port: 8472}, {in: "lo", protocol: "tcp"}} {
			if a, b := saved.mayAccept(input, n), listed.mayAccept(input, n); a != b && (a || !opaque) {
				t.Errorf("%+v: iptables-save: %v, nft: %v\n%s", n, a, b, rules)
			}
		}
	})
}

// TestNftablesRules: what a rule of nft restricts.
func TestNftablesRules(t *testing.T) {
	state := func(right string) string {
		return `[{"match": {"op": "==", "left": {"ct": {"key": "state"}}, "right": ` + right + `}}, {"accept": null}]`
	}
	match := func(left, right string) string {
		return `[{"match": {"op": "==", "left": ` + left + `, "right": ` + right + `}}, {"accept": null}]`
	}
	const dport = `{"payload": {"protocol": "tcp", "field": "dport"}}`
	for rule, accepts := range map[string]string{
		`[{"accept": null}]`: "kubelet vxlan lo", `[{"drop": null}]`: "", `[{"queue": null}]`: "kubelet vxlan lo",
		state(`"new"`): "kubelet vxlan lo", state(`{"set": ["established", "related"]}`): "", state(`{"set": ["established", "new"]}`): "kubelet vxlan lo",
		match(dport, `10250`): "kubelet", match(dport, `{"range": [10000, 11000]}`): "kubelet", match(dport, `{"set": [22, 10250]}`): "kubelet", match(dport, `{"set": 10250}`): "kubelet",
		match(dport, `22`): "", match(dport, `"@open"`): "kubelet lo", match(dport, `{"set": [{"elem": {"val": 22, "comment": "x"}}]}`): "kubelet lo",
		match(`{"payload": {"protocol": "th", "field": "dport"}}`, `8472`): "vxlan", match(`{"meta": {"key": "l4proto"}}`, `"ipv6-icmp"`): "", match(`{"payload": {"protocol": "icmp", "field": "type"}}`, `"echo-request"`): "",
		match(`{"meta": {"key": "iif"}}`, `"lo"`): "lo", match(`{"meta": {"key": "iifname"}}`, `{"set": ["lo", "eth*"]}`): "kubelet vxlan lo", match(`{"payload": {"protocol": "ip", "field": "saddr"}}`, `"10.0.0.1"`): "kubelet vxlan lo",
		match(`{"concat": [{"meta": {"key": "iifname"}}, `+dport+`]}`, `{"set": [{"concat": ["eth0", 22]}]}`):                                                             "kubelet vxlan lo",
		`[{"match": {"op": "!=", "left": {"meta": {"key": "iifname"}}, "right": "eth0"}}, {"accept": null}]`:                                                              "kubelet vxlan lo",
		`[{"vmap": {"key": {"ct": {"key": "state"}}, "data": {"set": [["invalid", {"drop": null}], ["established", {"accept": null}], ["related", {"accept": null}]]}}}]`: "",
		`[{"vmap": {"key": ` + dport + `, "data": {"set": [[22, {"accept": null}], [10250, {"jump": {"target": "site"}}]]}}}]`:                                            "kubelet",
		`[{"vmap": {"key": ` + dport + `, "data": "@verdicts"}}]`:                                                                                                         "kubelet lo",
	} {
		chains := packetChains{}
		err := chains.addNftables([]byte(`{"nftables": [{"chain": {"family": "ip", "table": "t", "name": "c", "hook": "input", "policy": "drop"}}, {"rule": {"family": "ip", "table": "t", "chain": "c", "expr": ` + rule + `}},
			{"rule": {"family": "ip", "table": "t", "chain": "site", "expr": [{"accept": null}]}}]}`))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, n := range []need{{in: "eth0", protocol: "tcp", port: config.KubeletPort, of: "kubelet"}, {in: "eth0", protocol: "udp", port: tunnelPort, of: "vxlan"}, {in: "lo", protocol: "tcp", of: "lo"}} {
			if chains.mayAccept(chainName{"ip", "t", "c"}, n) {
				got = append(got, n.of)
			}
		}
		if !slices.Equal(got, strings.Fields(accepts)) {
			t.Errorf("%s may accept %v, want %q", rule, got, accepts)
		}
	}
}
