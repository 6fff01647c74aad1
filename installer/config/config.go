// Package config holds what a node is to become: one Config, made from flags,
// the kubeadm config file and the host's facts, completed and validated once.
// Field names follow kubeadm's configuration API.
package config

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	kubeproxyv1 "k8s.io/kube-proxy/config/v1alpha1"
	kubeletv1 "k8s.io/kubelet/config/v1beta1"
)

// Config is everything the steps of init and join need to know.
type Config struct {
	Cluster
	// LocalAPIEndpoint is where this node's API server listens.
	LocalAPIEndpoint APIEndpoint
	NodeRegistration NodeRegistration
	// BootstrapTokens are made by init. Empty means none.
	BootstrapTokens []BootstrapToken
	// CertificateKey encrypts the kubeadm-certs Secret: 64 hex digits.
	CertificateKey string
	// UploadCerts asks init to upload the control-plane certificates.
	UploadCerts bool
	// Discovery is how join finds and trusts the cluster.
	Discovery Discovery
	// ControlPlane says that join makes another control plane, not a worker.
	ControlPlane bool
	// CACertPath is where join puts the cluster's CA certificate.
	CACertPath string
	// SkipPhases are left out: "addon/kube-proxy".
	SkipPhases []string
	// Patches is a folder with patches for the static pods, the
	// KubeletConfiguration and CoreDNS; empty means none.
	Patches string
	// DryRun writes what would be done to a folder and does nothing.
	DryRun bool
	// Timeouts bound this run's waits.
	Timeouts Timeouts
	// ProxyServer is the API server's URL for kube-proxy; empty means the
	// one that everybody uses (ServerURL).
	ProxyServer string
	// CNI is the pod network to install: "flannel" or "none".
	CNI string
	// Facts are what was found on this host.
	Facts Facts
	// Images are the bundle's references by component name: "pause",
	// "etcd", "coredns", "kube-apiserver", …, "flannel".
	Images map[string]string

	origin *origin // the config file, if there is one
}

// Cluster is kubeadm's ClusterConfiguration: what all nodes share.
type Cluster struct {
	KubernetesVersion    string // "v1.29.15"
	ClusterName          string
	ControlPlaneEndpoint string // "host" or "host:port"; empty for a single control plane
	CertificatesDir      string
	ImageRepository      string
	Networking           Networking
	APIServer            APIServer
	ControllerManager    Component
	Scheduler            Component
	Etcd                 Etcd
	DNS                  DNS
	Proxy                Proxy
	FeatureGates         map[string]bool
	// EncryptionAlgorithm of new keys: "RSA-2048", "RSA-3072", "RSA-4096",
	// "ECDSA-P256" or, as in kubeadm v1.37, "ECDSA-P384".
	EncryptionAlgorithm         string
	CertificateValidityPeriod   time.Duration
	CACertificateValidityPeriod time.Duration

	// Kubelet and KubeProxy are the user's documents, undefaulted, or nil.
	Kubelet   *kubeletv1.KubeletConfiguration
	KubeProxy *kubeproxyv1.KubeProxyConfiguration
}

// Networking holds the cluster's address ranges.
type Networking struct {
	ServiceSubnet CIDRs
	PodSubnet     CIDRs
	DNSDomain     string
}

// An Arg is one command-line flag without its dashes. Order and repetition
// are kept, as in v1beta4.
type Arg struct {
	Name, Value string
	// MergeMethod is "" (replace what Airlift would set for this flag),
	// "append" or "prepend" (to its value), as in v1.
	MergeMethod string
}

// Component is one control-plane component's user settings.
type Component struct {
	ExtraArgs    []Arg
	ExtraVolumes []HostPathMount
	ExtraEnvs    []corev1.EnvVar
}

// APIServer adds the API server's own settings.
type APIServer struct {
	Component
	CertSANs []string
	// TimeoutForControlPlane bounds the wait for a healthy control plane.
	TimeoutForControlPlane time.Duration
}

// HostPathMount is a host folder or file mounted into a static pod.
type HostPathMount struct {
	Name      string
	HostPath  string
	MountPath string
	ReadOnly  bool
	PathType  corev1.HostPathType
}

// ImageMeta overrides where an image comes from.
type ImageMeta struct {
	ImageRepository string
	ImageTag        string
}

// DNS is the cluster's DNS add-on.
type DNS struct {
	ImageMeta
	// Disabled leaves it out.
	Disabled bool
}

// Proxy is the kube-proxy add-on.
type Proxy struct {
	// Disabled leaves it out.
	Disabled bool
}

// Etcd is local unless External is set.
type Etcd struct {
	Local    LocalEtcd
	External *ExternalEtcd
}

// LocalEtcd is the static pod etcd.
type LocalEtcd struct {
	ImageMeta
	DataDir        string
	ExtraArgs      []Arg
	ExtraEnvs      []corev1.EnvVar
	ServerCertSANs []string
	PeerCertSANs   []string
}

