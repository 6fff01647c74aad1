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

// Cluster is kubeadm's ClusterConfiguration, which all nodes share. The tags here serve all versions of kubeadm's API, which differ
// in few fields: kubeadm:"v1beta4" marks fields that exist since that version, and kubeadm:"-v1beta3" fields that exist up to it
// (kubeadm's v1beta3/types.go, v1beta4/types.go and v1/types.go, in v1.36.3 and v1.37.1).
type Cluster struct {
	KubernetesVersion    string           `json:"kubernetesVersion,omitempty"` // "v1.29.15"
	ClusterName          string           `json:"clusterName,omitempty"`
	ControlPlaneEndpoint string           `json:"controlPlaneEndpoint,omitempty"` // "host" or "host:port"; empty for a single control plane
	Endpoint             Endpoint         `json:"-"`
	Registry             EmbeddedRegistry `json:"-"`
	Reconfiguration      Reconfiguration  `json:"-"`
	CertificatesDir      string           `json:"certificatesDir,omitempty"`
	ImageRepository      string           `json:"imageRepository,omitempty"`
	Networking           Networking       `json:"networking,omitzero"`
	APIServer            APIServer        `json:"apiServer"`
	ControllerManager    Component        `json:"controllerManager"`
	Scheduler            Component        `json:"scheduler"`
	Etcd                 Etcd             `json:"etcd"`
	DNS                  DNS              `json:"dns"`
	Proxy                Proxy            `json:"proxy" kubeadm:"v1beta4"`
	FeatureGates         map[string]bool  `json:"featureGates,omitempty"`
	// EncryptionAlgorithm of new keys: "RSA-2048", "RSA-3072", "RSA-4096",
	// "ECDSA-P256" or, as in kubeadm v1.37, "ECDSA-P384".
	EncryptionAlgorithm         string        `json:"encryptionAlgorithm,omitempty" kubeadm:"v1beta4"`
	CertificateValidityPeriod   time.Duration `json:"certificateValidityPeriod,omitempty" kubeadm:"v1beta4"`
	CACertificateValidityPeriod time.Duration `json:"caCertificateValidityPeriod,omitempty" kubeadm:"v1beta4"`

	// Kubelet and KubeProxy are the user's documents, undefaulted, or nil.
	Kubelet   *kubeletv1.KubeletConfiguration     `json:"-"`
	KubeProxy *kubeproxyv1.KubeProxyConfiguration `json:"-"`
}

// Networking has the cluster's address ranges.
type Networking struct {
	ServiceSubnet CIDRs  `json:"serviceSubnet,omitzero"`
	PodSubnet     CIDRs  `json:"podSubnet,omitzero"`
	DNSDomain     string `json:"dnsDomain,omitempty"`
}

// Args are command-line flags.
type Args []Arg

// An Arg is one command-line flag without its dashes. Lists keep order and
// repetition, as in v1beta4. Up to v1beta3 they are mappings.
type Arg struct {
	Name  string `json:"name"`
	Value string `json:"value"`
	// MergeMethod is "" (replace the value that Airlift sets for this flag),
	// "append" or "prepend" (to its value), as in v1.
	MergeMethod string `json:"mergeMethod,omitempty" kubeadm:"v1"`
}

// Component is the user's configuration of one control-plane component.
type Component struct {
	ExtraArgs    Args            `json:"extraArgs,omitempty"`
	ExtraVolumes []HostPathMount `json:"extraVolumes,omitempty"`
	ExtraEnvs    []corev1.EnvVar `json:"extraEnvs,omitempty" kubeadm:"v1beta4"`
}

// APIServer adds the fields of the API server.
type APIServer struct {
	Component
	CertSANs []string `json:"certSANs,omitempty"`
	// TimeoutForControlPlane limits the wait for a healthy control plane.
	TimeoutForControlPlane time.Duration `json:"timeoutForControlPlane,omitempty" kubeadm:"-v1beta3"`
}

// HostPathMount is a directory or file of the host that is mounted into a static pod.
type HostPathMount struct {
	Name      string              `json:"name"`
	HostPath  string              `json:"hostPath"`
	MountPath string              `json:"mountPath"`
	ReadOnly  bool                `json:"readOnly,omitempty"`
	PathType  corev1.HostPathType `json:"pathType,omitempty"`
}

