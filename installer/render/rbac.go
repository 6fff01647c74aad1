package render

import (
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"airlift/installer/config"
	"airlift/installer/pki"
)

// The groups that get permissions from kubeadm's RBAC.
const (
	tokensGroup        = config.NodeTokenGroup
	nodesGroup         = "system:nodes"
	clusterAdminsGroup = pki.ClusterAdminsGroup
)

func group(name string) rbacv1.Subject {
	return rbacv1.Subject{Kind: rbacv1.GroupKind, Name: name}
}

func account(namespace, name string) rbacv1.Subject {
	return rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}
}

func rbacType(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: kind}
}

func clusterRole(name string, rules ...rbacv1.PolicyRule) *rbacv1.ClusterRole {
	return &rbacv1.ClusterRole{TypeMeta: rbacType("ClusterRole"), ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}
}

func clusterBinding(name, role string, subjects ...rbacv1.Subject) *rbacv1.ClusterRoleBinding {
	return &rbacv1.ClusterRoleBinding{
		TypeMeta:   rbacType("ClusterRoleBinding"),
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects:   subjects,
	}
}

// readable returns a Role and its RoleBinding that let subjects read one named
// object of a namespace.
func readable(namespace, role, resource, object string, subjects ...rbacv1.Subject) []runtime.Object {
	return allowed(namespace, role, rbacv1.PolicyRule{
		Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{resource}, ResourceNames: []string{object},
	}, subjects...)
}

// allowed returns a Role with one rule and its RoleBinding.
func allowed(namespace, role string, rule rbacv1.PolicyRule, subjects ...rbacv1.Subject) []runtime.Object {
	meta := metav1.ObjectMeta{Namespace: namespace, Name: role}
	return []runtime.Object{
		&rbacv1.Role{TypeMeta: rbacType("Role"), ObjectMeta: meta, Rules: []rbacv1.PolicyRule{rule}},
		&rbacv1.RoleBinding{TypeMeta: rbacType("RoleBinding"), ObjectMeta: meta,
			RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role},
			Subjects: subjects},
	}
}

// ClusterAdmins makes admin.conf's group administrators. On a new cluster, only
// super-admin.conf has permission to create it.
func ClusterAdmins() *rbacv1.ClusterRoleBinding {
	return clusterBinding("kubeadm:cluster-admins", "cluster-admin", group(clusterAdminsGroup))
}

// BootstrapRBAC lets a joining node with a token read nodes and request its
// certificate, lets the controller manager approve the request, and lets nodes
// renew their certificates. Where API servers are not administrators by their
// certificate, it also lets them use the kubelets.
func BootstrapRBAC(cfg *config.Config) []runtime.Object {
	objects := []runtime.Object{
		clusterRole("kubeadm:get-nodes", rbacv1.PolicyRule{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"nodes"}}),
		clusterBinding("kubeadm:get-nodes", "kubeadm:get-nodes", group(tokensGroup)),
		clusterBinding("kubeadm:kubelet-bootstrap", "system:node-bootstrapper", group(tokensGroup)),
		clusterBinding("kubeadm:node-autoapprove-bootstrap",
			"system:certificates.k8s.io:certificatesigningrequests:nodeclient", group(tokensGroup)),
		clusterBinding("kubeadm:node-autoapprove-certificate-rotation",
			"system:certificates.k8s.io:certificatesigningrequests:selfnodeclient", group(nodesGroup)),
	}
	if pki.KubeletClientByName(cfg.KubernetesVersion) {
		objects = append(objects, clusterBinding("kubeadm:apiserver-kubelet-client", "system:kubelet-api-admin",
			rbacv1.Subject{Kind: rbacv1.UserKind, Name: "kube-apiserver-kubelet-client"}))
	}
	return objects
}

// UploadCertsRBAC lets a joining control plane read the encrypted certificates.
func UploadCertsRBAC() []runtime.Object {
	return readable(metav1.NamespaceSystem, "kubeadm:kubeadm-certs", "secrets", "kubeadm-certs", group(tokensGroup))
}

// APIServersRBAC lets nodes follow the addresses of the API servers, for their balancer, and joining nodes
// read them.
func APIServersRBAC() []runtime.Object {
	return allowed(metav1.NamespaceDefault, "airlift:api-servers", rbacv1.PolicyRule{
		Verbs: []string{"get", "list", "watch"}, APIGroups: []string{"discovery.k8s.io"},
		Resources: []string{"endpointslices"}, ResourceNames: []string{"kubernetes"},
	}, group(nodesGroup), group(tokensGroup))
}

// registryServers is the name of the ClusterRole of the control planes that serve the embedded registry.
const registryServers = "airlift:registry"

// registryRole lets a serving control plane know which nodes exist, and check the tokens of joining nodes.
func registryRole() *rbacv1.ClusterRole {
	return clusterRole(registryServers,
		rbacv1.PolicyRule{Verbs: []string{"get", "list", "watch"}, APIGroups: []string{""}, Resources: []string{"nodes"}},
		rbacv1.PolicyRule{Verbs: []string{"create"}, APIGroups: []string{"authentication.k8s.io"}, Resources: []string{"tokenreviews"}})
}

// RegistryServer gives the kubelet's identity of a control plane the permissions of a server of the embedded registry. Each
// has its own binding, which is deleted with the node.
func RegistryServer(node string) *rbacv1.ClusterRoleBinding {
	return clusterBinding(registryServers+":"+node, registryServers, rbacv1.Subject{Kind: rbacv1.UserKind, Name: pki.NodeUser(node)})
}
