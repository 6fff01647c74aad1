// Package reconfiguration computes what a running cluster becomes with other documents of kubeadm: the configuration, what a
// running cluster cannot change, the files that flags of its components name, and the order in which keys of its data change.
// It has no side effects.
package reconfiguration

import (
	"cmp"
	"fmt"
	"net"
	"path"
	"slices"
	"strconv"
	"strings"

	kubeletv1 "k8s.io/kubelet/config/v1beta1"
	"sigs.k8s.io/yaml"

	"airlift/installer/config"
)

// A Refusal is a change that a running cluster cannot make.
type Refusal struct {
	// Field is where the value is: "kubeadm.yaml:7: ClusterConfiguration.networking.podSubnet".
	Field string `json:"field"`
	// From and To are the values.
	From string `json:"from"`
	To   string `json:"to"`
	// Reason is why it cannot be changed, and Needed what is needed instead.
	Reason string `json:"reason"`
	Needed string `json:"needed"`
}

func (r Refusal) String() string {
	return fmt.Sprintf("%s is %s, and the cluster has %s: %s", r.Field, orNothing(r.To), orNothing(r.From), r.Reason)
}

func orNothing(value string) string {
	if value == "" {
		return "not set"
	}
	return strconv.Quote(value)
}

// A Node is the node on which a change begins.
type Node struct {
	Name      string
	CRISocket string
	Endpoint  config.APIEndpoint // zero on a worker
	// CgroupDriver is the driver of its kubelet and its container runtime.
	CgroupDriver string
	// StoredKubelet is the KubeletConfiguration that the cluster stores. Nodes with another driver than it has keep their own.
	StoredKubelet []byte
	// AddOns are CoreDNS and KubeProxy, if the cluster has them.
	AddOns []string
}

// Names of add-ons, as their phases have them.
const CoreDNS, KubeProxy = "coredns", "kube-proxy"

// What is needed instead of a change that is refused.
const (
	newCluster = "a new cluster with these values, to which the workloads move; for the data of a volume, use its own backup"
	newNode    = "remove the node, and let the host join again with this value; on a control plane: ./install node remove NAME; here: ./install reset; then the join command"
)

// Merge returns the configuration of a cluster whose stored one is replaced by the documents that a file gives, and what
// cannot be changed. A document replaces the stored one as a whole, as in init: a field that it leaves out gets its default.
// A field that cannot be changed keeps its value if the document leaves it out. A document that the file does not have stays.
// The configuration is not completed.
func Merge(stored config.Cluster, given *config.Given, n Node) (merged config.Cluster, refused []Refusal) {
	m := &merge{stored: stored, file: given, given: given.Config, node: n, cluster: stored}
	if given.Has(clusterKind) {
		m.mergeCluster()
	}
	given.CopyTo(&m.cluster)
	m.checkNode(n)
	m.checkKubelet(n)
	return m.cluster, m.refused
}

const clusterKind, initKind = "ClusterConfiguration", "InitConfiguration"

type merge struct {
	stored  config.Cluster
	file    *config.Given
	given   *config.Config // its values
	node    Node
	cluster config.Cluster // the result
	refused []Refusal
}

func (m *merge) refuse(field, from, to, reason, needed string) {
	m.refused = append(m.refused, Refusal{Field: m.file.At(field), From: from, To: to, Reason: reason, Needed: needed})
}

// keep returns the stored value, and refuses another one.
func (m *merge) keep(field, from, to, reason, needed string) string {
	if to != "" && to != from {
		m.refuse(field, from, to, reason, needed)
	}
	return from
}

