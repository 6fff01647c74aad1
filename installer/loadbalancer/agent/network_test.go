package agent

import (
	"bufio"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"airlift/installer/loadbalancer"
	"airlift/scripts/fixtures/rig"
	"airlift/scripts/fixtures/testcluster"
)

// helperVariable has the name of the node for which a process of the test answers, in a network namespace.
const helperVariable = "AIRLIFT_LOAD_BALANCER_HELPER"

func TestMain(m *testing.M) {
	if node := os.Getenv(helperVariable); node != "" {
		help(node)
		return
	}
	testcluster.Main(m)
}

// help reads tables from its input, one a line, and acts on the last one as long as the API would answer. After the line "cut", it does not.
func help(node string) {
	l := &lines{log: slog.New(slog.NewTextHandler(os.Stderr, nil)), speaker: loadbalancer.NewSpeaker(node), open: map[netip.Addr]*line{}}
	var mu sync.Mutex
	var last *loadbalancer.Table
	go func() {
		for input := bufio.NewScanner(os.Stdin); input.Scan(); {
			var t *loadbalancer.Table
			if input.Text() != "cut" {
				t = &loadbalancer.Table{}
				if err := json.Unmarshal(input.Bytes(), t); err != nil {
					panic(err)
				}
			}
			mu.Lock()
			last = t
			mu.Unlock()
		}
		os.Exit(0)
	}()
	for n := 0; ; n++ {
		mu.Lock()
		t := last
		mu.Unlock()
		if t != nil {
			l.read(*t, time.Now())
		}
		l.act(time.Now())
		for a, mac := range l.conflicts(time.Now()) {
			fmt.Println(a, mac)
		}
		time.Sleep(tick)
	}
}

// A network is hosts in namespaces on one bridge. The kernel of the client is the one that asks who has an address.
type network struct {
	*testing.T
	prefix string
}

func (n *network) ip(args ...string) string {
	n.Helper()
	out, err := exec.Command("ip", args...).CombinedOutput()
	if err != nil {
		n.Fatalf("ip %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

func (n *network) namespace(name string) string {
	n.Helper()
	ns := n.prefix + name
	n.ip("netns", "add", ns)
	n.Cleanup(func() { _ = exec.Command("ip", "netns", "del", ns).Run() })
	n.ip("-n", ns, "link", "set", "lo", "up")
	return ns
}

type netHost struct {
	*network
	ns, mac string
	input   *os.File
	output  string // a file
}

func (n *network) host(name string, number int) *netHost {
	n.Helper()
	h := &netHost{network: n, ns: n.namespace(name), mac: fmt.Sprintf("02:00:00:00:00:%02x", number)}
	n.ip("-n", n.prefix+"sw", "link", "add", name, "type", "veth", "peer", "name", "eth0", "address", h.mac, "netns", h.ns)
	for _, a := range []string{fmt.Sprintf("10.98.0.%d/24", number), fmt.Sprintf("fd98::%d/64", number)} {
		n.ip("-n", h.ns, "address", "add", a, "dev", "eth0", "nodad")
	}
	n.ip("-n", n.prefix+"sw", "link", "set", name, "master", "br0", "up")
	n.ip("-n", h.ns, "link", "set", "eth0", "up")
	return h
}

// agent starts a process that answers for a node.
func (h *netHost) agent(node string) {
	h.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		h.Fatal(err)
	}
	out, err := os.CreateTemp(h.TempDir(), node)
	if err != nil {
		h.Fatal(err)
	}
	cmd := exec.Command("ip", "netns", "exec", h.ns, os.Args[0])
	cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = append(os.Environ(), helperVariable+"="+node), r, out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		h.Fatal(err)
	}
	_, _ = r.Close(), out.Close()
	h.input, h.output = w, out.Name()
	h.Cleanup(func() { _ = w.Close(); _ = cmd.Process.Kill(); _ = cmd.Wait() })
}

func (h *netHost) send(text string) {
	h.Helper()
	if _, err := fmt.Fprintln(h.input, text); err != nil {
		h.Fatal(err)
	}
}

// neighbour returns what the kernel of this host has for an address: "MAC STATE", or only "STATE".
func (h *netHost) neighbour(a netip.Addr) string {
	h.Helper()
	_, text, _ := strings.Cut(h.ip("-n", h.ns, "neighbour", "show", a.String(), "dev", "eth0"), " ")
	return strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(text), "lladdr "))
}

// ask makes the kernel of this host ask for an address, and waits for what it then has.
func (h *netHost) ask(a netip.Addr, want string) {
	h.Helper()
	h.ip("-n", h.ns, "neighbour", "flush", a.String())
	h.wait(a, want, func() { h.touch(a) })
}

// nobody waits until no host answers for an address.
func (h *netHost) nobody(a netip.Addr) {
	h.Helper()
	var got string
	for range 20 {
		h.ip("-n", h.ns, "neighbour", "flush", a.String())
		h.touch(a)
		time.Sleep(2 * time.Second)
		if got = h.neighbour(a); !strings.Contains(got, ":") {
			return
		}
	}
	h.Fatalf("%s: the client has %q", a, got)
}

