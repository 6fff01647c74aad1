package probe

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"

	"airlift/installer/clustertest/diagnosis"
	"airlift/installer/endpoint/neighbours"
)

// proxyHealth is where kube-proxy reports its health, by default.
const proxyHealth = "http://127.0.0.1:10256/healthz"

// forwardingKeys are the kernel parameters without which a node forwards no packets of its pods.
const forwarding4, forwarding6 = "net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"

// forwardingOf is the kernel parameter of one interface: it forwards packets that it receives. sysctl takes this form, too, which a name with
// dots needs.
const forwardingOf = "net/ipv4/conf/%s/forwarding"

// forwardingText are these parameters. A finding has them in a command.
var forwardingText = regexp.MustCompile(`^(net\.ipv4\.ip_forward|net\.ipv6\.conf\.all\.forwarding|net/ipv4/conf/[A-Za-z0-9_][A-Za-z0-9_.@:-]{0,14}/forwarding)$`)

// host looks at what the host itself has.
func (r *run) host(ctx context.Context) {
	if r.IPv6 {
		r.saw(diagnosis.Forwarding, "", forwarding6, enabled(forwarding6))
	}
	if r.IPv4 {
		r.saw(diagnosis.Forwarding, "", forwarding4, enabled(forwarding4))
		if enabled(forwarding4) == nil {
			for _, name := range interfaces(r.Peers) {
				key := fmt.Sprintf(forwardingOf, name)
				r.saw(diagnosis.Forwarding, "", key, enabled(key))
			}
		}
	}
	if r.Proxy {
		r.do(ctx, func() { r.saw(diagnosis.ProxyHealth, "", "", healthy(ctx, proxyHealth)) })
	}
	for _, p := range r.Peers {
		if p.Node != r.Node && len(p.Pods) > 0 {
			to, tunnel := route(p, r.Peers)
			r.report.Routes = append(r.report.Routes, to)
			if tunnel != "" {
				r.report.Tunnel = tunnel
			}
		}
	}
}

// interfaces returns the names of the interfaces that have the routes to pods of all nodes, also this one.
func interfaces(peers []Peer) (names []string) {
	for _, p := range peers {
		for _, text := range p.Pods {
			address, err := netip.ParseAddr(text)
			if err != nil || !address.Is4() {
				continue
			}
			routes, err := netlink.RouteGet(address.AsSlice())
			if err != nil || len(routes) == 0 {
				continue
			}
			link, err := netlink.LinkByIndex(routes[0].LinkIndex)
			if err != nil || link.Attrs().Flags&net.FlagLoopback != 0 || slices.Contains(names, link.Attrs().Name) {
				continue
			}
			names = append(names, link.Attrs().Name)
		}
	}
	return names
}

func enabled(key string) error {
	if !strings.Contains(key, "/") {
		key = strings.ReplaceAll(key, ".", "/")
	}
	value, err := os.ReadFile("/proc/sys/" + key)
	if err == nil && strings.TrimSpace(string(value)) == "0" {
		return errors.New("it is 0")
	}
	return nil // what cannot be read is no failure
}

// healthy asks an HTTP server of this host for its health.
func healthy(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, connectTime)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	answer, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: dial}}).Do(request)
	if err != nil {
		return plain(err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("it answers %s", answer.Status)
	}
	return nil
}

// tunnels are the types of interfaces that carry packets to other hosts by themselves, and those whose port is known.
var tunnels = []string{"vxlan", "geneve", "wireguard", "ipip", "sit", "ip6tnl", "gre", "tun"}

// route returns the route of this host to the pods of a node, and what carries the packets. It knows what flannel, kube-router and most
// others do: a tunnel whose gateway is in the range of the node, or the node itself as the gateway.
func route(p Peer, all []Peer) (to RouteTo, tunnel string) {
	to.To = p.Node
	for _, text := range p.Pods {
		address, err := netip.ParseAddr(text)
		if err != nil || !inRanges(address, p.Ranges) {
			continue // a pod network with ranges of its own
		}
		routes, err := netlink.RouteGet(address.AsSlice())
		if err != nil || len(routes) == 0 {
			to.Wrong = fmt.Sprintf("there is no route to %s", text)
			return to, ""
		}
		link, err := netlink.LinkByIndex(routes[0].LinkIndex)
		if err != nil {
			continue
		}
		through := fmt.Sprintf("packets to %s leave through %s", text, link.Attrs().Name)
		gateway, ok := netip.AddrFromSlice(routes[0].Gw)
		switch gateway = gateway.Unmap(); {
		case !ok && !slices.Contains(tunnels, link.Type()):
			to.Wrong = through
			return to, ""
		case ok && !p.has(gateway):
			to.Wrong = fmt.Sprintf("%s to %s, which is not %s", through, gateway, p.Node)
			to.Detour = slices.ContainsFunc(all, func(other Peer) bool { return other.has(gateway) })
			return to, ""
		}
		if v, ok := link.(*netlink.Vxlan); ok {
			tunnel = fmt.Sprintf("UDP %d (vxlan)", v.Port)
		}
	}
	return to, tunnel
}

// has reports whether an address belongs to the node.
func (p Peer) has(a netip.Addr) bool {
	return inRanges(a, p.Ranges) || slices.Contains(p.Hosts, a.String())
}

