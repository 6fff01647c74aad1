package upgradecheck

import (
	"fmt"
	"strings"

	"airlift/installer/config"
	"airlift/installer/host/kernel"
	"airlift/installer/preflight"
)

// ProxyMode warns of what another mode of kube-proxy needs, and leaves on the nodes.
func ProxyMode(former, next *config.Config) (list []preflight.Problem) {
	was, is := proxyMode(former), proxyMode(next)
	if was == is || next.Proxy.Disabled {
		return nil
	}
	if was != "nftables" && is != "nftables" { // otherwise, kube-proxy removes the rules of the other mode itself
		list = append(list, preflight.Problem{Name: "ProxyMode", Message: fmt.Sprintf("kube-proxy goes from %s to %s, and does not remove the rules of the former mode", was, is),
			Fix: "afterwards, reboot one node after the other"})
	}
	if is == "ipvs" {
		modules := strings.Join(kernel.KubeProxyModules(is, next.KubeProxy.IPVS.Scheduler), " ")
		list = append(list, preflight.Problem{Name: "ProxyMode", Message: "kube-proxy's mode ipvs needs these kernel modules on each node: " + modules,
			Fix: "first, on each node: modprobe -a " + modules + "; and write the names to a file in /etc/modules-load.d, one on each line"})
	}
	return list
}

// proxyMode returns the mode of kube-proxy.
func proxyMode(c *config.Config) string {
	if c.KubeProxy == nil || c.KubeProxy.Mode == "" {
		return "iptables"
	}
	return string(c.KubeProxy.Mode)
}
