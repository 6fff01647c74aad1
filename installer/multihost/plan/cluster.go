package plan

import (
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"airlift/installer/config"
	"airlift/installer/multihost/facts"
	"airlift/installer/multihost/spec"
	"airlift/internal/documents"
)

// maxKubeletSkew is how many minor versions a kubelet may be older than the API server, and maxServerSkew how many an API
// server may be older than another one (kubernetes.io/releases/version-skew-policy).
const (
	maxKubeletSkew = 3
	maxServerSkew  = 1
)

// checkCluster compares what cannot change, or not in this way, with the file. Names that Kubernetes cannot have would be arguments of
// commands.
func (s *site) checkCluster() {
	named := slices.Collect(maps.Keys(s.nodes))
	for _, m := range s.cluster.EtcdMembers {
		if m.Name != "" { // has started
			named = append(named, m.Name)
		}
	}
	for _, name := range slices.Sorted(slices.Values(named)) {
		if len(validation.IsDNS1123Subdomain(name)) > 0 {
			s.problem(s.leader, "on that host: ./install status", "its answer is damaged", "its cluster has a node %q", name)
		}
	}
	if s.cluster.Name != s.Spec.Name {
		s.problem("", fmt.Sprintf("use the cluster.yaml of this cluster; or write name: %s", s.cluster.Name), "the name of a cluster cannot change",
			"cluster.yaml is for the cluster %s, and these hosts are the cluster %s", s.Spec.Name, s.cluster.Name)
	}
	if s.cluster.EmbeddedRegistry && !s.Spec.EmbeddedRegistry {
		s.problem("", "on a control plane: ./install registry disable; or write embeddedRegistry: true",
			"apply does not remove the registry: a kept file may be the last copy",
			"cluster.yaml has embeddedRegistry: false, and the cluster has the registry")
	}
}

// checkEndpoint refuses an edit that removes the endpoint, or a part of it: apply only adds to one.
func (s *site) checkEndpoint() {
	var has []string
	if s.cluster.Balancer && !s.Spec.Endpoint.Balancer {
		has = append(has, "balancer: true")
	}
	if len(s.cluster.VIP) > 0 && !s.hasVIP() {
		has = append(has, "vip: "+strings.Join(s.cluster.VIP, ","))
	}
	what := "cluster.yaml has another endpoint"
	if !s.wantsEndpoint() {
		what = "cluster.yaml has no endpoint"
		if len(has) == 0 && s.cluster.ControlPlaneEndpoint != "" {
			has = append(has, "address: "+s.cluster.ControlPlaneEndpoint)
		}
	}
	if len(has) > 0 {
		s.problem("", "write it to endpoint in cluster.yaml; or, on a control plane: ./install endpoint undo",
			"apply changes an endpoint, and does not remove it",
			"%s, and the cluster has %s", what, strings.Join(has, ", "))
	}
}

// hasVIP reports whether the cluster has the virtual addresses of the file.
func (s *site) hasVIP() bool {
	return slices.Equal(slices.Sorted(slices.Values(texts(s.Spec.Endpoint.VIP))), slices.Sorted(slices.Values(s.cluster.VIP)))
}

func (s *site) wantsEndpoint() bool {
	e := s.Spec.Endpoint
	return len(e.VIP) > 0 || e.Balancer || s.address != ""
}

// addressOf returns the endpoint that the user names, in the file or in kubeadm's ClusterConfiguration, or "".
func addressOf(c *spec.Cluster) string {
	if c.Endpoint.Address != "" {
		return c.Endpoint.Address
	}
	list, _ := documents.Read(c.Kubeadm)
	for _, d := range list {
		if n := documents.Value(d.Node, "controlPlaneEndpoint"); n != nil {
			return n.Value
		}
	}
	return ""
}

// endpointDiffers reports whether the plan changes the endpoint to the endpoint of the file. The last change ends first: nodes that do not
// follow it may use what the next one takes away.
func (s *site) endpointDiffers() bool { return s.otherEndpoint() && !s.endpointUnfinished() }

func (s *site) endpointUnfinished() bool {
	return slices.ContainsFunc(s.cluster.Nodes, func(n facts.ClusterNode) bool { return n.EndpointBehind })
}

