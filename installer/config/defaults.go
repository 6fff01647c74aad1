package config

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Defaults, kubeadm's own unless said otherwise.
const (
	DefaultClusterName     = "kubernetes"
	DefaultImageRepository = "registry.k8s.io"
	DefaultServiceSubnet   = "10.96.0.0/12"
	DefaultDNSDomain       = "cluster.local"
	DefaultBindPort        = 6443
	// DefaultPodSubnet is flannel's customary network; kubeadm has no default
	// because it brings no pod network.
	DefaultPodSubnet = "10.244.0.0/16"

	DefaultControlPlaneTimeout = 4 * time.Minute
	DefaultDiscoveryTimeout    = 5 * time.Minute
	DefaultTokenTTL            = 24 * time.Hour

	// CertificateValidity is one year, CACertificateValidity ten; years of
	// 365 days, as kubeadm counts them.
	CertificateValidity   = 365 * 24 * time.Hour
	CACertificateValidity = 10 * 365 * 24 * time.Hour
)

// NodeTokenGroup is whom kubeadm's RBAC lets join.
const NodeTokenGroup = "system:bootstrappers:kubeadm:default-node-token"

// ControlPlaneTaint keeps ordinary pods off control-plane nodes.
var ControlPlaneTaint = corev1.Taint{
	Key:    "node-role.kubernetes.io/control-plane",
	Effect: corev1.TaintEffectNoSchedule,
}

// CompleteInit fills what the user left open for a first control plane. Facts
// must have been filled; KubernetesVersion comes from the bundle.
func (c *Config) CompleteInit() {
	c.completeNode()
	setDefault(&c.ClusterName, DefaultClusterName)
	setDefault(&c.Cluster.CertificatesDir, CertificatesDir)
	setDefault(&c.ImageRepository, DefaultImageRepository)
	setDefault(&c.Networking.ServiceSubnet, DefaultServiceSubnet)
	setDefault(&c.Networking.DNSDomain, DefaultDNSDomain)
	if c.CNI != "none" {
		setDefault(&c.Networking.PodSubnet, DefaultPodSubnet)
	}
	setDefault(&c.Etcd.Local.DataDir, EtcdDataDir)
	setDefault(&c.APIServer.TimeoutForControlPlane, DefaultControlPlaneTimeout)
	setDefault(&c.CertificateValidityPeriod, CertificateValidity)
	setDefault(&c.CACertificateValidityPeriod, CACertificateValidity)
	setDefault(&c.LocalAPIEndpoint.AdvertiseAddress, c.Facts.NodeIP)
	setDefault(&c.LocalAPIEndpoint.BindPort, DefaultBindPort)
	if c.NodeRegistration.Taints == nil {
		c.NodeRegistration.Taints = []corev1.Taint{ControlPlaneTaint}
	}
	for i := range c.BootstrapTokens {
		t := &c.BootstrapTokens[i]
		if len(t.Usages) == 0 {
			t.Usages = []string{"signing", "authentication"}
		}
		if len(t.Groups) == 0 {
			t.Groups = []string{NodeTokenGroup}
		}
	}
}

// CompleteJoin fills what the user left open for a worker. The cluster's own
// settings are added after discovery.
func (c *Config) CompleteJoin() {
	c.completeNode()
	setDefault(&c.Cluster.CertificatesDir, CertificatesDir)
	setDefault(&c.Discovery.Timeout, DefaultDiscoveryTimeout)
	setDefault(&c.Discovery.TLSBootstrapToken, c.Discovery.Token)
}

func (c *Config) completeNode() {
	setDefault(&c.NodeRegistration.Name, c.Facts.Hostname)
	setDefault(&c.NodeRegistration.CRISocket, "unix://"+ContainerdSocket)
	setDefault(&c.NodeRegistration.ImagePullPolicy, corev1.PullIfNotPresent)
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}
