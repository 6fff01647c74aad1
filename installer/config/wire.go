package config

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// kubeadmGroup is the API group of kubeadm's own documents.
const kubeadmGroup = "kubeadm.k8s.io"

// apiVersions are the supported versions of kubeadm's API, oldest first.
var apiVersions = []string{"v1beta3", "v1beta4", "v1"}

// The wire types below serve all versions, which differ in few fields. The tag
// kubeadm:"v1beta4" marks fields that exist since that version, and
// kubeadm:"-v1beta3" fields that exist up to it (kubeadm's v1beta3/types.go,
// v1beta4/types.go and v1/types.go, in v1.36.3 and v1.37.1).

// within reports whether a field or kind with that tag exists in the version.
func within(tag, version string) bool {
	last, until := strings.CutPrefix(tag, "-")
	if until {
		return slices.Index(apiVersions, version) <= slices.Index(apiVersions, last)
	}
	return tag == "" || slices.Index(apiVersions, version) >= slices.Index(apiVersions, tag)
}

type initConfiguration struct {
	metav1.TypeMeta  `json:",inline"`
	BootstrapTokens  []wireToken          `json:"bootstrapTokens,omitempty"`
	DryRun           bool                 `json:"dryRun,omitempty" kubeadm:"v1beta4"`
	NodeRegistration wireNodeRegistration `json:"nodeRegistration,omitzero"`
	LocalAPIEndpoint wireAPIEndpoint      `json:"localAPIEndpoint,omitzero"`
	CertificateKey   string               `json:"certificateKey,omitempty"`
	SkipPhases       []string             `json:"skipPhases,omitempty"`
	Patches          *wirePatches         `json:"patches,omitempty"`
	Timeouts         *wireTimeouts        `json:"timeouts,omitempty" kubeadm:"v1beta4"`
}

type joinConfiguration struct {
	metav1.TypeMeta  `json:",inline"`
	DryRun           bool                  `json:"dryRun,omitempty" kubeadm:"v1beta4"`
	NodeRegistration wireNodeRegistration  `json:"nodeRegistration,omitzero"`
	CACertPath       string                `json:"caCertPath,omitempty"`
	Discovery        wireDiscovery         `json:"discovery"`
	ControlPlane     *wireJoinControlPlane `json:"controlPlane,omitempty"`
	SkipPhases       []string              `json:"skipPhases,omitempty"`
	Patches          *wirePatches          `json:"patches,omitempty"`
	Timeouts         *wireTimeouts         `json:"timeouts,omitempty" kubeadm:"v1beta4"`
}

type resetConfiguration struct {
	metav1.TypeMeta       `json:",inline"`
	CleanupTmpDir         bool          `json:"cleanupTmpDir,omitempty"`
	CertificatesDir       string        `json:"certificatesDir,omitempty"`
	CRISocket             string        `json:"criSocket,omitempty"`
	DryRun                bool          `json:"dryRun,omitempty"`
	Force                 bool          `json:"force,omitempty"`
	IgnorePreflightErrors []string      `json:"ignorePreflightErrors,omitempty"`
	SkipPhases            []string      `json:"skipPhases,omitempty"`
	UnmountFlags          []string      `json:"unmountFlags,omitempty"`
	Timeouts              *wireTimeouts `json:"timeouts,omitempty"`
}

// upgradeConfiguration has fields that Airlift does not use: a bundle has one version.
type upgradeConfiguration struct {
	metav1.TypeMeta `json:",inline"`
	Apply           struct {
		KubernetesVersion         string            `json:"kubernetesVersion,omitempty"`
		AllowExperimentalUpgrades *bool             `json:"allowExperimentalUpgrades,omitempty"`
		AllowRCUpgrades           *bool             `json:"allowRCUpgrades,omitempty"`
		CertificateRenewal        *bool             `json:"certificateRenewal,omitempty"`
		DryRun                    *bool             `json:"dryRun,omitempty"`
		EtcdUpgrade               *bool             `json:"etcdUpgrade,omitempty"`
		ForceUpgrade              *bool             `json:"forceUpgrade,omitempty"`
		IgnorePreflightErrors     []string          `json:"ignorePreflightErrors,omitempty"`
		Patches                   *wirePatches      `json:"patches,omitempty"`
		PrintConfig               *bool             `json:"printConfig,omitempty"`
		SkipPhases                []string          `json:"skipPhases,omitempty"`
		ImagePullPolicy           corev1.PullPolicy `json:"imagePullPolicy,omitempty"`
		ImagePullSerial           *bool             `json:"imagePullSerial,omitempty"`
	} `json:"apply,omitzero"`
	Diff struct {
		KubernetesVersion string `json:"kubernetesVersion,omitempty"`
		ContextLines      int    `json:"contextLines,omitempty"`
	} `json:"diff,omitzero"`
	Node struct {
		CertificateRenewal    *bool             `json:"certificateRenewal,omitempty"`
		DryRun                *bool             `json:"dryRun,omitempty"`
		EtcdUpgrade           *bool             `json:"etcdUpgrade,omitempty"`
		IgnorePreflightErrors []string          `json:"ignorePreflightErrors,omitempty"`
		SkipPhases            []string          `json:"skipPhases,omitempty"`
		Patches               *wirePatches      `json:"patches,omitempty"`
		ImagePullPolicy       corev1.PullPolicy `json:"imagePullPolicy,omitempty"`
		ImagePullSerial       *bool             `json:"imagePullSerial,omitempty"`
	} `json:"node,omitzero"`
	Plan struct {
		KubernetesVersion         string   `json:"kubernetesVersion,omitempty"`
		AllowExperimentalUpgrades *bool    `json:"allowExperimentalUpgrades,omitempty"`
		AllowRCUpgrades           *bool    `json:"allowRCUpgrades,omitempty"`
		DryRun                    *bool    `json:"dryRun,omitempty"`
		EtcdUpgrade               *bool    `json:"etcdUpgrade,omitempty"`
		IgnorePreflightErrors     []string `json:"ignorePreflightErrors,omitempty"`
		PrintConfig               *bool    `json:"printConfig,omitempty"`
	} `json:"plan,omitzero"`
	Timeouts *wireTimeouts `json:"timeouts,omitempty"`
}

