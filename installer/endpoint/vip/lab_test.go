package vip

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	mrand "math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"airlift/installer/endpoint/neighbours"
	"airlift/installer/etcd"
	"airlift/scripts/fixtures/rig"
)

// The lab: hosts in network namespaces on one bridge, each with a real etcd member, an HTTP server in
// place of the API server, and an agent in its own process. A client in another namespace asks
// all the time who has the address, and sends requests to it.

// helperVariable has the role of a process that the lab started, and its argument.
const helperVariable = "AIRLIFT_VIP_HELPER"

func TestMain(m *testing.M) {
	role, argument, _ := strings.Cut(os.Getenv(helperVariable), " ")
	var err error
	switch role {
	case "":
		os.Exit(m.Run())
	case "agent":
		err = helpAgent(argument)
	case "api":
		err = helpAPI(argument)
	case "clock":
		err = helpClock()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// agentConfig is the argument of an agent's process.
type agentConfig struct {
	Addresses []netip.Addr
	Interface string
	Certs     string
	Socket    string
	// Lost is the share of checks of API servers without an answer, Latency is added to each.
	Lost    float64
	Latency time.Duration
}

const apiPort = 6443

func helpAgent(argument string) error {
	var c agentConfig
	if err := json.Unmarshal([]byte(argument), &c); err != nil {
		return err
	}
	file := func(name string) string { return filepath.Join(c.Certs, name) }
	election := etcd.NewElection("https://127.0.0.1:2379", file("ca.crt"), file("tls.crt"), file("tls.key"))
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	a, err := New(Options{Addresses: c.Addresses, Interface: c.Interface, Election: election,
		Log: slog.New(slog.NewTextHandler(os.Stderr, nil)),
		Ready: func(ctx context.Context, host string) error {
			if host == "" {
				host = "127.0.0.1"
			}
			time.Sleep(c.Latency)
			if mrand.Float64() < c.Lost {
				<-ctx.Done()
				return ctx.Err()
			}
			request, err := http.NewRequestWithContext(ctx, "GET", fmt.Sprintf("http://%s:%d/readyz", host, apiPort), nil)
			if err != nil {
				return err
			}
			r, err := client.Do(request)
			if err != nil {
				return err
			}
			defer r.Body.Close()
			if r.StatusCode != http.StatusOK {
				return errors.New(r.Status)
			}
			return nil
		}})
	if err != nil {
		return err
	}
	_ = os.Remove(c.Socket)
	listener, err := net.Listen("unix", c.Socket)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(w).Encode(a.Status()) })
	mux.HandleFunc("POST /handover", func(w http.ResponseWriter, r *http.Request) {
		if err := a.Handover(r.Context()); err != nil {
			http.Error(w, err.Error(), http.StatusConflict)
		}
	})
	go func() { _ = http.Serve(listener, mux) }()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	return a.Run(ctx)
}

// helpAPI is ready as long as the process runs, and reports its name.
func helpAPI(name string) error {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /readyz", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /who", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, name) })
	return http.ListenAndServe(fmt.Sprintf(":%d", apiPort), mux)
}

type lab struct {
	testing.TB
	prefix, dir string
	hosts       []*labHost
	client      *client
	etcd        string
	agents      agentConfig
}

type labHost struct {
	lab              *lab
	name, ns, ip     string
	etcd, api, agent *process
}

type process struct {
	*exec.Cmd
	ended chan struct{}
}

var vips = []netip.Addr{netip.MustParseAddr("10.99.0.100"), netip.MustParseAddr("fd99::100")}

// newLab starts hosts, with agents for the addresses. It waits until one of them has them.
func newLab(t testing.TB, hosts int, agents agentConfig) *lab {
	t.Helper()
	l := &lab{TB: t, dir: t.TempDir(), agents: agents}
	l.makeSwitch()
	l.etcd = rig.Component(t, "v1.29.15", "etcd")
	l.agents.Certs = l.dir
	l.makeCertificates(hosts)
	for i := range hosts {
		h := &labHost{lab: l, name: fmt.Sprintf("h%d", i+1), ip: fmt.Sprintf("10.99.0.%d", i+1)}
		h.ns = l.connect(h.name, h.ip+"/24", fmt.Sprintf("fd99::%d/64", i+1))
		l.hosts = append(l.hosts, h)
	}
	ns := l.connect("cl", "10.99.0.50/24", "fd99::50/64")
	for _, h := range l.hosts {
		h.startEtcd()
		h.startAPI()
		h.startAgent()
	}
	l.client = newClient(l, ns, agents.Addresses)
	l.settle()
	return l
}