func (m *merge) mergeCluster() {
	was, is := m.stored, m.given.Cluster
	at := func(field string) string { return clusterKind + "." + field }
	if is.KubernetesVersion != "" {
		if err := config.CheckVersion(is.KubernetesVersion, was.KubernetesVersion); err != nil {
			m.refuse(at("kubernetesVersion"), was.KubernetesVersion, is.KubernetesVersion, "another version is an upgrade",
				"write "+was.KubernetesVersion+" or leave it out; to upgrade, with the file of that version: ./install upgrade apply")
		}
	}
	is.KubernetesVersion = was.KubernetesVersion
	is.ClusterName = m.keep(at("clusterName"), cmp.Or(was.ClusterName, config.DefaultClusterName), is.ClusterName,
		"the controller manager and the kubeconfigs of users have the name of the cluster", newCluster)
	is.CertificatesDir = m.keep(at("certificatesDir"), cmp.Or(was.CertificatesDir, config.CertificatesDir), is.CertificatesDir,
		"the CAs and the certificates of all control planes are in this directory", "leave it out; a new cluster can have another directory")
	is.Networking = m.networking(at)
	is.ControlPlaneEndpoint = m.endpoint(at("controlPlaneEndpoint"))
	is.Endpoint, is.Registry, is.Reconfiguration, is.Kubelet, is.KubeProxy = was.Endpoint, was.Registry, was.Reconfiguration, was.Kubelet, was.KubeProxy
	is.Etcd = m.etcd(at)
	m.checkAddOn(at("dns.disabled"), was.DNS.Disabled, is.DNS.Disabled, CoreDNS, "deployment")
	m.checkAddOn(at("proxy.disabled"), was.Proxy.Disabled, is.Proxy.Disabled, KubeProxy, "daemonset")
	m.cluster = is
	m.checkArguments()
}

// checkAddOn refuses to disable an add-on that the cluster has, or to enable one that it does not have: reconfigure changes add-ons, but
// neither removes nor installs them, and nothing would upgrade a disabled one any more.
func (m *merge) checkAddOn(field string, was, is bool, name, kind string) {
	has := slices.Contains(m.node.AddOns, name)
	switch {
	case was == is:
	case is && has:
		m.refuse(field, "false", "true", "the cluster has the add-on, and nothing would upgrade it any more",
			"write false; to remove the add-on first: kubectl -n kube-system delete "+kind+" "+name)
	case !is && !has:
		m.refuse(field, "true", "false", "reconfigure does not install an add-on that the cluster does not have",
			"write true; to install the add-on first: ./install init phase addon "+name+" --config FILE")
	}
}

func (m *merge) networking(at func(string) string) config.Networking {
	was, is := m.stored.Networking, m.given.Networking
	m.keep(at("networking.serviceSubnet"), was.ServiceSubnet.String(), is.ServiceSubnet.String(),
		"each Service has an address of this range, and the API server's certificate has the first one", newCluster)
	m.keep(at("networking.podSubnet"), was.PodSubnet.String(), is.PodSubnet.String(),
		"each node has a part of this range for its pods, which it keeps as long as it exists", newCluster)
	m.keep(at("networking.dnsDomain"), cmp.Or(was.DNSDomain, config.DefaultDNSDomain), is.DNSDomain,
		"the tokens of service accounts, certificates and the configuration of workloads have names in this domain", newCluster)
	return was
}

// endpoint keeps the endpoint of the control plane, which has a command of its own: all nodes must follow in a certain order.
func (m *merge) endpoint(field string) string {
	was, is := m.stored.ControlPlaneEndpoint, m.given.ControlPlaneEndpoint
	port := cmp.Or(int(m.given.LocalAPIEndpoint.BindPort), config.DefaultBindPort)
	if is == "" || withPort(is, port) == withPort(was, port) {
		return was
	}
	m.refuse(field, was, is, "all nodes must follow another endpoint in an order that keeps the API reachable",
		"./install endpoint apply --control-plane-endpoint "+is+", and the commands that it prints; then reconfigure again with this file")
	return was
}

func withPort(endpoint string, port int) string {
	host, port, err := config.SplitEndpoint(endpoint, port)
	if endpoint == "" || err != nil {
		return endpoint
	}
	return net.JoinHostPort(host, strconv.Itoa(port))
}