type clusterConfiguration struct {
	metav1.TypeMeta             `json:",inline"`
	Etcd                        wireEtcd         `json:"etcd,omitzero"`
	Networking                  wireNetworking   `json:"networking,omitzero"`
	KubernetesVersion           string           `json:"kubernetesVersion,omitempty"`
	ControlPlaneEndpoint        string           `json:"controlPlaneEndpoint,omitempty"`
	APIServer                   wireAPIServer    `json:"apiServer,omitempty"`
	ControllerManager           wireComponent    `json:"controllerManager,omitempty"`
	Scheduler                   wireComponent    `json:"scheduler,omitempty"`
	DNS                         wireDNS          `json:"dns,omitempty"`
	Proxy                       wireProxy        `json:"proxy,omitempty" kubeadm:"v1beta4"`
	CertificatesDir             string           `json:"certificatesDir,omitempty"`
	ImageRepository             string           `json:"imageRepository,omitempty"`
	FeatureGates                map[string]bool  `json:"featureGates,omitempty"`
	ClusterName                 string           `json:"clusterName,omitempty"`
	EncryptionAlgorithm         string           `json:"encryptionAlgorithm,omitempty" kubeadm:"v1beta4"`
	CertificateValidityPeriod   *metav1.Duration `json:"certificateValidityPeriod,omitempty" kubeadm:"v1beta4"`
	CACertificateValidityPeriod *metav1.Duration `json:"caCertificateValidityPeriod,omitempty" kubeadm:"v1beta4"`
}

type wireToken struct {
	Token       *string          `json:"token"`
	Description string           `json:"description,omitempty"`
	TTL         *metav1.Duration `json:"ttl,omitempty"`
	Expires     *metav1.Time     `json:"expires,omitempty"`
	Usages      []string         `json:"usages,omitempty"`
	Groups      []string         `json:"groups,omitempty"`
}

type wireNodeRegistration struct {
	Name                  string            `json:"name,omitempty"`
	CRISocket             string            `json:"criSocket,omitempty"`
	Taints                []corev1.Taint    `json:"taints"` // null means the default, [] none
	KubeletExtraArgs      wireArgs          `json:"kubeletExtraArgs,omitzero"`
	IgnorePreflightErrors []string          `json:"ignorePreflightErrors,omitempty"`
	ImagePullPolicy       corev1.PullPolicy `json:"imagePullPolicy,omitempty"`
	ImagePullSerial       *bool             `json:"imagePullSerial,omitempty" kubeadm:"v1beta4"`
}

type wireAPIEndpoint struct {
	AdvertiseAddress string `json:"advertiseAddress,omitempty"`
	BindPort         int32  `json:"bindPort,omitempty"`
}

type wirePatches struct {
	Directory string `json:"directory,omitempty"`
}

type wireTimeouts struct {
	ControlPlaneComponentHealthCheck *metav1.Duration `json:"controlPlaneComponentHealthCheck,omitempty"`
	KubeletHealthCheck               *metav1.Duration `json:"kubeletHealthCheck,omitempty"`
	KubernetesAPICall                *metav1.Duration `json:"kubernetesAPICall,omitempty"`
	EtcdAPICall                      *metav1.Duration `json:"etcdAPICall,omitempty"`
	TLSBootstrap                     *metav1.Duration `json:"tlsBootstrap,omitempty"`
	Discovery                        *metav1.Duration `json:"discovery,omitempty"`
	UpgradeManifests                 *metav1.Duration `json:"upgradeManifests,omitempty"`
}