// makeSwitch creates the namespace with the bridge.
func (l *lab) makeSwitch() {
	l.Helper()
	rig.Root(l)
	rig.Tool(l, "ip")
	l.prefix = fmt.Sprintf("vip%d", os.Getpid())
	l.ip("-n", l.namespace("sw"), "link", "add", "br0", "up", "type", "bridge", "forward_delay", "0")
}

func (l *lab) ip(args ...string) {
	l.Helper()
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		l.Fatalf("ip %s: %v: %s", strings.Join(args, " "), err, out)
	}
}

func (l *lab) namespace(name string) (ns string) {
	l.Helper()
	ns = l.prefix + name
	l.ip("netns", "add", ns)
	l.Cleanup(func() { _ = exec.Command("ip", "netns", "del", ns).Run() })
	l.ip("-n", ns, "link", "set", "lo", "up")
	return ns
}

// connect creates a namespace with eth0 on the bridge.
func (l *lab) connect(name string, addresses ...string) (ns string) {
	l.Helper()
	ns = l.namespace(name)
	sw := l.prefix + "sw"
	l.ip("-n", sw, "link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", ns)
	for _, a := range addresses {
		l.ip("-n", ns, "address", "add", a, "dev", "eth0", "nodad")
	}
	l.ip("-n", sw, "link", "set", name, "master", "br0", "up")
	l.ip("-n", ns, "link", "set", "eth0", "up")
	return ns
}

// start starts a command in the namespace of a host.
func (h *labHost) start(what string, environment []string, args ...string) *process {
	l := h.lab
	l.Helper()
	cmd := exec.Command("ip", append([]string{"netns", "exec", h.ns}, args...)...)
	cmd.Env = append(os.Environ(), environment...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	f, err := os.OpenFile(filepath.Join(l.dir, h.name+"-"+what+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		l.Fatal(err)
	}
	defer f.Close()
	cmd.Stdout, cmd.Stderr = f, f
	if err := cmd.Start(); err != nil {
		l.Fatal(err)
	}
	p := &process{cmd, make(chan struct{})}
	go func() { _ = cmd.Wait(); close(p.ended) }()
	l.Cleanup(p.kill)
	return p
}

func (p *process) kill() {
	_ = p.Process.Kill()
	<-p.ended
}

func (p *process) signal(s syscall.Signal) { _ = p.Process.Signal(s) }

func (h *labHost) startEtcd() {
	var cluster []string
	for _, o := range h.lab.hosts {
		cluster = append(cluster, o.name+"=https://"+o.ip+":2380")
	}
	file := func(name string) string { return filepath.Join(h.lab.dir, name) }
	h.etcd = h.start("etcd", nil, h.lab.etcd, "--name", h.name, "--data-dir", file(h.name), "--log-level", "error", "--unsafe-no-fsync",
		"--listen-client-urls", "https://127.0.0.1:2379,https://"+h.ip+":2379", "--advertise-client-urls", "https://"+h.ip+":2379",
		"--listen-peer-urls", "https://"+h.ip+":2380", "--initial-advertise-peer-urls", "https://"+h.ip+":2380",
		"--initial-cluster", strings.Join(cluster, ","),
		"--cert-file", file("tls.crt"), "--key-file", file("tls.key"), "--trusted-ca-file", file("ca.crt"), "--client-cert-auth",
		"--peer-cert-file", file("tls.crt"), "--peer-key-file", file("tls.key"), "--peer-trusted-ca-file", file("ca.crt"), "--peer-client-cert-auth")
}

func (h *labHost) startAPI() { h.api = h.help("api", h.name) }

func (h *labHost) startAgent() {
	c := h.lab.agents
	c.Socket = h.socket()
	data, err := json.Marshal(c)
	if err != nil {
		h.lab.Fatal(err)
	}
	h.agent = h.help("agent", string(data))
}

func (h *labHost) socket() string { return filepath.Join(h.lab.dir, h.name+".sock") }

func (h *labHost) help(role, argument string) *process {
	self, err := os.Executable()
	if err != nil {
		h.lab.Fatal(err)
	}
	return h.start(role, []string{helperVariable + "=" + role + " " + argument}, self)
}

// ask sends a request to the agent of a host.
func (h *labHost) ask(method, path string) ([]byte, error) {
	c := http.Client{Timeout: 15 * time.Second, Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", h.socket())
		}}}
	request, err := http.NewRequest(method, "http://agent"+path, nil)
	if err != nil {
		return nil, err
	}
	r, err := c.Do(request)
	if err != nil {
		return nil, err
	}
	defer r.Body.Close()
	data, err := io.ReadAll(r.Body)
	if err == nil && r.StatusCode != http.StatusOK {
		err = errors.New(strings.TrimSpace(string(data)))
	}
	return data, err
}

