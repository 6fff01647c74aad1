package config

import (
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Defaults, kubeadm's own unless a comment states otherwise.
const (
	DefaultClusterName     = "kubernetes"
	DefaultImageRepository = "registry.k8s.io"
	DefaultServiceSubnet   = "10.96.0.0/12"
	DefaultDNSDomain       = "cluster.local"
	DefaultBindPort        = 6443
	// DefaultPodSubnet is the network in flannel's own manifest; kubeadm has
	// no default because it installs no pod network.
	DefaultPodSubnet = "10.244.0.0/16"
	// Clusters with IPv6 addresses have kind's defaults: unique local addresses, and sizes that the
	// API server and the controller manager accept. kubeadm has only IPv4 defaults.
	DefaultServiceSubnetIPv6 = "fd00:10:96::/112"
	DefaultPodSubnetIPv6     = "fd00:10:244::/56"

	DefaultControlPlaneTimeout = 4 * time.Minute
	DefaultDiscoveryTimeout    = 5 * time.Minute
	DefaultTokenTTL            = 24 * time.Hour
	// DrainTimeout limits a drain without progress, unless the user chooses another limit. Pods may need their whole grace period.
	DrainTimeout = 10 * time.Minute

	DefaultKubeletHealthCheckTimeout = 4 * time.Minute
	DefaultAPICallTimeout            = time.Minute
	DefaultEtcdAPICallTimeout        = 2 * time.Minute
	DefaultTLSBootstrapTimeout       = 5 * time.Minute
	DefaultUpgradeManifestsTimeout   = 5 * time.Minute

	// CertificateValidity is one year, CACertificateValidity ten; years of
	// 365 days, as kubeadm counts them.
	CertificateValidity   = 365 * 24 * time.Hour
	CACertificateValidity = 10 * 365 * 24 * time.Hour
)

// OldestRelease is the date of Kubernetes v1.29.0, the oldest release that Airlift
// installs: a correct clock cannot be earlier.
var OldestRelease = time.Date(2023, time.December, 13, 0, 0, 0, 0, time.UTC)

// NodeTokenGroup is the group that kubeadm's RBAC allows to join.
const NodeTokenGroup = "system:bootstrappers:kubeadm:default-node-token"

// ControlPlaneTaint keeps ordinary pods off control-plane nodes.
var ControlPlaneTaint = corev1.Taint{
	Key:    "node-role.kubernetes.io/control-plane",
	Effect: corev1.TaintEffectNoSchedule,
}

// CompleteInit sets the defaults for a first control plane. Facts must be set;
// KubernetesVersion comes from the bundle.
func (c *Config) CompleteInit() {
	c.completeNode()
	c.lowerSANs()
	c.completeAlgorithm()
	for _, envs := range [][]corev1.EnvVar{c.APIServer.ExtraEnvs, c.ControllerManager.ExtraEnvs, c.Scheduler.ExtraEnvs, c.Etcd.Local.ExtraEnvs} {
		for i := range envs {
			if from := envs[i].ValueFrom; from != nil && from.FieldRef != nil {
				setDefault(&from.FieldRef.APIVersion, "v1")
			}
		}
	}
	setDefault(&c.ClusterName, DefaultClusterName)
	setDefault(&c.Cluster.CertificatesDir, CertificatesDir)
	setDefault(&c.ImageRepository, DefaultImageRepository)
	setDefault(&c.Networking.DNSDomain, DefaultDNSDomain)
	setDefault(&c.Etcd.Local.DataDir, EtcdDataDir)
	c.completeTimeouts()
	setDefault(&c.CertificateValidityPeriod, CertificateValidity)
	setDefault(&c.CACertificateValidityPeriod, CACertificateValidity)
	c.completeAdvertised()
	c.completeRanges()
	c.completeEndpoint()
	if c.NodeRegistration.Taints == nil {
		c.NodeRegistration.Taints = []corev1.Taint{ControlPlaneTaint}
	}
	for i := range c.BootstrapTokens {
		t := &c.BootstrapTokens[i]
		if len(t.Usages) == 0 {
			t.Usages = []string{"signing", "authentication"}
		}
		// Not for a token with only the usage signing: kubeadm adds the group
		// there too, and then refuses the token.
		if len(t.Groups) == 0 && slices.Contains(t.Usages, "authentication") {
			t.Groups = []string{NodeTokenGroup}
		}
	}
}

// DisableSkippedAddOns disables the add-ons whose phases init skips, as kubeadm does:
// an upgrade with kubeadm then does not install them.
func (c *Config) DisableSkippedAddOns() {
	for _, phase := range c.SkipPhases {
		c.DNS.Disabled = c.DNS.Disabled || phase == "addon" || phase == "addon/coredns"
		c.Proxy.Disabled = c.Proxy.Disabled || phase == "addon" || phase == "addon/kube-proxy"
	}
}

// CompleteJoin sets the defaults for a joining node. The cluster's configuration
// is added after discovery.
func (c *Config) CompleteJoin() {
	c.completeNode()
	c.Discovery.File = filePath(c.Discovery.File)
	// kubeadm accepts a name in capitals here, unlike for the control-plane endpoint.
	c.Discovery.APIServerEndpoint = strings.ToLower(c.Discovery.APIServerEndpoint)
	setDefault(&c.Cluster.CertificatesDir, CertificatesDir)
	setDefault(&c.CACertPath, CACertPath)
	setDefault(&c.Discovery.Timeout, c.Timeouts.Discovery)
	setDefault(&c.Discovery.Timeout, DefaultDiscoveryTimeout)
	c.Timeouts.Discovery = c.Discovery.Timeout
	c.completeTimeouts()
	setDefault(&c.Discovery.TLSBootstrapToken, c.Discovery.Token)
	if c.ControlPlane {
		c.completeAdvertised()
		if c.NodeRegistration.Taints == nil {
			c.NodeRegistration.Taints = []corev1.Taint{ControlPlaneTaint}
		}
	}
}

// Complete sets the defaults for reset.
func (r *Reset) Complete() {
	setDefault(&r.CertificatesDir, CertificatesDir)
	completeSocket(&r.CRISocket)
	r.Timeouts.complete()
}

func (c *Config) completeNode() {
	setDefault(&c.NodeRegistration.Name, c.Facts.Hostname)
	// kubeadm converts a node name to lower case, as a kubelet does
	// (k8s.io/component-helpers/node/util). An invalid name is not changed,
	// for the error message.
	if name := strings.ToLower(strings.TrimSpace(c.NodeRegistration.Name)); len(validation.IsDNS1123Subdomain(name)) == 0 {
		c.NodeRegistration.Name = name
	}
	completeSocket(&c.NodeRegistration.CRISocket)
	setDefault(&c.NodeRegistration.ImagePullPolicy, corev1.PullIfNotPresent)
	if c.NodeRegistration.ImagePullSerial == nil {
		serial := true
		c.NodeRegistration.ImagePullSerial = &serial
	}
}

// completeSocket adds the scheme to a path, as kubeadm does.
func completeSocket(socket *string) {
	setDefault(socket, "unix://"+ContainerdSocket)
	if strings.HasPrefix(*socket, "/") {
		*socket = "unix://" + *socket
	}
}

// lowerSANs converts the SANs to lower case, as kubeadm does. It does not change
// the slice itself, which may belong to a flag.
func (c *Config) lowerSANs() {
	sans := slices.Clone(c.APIServer.CertSANs)
	for i, san := range sans {
		sans[i] = strings.ToLower(san)
	}
	c.APIServer.CertSANs = sans
}

// completeAlgorithm sets the field from the older feature gate PublicKeysECDSA.
func (c *Config) completeAlgorithm() {
	ecdsa, set := c.FeatureGates["PublicKeysECDSA"]
	if !set || c.EncryptionAlgorithm != "" {
		return
	}
	c.EncryptionAlgorithm = "RSA-2048"
	if ecdsa {
		c.EncryptionAlgorithm = "ECDSA-P256"
	}
}

// completeAdvertised sets where this node's API server listens. An unspecified
// address such as 0.0.0.0 means the default, as in kubeadm.
func (c *Config) completeAdvertised() {
	e := &c.LocalAPIEndpoint
	e.AdvertiseAddress = e.ChosenAddress()
	setDefault(&e.AdvertiseAddress, c.Facts.NodeIP)
	setDefault(&e.BindPort, DefaultBindPort)
}

// ChosenAddress returns the advertise address, or "" if the user left the choice
// to the installer: by giving none or, as in kubeadm, an unspecified one such as
// 0.0.0.0.
func (e APIEndpoint) ChosenAddress() string {
	if ip, err := netip.ParseAddr(e.AdvertiseAddress); err == nil && ip.IsUnspecified() {
		return ""
	}
	return e.AdvertiseAddress
}

// completeTimeouts keeps the two fields of one timeout equal: the one in
// apiServer, up to v1beta3, and the one in timeouts since.
func (c *Config) completeTimeouts() {
	setDefault(&c.Timeouts.ControlPlaneComponentHealthCheck, c.APIServer.TimeoutForControlPlane)
	c.Timeouts.complete()
	setDefault(&c.APIServer.TimeoutForControlPlane, c.Timeouts.ControlPlaneComponentHealthCheck)
}

func (t *Timeouts) complete() {
	setDefault(&t.ControlPlaneComponentHealthCheck, DefaultControlPlaneTimeout)
	setDefault(&t.KubeletHealthCheck, DefaultKubeletHealthCheckTimeout)
	setDefault(&t.KubernetesAPICall, DefaultAPICallTimeout)
	setDefault(&t.EtcdAPICall, DefaultEtcdAPICallTimeout)
	setDefault(&t.TLSBootstrap, DefaultTLSBootstrapTimeout)
	setDefault(&t.Discovery, DefaultDiscoveryTimeout)
	setDefault(&t.UpgradeManifests, DefaultUpgradeManifestsTimeout)
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}