// touch makes the kernel send a packet to an address.
func (h *netHost) touch(a netip.Addr) {
	_ = exec.Command("ip", "netns", "exec", h.ns, "bash", "-c", "echo >/dev/udp/"+a.String()+"/9").Run()
}

// wait waits until the kernel of this host has want for an address. It calls again from time to time.
func (h *netHost) wait(a netip.Addr, want string, again func()) {
	h.Helper()
	var got string
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(200 * time.Millisecond) {
		again()
		if got = h.neighbour(a); strings.HasPrefix(got, want) {
			return
		}
	}
	h.Fatalf("%s: the client has %q, want %q", a, got, want)
}

func tableFor(t *testing.T, node string, isNew bool) string {
	t.Helper()
	table := loadbalancer.Table{Version: time.Now().UnixNano()}
	for _, a := range []string{"10.98.0.100", "fd98::100"} {
		table.Entries = append(table.Entries, loadbalancer.Entry{Address: netip.MustParseAddr(a), Service: "default/web", Node: node, New: isNew})
	}
	text, err := json.Marshal(table)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// The kernel of a client, which has nothing of Airlift, sends packets for an address to the node that has it, in both families.
func TestAnswers(t *testing.T) {
	rig.Root(t)
	rig.Tool(t, "ip")
	n := &network{T: t, prefix: fmt.Sprintf("lb%d", os.Getpid())}
	n.ip("-n", n.namespace("sw"), "link", "add", "br0", "up", "type", "bridge", "forward_delay", "0")
	first, second, client := n.host("h1", 1), n.host("h2", 2), n.host("cl", 50)
	first.agent("n1")
	second.agent("n2")
	to := func(node string) {
		first.send(tableFor(t, node, false))
		second.send(tableFor(t, node, false))
	}
	nothing := func() {}
	for _, a := range []netip.Addr{netip.MustParseAddr("10.98.0.100"), netip.MustParseAddr("fd98::100")} {
		client.nobody(a)

		to("n1")
		client.ask(a, first.mac)
		client.ip("-n", client.ns, "neighbour", "change", a.String(), "lladdr", first.mac, "dev", "eth0", "nud", "probe")
		client.wait(a, first.mac+" REACHABLE", nothing) // it asked this node, and not all

		to("n2")
		client.wait(a, second.mac, nothing) // nobody asked: it was announced

		// n2 loses the API, and n1 gets the address. n2 hears it.
		second.send("cut")
		client.ask(a, second.mac)
		first.send(tableFor(t, "n1", false))
		client.wait(a, first.mac, nothing)
		time.Sleep(loadbalancer.Valid + time.Second)
		for range 5 {
			client.ask(a, first.mac)
		}

		to("")
		client.nobody(a)
	}

	// The interface is down for a moment, as when the network of the host is configured again.
	to("n1")
	for _, a := range []netip.Addr{netip.MustParseAddr("10.98.0.100"), netip.MustParseAddr("fd98::100")} {
		client.ask(a, first.mac)
	}
	moment := exec.Command("ip", "-n", first.ns, "-batch", "-")
	moment.Stdin = strings.NewReader("link set eth0 down\nlink set eth0 up\naddress add fd98::1/64 dev eth0 nodad\n")
	if out, err := moment.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	time.Sleep(time.Second)
	first.send("cut") // it announces nothing then, so only its answers are left
	time.Sleep(loadbalancer.Valid + time.Second)
	for _, a := range []netip.Addr{netip.MustParseAddr("10.98.0.100"), netip.MustParseAddr("fd98::100")} {
		client.ask(a, first.mac)
	}
	to("")
	client.nobody(netip.MustParseAddr("10.98.0.100"))

	// Another host has an address that nobody announced before.
	third := n.host("h3", 3)
	third.ip("-n", third.ns, "address", "add", "10.98.0.100/32", "dev", "eth0")
	first.send(tableFor(t, "n1", true))
	client.ask(netip.MustParseAddr("fd98::100"), first.mac)
	for range 5 {
		client.ask(netip.MustParseAddr("10.98.0.100"), third.mac)
	}
	if text, err := os.ReadFile(first.output); err != nil || !strings.Contains(string(text), "10.98.0.100 "+third.mac) {
		t.Errorf("the other host was not found: %v\n%s", err, text)
	}
	third.ip("-n", third.ns, "address", "del", "10.98.0.100/32", "dev", "eth0")
	client.wait(netip.MustParseAddr("10.98.0.100"), first.mac, nothing)

	for _, h := range []*netHost{first, second} {
		if list := h.ip("-n", h.ns, "address", "show"); strings.Contains(list, ".100") || strings.Contains(list, "::100") {
			t.Errorf("the host has an address of a Service:\n%s", list)
		}
	}
}