// hostTo asks another host: by ICMP, by the port of its kubelet, and by ICMP with full packets. One answer is enough, because a site may
// drop the others.
func (r *run) hostTo(ctx context.Context, p Peer) {
	if p.Node == r.Node {
		return
	}
	for _, address := range p.Hosts {
		family := FamilyOf(address)
		err := echo(ctx, address, 64, tries)
		echoes := err == nil
		if err != nil && p.KubeletPort != 0 {
			var conn net.Conn
			if conn, err = dial(ctx, "tcp", net.JoinHostPort(address, fmt.Sprint(p.KubeletPort))); err == nil {
				_ = conn.Close()
			}
		}
		r.saw(diagnosis.HostReach, p.Node, family, err)
		if !echoes {
			continue
		}
		mtu := mtuTo(net.JoinHostPort(address, "9"))
		if err := echo(ctx, address, mtu-headers(address), tries/2); err != nil {
			r.saw(diagnosis.HostLarge, p.Node, family, fmt.Errorf("packets of %d bytes get no answer, the largest that does has %d", mtu, largest(ctx, address, mtu)))
		} else {
			r.saw(diagnosis.HostLarge, p.Node, family, nil)
		}
	}
}

// minMTU is the smallest MTU of IPv4 that hosts must accept.
const minMTU = 576

// largest returns the size of the largest packet that is answered.
func largest(ctx context.Context, address string, mtu int) int {
	low, high := minMTU, mtu
	for high-low > 1 && ctx.Err() == nil {
		middle := (low + high) / 2
		if echo(ctx, address, middle-headers(address), 2) == nil {
			low = middle
		} else {
			high = middle
		}
	}
	return low
}

// echoTime is how long an answer to an echo may take: hosts of a cluster are near each other.
const echoTime = 400 * time.Millisecond

// echo sends ICMP echo requests with a payload, which are not fragmented, until one is answered.
func echo(ctx context.Context, address string, size, times int) error {
	network, protocol := "ip4:icmp", 1
	var kind, answer icmp.Type = ipv4.ICMPTypeEcho, ipv4.ICMPTypeEchoReply
	if FamilyOf(address) == "IPv6" {
		network, protocol, kind, answer = "ip6:ipv6-icmp", 58, ipv6.ICMPTypeEchoRequest, ipv6.ICMPTypeEchoReply
	}
	to, err := net.ResolveIPAddr(network[:3], address)
	if err != nil {
		return err
	}
	packets, err := net.ListenPacket(network, "")
	if err != nil {
		return err
	}
	defer packets.Close()
	conn := packets.(*net.IPConn)
	dontFragment(conn)
	payload := make([]byte, size)
	copy(payload, rand.Text())
	request, err := (&icmp.Message{Type: kind, Body: &icmp.Echo{ID: os.Getpid() & 0xffff, Seq: 1, Data: payload}}).Marshal(nil)
	if err != nil {
		return err
	}
	buffer := make([]byte, 1<<16)
	last := errNoAnswer
	for range times {
		if ctx.Err() != nil {
			break
		}
		if _, err := conn.WriteTo(request, to); err != nil {
			last = err
		}
		_ = conn.SetReadDeadline(time.Now().Add(echoTime))
		for {
			n, _, err := conn.ReadFrom(buffer)
			if err != nil {
				if !errors.Is(err, os.ErrDeadlineExceeded) {
					last = err
					pause(ctx, echoTime)
				}
				break
			}
			message, err := icmp.ParseMessage(protocol, buffer[:n])
			if err != nil || message.Type != answer {
				continue
			}
			if body, ok := message.Body.(*icmp.Echo); ok && string(body.Data) == string(payload) {
				return nil
			}
		}
	}
	return plain(last)
}

// holders asks on the network of this host who has the address of a Service. A node that has just got the address first looks whether it is free.
func (r *run) holders(ctx context.Context, c Check, began time.Time) error {
	address, err := netip.ParseAddr(c.Address)
	if err != nil {
		return err
	}
	ifi, err := interfaceOf(address)
	if err != nil {
		return err
	}
	for {
		macs, err := neighbours.Holders(ctx, address, ifi.Name)
		if err != nil {
			return err
		}
		if len(macs) == 0 && c.To != r.Node && time.Since(began) < settleTime {
			continue
		}
		h := Holder{Address: c.Address, Own: ifi.HardwareAddr.String()}
		for _, mac := range macs {
			h.MACs = append(h.MACs, mac.String())
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.report.Holders = append(r.report.Holders, h)
		return nil
	}
}

// interfaceOf returns the interface that has a subnet with an address.
func interfaceOf(address netip.Addr) (*net.Interface, error) {
	list, err := net.Interfaces()
	if err != nil {
		return nil, err
	}
	for _, i := range list {
		addresses, _ := i.Addrs() // of one that is gone
		for _, a := range addresses {
			if p, err := netip.ParsePrefix(a.String()); err == nil && !p.IsSingleIP() && p.Contains(address) && len(i.HardwareAddr) > 0 && i.Flags&net.FlagUp != 0 {
				return &i, nil
			}
		}
	}
	return nil, fmt.Errorf("no interface has a subnet with %s", address)
}
