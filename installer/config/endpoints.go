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

// Places in the service subnet that are taken on every cluster.
const (
	KubernetesServiceIndex = 1  // the "kubernetes" Service, made by the API server
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
	return netip.Addr{}, fmt.Errorf("the service subnet %q is too small to hold address number %d", subnet, i)
}

// LocalURL is this node's own API server, where ServerURL is everybody's way
// in.
func (c *Config) LocalURL() string {
	return "https://" + net.JoinHostPort(c.LocalAPIEndpoint.AdvertiseAddress,
		strconv.Itoa(int(c.LocalAPIEndpoint.BindPort)))
}

// SplitEndpoint takes "host", "host:port", "[v6]" or "[v6]:port" apart; port is
// def where none is given. The error quotes the endpoint.
func SplitEndpoint(endpoint string, def int) (host string, port int, err error) {
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
	if net.ParseIP(host) == nil && len(validation.IsDNS1123Subdomain(host)) > 0 {
		return "", 0, fmt.Errorf("%q: %q is neither an IP address nor a DNS name", endpoint, host)
	}
	return host, port, nil
}

// ServerURL is the address nodes use for the API: the control-plane endpoint
// where there is one, else this node's own.
func (c *Config) ServerURL() string {
	if c.ControlPlaneEndpoint != "" {
		if host, port, err := SplitEndpoint(c.ControlPlaneEndpoint, int(c.LocalAPIEndpoint.BindPort)); err == nil {
			return "https://" + net.JoinHostPort(host, strconv.Itoa(port))
		}
	}
	return "https://" + net.JoinHostPort(c.LocalAPIEndpoint.AdvertiseAddress, strconv.Itoa(int(c.LocalAPIEndpoint.BindPort)))
}
