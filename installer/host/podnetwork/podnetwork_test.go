package podnetwork_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"airlift/installer/config"
	"airlift/installer/host"
	"airlift/installer/host/ledger"
	"airlift/installer/host/podnetwork"
	"airlift/scripts/fixtures/rig"
	"airlift/scripts/fixtures/testhost"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

func TestRemoveInterfacesLeavesOthers(t *testing.T) {
	testhost.InNetwork(t)
	testhost.NIC(t, "eth0", "10.1.0.5/24")
	testhost.NIC(t, "pod1")
	testhost.NIC(t, "guest1")
	testhost.Bridge(t, "cni0", []string{"veth-pod1"}, "10.244.0.1/24")
	testhost.Bridge(t, "docker0", []string{"veth-guest1"}, "172.17.0.1/16")
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "flannel.1"
	testhost.AddLink(t, &netlink.Vxlan{LinkAttrs: attrs, VxlanId: 1, Port: 8472})
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
	if err := podnetwork.RemoveInterfaces(context.Background(), testhost.Open(t, root)); err != nil {
		t.Fatal(err)
	}
	there("cni0", "pod1", "veth-pod1", "flannel.1")
	testhost.Write(t, root+ledger.Path, `{"version": 1, "entries": [
		{"kind": "interface", "name": "cni0"}, {"kind": "interface", "name": "flannel.1"}, {"kind": "interface", "name": "kube-ipvs0"}]}`, 0o600)
	for range 2 {
		if err := podnetwork.RemoveInterfaces(context.Background(), testhost.Open(t, root)); err != nil {
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

// TestLock: the lock of host-local has the mode 0600 from the beginning, and stays so when the plugin opens it. One of another network, and one that a
// plugin may have locked, are not touched.
func TestLock(t *testing.T) {
	testhost.InNetwork(t)
	const network = "/var/lib/cni/networks/cbr0"
	for name, before := range map[string]func(t *testing.T, root string){
		"new": func(*testing.T, string) {},
		"an empty directory": func(t *testing.T, root string) {
			if err := os.MkdirAll(root+network, 0o755); err != nil {
				t.Fatal(err)
			}
		},
		"of an older build": func(t *testing.T, root string) {
			testhost.Write(t, root+network+"/lock", "", 0o750)
			testhost.Write(t, root+ledger.Path, `{"version": 1, "entries": [{"kind": "network", "name": "cbr0"}]}`, 0o600)
		},
		"of another network": func(t *testing.T, root string) { testhost.Write(t, root+network+"/10.244.0.9", "id\neth0", 0o600) },
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			before(t, root)
			for range 2 {
				h, unlock, err := host.OpenLocked(root)
				if err != nil {
					t.Fatal(err)
				}
				err = podnetwork.Claim(h, &config.Config{CNI: "flannel"})
				unlock()
				if err != nil {
					t.Fatal(err)
				}
				// What the plugin does.
				fd, err := unix.Open(root+network+"/lock", unix.O_CREAT|unix.O_RDONLY, 0o750)
				if err != nil {
					t.Fatal(err)
				}
				if err := unix.Close(fd); err != nil {
					t.Fatal(err)
				}
			}
			info, err := os.Stat(root + network + "/lock")
			if err != nil {
				t.Fatal(err)
			}
			own := name == "new" || name == "an empty directory"
			if mode := info.Mode().Perm(); own != (mode == 0o600) {
				t.Errorf("the mode is %o", mode)
			}
			h := testhost.Open(t, root)
			for _, e := range h.Records().Entries(ledger.Network) {
				if err := podnetwork.RemoveState(h, e); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := os.Stat(root + network); (err == nil) != (name == "of another network") {
				t.Errorf("after reset: %v", err)
			}
		})
	}
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
	testhost.InNetwork(t)
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
	if _, err := podnetwork.RemoveRules(context.Background(), testhost.Open(t, root)); err != nil || saved(t, "iptables-nft") != complete {
		t.Errorf("without a ledger rules were removed (%v)", err)
	}
	testhost.Write(t, root+ledger.Path, node, 0o600)
	for range 2 {
		warnings, err := podnetwork.RemoveRules(context.Background(), testhost.Open(t, root))
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
			testhost.InNetwork(t)
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
			testhost.Write(t, root+ledger.Path, tt.ledger, 0o600)
			testhost.Write(t, root+"/var/lib/cni/networks/cbr0/10.244.0.2", "pod1\r\neth0", 0o600)
			for range 2 {
				if _, err := podnetwork.RemoveRules(context.Background(), testhost.Open(t, root)); err != nil {
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
	testhost.InNetwork(t)
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
	testhost.Write(t, root+ledger.Path, node, 0o600)
	if _, err := podnetwork.RemoveRules(context.Background(), testhost.Open(t, root)); err != nil {
		t.Fatal(err)
	}
	after := saved(t, "iptables-nft")
	if strings.Contains(after, "KUBE-") || !strings.Contains(after, "-A PREROUTING -d 10.1.0.1/32 -j ACCEPT") {
		t.Errorf("after:\n%.2000s", after)
	}
}
