package preflight

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http/httpproxy"
	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/util/validation"

	"airlift/installer/config"
	"airlift/installer/endpoint/neighbours"
	"airlift/installer/endpoint/vip"
)

// port requires a TCP port to be free, or, on a node of Airlift, to belong to the
// component that listens on it. Among bind, the flag bind-address gives the
// address to check, as in kubeadm 1.37.
func (s *subject) port(number int, owner string, bind ...config.Arg) check {
	address := ""
	for _, a := range bind {
		if a.Name == "bind-address" {
			address = a.Value // the last one wins
		}
	}
	return check{fmt.Sprintf("Port-%d", number), func(ctx context.Context) []Problem {
		name, pid, err := user(ctx, s.host.Path("/proc"), net.JoinHostPort(address, strconv.Itoa(number)), number)
		if err != nil {
			return Fail("", "listening on port %d: %v", number, err)
		}
		if pid == nobody {
			return nil
		}
		if name == owner && (s.Rerun || s.host.Records().Manages()) {
			return nil
		}
		if name == "" {
			return Fail("stop the process that uses it; find it with: ss -ltnp", "port %d is in use", number)
		}
		fix := "stop it, or configure it to use another port"
		if name == owner {
			fix = resetFix
		}
		return Fail(fix, "port %d is in use by %s (process %d)", number, name, pid)
	}}
}

const nobody = -1

