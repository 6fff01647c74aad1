package config

import (
	"fmt"
	"math/big"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// Reserved addresses in the service subnet of every cluster.
const (
	KubernetesServiceIndex = 1  // the "kubernetes" Service, created by the API server
	DNSServiceIndex        = 10 // the "kube-dns" Service, kubeadm's choice
)

// ServiceIP returns the i-th address of the (first) service subnet.
func (n Networking) ServiceIP(i int64) (netip.Addr, error) {
	if len(n.ServiceSubnet.Prefixes()) == 0 {
		return netip.Addr{}, fmt.Errorf("the service subnet %q is not an address range", n.ServiceSubnet)
	}
	subnet := n.ServiceSubnet.Prefixes()[0]
	sum := new(big.Int).SetBytes(subnet.Masked().Addr().AsSlice())
	sum.Add(sum, big.NewInt(i))
	raw := make([]byte, subnet.Addr().BitLen()/8)
	if sum.BitLen() <= len(raw)*8 {
		ip, _ := netip.AddrFromSlice(sum.FillBytes(raw))
		if subnet.Contains(ip) {
			return ip, nil
		}
	}
	return netip.Addr{}, fmt.Errorf("the service subnet %q is too small for address number %d", subnet, i)
}

// LocalURL is the URL of this node's own API server.
func (c *Config) LocalURL() string {
	return "https://" + net.JoinHostPort(c.LocalAPIEndpoint.AdvertiseAddress,
		strconv.Itoa(int(c.LocalAPIEndpoint.BindPort)))
}

// Loopback is the loopback address of the family that the API server uses: etcd listens at it, and at no other one.
func (e APIEndpoint) Loopback() string {
	if addr, err := netip.ParseAddr(e.AdvertiseAddress); err == nil && addr.Unmap().Is6() {
		return "::1"
	}
	return "127.0.0.1"
}

// SplitEndpoint splits "host", "host:port", "[v6]" or "[v6]:port"; without a
// port, port is def. The error quotes the endpoint.
func SplitEndpoint(endpoint string, def int) (host string, port int, err error) {
	if _, rest, isURL := strings.Cut(endpoint, "://"); isURL {
		return "", 0, fmt.Errorf("%q is a URL: write %s", endpoint, strings.TrimRight(rest, "/"))
	}
	host, port = strings.Trim(endpoint, "[]"), def
	if net.ParseIP(host) == nil && strings.Contains(endpoint, ":") {
		h, p, err := net.SplitHostPort(endpoint)
		if err != nil {
			return "", 0, fmt.Errorf("%q is not HOST:PORT", endpoint)
		}
		if port, err = strconv.Atoi(p); err != nil || port < 1 || port > 65535 {
			return "", 0, fmt.Errorf("%q: port %q is not between 1 and 65535", endpoint, p)
		}
		host = h
	}
	if net.ParseIP(host) == nil && !isHostName(host) {
		return "", 0, fmt.Errorf("%q: %q %s", endpoint, host, wrongName(host))
	}
	return host, port, nil
}

func isHostName(s string) bool { return len(validation.IsDNS1123Subdomain(s)) == 0 }

// wrongName explains why a host is neither an IP address nor a name. It accepts the same names as
// kubeadm.
func wrongName(host string) string {
	const neither = "is neither an IP address nor a DNS name"
	switch plain := strings.ToLower(strings.TrimSuffix(host, ".")); {
	case plain != strings.ToLower(host) && isHostName(plain):
		return "ends with a dot: write " + plain
	case isHostName(plain):
		return "has capital letters: write " + plain + ", because kubeadm accepts only lower case"
	case strings.Contains(host, "%"):
		return "has a zone: write an address that all nodes reach, without %"
	case strings.Contains(host, "/"):
		return neither + ": write it without a path or the length of a prefix"
	case strings.Contains(host, "_"):
		return neither + ": a name of a host has no _"
	case strings.Contains(host, "*"):
		return neither + ": a wildcard is not one host"
	}
	return neither
}

// ServerURL is the URL that nodes use for the API: the control-plane endpoint if
// there is one, and otherwise this node's API server.
func (c *Config) ServerURL() string {
	if c.ControlPlaneEndpoint != "" {
		if host, port, err := SplitEndpoint(c.ControlPlaneEndpoint, int(c.LocalAPIEndpoint.BindPort)); err == nil {
			return "https://" + net.JoinHostPort(host, strconv.Itoa(port))
		}
	}
	return "https://" + net.JoinHostPort(c.LocalAPIEndpoint.AdvertiseAddress, strconv.Itoa(int(c.LocalAPIEndpoint.BindPort)))
}
