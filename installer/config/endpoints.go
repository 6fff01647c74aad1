package config

import (
	"fmt"
	"math/big"
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// Places in the service subnet that are taken on every cluster.
const (
	KubernetesServiceIndex = 1  // the "kubernetes" Service, made by the API server
	DNSServiceIndex        = 10 // the "kube-dns" Service, kubeadm's choice
)

// ServiceIP returns the i-th address of the (first) service subnet.
func (n Networking) ServiceIP(i int64) (netip.Addr, error) {
	first, _, _ := strings.Cut(n.ServiceSubnet, ",")
	subnet, err := netip.ParsePrefix(first)
	if err != nil {
		return netip.Addr{}, fmt.Errorf("parsing the service subnet %q: %w", first, err)
	}
	sum := new(big.Int).SetBytes(subnet.Masked().Addr().AsSlice())
	sum.Add(sum, big.NewInt(i))
	raw := make([]byte, subnet.Addr().BitLen()/8)
	if sum.BitLen() <= len(raw)*8 {
		ip, _ := netip.AddrFromSlice(sum.FillBytes(raw))
		if subnet.Contains(ip) {
			return ip, nil
		}
	}
	return netip.Addr{}, fmt.Errorf("the service subnet %q is too small to hold address number %d", first, i)
}

// LocalURL is this node's own API server, where ServerURL is everybody's way
// in.
func (c *Config) LocalURL() string {
	return "https://" + net.JoinHostPort(c.LocalAPIEndpoint.AdvertiseAddress,
		strconv.Itoa(int(c.LocalAPIEndpoint.BindPort)))
}
