package profile

import (
	_ "embed"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"airlift/installer/config"
	"airlift/installer/reconfiguration"
)

//go:embed audit-policy.yaml
var policy []byte

//go:embed admission.yaml
var admission string

// Files returns the files of the profile that flags of a cluster's API server name.
func Files(c *config.Cluster) (list []reconfiguration.File) {
	named := func(flag, file string, data []byte) {
		if value, _ := given(c.APIServer.ExtraArgs, flag); value == file {
			list = append(list, reconfiguration.File{Path: file, Data: data})
		}
	}
	// Pinned: another version of Kubernetes refuses no pod that this one accepts.
	version := fmt.Sprintf("v1.%d", c.Minor())
	named(admissionFlag, admissionFile, []byte(strings.ReplaceAll(admission, "VERSION", version)))
	named(policyFlag, policyFile, policy)
	return list
}

// DefaultAccounts are the default ServiceAccounts of the namespaces that each cluster has, without tokens in pods.
func DefaultAccounts() (list []runtime.Object) {
	for _, namespace := range []string{metav1.NamespaceDefault, corev1.NamespaceNodeLease, metav1.NamespacePublic, metav1.NamespaceSystem} {
		list = append(list, &corev1.ServiceAccount{
			TypeMeta:                     metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceAccount"},
			ObjectMeta:                   metav1.ObjectMeta{Namespace: namespace, Name: "default"},
			AutomountServiceAccountToken: new(false),
		})
	}
	return list
}
