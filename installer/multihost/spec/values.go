package spec

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"airlift/installer/config"
	"airlift/internal/documents/problems"
)

// checkDocuments checks kubeadm's documents, and their values if the bundle is known.
func (r *reader) checkDocuments(c *Cluster) {
	f, warnings, wrong := config.ReadParts(r.kubeadm.parts)
	r.found(wrong)
	r.warnings = append(r.warnings, warnings...)
	if r.target == nil {
		return
	}
	known := problems.List{Problems: slices.Clone(r.Problems)}
	k := r.target.Checker(r.probe(c, f.Init.Networking))
	complete(f, c)
	k.Values(f)
	if slices.ContainsFunc(c.Hosts, func(h Host) bool { return h.Patches == "" }) {
		k.Components(f, nil)
	}
	for _, h := range c.Hosts {
		if set := r.patches[h.Patches]; set != nil {
			k.Components(f, set)
			delete(r.patches, h.Patches) // once is enough
		}
	}
	wrong, warnings = k.Found()
	for i := range wrong {
		wrong[i].Text, wrong[i].Hint = ofFile.Replace(wrong[i].Text), ofFile.Replace(wrong[i].Hint)
	}
	r.found(slices.DeleteFunc(wrong, func(p problems.Problem) bool { return known.Has(p.Field) }))
	r.warnings = append(r.warnings, warnings...)
}

// ofFile replaces flags of init by what a cluster.yaml has instead.
var ofFile = strings.NewReplacer("--control-plane-vip", "endpoint.vip", "--control-plane-balancer", "endpoint.balancer", "--control-plane-endpoint", "endpoint.address",
	"--embedded-registry", "embeddedRegistry", "--apiserver-bind-port", "localAPIEndpoint.bindPort in InitConfiguration")

// complete adds to kubeadm's documents what apply adds for each host.
func complete(f *config.File, c *Cluster) {
	f.Init.ClusterName, f.Init.ControlPlaneEndpoint = c.Name, c.Endpoint.Address
	for _, vip := range c.Endpoint.VIP {
		f.Init.Endpoint.VIPs = append(f.Init.Endpoint.VIPs, vip.String())
	}
	f.Init.Endpoint.Balancer, f.Init.Registry.Used = c.Endpoint.Balancer, c.EmbeddedRegistry
	if f.Join != nil {
		d := &f.Join.Discovery
		d.Token, d.APIServerEndpoint, d.UnsafeSkipCAVerification = "000000.0000000000000000", "cluster:6443", true
	}
}

// probe checks the addresses of the hosts, and returns the one of the first control plane; "" if it is not known.
func (r *reader) probe(c *Cluster, n config.Networking) (address string) {
	first := slices.IndexFunc(c.Hosts, func(h Host) bool { return h.Role == ControlPlane })
	family := config.IPv4
	if first >= 0 && len(c.Hosts[first].NodeIP) > 0 {
		address = c.Hosts[first].NodeIP[0].String()
		family = config.FamilyOf(c.Hosts[first].NodeIP[0])
	}
	n = n.WithDefaults(cmp.Or(n.Family(), family), r.target.CNI)
	for i, h := range c.Hosts {
		at := fmt.Sprintf("hosts[%d]", i)
		for _, ip := range h.NodeIP {
			of, within := n.RangeOf(ip)
			if !within {
				continue
			}
			r.Add(r.Lines.Nearest("%s.nodeIP", at), "write the address of the host, or another "+of.Field+" in ClusterConfiguration",
				"%s.nodeIP %s is in the cluster's range of %s addresses, %s", at, ip, of.Of, of.Prefix)
			if i == first {
				address = ""
			}
		}
		ip, err := netip.ParseAddr(h.SSH.Address)
		if of, within := n.RangeOf(ip); err == nil && within && len(h.NodeIP) == 0 {
			r.warn(r.Lines.Nearest("%s.%s", at, r.whereAddress(at)), "%s is in the cluster's range of %s addresses, %s: the host cannot be a node with this address", ip, of.Of, of.Prefix)
		}
	}
	return address
}