// ExternalEtcd is an etcd cluster that somebody else runs.
type ExternalEtcd struct {
	Endpoints []string
	// HTTPEndpoints answer health checks without TLS, where they are apart.
	HTTPEndpoints             []string
	CAFile, CertFile, KeyFile string
}

// APIEndpoint is an address an API server listens on.
type APIEndpoint struct {
	AdvertiseAddress string
	BindPort         int32
}

// NodeRegistration is how the kubelet registers this node.
type NodeRegistration struct {
	Name      string
	CRISocket string // with its scheme: "unix:///run/containerd/containerd.sock"
	// Taints: nil means the default for the node's role, an empty slice
	// means none.
	Taints                []corev1.Taint
	KubeletExtraArgs      []Arg
	IgnorePreflightErrors []string
	ImagePullPolicy       corev1.PullPolicy
	ImagePullSerial       *bool
}

// KubeletCertDir is where the kubelet keeps its certificates: the last --cert-dir
// among its flags, or the kubelet's default.
func (n NodeRegistration) KubeletCertDir() string {
	dir := KubeletPKIDir
	for _, arg := range n.KubeletExtraArgs {
		if arg.Name == "cert-dir" && arg.Value != "" {
			dir = arg.Value
		}
	}
	return dir
}

// Timeouts are those of v1beta4. Zero means the default.
type Timeouts struct {
	ControlPlaneComponentHealthCheck time.Duration
	KubeletHealthCheck               time.Duration
	KubernetesAPICall                time.Duration
	EtcdAPICall                      time.Duration
	TLSBootstrap                     time.Duration
	Discovery                        time.Duration
	UpgradeManifests                 time.Duration
}

// Reset is kubeadm's ResetConfiguration.
type Reset struct {
	CertificatesDir       string
	CRISocket             string
	CleanupTmpDir         bool
	DryRun                bool
	Force                 bool
	WithoutLedger         bool // a flag of ours only
	IgnorePreflightErrors []string
	SkipPhases            []string
	UnmountFlags          []string
	Timeouts              Timeouts

	origin *origin
}

// BootstrapToken is one token Secret.
type BootstrapToken struct {
	Token       string        // "abcdef.0123456789abcdef"
	Description string        //
	TTL         time.Duration // 0 never expires
	Expires     time.Time     // wins over TTL when set
	Usages      []string
	Groups      []string
}

// Discovery is how join reaches and trusts the cluster.
type Discovery struct {
	Token                    string
	APIServerEndpoint        string // "host:port" as the user passed it
	CACertHashes             []string
	UnsafeSkipCAVerification bool
	File                     string // a path or an HTTPS URL
	TLSBootstrapToken        string // defaults to Token
	Timeout                  time.Duration
}

// Facts are properties of this host that decide how Kubernetes must be set up
// on it. Package host finds them; render only reads them.
type Facts struct {
	Hostname string
	// CgroupVersion is 1 or 2.
	CgroupVersion int
	// CgroupDriver is "systemd" or "cgroupfs": what kubelet and runtime
	// must agree on.
	CgroupDriver string
	// RestrictOOMScoreAdj says that the host may not lower an OOM score
	// below its own (no CAP_SYS_RESOURCE).
	RestrictOOMScoreAdj bool
	// ConntrackWritable says that nf_conntrack_max can be set.
	ConntrackWritable bool
	// ResolvConf is the resolver file pods with dnsPolicy Default get.
	ResolvConf string
	// Nameservers in ResolvConf; without one CoreDNS has nowhere to forward.
	Nameservers []string
	// SwapOn says that swap is in use.
	SwapOn bool
	// NodeIP is this node's address, also where no default route tells it.
	NodeIP string
	// Interface carries NodeIP; MTU is its.
	Interface string
	MTU       int
	// DefaultRoute says that the host has one.
	DefaultRoute bool
	// NumCPU and MemoryBytes of the host.
	NumCPU      int
	MemoryBytes uint64
}

// Paths that kubeadm fixes.
const (
	KubernetesDir     = "/etc/kubernetes"
	ManifestsDir      = "/etc/kubernetes/manifests"
	CertificatesDir   = "/etc/kubernetes/pki"
	CACertPath        = "/etc/kubernetes/pki/ca.crt"
	KubeletDir        = "/var/lib/kubelet"
	KubeletConfigFile = "/var/lib/kubelet/config.yaml"
	KubeletFlagsFile  = "/var/lib/kubelet/kubeadm-flags.env"
	KubeletPKIDir     = "/var/lib/kubelet/pki"
	EtcdDataDir       = "/var/lib/etcd"
	ContainerdSocket  = "/run/containerd/containerd.sock"
	CNIConfDir        = "/etc/cni/net.d"
	CNIBinDir         = "/opt/cni/bin"
)
