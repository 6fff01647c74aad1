// Package serving lets a cluster sign the serving certificates of its kubelets: a process on each control plane approves a request
// whose names and addresses the site gave to the node. What a kubelet reports of itself does not count.
package serving

import (
	"fmt"
	"net/netip"
	"path"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"airlift/installer/config"
	"airlift/installer/host"
	"airlift/installer/pki"
	"airlift/internal/documents"
)

// The places of the process on a control plane.
const (
	Unit         = "airlift-serving.service"
	UnitPath     = "/etc/systemd/system/" + Unit
	SettingsPath = config.KubernetesDir + "/serving.yaml"
)

// CertificateName is the kubelet's name for its signed certificate, in its --cert-dir.
const CertificateName = "kubelet-server-current.pem"

// User is the identity of the process. Its certificate is never written to a file.
const User = "airlift:serving-approver"

// Hint returns what shows why the request of a node is not approved.
func Hint(node string) string {
	return "on a control plane, see: ./install node addresses " + node + "; journalctl -u " + Unit
}

// Settings are what the process of one control plane has to know.
type Settings struct {
	// Node is the name of this host's node.
	Node string `json:"node"`
	// Server is the URL of this host's own API server.
	Server string `json:"server"`
	// CertificatesDir has the cluster's CA with its key, and the certificate of the API server.
	CertificatesDir string `json:"certificatesDir"`
	// Ranges are the addresses of Services and pods.
	Ranges []netip.Prefix `json:"ranges"`
}

const kind = "NodeServing"

// For returns the settings for a control plane.
func For(c *config.Config) *Settings {
	s := &Settings{Node: c.NodeRegistration.Name, Server: c.LocalURL(), CertificatesDir: c.CertificatesDir}
	for _, r := range c.Networking.Ranges() {
		s.Ranges = append(s.Ranges, r.Prefix)
	}
	return s
}

// Files are the settings and the unit.
func (s *Settings) Files() ([]pki.File, error) {
	data, err := documents.Encode(kind, s)
	if err != nil {
		return nil, err
	}
	return []pki.File{
		{Path: SettingsPath, Data: data, Mode: 0o600},
		{Path: UnitPath, Data: []byte(unit), Mode: 0o644},
	}, nil
}

func decode(data []byte) (*Settings, error) {
	s := new(Settings)
	if err := documents.Decode(data, kind, s); err != nil {
		return nil, err
	}
	if s.Node == "" || s.Server == "" || !path.IsAbs(s.CertificatesDir) {
		return nil, fmt.Errorf("node, server and the absolute path certificatesDir are needed")
	}
	return s, nil
}

// unit is the unit of the process. It reads the key of the CA, so it runs as root, but without a privilege, and it writes no file.
var unit = fmt.Sprintf(`[Unit]
Description=Approval of the serving certificates of kubelets
Wants=network-online.target
After=network-online.target
StartLimitIntervalSec=0

[Service]
Type=notify
ExecStart=%s certs approve
WatchdogSec=30
Restart=always
RestartSec=1
CapabilityBoundingSet=
NoNewPrivileges=yes
ProtectSystem=strict
Environment=GOMAXPROCS=1 GOGC=50

[Install]
WantedBy=multi-user.target
`, host.CommandPath)

// Objects returns the permissions of the process, and the empty record. Nobody else but administrators may change the record.
func Objects() []runtime.Object {
	role := func(kind string) metav1.TypeMeta {
		return metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: kind}
	}
	rule := func(group, resource string, names []string, verbs ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, ResourceNames: names, Verbs: verbs}
	}
	subjects := []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: User}}
	meta, inSystem := metav1.ObjectMeta{Name: User}, metav1.ObjectMeta{Name: User, Namespace: metav1.NamespaceSystem}
	const requests = "certificatesigningrequests"
	return []runtime.Object{
		&rbacv1.ClusterRole{TypeMeta: role("ClusterRole"), ObjectMeta: meta, Rules: []rbacv1.PolicyRule{
			rule(certificatesv1.GroupName, requests, nil, "list", "watch"),
			rule(certificatesv1.GroupName, requests+"/approval", nil, "update"),
			rule(certificatesv1.GroupName, "signers", []string{certificatesv1.KubeletServingSignerName}, "approve"),
			rule("", "nodes", nil, "list"),
			rule("discovery.k8s.io", "endpointslices", []string{"kubernetes"}, "list"),
		}},
		&rbacv1.ClusterRoleBinding{TypeMeta: role("ClusterRoleBinding"), ObjectMeta: meta, Subjects: subjects,
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: User}},
		&rbacv1.Role{TypeMeta: role("Role"), ObjectMeta: inSystem, Rules: []rbacv1.PolicyRule{
			rule("", "configmaps", []string{recordMap}, "get", "update"),
		}},
		&rbacv1.RoleBinding{TypeMeta: role("RoleBinding"), ObjectMeta: inSystem, Subjects: subjects,
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: User}},
		emptyRecord(),
	}
}

func emptyRecord() *corev1.ConfigMap {
	return &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: recordMap},
	}
}
