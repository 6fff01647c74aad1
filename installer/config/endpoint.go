package config

import (
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"airlift/internal/documents"
)

// BalancerPort is where the balancer of every node listens, on its loopback address. It is not the port of the API
// server, which listens on all addresses of a control plane. k0s uses the same port.
const BalancerPort = 7443

// Endpoint is how nodes and users reach the API of several control planes without a load balancer. kubeadm has no fields
// for it: the cluster keeps it in an own ConfigMap.
type Endpoint struct {
	// VIPs are virtual addresses, of each family at most one. A healthy control plane has them.
	VIPs []string `json:"vips,omitempty"`
	// Balancer makes each node run a balancer, through which the node's own processes reach the API servers.
	Balancer bool `json:"balancer,omitempty"`
	// Change is the last change of a running cluster, nil if init made the endpoint.
	Change *EndpointChange `json:"change,omitempty"`
}

// An EndpointChange is what the nodes of a cluster need to follow a change of its endpoint, and to undo it.
type EndpointChange struct {
	// Number counts the changes. A node that follows one records its number.
	Number int `json:"number"`
	// Undone is set if the change undid one. Its nodes may still run what Before has.
	Undone bool `json:"undone,omitempty"`
	// Server is the URL at which nodes without a balancer reach the API.
	Server string `json:"server"`
	// Before is how it was.
	Before FormerEndpoint `json:"before"`
	// Published is set when all control planes serve the endpoint, and joining nodes may use it.
	Published bool `json:"published,omitempty"`
	// InAddOns is set when kube-proxy and flannel use it, which is last.
	InAddOns bool `json:"inAddOns,omitempty"`
	// Pending is what the ConfigMap kubeadm-config is to have, nil as soon as it has it.
	Pending *PendingEndpoint `json:"pending,omitempty"`
}

// Former returns the server that kube-proxy, flannel and nodes that are behind may still use after the last change, "host:port"; "" if
// they use none that the change replaced. behind is set if a node has not followed.
func (e Endpoint) Former(behind bool) string {
	c := e.Change
	if c == nil || c.Number == 0 || c.InAddOns && !behind || c.Before.Balancer {
		return ""
	}
	return strings.TrimPrefix(c.Before.Server, "https://")
}

// A PendingEndpoint is the part of an endpoint that kubeadm's ClusterConfiguration has.
type PendingEndpoint struct {
	ControlPlaneEndpoint string   `json:"controlPlaneEndpoint,omitempty"`
	CertSANs             []string `json:"certSANs,omitempty"`
}

// A FormerEndpoint is what a change of the endpoint replaced.
type FormerEndpoint struct {
	VIPs                 []string `json:"vips,omitempty"`
	Balancer             bool     `json:"balancer,omitempty"`
	ControlPlaneEndpoint string   `json:"controlPlaneEndpoint,omitempty"`
	CertSANs             []string `json:"certSANs,omitempty"`
	Server               string   `json:"server"`
}

// Where the cluster keeps the endpoint, in kube-system.
const EndpointConfigMap, EndpointKey = "airlift-endpoint", "endpoint.yaml"

// Encode returns the endpoint as YAML.
func (e Endpoint) Encode() ([]byte, error) { return documents.Encode("Endpoint", e) }

// DecodeEndpoint reads what Encode returns.
func DecodeEndpoint(data []byte) (e Endpoint, err error) {
	return e, documents.Decode(data, "Endpoint", &e)
}

// Used reports whether hosts run the endpoint's service.
func (e Endpoint) Used() bool { return e.Balancer || len(e.VIPs) > 0 }

// Addresses are the virtual addresses. It omits text that is no address, which validation refuses.
func (e Endpoint) Addresses() (list []netip.Addr) {
	for _, text := range e.VIPs {
		if a, err := netip.ParseAddr(text); err == nil {
			list = append(list, a)
		}
	}
	return list
}

// BalancerAddress is the address at which each node's balancer listens, "host:port".
func (c *Config) BalancerAddress() string {
	return net.JoinHostPort(c.BalancerHost(), strconv.Itoa(BalancerPort))
}

// BalancerHost is the loopback address of BalancerAddress.
func (c *Config) BalancerHost() string {
	if c.Networking.Family() == IPv6 {
		return "::1"
	}
	return "127.0.0.1"
}

// NodeURL is the URL that the processes of a node use for the API: its balancer, or else ServerURL.
func (c *Config) NodeURL() string {
	if c.Endpoint.Balancer {
		return "https://" + c.BalancerAddress()
	}
	return c.ServerURL()
}