func (h *labHost) status() (s Status) {
	data, err := h.ask("GET", "/status")
	if err == nil {
		err = json.Unmarshal(data, &s)
	}
	if err != nil {
		s.Reason = err.Error()
	}
	return s
}

func (h *labHost) handover() error {
	_, err := h.ask("POST", "/handover")
	return err
}

// hasAddress reports whether the kernel of a host has one of the addresses.
func (h *labHost) hasAddress() bool {
	out, err := exec.Command("ip", "-n", h.ns, "-o", "address", "show", "dev", "eth0").CombinedOutput()
	if err != nil {
		h.lab.Fatalf("%v: %s", err, out)
	}
	for _, a := range h.lab.agents.Addresses {
		if strings.Contains(string(out), " "+a.String()+"/") {
			return true
		}
	}
	return false
}

// port changes the host's port on the switch.
func (h *labHost) port(state ...string) {
	h.lab.ip(append([]string{"-n", h.lab.prefix + "sw", "link", "set", h.name}, state...)...)
}

// waitServed waits until one of the hosts alone serves the addresses.
func (l *lab) waitServed(timeout time.Duration, by ...*labHost) *labHost {
	l.Helper()
	deadline := time.Now().Add(timeout)
	for {
		name, all := l.client.served()
		for _, h := range by {
			if all && h.name == name {
				return h
			}
		}
		if time.Now().After(deadline) {
			l.logHosts()
			l.Fatalf("after %s, %q serves the address", timeout, name)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// others returns the other hosts.
func (l *lab) others(h *labHost) []*labHost {
	return slices.DeleteFunc(slices.Clone(l.hosts), func(o *labHost) bool { return o == h })
}

// settle waits until all members know the leader, and all agents agree with what the client sees.
func (l *lab) settle() (holder *labHost) {
	l.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for {
		name, all := l.client.served()
		for _, h := range l.hosts {
			s := h.status()
			all = all && s.Leader == name && s.APIServer == "" && s.Held == (h.name == name)
			if h.name == name {
				holder = h
			}
		}
		if all {
			return holder
		}
		if time.Now().After(deadline) {
			l.logHosts()
			l.Fatalf("the hosts do not agree; %q serves the address", name)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// onlyHolder waits until one host alone has the addresses.
func (l *lab) onlyHolder() *labHost {
	l.Helper()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		held := slices.DeleteFunc(slices.Clone(l.hosts), func(h *labHost) bool { return !h.hasAddress() })
		if len(held) == 1 {
			return held[0]
		}
		if time.Now().After(deadline) {
			l.logHosts()
			l.Fatalf("%d hosts have the address", len(held))
		}
	}
}

// agree waits until all agents know by its name which host has the addresses.
func (l *lab) agree(holder *labHost) {
	l.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for _, h := range l.hosts {
		for {
			list := h.status().Lasting(time.Now())
			if len(list) == 1 && list[0].Name == holder.name && list[0].Address != "" {
				break
			}
			if time.Now().After(deadline) {
				l.Fatalf("%s sees the addresses on %v, and %s has them", h.name, list, holder.name)
			}
			time.Sleep(50 * time.Millisecond)
		}
	}
}

// logHosts logs what the agents do and did.
func (l *lab) logHosts() {
	for _, h := range l.hosts {
		for _, what := range []string{"agent", "etcd"} {
			data, _ := os.ReadFile(filepath.Join(l.dir, h.name+"-"+what+".log"))
			l.Logf("%s, %s:\n%s", h.name, what, data)
		}
		l.Logf("%s: %+v", h.name, h.status())
	}
}

func (l *lab) makeCertificates(hosts int) {
	l.Helper()
	write := func(name, kind string, der []byte) {
		if err := os.WriteFile(filepath.Join(l.dir, name), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
			l.Fatal(err)
		}
	}
	caKey, err1 := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	key, err2 := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	ca := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	caDER, err3 := x509.CreateCertificate(rand.Reader, ca, ca, caKey.Public(), caKey)
	leaf := &x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "host"}, NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	for i := range hosts {
		leaf.IPAddresses = append(leaf.IPAddresses, net.IPv4(10, 99, 0, byte(i+1)))
	}
	der, err4 := x509.CreateCertificate(rand.Reader, leaf, ca, key.Public(), caKey)
	keyDER, err5 := x509.MarshalPKCS8PrivateKey(key)
	if err := errors.Join(err1, err2, err3, err4, err5); err != nil {
		l.Fatal(err)
	}
	write("ca.crt", "CERTIFICATE", caDER)
	write("tls.crt", "CERTIFICATE", der)
	write("tls.key", "PRIVATE KEY", keyDER)
}

// inNamespace runs a function in a network namespace. Sockets that it opens stay there. The thread must
// not end: processes that it started would end too (Pdeathsig).
func inNamespace(t testing.TB, ns string, f func()) {
	t.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		own, err1 := os.Open("/proc/thread-self/ns/net")
		other, err2 := os.Open("/run/netns/" + ns)
		if err := errors.Join(err1, err2); err != nil {
			done <- err
			return
		}
		defer own.Close()
		defer other.Close()
		err := unix.Setns(int(other.Fd()), unix.CLONE_NEWNET)
		if err == nil {
			f()
			err = unix.Setns(int(own.Fd()), unix.CLONE_NEWNET)
		}
		if err == nil {
			runtime.UnlockOSThread()
		}
		done <- err
	}()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// client observes the addresses from another host.
type client struct {
	mu       sync.Mutex
	families []*observed
}

// observed is what the client sees of one address.
type observed struct {
	address netip.Addr
	// answers has when each hardware address last answered for the address.
	answers map[string]time.Time
	// double is since when two answer, worst the longest time that two did.
	double time.Time
	worst  time.Duration
	// served is who served the last request; "" if it failed.
	served  string
	last    time.Time     // the end of the last good request
	longest time.Duration // without a good request
	failed  int
}

const sample = 20 * time.Millisecond

func newClient(l *lab, ns string, addresses []netip.Addr) *client {
	l.Helper()
	c := &client{}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	l.Cleanup(func() { cancel(); wg.Wait() })
	for _, a := range addresses {
		o := &observed{address: a, answers: map[string]time.Time{}, last: time.Now()}
		c.families = append(c.families, o)
		inNamespace(l, ns, func() {
			ifi, err := net.InterfaceByName("eth0")
			if err != nil {
				l.Error(err)
				return
			}
			s, err := neighbours.Open(ifi, a, nil)
			if err != nil {
				l.Error(err)
				return
			}
			l.Cleanup(func() { _ = s.Close() })
			go c.hear(s, o)
			wg.Go(func() {
				for ctx.Err() == nil {
					_ = s.Solicit()
					time.Sleep(sample)
				}
			})
		})
		wg.Go(func() { inNamespace(l, ns, func() { c.request(ctx, o) }) })
	}
	return c
}

func (c *client) hear(s neighbours.Segment, o *observed) {
	for {
		mac, err := s.Hear()
		if err != nil {
			return
		}
		c.mu.Lock()
		now := time.Now()
		o.answers[mac.String()] = now
		two := 0
		for _, at := range o.answers {
			if now.Sub(at) < 3*sample {
				two++
			}
		}
		switch {
		case two < 2:
			o.double = time.Time{}
		case o.double.IsZero():
			o.double = now
		default:
			o.worst = max(o.worst, now.Sub(o.double))
		}
		c.mu.Unlock()
	}
}

// request sends a request each 50 ms, in the thread of the namespace.
func (c *client) request(ctx context.Context, o *observed) {
	for ctx.Err() == nil {
		started := time.Now()
		name, err := who(netip.AddrPortFrom(o.address, apiPort))
		c.mu.Lock()
		if o.served = name; err == nil {
			now := time.Now()
			o.longest = max(o.longest, now.Sub(o.last))
			o.last = now
		} else {
			o.failed++
		}
		c.mu.Unlock()
		time.Sleep(50*time.Millisecond - time.Since(started))
	}
}

// who asks an API server for its name.
func who(at netip.AddrPort) (string, error) {
	conn, err := net.DialTimeout("tcp", at.String(), 250*time.Millisecond)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(250 * time.Millisecond))
	if _, err := io.WriteString(conn, "GET /who HTTP/1.0\r\n\r\n"); err != nil {
		return "", err
	}
	data, err := io.ReadAll(conn)
	_, body, ok := strings.Cut(string(data), "\r\n\r\n")
	if err == nil && !ok {
		err = io.ErrUnexpectedEOF
	}
	return body, err
}

// served returns who serves the last request, and whether it is the same for all addresses.
func (c *client) served() (name string, all bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	name = c.families[0].served
	for _, o := range c.families {
		if o.served != name {
			return name, false
		}
	}
	return name, name != ""
}

// reset begins a measurement.
func (c *client) reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, o := range c.families {
		o.worst, o.longest, o.failed, o.double = 0, 0, 0, time.Time{}
	}
}

// measured is the worst of all addresses since reset.
func (c *client) measured() (double, longest time.Duration, failed int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, o := range c.families {
		double, longest, failed = max(double, o.worst), max(longest, o.longest), failed+o.failed
	}
	return double, longest, failed
}