type wireDiscovery struct {
	BootstrapToken    *wireTokenDiscovery `json:"bootstrapToken,omitempty"`
	File              *wireFileDiscovery  `json:"file,omitempty"`
	TLSBootstrapToken string              `json:"tlsBootstrapToken,omitempty"`
	Timeout           *metav1.Duration    `json:"timeout,omitempty" kubeadm:"-v1beta3"`
}

type wireTokenDiscovery struct {
	Token                    string   `json:"token"`
	APIServerEndpoint        string   `json:"apiServerEndpoint,omitempty"`
	CACertHashes             []string `json:"caCertHashes,omitempty"`
	UnsafeSkipCAVerification bool     `json:"unsafeSkipCAVerification,omitempty"`
}

type wireFileDiscovery struct {
	KubeConfigPath string `json:"kubeConfigPath"`
}

type wireJoinControlPlane struct {
	LocalAPIEndpoint wireAPIEndpoint `json:"localAPIEndpoint,omitzero"`
	CertificateKey   string          `json:"certificateKey,omitempty"`
}

type wireNetworking struct {
	ServiceSubnet string `json:"serviceSubnet,omitempty"`
	PodSubnet     string `json:"podSubnet,omitempty"`
	DNSDomain     string `json:"dnsDomain,omitempty"`
}

type wireComponent struct {
	ExtraArgs    wireArgs        `json:"extraArgs,omitzero"`
	ExtraVolumes []wireMount     `json:"extraVolumes,omitempty"`
	ExtraEnvs    []corev1.EnvVar `json:"extraEnvs,omitempty" kubeadm:"v1beta4"`
}

type wireAPIServer struct {
	wireComponent          `json:",inline"`
	CertSANs               []string         `json:"certSANs,omitempty"`
	TimeoutForControlPlane *metav1.Duration `json:"timeoutForControlPlane,omitempty" kubeadm:"-v1beta3"`
}

type wireMount struct {
	Name      string              `json:"name"`
	HostPath  string              `json:"hostPath"`
	MountPath string              `json:"mountPath"`
	ReadOnly  bool                `json:"readOnly,omitempty"`
	PathType  corev1.HostPathType `json:"pathType,omitempty"`
}

type wireEtcd struct {
	Local    *wireLocalEtcd    `json:"local,omitempty"`
	External *wireExternalEtcd `json:"external,omitempty"`
}

type wireLocalEtcd struct {
	wireImage      `json:",inline"`
	DataDir        string          `json:"dataDir"`
	ExtraArgs      wireArgs        `json:"extraArgs,omitzero"`
	ExtraEnvs      []corev1.EnvVar `json:"extraEnvs,omitempty" kubeadm:"v1beta4"`
	ServerCertSANs []string        `json:"serverCertSANs,omitempty"`
	PeerCertSANs   []string        `json:"peerCertSANs,omitempty"`
}

type wireExternalEtcd struct {
	Endpoints     []string `json:"endpoints"`
	HTTPEndpoints []string `json:"httpEndpoints,omitempty" kubeadm:"v1beta4"`
	CAFile        string   `json:"caFile"`
	CertFile      string   `json:"certFile"`
	KeyFile       string   `json:"keyFile"`
}

type wireImage struct {
	ImageRepository string `json:"imageRepository,omitempty"`
	ImageTag        string `json:"imageTag,omitempty"`
}

type wireDNS struct {
	wireImage `json:",inline"`
	Disabled  bool `json:"disabled,omitempty" kubeadm:"v1beta4"`
}

type wireProxy struct {
	Disabled bool `json:"disabled,omitempty"`
}

// wireArgs is a map up to v1beta3, sorted by name, and a list since.
type wireArgs struct {
	list  []wireArg
	isMap bool
}

type wireArg struct {
	Name        string `json:"name"`
	Value       string `json:"value"`
	MergeMethod string `json:"mergeMethod,omitempty" kubeadm:"v1"`
}

func (a *wireArgs) UnmarshalJSON(data []byte) error {
	a.list = nil
	if a.isMap = bytes.HasPrefix(bytes.TrimSpace(data), []byte("{")); a.isMap {
		var args map[string]string
		if err := json.Unmarshal(data, &args); err != nil {
			return err
		}
		for _, name := range slices.Sorted(maps.Keys(args)) {
			a.list = append(a.list, wireArg{Name: name, Value: args[name]})
		}
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	return d.Decode(&a.list)
}

func (a wireArgs) MarshalJSON() ([]byte, error) {
	if !a.isMap {
		return json.Marshal(a.list)
	}
	args := map[string]string{}
	for _, arg := range a.list {
		args[arg.Name] = arg.Value // a later one wins, as in kubeadm's conversion
	}
	return json.Marshal(args)
}

func (a wireArgs) IsZero() bool { return len(a.list) == 0 }