func (m *merge) etcd(at func(string) string) config.Etcd {
	was, is := m.stored.Etcd, m.given.Cluster.Etcd
	const topology = "etcd's members have the data of the cluster, and another etcd has other data"
	const needed = "save a backup (./install etcd snapshot FILE), and restore it in a cluster with this etcd"
	if was.External == nil {
		if is.External != nil {
			m.refuse(at("etcd.external"), "etcd.local", "etcd.external", topology, needed)
			return was
		}
		is.Local.DataDir = m.keep(at("etcd.local.dataDir"), cmp.Or(was.Local.DataDir, config.EtcdDataDir), is.Local.DataDir,
			"etcd's data is in this directory on each control plane", newNode)
		return is
	}
	if m.file.Has(at("etcd.local")) {
		m.refuse(at("etcd.local"), "etcd.external", "etcd.local", topology, needed)
	}
	if is.External == nil {
		return was
	}
	if from, to := was.External.Endpoints, is.External.Endpoints; !slices.Equal(from, to) {
		m.refuse(at("etcd.external.endpoints"), strings.Join(from, ","), strings.Join(to, ","), topology,
			"if these are members of the same etcd, write them to ConfigMap kube-system/kubeadm-config, and then, on each control plane: ./install reconfigure node")
	}
	return is
}

// checkNode refuses another identity of the node.
func (m *merge) checkNode(n Node) {
	g := m.given
	name := strings.ToLower(strings.TrimSpace(g.NodeRegistration.Name))
	m.keep(initKind+".nodeRegistration.name", n.Name, name, "the certificate of the kubelet and the Node object have the name", newNode)
	if socket := g.NodeRegistration.CRISocket; socket != "" {
		m.keep(initKind+".nodeRegistration.criSocket", strings.TrimPrefix(n.CRISocket, "unix://"), strings.TrimPrefix(socket, "unix://"),
			"the containers of this node run in its container runtime", newNode)
	}
	if override, ok := config.LastArg(g.NodeRegistration.KubeletExtraArgs, "hostname-override"); ok {
		m.keep(initKind+".nodeRegistration.kubeletExtraArgs", n.Name, override, "the certificate of the kubelet and the Node object have the name", newNode)
	}
	own := g.LocalAPIEndpoint
	if n.Endpoint == (config.APIEndpoint{}) {
		return
	}
	const reason = "the certificate of this API server, etcd and its clients have its address"
	m.keep(initKind+".localAPIEndpoint.advertiseAddress", n.Endpoint.AdvertiseAddress, own.ChosenAddress(), reason, newNode)
	if own.BindPort != 0 && own.BindPort != n.Endpoint.BindPort {
		m.refuse(initKind+".localAPIEndpoint.bindPort", strconv.Itoa(int(n.Endpoint.BindPort)), strconv.Itoa(int(own.BindPort)), reason, newNode)
	}
}

// checkKubelet refuses fields of the KubeletConfiguration that a running node cannot change.
func (m *merge) checkKubelet(n Node) {
	k := m.given.Kubelet
	if k == nil {
		return
	}
	const kind = "KubeletConfiguration."
	var stored kubeletv1.KubeletConfiguration
	if err := yaml.Unmarshal(n.StoredKubelet, &stored); n.CgroupDriver != "" && (err != nil || k.CgroupDriver != stored.CgroupDriver) {
		m.keep(kind+"cgroupDriver", n.CgroupDriver, k.CgroupDriver, "the cgroups of running containers belong to the other driver",
			"drain each node, and let its host join again: ./install reset, then the join command")
	}
	if k.StaticPodPath != "" && path.Clean(k.StaticPodPath) != config.ManifestsDir {
		m.refuse(kind+"staticPodPath", config.ManifestsDir, k.StaticPodPath, "the control plane runs from this directory", "leave it out")
	}
	if domain := cmp.Or(m.stored.Networking.DNSDomain, config.DefaultDNSDomain); k.ClusterDomain != "" && strings.TrimSuffix(k.ClusterDomain, ".") != domain {
		m.refuse(kind+"clusterDomain", domain, k.ClusterDomain, "CoreDNS serves the domain of the cluster", newCluster)
	}
}
