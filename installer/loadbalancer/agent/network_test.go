package agent

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"airlift/installer/daemon"
	"airlift/installer/endpoint/neighbours"
	"airlift/installer/loadbalancer"
	"airlift/scripts/fixtures/rig"
	"airlift/scripts/fixtures/testcluster"
)

// helperVariable has the name of the node for which a process of the test answers, in a network namespace.
const helperVariable = "AIRLIFT_LOAD_BALANCER_HELPER"

// holdersVariable has an address, of which a process of the test prints the holders.
const holdersVariable = "AIRLIFT_LOAD_BALANCER_HOLDERS"

// clockVariable makes a process of the test print how far its clock is ahead of CLOCK_MONOTONIC, and the uptime.
const clockVariable = "AIRLIFT_LOAD_BALANCER_CLOCK"

func TestMain(m *testing.M) {
	if node := os.Getenv(helperVariable); node != "" {
		help(node)
		return
	}
	if os.Getenv(clockVariable) != "" {
		uptime, err := os.ReadFile("/proc/uptime")
		fmt.Println(time.Until(daemon.Now()).Seconds(), string(uptime))
		if err != nil {
			os.Exit(1)
		}
		return
	}
	if text := os.Getenv(holdersVariable); text != "" {
		list, err := neighbours.Holders(context.Background(), netip.MustParseAddr(text), "eth0")
		for _, mac := range list {
			fmt.Println(mac)
		}
		if err != nil {
			fmt.Println(err)
		}
		return
	}
	testcluster.Main(m)
}