// KubeletURL is the URL at which the kubelet of a node reaches the API after the last change of the endpoint.
func (c *Config) KubeletURL(controlPlane bool) string {
	switch {
	case c.Endpoint.Balancer:
		return c.NodeURL()
	case controlPlane && c.ControlPlaneKubeletLocalMode():
		return c.LocalURL()
	}
	return c.Endpoint.Change.Server
}

// EndpointNames are the names and addresses that the endpoint adds to the API server's certificate.
func (c *Config) EndpointNames() []string {
	names := slices.Clone(c.Endpoint.VIPs)
	if c.Endpoint.Balancer {
		names = append(names, c.BalancerHost())
	}
	return names
}

// CompleteEndpoint sets the defaults of an endpoint that a running cluster gets, and checks it.
func (c *Config) CompleteEndpoint() error {
	c.completeEndpoint()
	v := &validator{origin: c.origin}
	if _, _, err := SplitEndpoint(c.ControlPlaneEndpoint, int(c.LocalAPIEndpoint.BindPort)); c.ControlPlaneEndpoint != "" && err != nil {
		v.addf("--control-plane-endpoint %s", err)
	}
	v.endpoint(c)
	return v.err()
}

// completeEndpoint adds the port to the control-plane endpoint, as kubeadm does
// before it stores it. Without one, the endpoint is the virtual address, or the balancer. The addresses
// become names in the API server's certificate, where also kubeadm finds them.
func (c *Config) completeEndpoint() {
	if c.ControlPlaneEndpoint == "" {
		switch {
		case len(c.Endpoint.VIPs) > 0:
			c.ControlPlaneEndpoint = net.JoinHostPort(c.Endpoint.VIPs[0], strconv.Itoa(int(c.LocalAPIEndpoint.BindPort)))
		case c.Endpoint.Balancer:
			c.ControlPlaneEndpoint = c.BalancerAddress()
		}
	}
	if host, port, err := SplitEndpoint(c.ControlPlaneEndpoint, int(c.LocalAPIEndpoint.BindPort)); c.ControlPlaneEndpoint != "" && err == nil {
		c.ControlPlaneEndpoint = net.JoinHostPort(host, strconv.Itoa(port))
	}
	for _, name := range c.EndpointNames() {
		if !slices.Contains(c.APIServer.CertSANs, name) {
			c.APIServer.CertSANs = append(slices.Clip(c.APIServer.CertSANs), name)
		}
	}
}

// registry checks the port of the embedded registry.
func (v *validator) registry(c *Config) {
	if c.Registry.Used && c.LocalAPIEndpoint.BindPort == RegistryPort {
		v.addf("--embedded-registry uses port %d, which is the API server's: choose another port with --apiserver-bind-port", RegistryPort)
	}
}

// endpoint checks how the API is reached.
func (v *validator) endpoint(c *Config) {
	const flag = "--control-plane-vip"
	families := map[bool]string{}
	for _, text := range c.Endpoint.VIPs {
		vip, err := netip.ParseAddr(text)
		switch {
		case err != nil:
			v.addf("%s %q is not an IP address", flag, text)
			continue
		case vip.Zone() != "" || !vip.IsGlobalUnicast() || vip.Is4In6():
			v.addf("%s %s cannot be the address of a host: choose a free address in the subnet of the control planes", flag, text)
		case families[vip.Is4()] != "":
			v.addf("%s has two %s addresses, %s and %s: give one of each family at most", flag, FamilyOf(vip), families[vip.Is4()], text)
		case slices.Contains(c.NodeIPs(), vip) || text == c.LocalAPIEndpoint.AdvertiseAddress:
			v.addf("%s %s is an address of this host: choose a free address in its subnet", flag, text)
		}
		if r, ok := c.Networking.RangeOf(vip); ok {
			v.addf("%s %s is in the cluster's range of %s addresses, %s: choose a free address in the subnet of the control planes", flag, text, r.Of, r.Prefix)
		}
		families[vip.Is4()] = text
	}
	if len(c.Endpoint.VIPs) > 0 && c.Etcd.External != nil {
		v.addf("%s needs an etcd on the control planes, whose leader has the address: use --control-plane-balancer with an external etcd", flag)
	}
	if c.Endpoint.Balancer && c.LocalAPIEndpoint.BindPort == BalancerPort {
		v.addf("--control-plane-balancer uses port %d, which is the API server's: choose another port with --apiserver-bind-port", BalancerPort)
	}
}
