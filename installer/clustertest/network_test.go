package clustertest

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"airlift/installer/clustertest/diagnosis"
	"airlift/installer/clustertest/probe"
	"airlift/scripts/fixtures/rig"
	"airlift/scripts/fixtures/testcluster"
)

// Variables with which this binary is a server or a probe, as the command airlift is in a pod.
const serveVariable, probeVariable = "AIRLIFT_TEST_SERVE", "AIRLIFT_TEST_PROBE"

func TestMain(m *testing.M) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	var err error
	switch {
	case os.Getenv(serveVariable) != "":
		var s probe.Server
		if err = json.Unmarshal([]byte(os.Getenv(serveVariable)), &s); err == nil {
			err = s.Serve(ctx, os.Stdout)
		}
	case os.Getenv(probeVariable) != "":
		var p probe.Plan
		if err = json.Unmarshal([]byte(os.Getenv(probeVariable)), &p); err == nil {
			err = p.Run(ctx, os.Stdout)
		}
	default:
		testcluster.Main(m)
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

// A network is three hosts with one pod each, in network namespaces of this kernel: vxlan, bridges and routes as flannel and the CNI plugins
// make them.
type network struct {
	t     *testing.T
	name  string
	nodes []string
	out   map[string]*buffer // of servers
}

type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

const testNonce = "abcdefghijklmnopqrstuvwxyz"

func newNetwork(t *testing.T) *network {
	rig.Root(t)
	rig.Tool(t, "nft")
	n := &network{t: t, name: fmt.Sprintf("ct%d", os.Getpid()), nodes: []string{"n1", "n2", "n3"}, out: map[string]*buffer{}}
	n.sh("ip netns add $N-switch; ip -n $N-switch link add br0 type bridge; ip -n $N-switch link set br0 up")
	t.Cleanup(func() {
		n.sh("for n in $N-switch $N-n1 $N-n2 $N-n3 $N-p1 $N-p2 $N-p3; do ip netns delete $n || true; done")
	})
	for i := range n.nodes {
		n.sh(strings.ReplaceAll(`
			ip netns add $N-nI; ip netns add $N-pI
			ip -n $N-nI link set lo up; ip -n $N-pI link set lo up
			ip link add eth0 netns $N-nI type veth peer name nI netns $N-switch
			ip -n $N-switch link set nI master br0 up
			ip -n $N-nI address add 10.99.0.I/24 dev eth0; ip -n $N-nI link set eth0 up
			ip netns exec $N-nI sysctl -qw net.ipv4.ip_forward=1
			ip -n $N-nI link add flannel.1 address 02:00:00:00:00:0I type vxlan id 1 dev eth0 local 10.99.0.I dstport 8472 nolearning
			ip -n $N-nI address add 10.244.I.0/32 dev flannel.1; ip -n $N-nI link set flannel.1 up
			ip -n $N-nI link add cni0 mtu 1450 type bridge; ip -n $N-nI address add 10.244.I.1/24 dev cni0; ip -n $N-nI link set cni0 up
			ip link add eth0 mtu 1450 netns $N-pI type veth peer name pod mtu 1450 netns $N-nI
			ip -n $N-nI link set pod master cni0 up
			ip -n $N-pI address add 10.244.I.2/24 dev eth0; ip -n $N-pI link set eth0 up; ip -n $N-pI route add default via 10.244.I.1`, "I", fmt.Sprint(i+1)))
		for j := range n.nodes {
			if i != j {
				n.sh(strings.NewReplacer("I", fmt.Sprint(i+1), "J", fmt.Sprint(j+1)).Replace(`
					ip -n $N-nI route add 10.244.J.0/24 via 10.244.J.0 dev flannel.1 onlink
					ip -n $N-nI neighbor add 10.244.J.0 lladdr 02:00:00:00:00:0J dev flannel.1
					bridge -n $N-nI fdb add 02:00:00:00:00:0J dev flannel.1 dst 10.99.0.J`))
			}
		}
	}
	return n
}

// sh runs commands; $N is the prefix of the namespaces.
func (n *network) sh(script string) {
	n.t.Helper()
	cmd := exec.Command("sh", "-ec", script)
	cmd.Env = append(os.Environ(), "N="+n.name)
	if out, err := cmd.CombinedOutput(); err != nil {
		n.t.Fatalf("%v: %s\n%s", err, script, out)
	}
}

// command runs this binary in a namespace.
func (n *network) command(ctx context.Context, namespace, variable string, argument any) *exec.Cmd {
	data, err := json.Marshal(argument)
	if err != nil {
		n.t.Fatal(err)
	}
	cmd := exec.CommandContext(ctx, "ip", "netns", "exec", n.name+"-"+namespace, os.Args[0])
	cmd.Env = append(os.Environ(), variable+"="+string(data))
	return cmd
}

// test runs servers and probes on all nodes, and returns what they observed.
func (n *network) test() []diagnosis.Observation {
	n.t.Helper()
	ctx, cancel := context.WithCancel(n.t.Context())
	var servers sync.WaitGroup
	defer servers.Wait()
	defer cancel()
	peers := make([]probe.Peer, len(n.nodes))
	for i, name := range n.nodes {
		peers[i] = probe.Peer{Node: name, Pods: []string{fmt.Sprintf("10.244.%d.2", i+1)}, Hosts: []string{fmt.Sprintf("10.99.0.%d", i+1)}, Ranges: []string{fmt.Sprintf("10.244.%d.0/24", i+1)}}
		cmd := n.command(ctx, "p"+name[1:], serveVariable, probe.Server{Node: name, Nonce: testNonce, Nodes: n.nodes, Seconds: 100})
		n.out[name] = &buffer{}
		cmd.Stdout, cmd.Stderr = n.out[name], n.out[name]
		if err := cmd.Start(); err != nil {
			n.t.Fatal(err)
		}
		servers.Go(func() { _ = cmd.Wait() }) // it is killed
	}
	n.listens()
	var all sync.WaitGroup
	reports := make([]*probe.Report, 2*len(n.nodes))
	for i, name := range n.nodes {
		for j, inHost := range []bool{false, true} {
			plan := probe.Plan{Node: name, Nonce: testNonce, Host: inHost, IPv4: true, CA: testCA, Peers: peers}
			namespace := "p" + name[1:]
			if inHost {
				namespace = name
			} else {
				next := peers[(i+1)%len(peers)]
				plan.Checks = []probe.Check{{Kind: diagnosis.Policy, To: next.Node, How: "closed", Address: fmt.Sprintf("%s:%d", next.Pods[0], probe.ClosedPort)}}
			}
			all.Go(func() {
				out, err := n.command(n.t.Context(), namespace, probeVariable, plan).CombinedOutput()
				if err != nil {
					n.t.Errorf("%s: %v\n%s", namespace, err, out)
					return
				}
				if reports[2*i+j], err = probe.Read(bytes.NewReader(out), probe.Report{Node: name, Host: inHost, Nonce: testNonce}, n.nodes); err == nil {
					err = reports[2*i+j].Covers(plan)
				}
				if err != nil {
					n.t.Errorf("%s: %v\n%s", namespace, err, out)
				}
			})
		}
	}
	all.Wait()
	if n.t.Failed() {
		n.t.FailNow()
	}
	heard := map[string][]string{}
	for _, name := range n.nodes {
		list, err := probe.ReadHeard(strings.NewReader(n.out[name].String()), n.nodes)
		if err != nil {
			n.t.Fatal(err)
		}
		heard[name] = list
	}
	for _, r := range reports {
		if r.Host && r.Tunnel != "UDP 8472 (vxlan)" && !slices.ContainsFunc(r.Routes, func(to probe.RouteTo) bool { return to.Wrong != "" }) {
			n.t.Errorf("%s: the tunnel is %q", r.Node, r.Tunnel)
		}
	}
	return assemble(reports, heard, n.t.Logf)
}

// listens waits until each server listens.
func (n *network) listens() {
	for _, name := range n.nodes {
		for end := time.Now().Add(20 * time.Second); ; time.Sleep(50 * time.Millisecond) {
			out, err := exec.Command("ip", "netns", "exec", n.name+"-p"+name[1:], "ss", "-Hltn", fmt.Sprintf("sport = :%d", probe.ClosedPort)).Output()
			if err == nil && len(out) > 0 {
				break
			}
			if time.Now().After(end) {
				n.t.Fatalf("the server of %s does not listen: %s", name, n.out[name])
			}
		}
	}
}

// TestNetworkFaults puts faults into real links, tunnels, routes and filters, and expects the finding of each.
func TestNetworkFaults(t *testing.T) {
	n := newNetwork(t)
	facts := diagnosis.Facts{Nodes: n.nodes, Tunnel: "UDP 8472 (vxlan)", Network: "kube-flannel app=flannel"}
	check := func(t *testing.T, want, nodes string, text ...string) {
		t.Helper()
		began := time.Now()
		all := n.test()
		found := diagnosis.Diagnose(facts, all)
		t.Logf("%d observations in %s", len(all), time.Since(began).Round(time.Second/10))
		for _, f := range found {
			t.Logf("%s: %s\n  %q\n  %s", f.Name, f.Text, f.Evidence, f.Fix)
		}
		switch {
		case want == "" && len(found) > 0:
			t.Fatalf("%d findings in a network that works", len(found))
		case want == "":
			if len(all) < 60 {
				t.Errorf("%d observations", len(all))
			}
			return
		case len(found) != 1 || found[0].Name != want || strings.Join(found[0].Nodes, " ") != nodes:
			t.Fatalf("%d findings, want %s on %s", len(found), want, nodes)
		}
		for _, part := range text {
			if !strings.Contains(found[0].Text+found[0].Fix, part) {
				t.Errorf("%q is not in %q, %q", part, found[0].Text, found[0].Fix)
			}
		}
	}
	check(t, "", "")
	for _, c := range []struct {
		name, fault, repair string
		want, nodes         string
		text                []string
	}{
		{"MTU of the link of a host", "ip -n $N-switch link set n3 mtu 1400", "ip -n $N-switch link set n3 mtu 1500",
			"mtu-hosts", "n3", []string{"n3 <-> all other nodes", "the largest that does has 1400"}},
		{"vxlan to a host", "ip netns exec $N-n3 nft 'add table ip fault; add chain ip fault in { type filter hook input priority 0; }; add rule ip fault in udp dport 8472 drop'",
			"ip netns exec $N-n3 nft delete table ip fault", "tunnel", "n3", []string{"all other nodes -> n3: pods cannot reach each other: hosts can, UDP 8472 (vxlan) gets no answer"}},
		{"vxlan in one direction", "ip netns exec $N-n2 nft 'add table ip fault; add chain ip fault in { type filter hook input priority 0; }; add rule ip fault in ip saddr 10.99.0.1 udp dport 8472 drop'",
			"ip netns exec $N-n2 nft delete table ip fault", "tunnel", "n1 n2", []string{"n1 -> n2: pods cannot"}},
		{"forwarding", "ip netns exec $N-n2 sysctl -qw net.ipv4.ip_forward=0", "ip netns exec $N-n2 sysctl -qw net.ipv4.ip_forward=1",
			"forwarding", "n2", []string{"sysctl -w net.ipv4.ip_forward=1"}},
		{"forwarding of an interface", "ip netns exec $N-n2 sysctl -qw net/ipv4/conf/flannel.1/forwarding=0", "ip netns exec $N-n2 sysctl -qw net/ipv4/conf/flannel.1/forwarding=1",
			"forwarding", "n2", []string{"sysctl -w net/ipv4/conf/flannel.1/forwarding=1"}},
		{"no route", "ip -n $N-n1 route delete 10.244.3.0/24", "ip -n $N-n1 route add 10.244.3.0/24 via 10.244.3.0 dev flannel.1 onlink",
			"route", "n1", []string{"n1 -> n3", "there is no route to 10.244.3.2", "spec.nodeName=n1"}},
		{"route to another node", "ip -n $N-n1 route replace 10.244.3.0/24 via 10.244.2.0 dev flannel.1 onlink", "ip -n $N-n1 route replace 10.244.3.0/24 via 10.244.3.0 dev flannel.1 onlink",
			"route", "n1", []string{"leave through flannel.1 to 10.244.2.0"}},
		{"route past the tunnel", "ip -n $N-n2 route replace 10.244.1.0/24 dev eth0", "ip -n $N-n2 route replace 10.244.1.0/24 via 10.244.1.0 dev flannel.1 onlink",
			"route", "n2", []string{"leave through eth0"}},
		{"a host is cut off", "ip -n $N-switch link set n1 down", "ip -n $N-switch link set n1 up",
			"hosts", "n1", []string{"n1 <-> all other nodes: the hosts do not reach each other"}},
		{"MTU of a tunnel", "ip -n $N-n3 link set flannel.1 mtu 1300", "ip -n $N-n3 link set flannel.1 mtu 1450",
			"mtu-pods", "n3", []string{"n3 <-> all other nodes", "hosts exchange large ones"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			n.t = t
			n.sh(c.fault)
			defer n.sh(c.repair)
			check(t, c.want, c.nodes, c.text...)
		})
	}
	n.t = t
	check(t, "", "")
	t.Run("a policy holds on two of three nodes", func(t *testing.T) {
		n.t = t
		for _, node := range []string{"n1", "n2"} {
			drop := "ip netns exec $N-" + node + " nft 'add table ip fault; add chain ip fault forwarded { type filter hook forward priority 0; }; add rule ip fault forwarded ip daddr 10.244." + node[1:] + ".2 tcp dport 7101 drop'"
			n.sh(drop)
			defer n.sh("ip netns exec $N-" + node + " nft delete table ip fault")
		}
		check(t, "network-policy", "n3", "NetworkPolicies are not enforced")
	})
}

// testCA is a certificate, because a plan has one. No server uses it here.
var testCA = func() string {
	server := httptest.NewUnstartedServer(nil)
	server.StartTLS()
	defer server.Close()
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
}()
