package render

import (
	"encoding/json"
	"fmt"
	"net/netip"

	"airlift/installer/config"
)

// CNIConflistPath is the path in flannel's own manifest; the runtime uses the
// first file in that directory.
const CNIConflistPath = config.CNIConfDir + "/10-flannel.conflist"

// CNINetwork is the name of the pod network, under which CNI plugins store state.
const CNINetwork = "cbr0"

// CNIPlugins are the binaries that the CNI configuration needs; containerd itself
// runs loopback for each pod.
var CNIPlugins = []string{"bridge", "host-local", "portmap", "loopback"}

// vxlan adds an Ethernet (14), a vxlan (8), a UDP (8) and an IP header (20 or 40)
// to packets between nodes, which must not exceed the interface's MTU.
const (
	vxlanOverIPv4 = 50
	vxlanOverIPv6 = 70
)

type conflist struct {
	CNIVersion string `json:"cniVersion"`
	Name       string `json:"name"`
	Plugins    []any  `json:"plugins"`
}

type bridgePlugin struct {
	Type             string `json:"type"`
	Bridge           string `json:"bridge"`
	MTU              int    `json:"mtu"`
	HairpinMode      bool   `json:"hairpinMode"`
	IsDefaultGateway bool   `json:"isDefaultGateway"`
	IPMasq           bool   `json:"ipMasq"`
	IPAM             ipam   `json:"ipam"`
}

type ipam struct {
	Type   string          `json:"type"`
	Ranges [][]subnetRange `json:"ranges"`
}

type subnetRange struct {
	Subnet string `json:"subnet"`
}

type portmapPlugin struct {
	Type         string          `json:"type"`
	Capabilities map[string]bool `json:"capabilities"`
}

// CNIConflist returns the configuration for the bridge plugin that flannel's CNI
// plugin would generate on a node with these pod CIDRs, so that flannel's plugin
// is not needed. flanneld adds the routes between nodes and masquerades packets
// that leave the pod network, so the bridge plugin does neither.
func CNIConflist(cfg *config.Config, podCIDRs []string) ([]byte, error) {
	if len(podCIDRs) == 0 {
		return nil, fmt.Errorf("node %q has no pod CIDR yet", cfg.NodeRegistration.Name)
	}
	headers := vxlanOverIPv4
	var subnets []string
	for _, cidr := range podCIDRs {
		subnet, err := netip.ParsePrefix(cidr)
		if err != nil {
			return nil, fmt.Errorf("reading the pod CIDR of node %q: %w", cfg.NodeRegistration.Name, err)
		}
		if subnet.Addr().Is6() {
			headers = vxlanOverIPv6
		}
		subnets = append(subnets, subnet.String())
	}
	if cfg.Facts.MTU <= headers {
		return nil, fmt.Errorf("interface %q has an MTU of %d, too small for a vxlan", cfg.Facts.Interface, cfg.Facts.MTU)
	}
	return conflistJSON(cfg.Facts.MTU-headers, subnets)
}

func conflistJSON(mtu int, subnets []string) ([]byte, error) {
	addresses := ipam{Type: "host-local"}
	for _, subnet := range subnets {
		addresses.Ranges = append(addresses.Ranges, []subnetRange{{subnet}})
	}
	data, err := json.MarshalIndent(conflist{
		CNIVersion: "1.0.0",
		Name:       CNINetwork,
		Plugins: []any{
			bridgePlugin{Type: "bridge", Bridge: "cni0", MTU: mtu,
				HairpinMode: true, IsDefaultGateway: true, IPAM: addresses},
			portmapPlugin{Type: "portmap", Capabilities: map[string]bool{"portMappings": true}},
		},
	}, "", "  ")
	return append(data, '\n'), err
}