// ImageMeta overrides where an image comes from.
type ImageMeta struct {
	ImageRepository string `json:"imageRepository,omitempty"`
	ImageTag        string `json:"imageTag,omitempty"`
}

// DNS is the cluster's DNS add-on.
type DNS struct {
	ImageMeta
	// Disabled omits the add-on.
	Disabled bool `json:"disabled,omitempty" kubeadm:"v1beta4"`
}

// Proxy is the kube-proxy add-on.
type Proxy struct {
	// Disabled omits the add-on.
	Disabled bool `json:"disabled,omitempty"`
}

// Etcd is a stacked etcd unless External is set.
type Etcd struct {
	Local    LocalEtcd     `json:"local"`
	External *ExternalEtcd `json:"external,omitempty"`
}

// LocalEtcd is the static pod of a stacked etcd.
type LocalEtcd struct {
	ImageMeta
	DataDir        string          `json:"dataDir"`
	ExtraArgs      Args            `json:"extraArgs,omitempty"`
	ExtraEnvs      []corev1.EnvVar `json:"extraEnvs,omitempty" kubeadm:"v1beta4"`
	ServerCertSANs []string        `json:"serverCertSANs,omitempty"`
	PeerCertSANs   []string        `json:"peerCertSANs,omitempty"`
}

// ExternalEtcd is an etcd cluster that Airlift does not manage.
type ExternalEtcd struct {
	Endpoints []string `json:"endpoints"`
	// HTTPEndpoints are separate endpoints for health checks without TLS, if any.
	HTTPEndpoints []string `json:"httpEndpoints,omitempty" kubeadm:"v1beta4"`
	CAFile        string   `json:"caFile"`
	CertFile      string   `json:"certFile"`
	KeyFile       string   `json:"keyFile"`
}

// APIEndpoint is an address an API server listens on.
type APIEndpoint struct {
	AdvertiseAddress string `json:"advertiseAddress,omitempty"`
	BindPort         int32  `json:"bindPort,omitempty"`
}

// NodeRegistration is how the kubelet registers this node.
type NodeRegistration struct {
	Name      string `json:"name,omitempty"`
	CRISocket string `json:"criSocket,omitempty"` // with its scheme: "unix:///run/containerd/containerd.sock"
	// Taints: nil means the default for the node's role, an empty slice
	// means none.
	Taints                []corev1.Taint    `json:"taints"`
	KubeletExtraArgs      Args              `json:"kubeletExtraArgs,omitempty"`
	IgnorePreflightErrors []string          `json:"ignorePreflightErrors,omitempty"`
	ImagePullPolicy       corev1.PullPolicy `json:"imagePullPolicy,omitempty"`
	ImagePullSerial       *bool             `json:"imagePullSerial,omitempty" kubeadm:"v1beta4"`
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
	ControlPlaneComponentHealthCheck time.Duration `json:"controlPlaneComponentHealthCheck,omitempty"`
	KubeletHealthCheck               time.Duration `json:"kubeletHealthCheck,omitempty"`
	KubernetesAPICall                time.Duration `json:"kubernetesAPICall,omitempty"`
	EtcdAPICall                      time.Duration `json:"etcdAPICall,omitempty"`
	TLSBootstrap                     time.Duration `json:"tlsBootstrap,omitempty"`
	Discovery                        time.Duration `json:"discovery,omitempty"`
	UpgradeManifests                 time.Duration `json:"upgradeManifests,omitempty"`
}

// Reset is kubeadm's ResetConfiguration.
type Reset struct {
	CertificatesDir       string   `json:"certificatesDir,omitempty"`
	CRISocket             string   `json:"criSocket,omitempty"`
	CleanupTmpDir         bool     `json:"cleanupTmpDir,omitempty"`
	DryRun                bool     `json:"dryRun,omitempty"`
	Force                 bool     `json:"force,omitempty"`
	WithoutLedger         bool     `json:"-"` // only a flag of Airlift, not in kubeadm
	RemoveNode            bool     `json:"-"` // the same
	IgnorePreflightErrors []string `json:"ignorePreflightErrors,omitempty"`
	SkipPhases            []string `json:"skipPhases,omitempty"`
	UnmountFlags          []string `json:"unmountFlags,omitempty"`
	Timeouts              Timeouts `json:"timeouts"`

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
