package config

import (
	"reflect"
	"slices"
	"strings"

	kubeproxyv1 "k8s.io/kube-proxy/config/v1alpha1"
	kubeletv1 "k8s.io/kubelet/config/v1beta1"

	"airlift/internal/documents"
)

// kubeadmKinds are the documents of kubeadm's own API group.
var kubeadmKinds = map[string]struct {
	of    reflect.Type
	since string
}{
	"InitConfiguration":    {reflect.TypeFor[initConfiguration](), ""},
	"ClusterConfiguration": {reflect.TypeFor[clusterConfiguration](), ""},
	"JoinConfiguration":    {reflect.TypeFor[joinConfiguration](), ""},
	"ResetConfiguration":   {reflect.TypeFor[resetConfiguration](), "v1beta4"},
	"UpgradeConfiguration": {reflect.TypeFor[upgradeConfiguration](), "v1beta4"},
}

// componentKinds are the documents of other groups that kubeadm reads.
var componentKinds = map[string]struct {
	group, version string
	of             reflect.Type
}{
	"KubeletConfiguration":   {kubeletv1.GroupName, "v1beta1", reflect.TypeFor[kubeletv1.KubeletConfiguration]()},
	"KubeProxyConfiguration": {kubeproxyv1.GroupName, "v1alpha1", reflect.TypeFor[kubeproxyv1.KubeProxyConfiguration]()},
}

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
	switch d.group {
	case kubeadmGroup:
		kind, ok := kubeadmKinds[d.kind]
		if reader := lastReader[d.version]; reader != "" {
			s.addf(line("apiVersion"), "kubeadm.k8s.io/%s is too old (supported: %s): convert it with 'kubeadm config migrate --old-config old.yaml --new-config new.yaml' of kubeadm %s", d.version, known, reader)
		} else if !slices.Contains(apiVersions, d.version) {
			s.addf(line("apiVersion"), "there is no kubeadm.k8s.io/%s: the versions are %s", d.version, known)
		} else if !ok {
			names := []string{}
			for name := range kubeadmKinds {
				names = append(names, name)
			}
			s.addf(line("kind"), "kubeadm.k8s.io/%s has no kind %q%s", d.version, d.kind, didYouMean(d.kind, names))
		} else if !within(kind.since, d.version) {
			s.addf(line("apiVersion"), "%s exists since kubeadm.k8s.io/%s", d.kind, kind.since)
		} else {
			return kind.of
		}
		return nil
	case kubeletv1.GroupName, kubeproxyv1.GroupName:
		for name, kind := range componentKinds {
			switch {
			case kind.group != d.group:
			case kind.version != d.version:
				s.addf(line("apiVersion"), "%s/%s is not supported: write %s/%s", d.group, d.version, kind.group, kind.version)
			case name == d.kind:
				return kind.of
			case d.kind == "CredentialProviderConfig" || d.kind == "SerializedNodeConfigSource":
				// In the kubelet's API group, but kubeadm does not use it.
			default:
				s.addf(line("kind"), "%s/%s has no kind %q: did you mean %s?", d.group, d.version, d.kind, name)
			}
		}
		return nil
	}
	if kind, ok := componentKinds[d.kind]; ok {
		s.addf(line("apiVersion"), "%s does not belong to %s/%s: write apiVersion: %s/%s", d.kind, d.group, d.version, kind.group, kind.version)
	} else if _, ok := kubeadmKinds[d.kind]; ok {
		s.addf(line("apiVersion"), "%s does not belong to %s/%s: write apiVersion: %s/v1beta4", d.kind, d.group, d.version, kubeadmGroup)
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
func TypeOfKind(group, kind string) reflect.Type {
	if group == kubeadmGroup {
		return kubeadmKinds[kind].of
	}
	if k := componentKinds[kind]; k.group == group {
		return k.of
	}
	return nil
}
