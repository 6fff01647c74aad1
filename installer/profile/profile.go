// Package profile hardens the configuration of a new cluster: it adds what the CIS benchmark asks for to kubeadm's documents, as a
// user of kubeadm would write it. So the cluster stores it, and joins, upgrades, reconfigurations and backups need no other code.
package profile

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeletv1 "k8s.io/kubelet/config/v1beta1"

	"airlift/installer/config"
	"airlift/internal/fault"
)

// Hardened is the name of the only profile.
const Hardened = "hardened"

// Directories on each control plane: of the files that flags of the API server name, and of the audit log.
const (
	Dir      = config.KubernetesDir + "/hardened"
	AuditDir = "/var/log/kubernetes/audit"
)

const (
	policyFile    = Dir + "/audit-policy.yaml"
	admissionFile = Dir + "/admission.yaml"
)

// Flags of the API server that depend on each other.
const (
	pluginsFlag         = "enable-admission-plugins"
	disabledPluginsFlag = "disable-admission-plugins"
	admissionFlag       = "admission-control-config-file"
	policyFlag          = "audit-policy-file"
	kubeletCAFlag       = "kubelet-certificate-authority"
)

// Plugins that the profile enables. EventRateLimit does not start without admissionFile.
const (
	nodeRestriction = "NodeRestriction"
	denyExternalIPs = "DenyServiceExternalIPs"
	eventRateLimit  = "EventRateLimit"
)

// Volumes of the API server.
const filesVolume, auditVolume = "hardened", "audit-log"

const clusterKind, kubeletKind = "ClusterConfiguration", "KubeletConfiguration"

// servingField is the kubelet's part of SignsServing. Without the other part, API servers would refuse kubelets, or nobody would sign.
const servingField = "serverTLSBootstrap"

// Ciphers are the TLS 1.2 suites of the API server and of kubelets. HTTP/2 requires the first two; suites of TLS 1.3 cannot be chosen.
var Ciphers = []string{
	"TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
	"TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
}

// A component is a component of the control plane, with the flags that the profile gives it.
type component struct {
	field string // of the ClusterConfiguration
	args  config.Args
	of    func(*config.Cluster) *config.Component
}

// components is the table of flags. pluginsFlag and kubeletCAFlag are not in it: they depend on what the user sets.
var components = []component{
	{"apiServer", config.Args{
		{Name: admissionFlag, Value: admissionFile},
		{Name: "audit-log-maxage", Value: "30"},    // days
		{Name: "audit-log-maxbackup", Value: "10"}, // files
		{Name: "audit-log-maxsize", Value: "100"},  // MB
		{Name: "audit-log-path", Value: AuditDir + "/audit.log"},
		{Name: policyFlag, Value: policyFile},
		{Name: "profiling", Value: "false"},
		{Name: "request-timeout", Value: "300s"},
		{Name: "service-account-extend-token-expiration", Value: "false"},
		{Name: "tls-cipher-suites", Value: strings.Join(Ciphers, ",")},
	}, func(c *config.Cluster) *config.Component { return &c.APIServer.Component }},
	{"controllerManager", config.Args{
		{Name: "profiling", Value: "false"},
		{Name: "terminated-pod-gc-threshold", Value: "1000"},
	}, func(c *config.Cluster) *config.Component { return &c.ControllerManager }},
	{"scheduler", config.Args{
		{Name: "profiling", Value: "false"},
	}, func(c *config.Cluster) *config.Component { return &c.Scheduler }},
}

// kubeletFields is the table of fields of the KubeletConfiguration, by name.
var kubeletFields = []struct {
	name string
	set  func(*kubeletv1.KubeletConfiguration)
}{
	{"eventRecordQPS", func(k *kubeletv1.KubeletConfiguration) { k.EventRecordQPS = new(int32(50)) }},
	{"makeIPTablesUtilChains", func(k *kubeletv1.KubeletConfiguration) { k.MakeIPTablesUtilChains = new(true) }},
	{"podPidsLimit", func(k *kubeletv1.KubeletConfiguration) { k.PodPidsLimit = new(int64(4096)) }},
	{"protectKernelDefaults", func(k *kubeletv1.KubeletConfiguration) { k.ProtectKernelDefaults = true }},
	{"rotateCertificates", func(k *kubeletv1.KubeletConfiguration) { k.RotateCertificates = true }},
	{"seccompDefault", func(k *kubeletv1.KubeletConfiguration) { k.SeccompDefault = new(true) }},
	{servingField, func(k *kubeletv1.KubeletConfiguration) { k.ServerTLSBootstrap = true }},
	{"streamingConnectionIdleTimeout", func(k *kubeletv1.KubeletConfiguration) {
		k.StreamingConnectionIdleTimeout = metav1.Duration{Duration: 5 * time.Minute}
	}},
	{"tlsCipherSuites", func(k *kubeletv1.KubeletConfiguration) { k.TLSCipherSuites = slices.Clone(Ciphers) }},
}

