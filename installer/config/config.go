// Package config has the configuration of a node: one Config from flags, kubeadm's
// configuration file and the host's facts, completed and validated once. Field
// names follow kubeadm's configuration API.
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
	// BootstrapTokens are the tokens that init creates. Empty means none.
	BootstrapTokens []BootstrapToken
	// CertificateKey encrypts the kubeadm-certs Secret: 64 hex digits.
	CertificateKey string
	// UploadCerts makes init upload the control-plane certificates.
	UploadCerts bool
	// Discovery is how join finds and trusts the cluster.
	Discovery Discovery
	// ControlPlane makes join add a control plane, not a worker.
	ControlPlane bool
	// CACertPath is where join puts the cluster's CA certificate.
	CACertPath string
	// SkipPhases are the phases to skip: "addon/kube-proxy".
	SkipPhases []string
	// Patches is a directory with patches for the static pods, the
	// KubeletConfiguration and CoreDNS; empty means none.
	Patches string
	// DryRun writes the files to a directory and changes nothing else.
	DryRun bool
	// Timeouts limit this run's waits.
	Timeouts Timeouts
	// ProxyServer is the API server's URL for kube-proxy; empty means
	// ServerURL.
	ProxyServer string
	// FlannelServer is the API server's URL for flannel; empty means NodeURL.
	FlannelServer string
	// CNI is the pod network to install: "flannel" or "none".
	CNI string
	// NearestKnown is the nearest release that was known when the bundle was built, if
	// KubernetesVersion is newer: its rules apply. Otherwise it is empty.
	NearestKnown string
	// Registries are the registries for which containerd on this host needs its own configuration.
	Registries []Registry
	// Facts are the detected properties of this host.
	Facts Facts
	// Images are the bundle's references by component name: "pause",
	// "etcd", "coredns", "kube-apiserver", …, "flannel".
	Images map[string]string

	origin *origin // the configuration file, if there is one
}

// Cluster is kubeadm's ClusterConfiguration, which all nodes share.
type Cluster struct {
	KubernetesVersion    string // "v1.29.15"
	ClusterName          string
	ControlPlaneEndpoint string // "host" or "host:port"; empty for a single control plane
	Endpoint             Endpoint
	Registry             EmbeddedRegistry
	Reconfiguration      Reconfiguration
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

// Networking has the cluster's address ranges.
type Networking struct {
	ServiceSubnet CIDRs
	PodSubnet     CIDRs
	DNSDomain     string
}

// An Arg is one command-line flag without its dashes. Lists keep order and
// repetition, as in v1beta4.
type Arg struct {
	Name, Value string
	// MergeMethod is "" (replace the value that Airlift sets for this flag),
	// "append" or "prepend" (to its value), as in v1.
	MergeMethod string
}

// Component is the user's configuration of one control-plane component.
type Component struct {
	ExtraArgs    []Arg
	ExtraVolumes []HostPathMount
	ExtraEnvs    []corev1.EnvVar
}

// APIServer adds the fields of the API server.
type APIServer struct {
	Component
	CertSANs []string
	// TimeoutForControlPlane limits the wait for a healthy control plane.
	TimeoutForControlPlane time.Duration
}

// HostPathMount is a directory or file of the host that is mounted into a static pod.
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
	// Disabled omits the add-on.
	Disabled bool
}

// Proxy is the kube-proxy add-on.
type Proxy struct {
	// Disabled omits the add-on.
	Disabled bool
}

// Etcd is a stacked etcd unless External is set.
type Etcd struct {
	Local    LocalEtcd
	External *ExternalEtcd
}

// LocalEtcd is the static pod of a stacked etcd.
type LocalEtcd struct {
	ImageMeta
	DataDir        string
	ExtraArgs      []Arg
	ExtraEnvs      []corev1.EnvVar
	ServerCertSANs []string
	PeerCertSANs   []string
}

// ExternalEtcd is an etcd cluster that Airlift does not manage.
type ExternalEtcd struct {
	Endpoints []string
	// HTTPEndpoints are separate endpoints for health checks without TLS, if any.
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

// Timeouts are the timeouts of v1beta4. Zero means the default.
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
	WithoutLedger         bool // only a flag of Airlift, not in kubeadm
	RemoveNode            bool // the same
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
	Expires     time.Time     // takes precedence over TTL
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

// Facts are properties of this host that determine how Kubernetes must be
// configured on it. Package host detects them; package render only reads them.
type Facts struct {
	Hostname string
	// CgroupVersion is 1 or 2.
	CgroupVersion int
	// CgroupDriver is "systemd" or "cgroupfs", on which kubelet and runtime
	// must agree.
	CgroupDriver string
	// RestrictOOMScoreAdj is set if the host may not lower an OOM score
	// below its own (no CAP_SYS_RESOURCE).
	RestrictOOMScoreAdj bool
	// ConntrackWritable is set if nf_conntrack_max can be changed.
	ConntrackWritable bool
	// ResolvConf is the resolver file for pods with dnsPolicy Default.
	ResolvConf string
	// Nameservers in ResolvConf; without one, CoreDNS cannot forward requests.
	Nameservers []string
	// SwapOn is set if swap is in use.
	SwapOn bool
	// NodeIP is this node's address, also without a default route.
	NodeIP string
	// NodeIPGiven is set if the user chose NodeIP with --node-ip: the kubelet must
	// use it too.
	NodeIPGiven bool
	// OtherIP is this node's address of the other family, "" without one.
	OtherIP string
	// Interface has the address NodeIP; MTU is the interface's.
	Interface string
	MTU       int
	// DefaultRoute is set if the host has a default route.
	DefaultRoute bool
	// NumCPU and MemoryBytes of the host.
	NumCPU      int
	MemoryBytes uint64
}

// Ports that kubeadm does not let users change (cmd/kubeadm/app/constants), and
// the kubelet's defaults.
const (
	EtcdClientPort        = 2379
	EtcdPeerPort          = 2380
	EtcdMetricsPort       = 2381
	KubeletHealthzPort    = 10248
	KubeletPort           = 10250
	ControllerManagerPort = 10257
	SchedulerPort         = 10259
)

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