// otherEndpoint reports whether the cluster has another endpoint than the file.
func (s *site) otherEndpoint() bool {
	if s.cluster == nil || !s.wantsEndpoint() {
		return false
	}
	return !s.hasVIP() || s.cluster.Balancer != s.Spec.Endpoint.Balancer ||
		s.address != "" && hostPort(s.address) != hostPort(s.cluster.ControlPlaneEndpoint)
}

// hostPort adds kubeadm's default port. An endpoint that cannot be read is returned as it is: spec refuses it.
func hostPort(endpoint string) string {
	host, port, err := config.SplitEndpoint(endpoint, 6443)
	if err != nil {
		return endpoint
	}
	return net.JoinHostPort(host, strconv.Itoa(port))
}

// checkVersions refuses downgrades, skipped minor versions and skew that Kubernetes does not support.
func (s *site) checkVersions() {
	to, err := minor(s.Version)
	if err != nil {
		s.problem("", "build the file again", "", "the version %q of the file %v", s.Version, err)
		return
	}
	from, err := minor(s.cluster.Version)
	switch {
	case err != nil:
		s.problem("", "write a version like v1.29.15 to kubernetesVersion in ConfigMap kube-system/kubeadm-config", "",
			"the version %q of the cluster %v", s.cluster.Version, err)
	case older(s.Version, s.cluster.Version):
		s.problem("",
			fmt.Sprintf("use the file of %s or a later one; to undo an upgrade, on each node, workers first: ./install upgrade undo",
				s.cluster.Version), "a downgrade is not possible",
			"this file has %s, and the cluster is %s", s.Version, s.cluster.Version)
		return
	case to > from+1:
		s.problem("", neededFiles(from, to), "an upgrade cannot skip a minor version", "this file has %s, and the cluster is %s",
			s.Version, s.cluster.Version)
		return
	}
	for _, n := range s.cluster.Nodes {
		if s.Remove && slices.ContainsFunc(s.leavers, func(l leaver) bool { return l.name == n.Name && !l.ready }) {
			continue // it leaves first
		}
		s.checkSkew(n.Name, n.Version, n.ControlPlane, to)
	}
	for _, h := range s.hosts {
		if h.Node != nil && !h.isNew() && h.Unknown["node.version"] == "" && h.Node.Version != s.nodes[h.Name].Version {
			s.checkSkew(h.Name, h.Node.Version, h.Role == spec.ControlPlane, to)
		}
	}
}

func (s *site) checkSkew(name, v string, controlPlane bool, to int) {
	m, err := minor(v)
	switch {
	case err != nil:
		s.problem(name, "see: kubectl get node "+name+" -o wide", "", "the version %q of its kubelet %v", v, err)
	case older(s.Version, v):
		s.problem(name, fmt.Sprintf("use the file of %s or a later one; or, on that host: ./install upgrade undo", v),
			"a kubelet must not be newer than the API server",
			"it has %s, and this file has %s", v, s.Version)
	case controlPlane && to-m > maxServerSkew:
		s.problem(name, s.wayUp(name, m, maxServerSkew), "control planes may differ by one minor version",
			"this control plane has %s, and this file has %s", v, s.Version)
	case to-m > maxKubeletSkew:
		s.problem(name, s.wayUp(name, m, maxKubeletSkew),
			fmt.Sprintf("kubelets may be up to %d minor versions older than the API server", maxKubeletSkew),
			"its kubelet is %s, and this file has %s", v, s.Version)
	}
}

// wayUp returns how a node of an older minor version gets the version of the file. Older files than the cluster's are refused.
func (s *site) wayUp(name string, from, skew int) string {
	if is, err := minor(s.cluster.Version); err == nil && is-from <= skew && older(s.cluster.Version, s.Version) {
		return fmt.Sprintf("upgrade it first, with the file of %s: ./install cluster apply", s.cluster.Version)
	}
	return fmt.Sprintf("no file can upgrade it; on a control plane: ./install node remove %s; then, on that host: ./install reset; apply lets it join again", name)
}

// neededFiles lists the files from one minor version to another, in order.
func neededFiles(from, to int) string {
	var list []string
	for m := from + 1; m < to; m++ {
		list = append(list, fmt.Sprintf("v1.%d", m))
	}
	return fmt.Sprintf("apply the files of these versions first, in this order: %s; to build one: bundle build --version 1.%d",
		strings.Join(list, ", "), from+1)
}