// Apply gives a completed configuration the values of a profile, none without a name. What the user set stays; kept names it.
func Apply(name string, c *config.Config) (kept []string, err error) {
	switch name {
	case "":
		return nil, nil
	case Hardened:
	default:
		return nil, fault.New(fault.Usage, "--profile: there is no profile %q", name).Hint("the profile is " + Hardened + "; './install docs hardening' describes it")
	}
	volumes, err := withVolumes(c.APIServer.ExtraVolumes)
	if err != nil {
		return nil, err
	}
	c.APIServer.ExtraVolumes = volumes
	c.APIServer.ExtraArgs = slices.DeleteFunc(slices.Clone(c.APIServer.ExtraArgs), defersVerification)
	_, ownCA := given(c.APIServer.ExtraArgs, kubeletCAFlag)
	ownServing := c.Sets(kubeletKind + "." + servingField)
	for _, one := range components {
		args := one.args
		if one.field == "apiServer" {
			args = append(slices.Clone(args), config.Arg{Name: pluginsFlag, Value: plugins(&c.Cluster)})
			if !ownServing {
				args = append(args, config.Arg{Name: kubeletCAFlag, Value: clusterCA(&c.Cluster)})
			}
		}
		own := one.of(&c.Cluster)
		merged := slices.Clone(own.ExtraArgs)
		for _, arg := range args {
			if value, ok := given(own.ExtraArgs, arg.Name); ok {
				kept = append(kept, fmt.Sprintf("%s.%s.extraArgs: %s=%s", clusterKind, one.field, arg.Name, value))
			} else if arg.Value != "" {
				merged = append(merged, arg)
			}
		}
		own.ExtraArgs = merged
	}
	kubelet := &kubeletv1.KubeletConfiguration{}
	if c.Kubelet != nil {
		kubelet = c.Kubelet.DeepCopy()
	}
	for _, f := range kubeletFields {
		if c.Sets(kubeletKind + "." + f.name) {
			kept = append(kept, kubeletKind+"."+f.name)
		} else if f.name != servingField || !ownCA {
			f.set(kubelet)
		}
	}
	c.Kubelet = kubelet
	return kept, nil
}

// Used reports whether a cluster was created with a profile.
func Used(c *config.Cluster) bool {
	return slices.ContainsFunc(c.APIServer.ExtraVolumes, func(v config.HostPathMount) bool { return v.Name == filesVolume && v.HostPath == Dir })
}

// SignsServing reports whether a cluster with the profile signs the serving certificates of its kubelets.
func SignsServing(c *config.Cluster) bool {
	value, set := given(c.APIServer.ExtraArgs, kubeletCAFlag)
	return Used(c) && set && (value == "" || value == clusterCA(c))
}

// VerifiesServing reports whether API servers also verify them.
func VerifiesServing(c *config.Cluster) bool {
	value, _ := given(c.APIServer.ExtraArgs, kubeletCAFlag)
	return SignsServing(c) && value != ""
}

// DeferVerification lets a cluster sign these certificates while API servers do not verify them: not yet, or no longer. To them, the
// empty value is the same as no flag.
func DeferVerification(c *config.Cluster) {
	c.APIServer.ExtraArgs = slices.Clone(c.APIServer.ExtraArgs)
	for i, arg := range c.APIServer.ExtraArgs {
		if strings.ReplaceAll(arg.Name, "_", "-") == kubeletCAFlag {
			c.APIServer.ExtraArgs[i].Value = ""
		}
	}
}

// defersVerification reports whether an argument is what DeferVerification leaves.
func defersVerification(a config.Arg) bool {
	return strings.ReplaceAll(a.Name, "_", "-") == kubeletCAFlag && a.Value == ""
}

func clusterCA(c *config.Cluster) string { return path.Join(c.CertificatesDir, "ca.crt") }

// given returns the user's value of a flag. Components accept _ for -.
func given(args config.Args, name string) (value string, ok bool) {
	for _, arg := range args {
		if strings.ReplaceAll(arg.Name, "_", "-") == name {
			value, ok = arg.Value, true
		}
	}
	return value, ok
}

// plugins returns the admission plugins to enable. The API server does not start with one that the user disables, nor with
// EventRateLimit and without its configuration.
func plugins(c *config.Cluster) string {
	disabled, _ := given(c.APIServer.ExtraArgs, disabledPluginsFlag)
	_, ownConfiguration := given(c.APIServer.ExtraArgs, admissionFlag)
	var list []string
	for _, name := range []string{nodeRestriction, denyExternalIPs, eventRateLimit} {
		if !slices.Contains(strings.Split(disabled, ","), name) && !(name == eventRateLimit && ownConfiguration) {
			list = append(list, name)
		}
	}
	return strings.Join(list, ",")
}

// withVolumes adds the directories of the profile's files. It refuses volumes that would hide them.
func withVolumes(user []config.HostPathMount) ([]config.HostPathMount, error) {
	list := slices.Clone(user)
	for _, own := range []config.HostPathMount{
		{Name: filesVolume, HostPath: Dir, MountPath: Dir, ReadOnly: true, PathType: corev1.HostPathDirectoryOrCreate},
		{Name: auditVolume, HostPath: AuditDir, MountPath: AuditDir, PathType: corev1.HostPathDirectoryOrCreate},
	} {
		for _, v := range user {
			if v.Name == own.Name || v.MountPath == own.MountPath {
				return nil, fault.New(fault.Usage, "%s.apiServer.extraVolumes: the profile %s needs the name %q and the path %s for itself", clusterKind, Hardened, own.Name, own.MountPath).
					Hint("rename or move the volume")
			}
		}
		list = append(list, own)
	}
	return list, nil
}
