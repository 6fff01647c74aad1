package config

import (
	"cmp"
	"reflect"
	"slices"
	"strings"

	kubeproxyv1 "k8s.io/kube-proxy/config/v1alpha1"
	kubeletv1 "k8s.io/kubelet/config/v1beta1"

	"airlift/internal/documents"
)

// A Kind is a kind of document that kubeadm reads.
type Kind struct {
	group string
	// version is the only one that is read; of kubeadm's own group, the first that has the kind.
	version string
	of      reflect.Type
	// ConfigMap, in kube-system, and Key are where a cluster keeps the document.
	ConfigMap, Key string
	// field returns the address of the field of a cluster that has the document, if it is not the cluster itself.
	field func(*Cluster) any
}

// Kinds are all kinds, by name.
var Kinds = map[string]Kind{
	"InitConfiguration":    {group: kubeadmGroup, of: reflect.TypeFor[initConfiguration]()},
	"JoinConfiguration":    {group: kubeadmGroup, of: reflect.TypeFor[joinConfiguration]()},
	"ResetConfiguration":   {group: kubeadmGroup, version: "v1beta4", of: reflect.TypeFor[Reset]()},
	"UpgradeConfiguration": {group: kubeadmGroup, version: "v1beta4", of: reflect.TypeFor[upgradeConfiguration]()},
	"ClusterConfiguration": {kubeadmGroup, "", reflect.TypeFor[Cluster](), "kubeadm-config", "ClusterConfiguration", nil},
	"KubeletConfiguration": {kubeletv1.GroupName, "v1beta1", reflect.TypeFor[kubeletv1.KubeletConfiguration](), "kubelet-config", "kubelet",
		func(c *Cluster) any { return &c.Kubelet }},
	"KubeProxyConfiguration": {kubeproxyv1.GroupName, "v1alpha1", reflect.TypeFor[kubeproxyv1.KubeProxyConfiguration](), "kube-proxy", "config.conf",
		func(c *Cluster) any { return &c.KubeProxy }},
}

// ClusterKinds are the kinds that a cluster keeps: init and reconfigure read them, and apply compares them with the cluster.
var ClusterKinds = []string{"ClusterConfiguration", "KubeletConfiguration", "KubeProxyConfiguration"}

// lastReader is the last kubeadm that reads an API version that Airlift does not
// (kubeadm's util/config/common.go, oldKnownAPIVersions).
var lastReader = map[string]string{
	"v1alpha1": "v1.11", "v1alpha2": "v1.12", "v1alpha3": "v1.14", "v1beta1": "v1.15", "v1beta2": "v1.22",
}

// typeOf returns the type that a document is decoded into. nil means that it is
// not one of kubeadm's; it then records an error, unless the group is unknown.
func (s *source) typeOf(d *document) reflect.Type {
	known := strings.Join(apiVersions, ", ")
	line := func(key string) int { return s.lineOf(d, key) }
	kind, names := Kinds[d.kind], slices.DeleteFunc(keys(Kinds), func(name string) bool { return Kinds[name].group != d.group })
	of, own := kind.group == d.group, d.group == kubeadmGroup
	switch reader := lastReader[d.version]; {
	case len(names) == 0 && kind.group == "":
	case len(names) == 0:
		s.addf(line("apiVersion"), "%s does not belong to %s/%s: write apiVersion: %s/%s", d.kind, d.group, d.version, kind.group, cmp.Or(kind.version, "v1beta4"))
	case own && reader != "":
		s.addf(line("apiVersion"), "kubeadm.k8s.io/%s is too old (supported: %s): convert it with 'kubeadm config migrate --old-config old.yaml --new-config new.yaml' of kubeadm %s", d.version, known, reader)
	case own && !slices.Contains(apiVersions, d.version):
		s.addf(line("apiVersion"), "there is no kubeadm.k8s.io/%s: the versions are %s", d.version, known)
	case own && !of:
		s.addf(line("kind"), "kubeadm.k8s.io/%s has no kind %q%s", d.version, d.kind, didYouMean(d.kind, names))
	case own && !within(kind.version, d.version):
		s.addf(line("apiVersion"), "%s exists since kubeadm.k8s.io/%s", d.kind, kind.version)
	case !own && d.version != Kinds[names[0]].version:
		s.addf(line("apiVersion"), "%s/%s is not supported: write %s/%s", d.group, d.version, d.group, Kinds[names[0]].version)
	case of:
		return kind.of
	case d.kind == "CredentialProviderConfig" || d.kind == "SerializedNodeConfigSource":
		// In the kubelet's API group, but kubeadm does not use it.
	default:
		s.addf(line("kind"), "%s/%s has no kind %q: did you mean %s?", d.group, d.version, d.kind, names[0])
	}
	return nil
}

// lineOf is the line of a top-level key.
func (s *source) lineOf(d *document, key string) int {
	if k, _ := documents.Field(d.Node, key); k != nil {
		return k.Line
	}
	return d.Line
}

// kubeletFieldSince is the first minor version whose kubelet has a field, for
// fields added after v1.29 (k8s.io/kubelet/config/v1beta1/types.go of v0.29 to
// v0.37; none was removed in between). Older kubelets ignore them.
var kubeletFieldSince = map[string]int{
	"containerLogMaxWorkers": 30, "containerLogMonitorInterval": 30, "podLogsDir": 30,
	"failCgroupV1":     31,
	"crashLoopBackOff": 32, "singleProcessOOMKill": 32,
	"imagePullCredentialsVerificationPolicy": 33, "mergeDefaultEvictionSettings": 33,
	"preloadedImagesVerificationAllowlist": 33, "userNamespaces": 33,
	"memoryReservationPolicy": 36, "tlsCurvePreferences": 36,
	"defaultPodSysctls": 37,
}

// TypeOfKind returns the Go type of a document that kubeadm reads, or nil.
func TypeOfKind(group, name string) reflect.Type {
	if kind := Kinds[name]; kind.group == group {
		return kind.of
	}
	return nil
}