// user finds the process that uses a port. pid is nobody if the port is free, and 0 if the process
// is not found. It may just have ended, as a container that fails again and again does: so this
// looks several times.
func user(ctx context.Context, proc, address string, port int) (name string, pid int, err error) {
	for range 5 {
		var lc net.ListenConfig
		l, err := lc.Listen(ctx, "tcp", address)
		if err == nil {
			return "", nobody, l.Close()
		}
		if !errors.Is(err, unix.EADDRINUSE) {
			return "", 0, err
		}
		if name, pid = listener(proc, port); name != "" {
			break
		}
		select {
		case <-ctx.Done():
			return "", 0, ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
	return name, pid, nil
}

// listener finds the process that listens on a TCP port: its socket's inode is
// in /proc/net/tcp, and among the open files of the process.
func listener(proc string, port int) (name string, pid int) {
	inode := listeningInode(proc, port)
	if inode == "" {
		return "", 0
	}
	links, err := filepath.Glob(proc + "/[0-9]*/fd/*")
	if err != nil {
		return "", 0
	}
	for _, link := range links {
		if target, err := os.Readlink(link); err != nil || target != "socket:["+inode+"]" {
			continue
		}
		dir := filepath.Dir(filepath.Dir(link))
		// Not the name in comm, which has at most 15 characters.
		cmdline, err := os.ReadFile(dir + "/cmdline")
		if err != nil {
			continue
		}
		first, _, _ := strings.Cut(string(cmdline), "\x00")
		if pid, err = strconv.Atoi(filepath.Base(dir)); err != nil {
			continue
		}
		return filepath.Base(first), pid
	}
	return "", 0
}

func listeningInode(proc string, port int) string {
	const listening = "0A" // TCP_LISTEN
	suffix := fmt.Sprintf(":%04X", port)
	for _, table := range []string{"tcp", "tcp6"} {
		data, err := os.ReadFile(proc + "/self/net/" + table)
		if err != nil {
			continue
		}
		for _, line := range strings.Split(string(data), "\n") {
			// sl local_address rem_address st tx:rx tr:when retrnsmt uid timeout inode
			f := strings.Fields(line)
			if len(f) > 9 && f[3] == listening && strings.HasSuffix(f[1], suffix) {
				return f[9]
			}
		}
	}
	return ""
}

// proxyTo warns if this process's environment sends requests for a host of the
// cluster to a proxy.
func (s *subject) proxyTo(address string) func(context.Context) []Problem {
	return func(context.Context) []Problem {
		if address == "" {
			return nil
		}
		target := &url.URL{Scheme: "https", Host: net.JoinHostPort(address, strconv.Itoa(config.DefaultBindPort))}
		proxy := proxyFor(target)
		if proxy == "" {
			return nil
		}
		return Warn("add "+address+" to NO_PROXY", "connections to %s go through the proxy %s", target, proxy)
	}
}

// proxyToRanges warns if requests to pods or Services would go through a proxy.
func (s *subject) proxyToRanges(lists ...config.CIDRs) func(context.Context) []Problem {
	return func(context.Context) []Problem {
		var found []Problem
		for _, list := range lists {
			for _, p := range list.Prefixes() {
				target := &url.URL{Scheme: "https", Host: net.JoinHostPort(p.Masked().Addr().Next().String(), "443")}
				if proxy := proxyFor(target); proxy != "" {
					found = append(found, Warn("add "+p.String()+" to NO_PROXY", "connections to %s go through the proxy %s", p, proxy)...)
				}
			}
		}
		return found
	}
}

func proxyFor(target *url.URL) string {
	proxy, err := httpproxy.FromEnvironment().ProxyFunc()(target)
	if err != nil || proxy == nil {
		return ""
	}
	return (&url.URL{Scheme: proxy.Scheme, Host: proxy.Host}).String() // without a user
}

// lookupTimeout limits the lookup of the node's own name: on an isolated host
// the resolver may never answer.
const lookupTimeout = 2 * time.Second

func (s *subject) hostname(ctx context.Context) []Problem {
	name := s.Config.NodeRegistration.Name
	if name == "" {
		name = s.Config.Facts.Hostname
	}
	if wrong := validation.IsDNS1123Subdomain(name); len(wrong) > 0 {
		return Fail("change the host's name (hostnamectl set-hostname), or use --node-name",
			"%q is not a valid node name: %s", name, strings.Join(wrong, "; "))
	}
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	if _, err := s.lookup(ctx, name); err != nil {
		return Warn("add it to /etc/hosts", "the host's name %q cannot be resolved", name)
	}
	return nil
}

// endpointTimeout limits the lookup of the control-plane endpoint's name. It is
// as long as the resolver's default: 5 s, and one more attempt.
const endpointTimeout = 10 * time.Second

// endpointName requires the name of the control-plane endpoint to resolve on this
// host. Otherwise the kubelet cannot register the node, and init would wait for
// that until its time limit.
func (s *subject) endpointName(ctx context.Context) []Problem {
	name, _, err := config.SplitEndpoint(s.Config.ControlPlaneEndpoint, config.DefaultBindPort)
	if err != nil || name == "" || net.ParseIP(name) != nil { // an invalid endpoint is refused before
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, endpointTimeout)
	defer cancel()
	if _, err := s.lookup(ctx, name); err != nil {
		return Fail("add the address of a control plane, a load balancer or a virtual IP to /etc/hosts on every host, such as: echo '"+
			s.Config.LocalAPIEndpoint.AdvertiseAddress+" "+name+"' >> /etc/hosts",
			"the control-plane endpoint's name %q cannot be resolved on this host: %v", name, err)
	}
	return nil
}

// controlPlaneEndpoint also requires that no API server answers at the endpoint
// before init: it would create a second cluster. The endpoint of a cluster that
// runs may answer already, also the one that it is to get: a load balancer.
func (s *subject) controlPlaneEndpoint(ctx context.Context) []Problem {
	if problems := s.endpointName(ctx); len(problems) > 0 || s.Role != Init || s.Rerun {
		return problems
	}
	endpoint := s.Config.ControlPlaneEndpoint
	if name, port, err := config.SplitEndpoint(endpoint, config.DefaultBindPort); endpoint != "" && err == nil && s.encrypts(ctx, net.JoinHostPort(name, strconv.Itoa(port))) {
		return Fail("let this host join that cluster; with cluster.yaml, keep one of its control planes there until the new ones have joined; or choose another endpoint",
			"a server that encrypts answers at the control-plane endpoint %s already: another cluster may have it", endpoint)
	}
	return nil
}

// encrypts connects to an address at which usually nothing answers.
func encrypts(ctx context.Context, address string) bool {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	conn, err := (&tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}).DialContext(ctx, "tcp", address)
	if err != nil {
		return false
	}
	return conn.Close() == nil
}

// nodeAddress requires that a joining node's addresses are outside of the cluster's ranges, and
// that its API server's address has the cluster's family. For init, such a configuration is not
// valid.
func (s *subject) nodeAddress(context.Context) []Problem {
	c := s.Config
	if s.Rerun {
		return nil
	}
	for _, ip := range c.NodeIPs() {
		if r, ok := c.Networking.RangeOf(ip); ok {
			return Fail(fmt.Sprintf("join with another address of this host, --node-ip=ADDRESS, or give it one outside of %s; the ranges of a cluster cannot be changed", r.Prefix),
				"this node's address %s (interface %s) is in the cluster's range of %s addresses, %s", ip, c.Facts.Interface, r.Of, r.Prefix)
		}
	}
	family := c.Networking.Family()
	if addr, err := netip.ParseAddr(c.LocalAPIEndpoint.AdvertiseAddress); err == nil && s.runsAPIServer() && family != "" && config.FamilyOf(addr) != family {
		return Fail("choose an "+string(family)+" address of this host with --apiserver-advertise-address",
			"the address of this host's API server, %s, is not %s as the cluster's first Service range, %s: the API server would not start", addr, family, c.Networking.ServiceSubnet)
	}
	return nil
}

// virtualAddresses requires that the virtual addresses are in a subnet of this host. A new cluster's must be free.
func (s *subject) virtualAddresses(ctx context.Context) (found []Problem) {
	addresses := s.Config.Endpoint.Addresses()
	if len(addresses) == 0 {
		return nil
	}
	name, err := vip.Find(addresses, "")
	if err != nil {
		return Fail("choose free addresses in the subnet of the control planes", "%v", err)
	}
	if s.Role != Init || s.Rerun {
		return nil
	}
	for _, a := range addresses {
		mac, err := neighbours.Probe(ctx, a, name)
		switch {
		case err != nil:
			found = append(found, Warn("check that no other host has it", "it is not known whether the virtual address %s is free: %v", a, err)...)
		case mac != nil:
			found = append(found, Fail("choose an address that no host has", "the virtual address %s is taken: the host with the hardware address %s has it", a, mac)...)
		}
	}
	return found
}

func (s *subject) firewalld(ctx context.Context) []Problem {
	state, err := s.host.Systemd().Unit(ctx, "firewalld.service")
	if err != nil || !state.Running() { // without systemd, the check Systemd fails
		return nil
	}
	return []Problem{{Warning: true, Minor: true, Message: "firewalld is active; the check Firewall reports which of this node's traffic it drops",
		Fix: "no action needed"}}
}
