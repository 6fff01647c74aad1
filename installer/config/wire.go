package config

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// kubeadmGroup is the API group of kubeadm's own documents.
const kubeadmGroup = "kubeadm.k8s.io"

// apiVersions are the supported versions of kubeadm's API, oldest first.
var apiVersions = []string{"v1beta3", "v1beta4", "v1"}

// within reports whether a field or kind with that tag exists in the version.
func within(tag, version string) bool {
	last, until := strings.CutPrefix(tag, "-")
	if until {
		return slices.Index(apiVersions, version) <= slices.Index(apiVersions, last)
	}
	return tag == "" || slices.Index(apiVersions, version) >= slices.Index(apiVersions, tag)
}

type initConfiguration struct {
	BootstrapTokens  []wireToken      `json:"bootstrapTokens,omitempty"`
	DryRun           bool             `json:"dryRun,omitempty" kubeadm:"v1beta4"`
	NodeRegistration NodeRegistration `json:"nodeRegistration,omitzero"`
	LocalAPIEndpoint APIEndpoint      `json:"localAPIEndpoint,omitzero"`
	CertificateKey   string           `json:"certificateKey,omitempty"`
	SkipPhases       []string         `json:"skipPhases,omitempty"`
	Patches          patches          `json:"patches,omitzero"`
	Timeouts         Timeouts         `json:"timeouts" kubeadm:"v1beta4"`
}

type joinConfiguration struct {
	DryRun           bool              `json:"dryRun,omitempty" kubeadm:"v1beta4"`
	NodeRegistration NodeRegistration  `json:"nodeRegistration,omitzero"`
	CACertPath       string            `json:"caCertPath,omitempty"`
	Discovery        wireDiscovery     `json:"discovery"`
	ControlPlane     *joinControlPlane `json:"controlPlane,omitempty"`
	SkipPhases       []string          `json:"skipPhases,omitempty"`
	Patches          patches           `json:"patches,omitzero"`
	Timeouts         Timeouts          `json:"timeouts" kubeadm:"v1beta4"`
}

type joinControlPlane struct {
	LocalAPIEndpoint APIEndpoint `json:"localAPIEndpoint,omitzero"`
	CertificateKey   string      `json:"certificateKey,omitempty"`
}

type patches struct {
	Directory string `json:"directory,omitempty"`
}

type wireToken struct {
	Token       *string        `json:"token"`
	Description string         `json:"description,omitempty"`
	TTL         *time.Duration `json:"ttl,omitempty" zero:"true"`
	Expires     *metav1.Time   `json:"expires,omitempty"`
	Usages      []string       `json:"usages,omitempty"`
	Groups      []string       `json:"groups,omitempty"`
}

type wireDiscovery struct {
	BootstrapToken    *tokenDiscovery `json:"bootstrapToken,omitempty"`
	File              *fileDiscovery  `json:"file,omitempty"`
	TLSBootstrapToken string          `json:"tlsBootstrapToken,omitempty"`
	Timeout           time.Duration   `json:"timeout,omitempty" kubeadm:"-v1beta3"`
}

type tokenDiscovery struct {
	Token                    string   `json:"token"`
	APIServerEndpoint        string   `json:"apiServerEndpoint,omitempty"`
	CACertHashes             []string `json:"caCertHashes,omitempty"`
	UnsafeSkipCAVerification bool     `json:"unsafeSkipCAVerification,omitempty"`
}

type fileDiscovery struct {
	KubeConfigPath string `json:"kubeConfigPath"`
}

// upgradeConfiguration has fields that Airlift does not use: a bundle has one version.
type upgradeConfiguration struct {
	Apply struct {
		KubernetesVersion         string            `json:"kubernetesVersion,omitempty"`
		AllowExperimentalUpgrades *bool             `json:"allowExperimentalUpgrades,omitempty"`
		AllowRCUpgrades           *bool             `json:"allowRCUpgrades,omitempty"`
		CertificateRenewal        *bool             `json:"certificateRenewal,omitempty"`
		DryRun                    *bool             `json:"dryRun,omitempty"`
		EtcdUpgrade               *bool             `json:"etcdUpgrade,omitempty"`
		ForceUpgrade              *bool             `json:"forceUpgrade,omitempty"`
		IgnorePreflightErrors     []string          `json:"ignorePreflightErrors,omitempty"`
		Patches                   *patches          `json:"patches,omitempty"`
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
		Patches               *patches          `json:"patches,omitempty"`
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
	Timeouts Timeouts `json:"timeouts"`
}