// help reads tables from its input, one a line, and acts on the last one as long as the API would answer. After the line "cut", it does not.
func help(node string) {
	l := &lines{Options: Options{Log: slog.New(slog.NewTextHandler(os.Stderr, nil)), Interfaces: interfaces, Open: neighbours.Open}, doubt: func() { fmt.Println("doubt") }, speaker: loadbalancer.NewSpeaker(node), open: map[netip.Addr]*line{}}
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
			l.read(*t, daemon.Now())
		}
		l.act(daemon.Now())
		for a, mac := range l.conflicts(daemon.Now()) {
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
	process *os.Process
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
	h.input, h.output, h.process = w, out.Name(), cmd.Process
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

func newNetwork(t *testing.T) *network {
	t.Helper()
	rig.Root(t)
	rig.Tool(t, "ip")
	n := &network{T: t, prefix: fmt.Sprintf("lb%d%s", os.Getpid(), strings.ToLower(t.Name()[4:6]))}
	n.ip("-n", n.namespace("sw"), "link", "add", "br0", "up", "type", "bridge", "forward_delay", "0")
	return n
}

var both = []netip.Addr{netip.MustParseAddr("10.98.0.100"), netip.MustParseAddr("fd98::100")}

// A process that was stopped while another node got its addresses answers none of the requests that its sockets have when it goes on.
func TestStoppedProcess(t *testing.T) {
	n := newNetwork(t)
	first, second, client := n.host("h1", 1), n.host("h2", 2), n.host("cl", 50)
	first.agent("n1")
	second.agent("n2")
	first.send(tableFor(t, "n1", false))
	for _, a := range both {
		client.ask(a, first.mac)
	}
	first.send("cut") // it does not reach the API when it goes on
	time.Sleep(4 * tick)
	if err := first.process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	time.Sleep(loadbalancer.Silence)
	second.send(tableFor(t, "n2", false))
	for _, a := range both {
		client.wait(a, second.mac, func() {})
	}
	for range 20 { // these requests reach both nodes
		for _, a := range both {
			client.ask(a, second.mac)
		}
		time.Sleep(200 * time.Millisecond)
	}
	var changes bytes.Buffer
	monitor := exec.Command("ip", "-n", client.ns, "monitor", "neigh")
	monitor.Stdout = &changes
	if err := monitor.Start(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Second)
	if err := first.process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	for range 20 {
		for _, a := range both {
			client.ip("-n", client.ns, "neighbour", "flush", a.String())
			client.touch(a)
		}
		time.Sleep(200 * time.Millisecond)
	}
	_ = monitor.Process.Kill()
	_ = monitor.Wait()
	seen := false
	for line := range strings.Lines(changes.String()) {
		of := slices.ContainsFunc(both, func(a netip.Addr) bool { return strings.HasPrefix(line, a.String()+" ") })
		if seen = seen || of && strings.Contains(line, second.mac); of && strings.Contains(line, first.mac) {
			t.Errorf("the process that was stopped answered: %s", line)
		}
	}
	if !seen {
		t.Errorf("nobody answered:\n%s", changes.String())
	}
}

// Two hosts that look at the same time whether an IPv4 address is free both find that it is not. A host whose kernel looks for duplicates of its
// IPv6 address keeps it.
func TestProbesMeet(t *testing.T) {
	n := newNetwork(t)
	first, second, client := n.host("h1", 1), n.host("h2", 2), n.host("cl", 50)
	first.agent("n1")
	second.agent("n2")
	first.send(tableFor(t, "n1", true))
	second.send(tableFor(t, "n2", true)) // as if it was in another cluster
	client.nobody(both[0])
	for h, other := range map[*netHost]*netHost{first: second, second: first} {
		if text, err := os.ReadFile(h.output); err != nil || !strings.Contains(string(text), both[0].String()+" "+other.mac) {
			t.Errorf("the other prober was not found: %v\n%s", err, text)
		}
	}
	second.send(tableFor(t, "", false))
	for _, a := range both {
		client.ask(a, first.mac) // it looks again, and finds the address free
	}

	// The clock of the first one stops, and the second one has the addresses: the first one reads the table when it hears that.
	second.send(tableFor(t, "n2", false))
	for range 100 {
		text, err := os.ReadFile(first.output)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), "doubt\n") {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	if text, err := os.ReadFile(first.output); err != nil || !strings.Contains(string(text), "doubt\n") {
		t.Errorf("the table is not read when another node announces the addresses: %v\n%s", err, text)
	}
	second.send(tableFor(t, "", false))

	first.send(tableFor(t, "", false))
	client.nobody(both[1])
	third := n.host("h3", 3)
	for _, setting := range []string{"net.ipv6.conf.eth0.dad_transmits=5", "net.ipv6.neigh.eth0.retrans_time_ms=1000"} {
		if out, err := exec.Command("ip", "netns", "exec", third.ns, "sysctl", "-qw", setting).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	third.ip("-n", third.ns, "address", "add", both[1].String()+"/64", "dev", "eth0")
	first.send(tableFor(t, "n1", true))
	time.Sleep(8 * time.Second)
	if out := third.ip("-n", third.ns, "-6", "address", "show", "dev", "eth0"); strings.Contains(out, "tentative") || strings.Contains(out, "dadfailed") || !strings.Contains(out, both[1].String()) {
		t.Errorf("the host that was first does not have its address:\n%s", out)
	}
	client.ask(both[0], first.mac)
	client.ask(both[1], third.mac)
}

// holders returns which hosts answer for an address, as the test of a cluster asks.
func (h *netHost) holders(a netip.Addr) string {
	cmd := exec.Command("ip", "netns", "exec", h.ns, os.Args[0])
	cmd.Env = append(os.Environ(), holdersVariable+"="+a.String())
	out, _ := cmd.CombinedOutput()
	return strings.TrimSpace(string(out))
}

// However many addresses another host announces, the node reads the table for that only once in a cycle.
func TestDoubtsAreFew(t *testing.T) {
	doubts, now := 0, time.Unix(1000, 0)
	l := &lines{Options: Options{Log: slog.New(slog.DiscardHandler)}, doubt: func() { doubts++ }, speaker: loadbalancer.NewSpeaker("n1")}
	table, a := loadbalancer.Table{Version: 1}, netip.MustParseAddr("10.98.0.1")
	for range 100 {
		table.Entries = append(table.Entries, loadbalancer.Entry{Address: a, Node: "n1"})
		a = a.Next()
	}
	l.speaker.Read(table, now)
	for _, e := range table.Entries {
		now = now.Add(loadbalancer.Cycle / 90)
		l.hear(&line{Entry: e, free: true}, "02:00:00:00:00:01", now)
	}
	if doubts != 2 {
		t.Errorf("%d times", doubts)
	}
}

// A node lists a new address until it has found it free.
func TestLooking(t *testing.T) {
	a, now := both[0], time.Unix(1000, 0)
	l := &lines{speaker: loadbalancer.NewSpeaker("n1"), open: map[netip.Addr]*line{}}
	l.speaker.Read(loadbalancer.Table{Entries: []loadbalancer.Entry{{Address: a, Node: "n1", New: true}, {Address: both[1], Node: "n1"}}}, now)
	for _, want := range []int{1, 1, 0} {
		if list := l.looking(); len(list) != want || want == 1 && list[0] != a {
			t.Errorf("%v, want %d", list, want)
		}
		l.open[a] = &line{free: l.open[a] != nil}
	}
}

// A test of the cluster asks for an address while its node looks whether it is free: the node takes it.
func TestAskedWhileLooking(t *testing.T) {
	n := newNetwork(t)
	first, client := n.host("h1", 1), n.host("cl", 50)
	first.agent("n1")
	first.send(tableFor(t, "n1", true))
	var asking sync.WaitGroup
	for _, a := range both {
		asking.Go(func() {
			for began := time.Now(); time.Since(began) < 2*probe; {
				client.holders(a)
			}
		})
	}
	asking.Wait()
	for _, a := range both {
		if got := client.holders(a); got != first.mac {
			t.Errorf("%s: the holders are %q, want %s", a, got, first.mac)
		}
	}
	if text, err := os.ReadFile(first.output); err != nil || strings.Contains(string(text), client.mac) {
		t.Errorf("a host that only asks counts as one that has the address: %v\n%s", err, text)
	}
}

// The clock of deadlines is CLOCK_BOOTTIME, as in /proc/uptime: it goes on while the host is suspended. In a time namespace it differs from
// CLOCK_MONOTONIC as after such a time.
func TestClockCountsSuspension(t *testing.T) {
	rig.Root(t)
	rig.Tool(t, "unshare")
	cmd := exec.Command("unshare", "--time", "--boottime", "500000", "--fork", "--mount-proc", os.Args[0])
	cmd.Env = append(os.Environ(), clockVariable+"=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var clock, uptime float64
	if _, err := fmt.Sscan(string(out), &clock, &uptime); err != nil || uptime < 499999 || clock < 499999 {
		t.Errorf("the clock differs by %.0f s from CLOCK_MONOTONIC, the uptime is %.0f s: %v", clock, uptime, err)
	}
}

// The kernel of a client, which has nothing of Airlift, sends packets for an address to the node that has it, in both families.
func TestAnswers(t *testing.T) {
	n := newNetwork(t)
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
