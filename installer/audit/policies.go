package audit

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeproxyv1 "k8s.io/kube-proxy/config/v1alpha1"
	"sigs.k8s.io/yaml"

	"airlift/installer/serving"
)

// ofClusters are the checks of section 5.
var ofClusters = []row{
	{"5.1.1", "M", Cluster, "cluster-admin: nobody but the cluster's administrators", "no other binding", clusterAdmins, "", "", 0},
	{"5.1.2", "M", Cluster, "Secrets of all namespaces: who can read them", components, can("", "secrets", "", "get", "list", "watch"), "", "274884", 0},
	{"5.1.3", "M", Cluster, "Roles name what they allow, without wildcards", "no wildcard but in roles of the API server", wildcards, "", "", 0},
	{"5.1.4", "M", Cluster, "Pods in all namespaces: who can create them", components, can("", "pods", "", "create"), "", "", 0},
	{"5.1.5", "M", Cluster, "The ServiceAccounts named default are not used", "no token in pods, and no roles", defaultAccounts, "", "", 0},
	{"5.1.6", "M", Cluster, "Pods have a token only if it has rights", "no token of a ServiceAccount without roles", mountedTokens, "", "", 0},
	{"5.1.7", "M", Cluster, "No certificate and no binding for the group system:masters", "none", masters, "", "", 0},
	{"5.1.8", "M", Cluster, "The rights bind, escalate and impersonate: who has them", components, impersonators, "", "", 0},
	{"5.1.9", "M", Cluster, "PersistentVolumes: who can create them", components, can("", "persistentvolumes", "", "create"), "", "", 0},
	{"5.1.10", "M", Cluster, "The kubelets' API by the proxy of nodes: who can use it", components, can("", "nodes", "proxy", "get", "create", "update", "patch", "delete"), "", "", 0},
	{"5.1.11", "M", Cluster, "CertificateSigningRequests: who can approve them", components, can("certificates.k8s.io", "certificatesigningrequests", "approval", "update", "patch"), "", "", 0},
	{"5.1.12", "M", Cluster, "Webhook configurations: who can change them", components, webhookEditors, "", "", 0},
	{"5.1.13", "M", Cluster, "Tokens of ServiceAccounts: who can create them", components, can("", "serviceaccounts", "token", "create"), "", "", 0},

	{"5.2.1", "M", Cluster, "A policy decides which pods are admitted", "a level in each namespace of users", admits(baseline), admitFix(baseline), "254800 254801", 0},
	{"5.2.2", "M", Cluster, "Privileged containers are not admitted", orStricter(baseline), admits(baseline), admitFix(baseline), "", 0},
	{"5.2.3", "M", Cluster, "Pods that see the host's processes are not admitted", orStricter(baseline), admits(baseline), admitFix(baseline), "", 0},
	{"5.2.4", "M", Cluster, "Pods in the host's IPC namespace are not admitted", orStricter(baseline), admits(baseline), admitFix(baseline), "", 0},
	{"5.2.5", "M", Cluster, "Pods in the host's network are not admitted", orStricter(baseline), admits(baseline), admitFix(baseline), "", 0},
	{"5.2.6", "M", Cluster, "Processes that gain privileges are not admitted", restricted, admits(restricted), admitFix(restricted), "", 0},
	{"5.2.7", "M", Cluster, "Containers that run as root are not admitted", restricted, admits(restricted), admitFix(restricted), "", 0},
	{"5.2.8", "M", Cluster, "Containers with the capability NET_RAW are not admitted", restricted, admits(restricted), admitFix(restricted), "", 0},
	{"5.2.9", "M", Cluster, "Containers that keep capabilities are not admitted", restricted, admits(restricted), admitFix(restricted), "", 0},
	{"5.2.10", "M", Cluster, "HostProcess containers of Windows are not admitted", orStricter(baseline), hostProcess, admitFix(baseline), "", 0},
	{"5.2.11", "M", Cluster, "Volumes that are directories of the host are not admitted", orStricter(baseline), admits(baseline), admitFix(baseline), "", 0},
	{"5.2.12", "M", Cluster, "Containers that use ports of the host are not admitted", orStricter(baseline), admits(baseline), admitFix(baseline), "", 0},

	{"5.3.1", "M", Cluster, "The pod network enforces NetworkPolicies", "it does", enforcesPolicies, "", "", 0},
	{"5.3.2", "M", Cluster, "Each namespace with pods has a NetworkPolicy", "at least one", hasPolicies, "", "", 0},
	{"5.4.1", "M", Cluster, "Secrets are files in pods, and not environment variables", "no environment variable from a Secret", secretVariables, "", "242415", 0},
	{"5.4.2", "M", Cluster, "Secrets may be kept outside of the cluster", "an external store, or the decision against it", externalStore, "", "274883", 0},
	{"5.5.1", "M", Cluster, "Where images are from is verified at admission", "ImagePolicyWebhook, or a webhook that verifies images", imageProvenance, "", "", 0},
	{"5.6.1", "M", Cluster, "Namespaces separate teams and applications", "a namespace for each", separated, "", "242417", 0},
	{"5.6.2", "M", Cluster, "Pods have a seccomp profile", "RuntimeDefault or Localhost", seccomp, "", "", 0},
	{"5.6.3", "M", Cluster, "Pods and containers have a security context", "each pod of users", securityContexts, "", "", 0},
	{"5.6.4", "M", Cluster, "The namespace default is not used", "empty", defaultNamespace, "", "242383", 0},
}

const components = "only components of Kubernetes"

// Roles and bindings.

// everyone are groups that any user or any pod is in.
func isEveryone(s rbacv1.Subject) bool {
	return s.Kind == rbacv1.GroupKind && (s.Name == "system:authenticated" || s.Name == "system:unauthenticated" || strings.HasPrefix(s.Name, "system:serviceaccounts")) || isAnonymous(s)
}

func isAnonymous(s rbacv1.Subject) bool {
	return s.Kind == rbacv1.GroupKind && s.Name == "system:unauthenticated" || s.Kind == rbacv1.UserKind && s.Name == "system:anonymous"
}

// adminGroups have the rights of administrators, by kubeadm's and the API server's bindings.
var administrators = []string{"system:masters", "kubeadm:cluster-admins"}

// isComponent reports whether a subject of a binding is a component of Kubernetes, or the group of its administrators.
func isComponent(b binding, s rbacv1.Subject) bool {
	switch s.Kind {
	case rbacv1.GroupKind:
		return slices.Contains(administrators, s.Name) || s.Name == "system:nodes"
	case rbacv1.UserKind:
		return strings.HasPrefix(s.Name, "system:kube-") || strings.HasPrefix(s.Name, "system:node:") || s.Name == "kube-apiserver-kubelet-client" || s.Name == serving.User
	}
	return b.standard && s.Namespace == "kube-system" // the controllers
}

func subjectName(s rbacv1.Subject) string {
	if s.Kind == rbacv1.ServiceAccountKind {
		return s.Kind + " " + s.Namespace + "/" + s.Name
	}
	return s.Kind + " " + s.Name
}

// rules returns the rules of the role of a binding.
func (o *objects) rules(b binding) []rbacv1.PolicyRule {
	if b.role.Kind == "ClusterRole" {
		for _, r := range o.clusterRoles {
			if r.Name == b.role.Name {
				return r.Rules
			}
		}
		return nil
	}
	for _, r := range o.roles {
		if r.Name == b.role.Name && r.Namespace == b.namespace {
			return r.Rules
		}
	}
	return nil
}

// allows reports whether a rule allows one of the verbs for all objects of a resource.
func allows(r rbacv1.PolicyRule, group, resource, sub string, verbs ...string) bool {
	matches := func(list []string, names ...string) bool {
		return slices.ContainsFunc(list, func(s string) bool { return s == "*" || slices.Contains(names, s) })
	}
	full := []string{resource}
	if sub != "" {
		full = []string{resource + "/" + sub, "*/" + sub}
	}
	return len(r.ResourceNames) == 0 && matches(r.APIGroups, group) && matches(r.Verbs, verbs...) && matches(r.Resources, full...)
}

// can judges who may do something in all namespaces.
func can(group, resource, sub string, verbs ...string) rule {
	return holders(func(r rbacv1.PolicyRule) bool { return allows(r, group, resource, sub, verbs...) })
}

// holders judges who has a right in all namespaces: groups that everyone is in must not, and other subjects than components are
// to be judged. Rights in one namespace count only for everyone.
func holders(has func(rbacv1.PolicyRule) bool) rule {
	return func(f *facts) finding {
		var all, others []string
		fix := ""
		for _, b := range f.objects.bindings {
			if !slices.ContainsFunc(f.objects.rules(b), has) {
				continue
			}
			for _, s := range b.subjects {
				name := subjectName(s) + " (" + b.String() + ")"
				switch {
				case isEveryone(s):
					all, fix = append(all, name), cmp.Or(fix, "kubectl delete "+b.String())
				case b.namespace == "" && !isComponent(b, s):
					others = append(others, name)
				}
			}
		}
		switch {
		case len(all) > 0:
			return finding{verdict: Failed, found: shown(all), fix: fix}
		case len(others) > 0:
			return finding{verdict: Judge, found: shown(others), reason: "only a person knows whether these need it"}
		}
		return finding{verdict: Passed, found: "only components and administrators"}
	}
}

func impersonators(f *facts) finding {
	return holders(func(r rbacv1.PolicyRule) bool {
		for _, kind := range []string{"clusterroles", "roles"} {
			if allows(r, rbacv1.GroupName, kind, "", "bind", "escalate") {
				return true
			}
		}
		for _, kind := range []string{"users", "groups", "serviceaccounts"} {
			if allows(r, "", kind, "", "impersonate") {
				return true
			}
		}
		return false
	})(f)
}

func webhookEditors(f *facts) finding {
	return holders(func(r rbacv1.PolicyRule) bool {
		for _, kind := range []string{"mutatingwebhookconfigurations", "validatingwebhookconfigurations"} {
			if allows(r, admissionv1.GroupName, kind, "", "create", "update", "patch", "delete", "deletecollection") {
				return true
			}
		}
		return false
	})(f)
}

func clusterAdmins(f *facts) finding {
	var others []string
	for _, b := range f.objects.bindings {
		if b.role.Kind != "ClusterRole" || b.role.Name != "cluster-admin" {
			continue
		}
		for _, s := range b.subjects {
			if isEveryone(s) {
				return finding{verdict: Failed, found: subjectName(s) + " (" + b.String() + ")", fix: "kubectl delete " + b.String()}
			}
			if !isComponent(b, s) {
				others = append(others, subjectName(s)+" ("+b.String()+")")
			}
		}
	}
	if len(others) > 0 {
		return finding{verdict: Judge, found: shown(others), reason: "only a person knows whether these need all rights"}
	}
	return finding{verdict: Passed, found: "only " + strings.Join(administrators, " and ")}
}

func wildcards(f *facts) finding {
	has := func(rules []rbacv1.PolicyRule) bool {
		return slices.ContainsFunc(rules, func(r rbacv1.PolicyRule) bool {
			return slices.Contains(r.Verbs, "*") || slices.Contains(r.Resources, "*") || slices.Contains(r.APIGroups, "*")
		})
	}
	var found []string
	for _, r := range f.objects.clusterRoles {
		if has(r.Rules) && r.Labels["kubernetes.io/bootstrapping"] != "rbac-defaults" && r.AggregationRule == nil {
			found = append(found, "clusterrole "+r.Name)
		}
	}
	for _, r := range f.objects.roles {
		if has(r.Rules) && r.Labels["kubernetes.io/bootstrapping"] != "rbac-defaults" {
			found = append(found, "role "+r.Namespace+"/"+r.Name)
		}
	}
	if len(found) > 0 {
		return finding{verdict: Judge, found: shown(found), reason: "only a person knows whether these need a wildcard"}
	}
	return finding{verdict: Passed, found: "only the API server's own roles have wildcards"}
}

// anonymousGrants are the bindings for anonymous users, but the API server's own and kubeadm's for cluster-info.
func (o *objects) anonymousGrants() (list []string) {
	for _, b := range o.bindings {
		public := b.namespace == "" && b.role.Name == "system:public-info-viewer" || b.namespace == "kube-public" && b.role.Name == "kubeadm:bootstrap-signer-clusterinfo"
		if !public && slices.ContainsFunc(b.subjects, isAnonymous) {
			list = append(list, b.String())
		}
	}
	return list
}

func defaultAccounts(f *facts) finding {
	var bound, mounting []string
	for _, b := range f.objects.bindings {
		for _, s := range b.subjects {
			if s.Kind == rbacv1.ServiceAccountKind && s.Name == "default" {
				bound = append(bound, s.Namespace+" by "+b.String())
			}
		}
	}
	for _, a := range f.objects.accounts {
		if a.Name == "default" && (a.AutomountServiceAccountToken == nil || *a.AutomountServiceAccountToken) {
			mounting = append(mounting, a.Namespace)
		}
	}
	slices.Sort(mounting)
	switch {
	case len(bound) > 0:
		return finding{verdict: Failed, found: "the account has roles: " + shown(bound), fix: "kubectl delete " + strings.TrimSpace(strings.SplitN(bound[0], " by ", 2)[1])}
	case len(mounting) > 0:
		return finding{verdict: Failed, found: "pods get its token in " + shown(mounting),
			fix: "for ns in " + strings.Join(mounting, " ") + `; do kubectl -n $ns patch serviceaccount default -p '{"automountServiceAccountToken": false}'; done`}
	}
	return finding{verdict: Passed, found: "no pod gets its token, and it has no roles"}
}

func mountedTokens(f *facts) finding {
	bound := map[string]bool{}
	for _, b := range f.objects.bindings {
		for _, s := range b.subjects {
			if s.Kind == rbacv1.ServiceAccountKind {
				bound[s.Namespace+"/"+s.Name] = true
			}
		}
	}
	var found []string
	for _, p := range f.objects.pods {
		token := slices.ContainsFunc(p.Spec.Volumes, func(v corev1.Volume) bool {
			return v.Projected != nil && strings.HasPrefix(v.Name, "kube-api-access-") && slices.ContainsFunc(v.Projected.Sources, func(s corev1.VolumeProjection) bool { return s.ServiceAccountToken != nil })
		})
		if token && !bound[p.Namespace+"/"+p.Spec.ServiceAccountName] {
			found = append(found, p.Namespace+"/"+p.Name)
		}
	}
	if len(found) > 0 {
		return finding{verdict: Failed, found: "pods with a token that has no rights: " + shown(found), fix: "set automountServiceAccountToken: false in the ServiceAccounts or the templates of these pods, and restart them"}
	}
	return finding{verdict: Passed, found: "each token in a pod belongs to a ServiceAccount with roles"}
}

func masters(f *facts) finding {
	var bound []string
	for _, b := range f.objects.bindings {
		for _, s := range b.subjects {
			if s.Kind == rbacv1.GroupKind && s.Name == "system:masters" && !(b.standard && b.name == "cluster-admin") {
				bound = append(bound, b.String())
			}
		}
	}
	var files, breakGlass []string
	for _, file := range f.adminGroups("system:masters") {
		if strings.HasSuffix(file, "/super-admin.conf") {
			breakGlass = append(breakGlass, file)
		} else {
			files = append(files, file)
		}
	}
	switch {
	case len(bound) > 0:
		return finding{verdict: Failed, found: shown(bound), fix: "kubectl delete " + bound[0]}
	case len(files) > 0:
		return finding{verdict: Failed, found: "certificates of this group: " + shown(files), fix: "./install certs renew admin.conf; ./install certs renew apiserver-kubelet-client"}
	case len(breakGlass) > 0:
		return finding{verdict: ByDesign, found: shown(breakGlass), reason: "it repairs RBAC in an emergency, and only root can read it; move it to a safe if nobody may have it on the host"}
	}
	return finding{verdict: Passed, found: "no certificate on this host, and no binding but the API server's own"}
}

// People.

func certificateUsers(f *facts) finding {
	api, people := f.pods[apiServer], f.objects.people()
	out := finding{verdict: Judge, reason: "certificates cannot be revoked, and only a person knows who has one", found: "no other way to log in is configured"}
	if api != nil && (api.flags["oidc-issuer-url"] != "" || api.flags["authentication-config"] != "") {
		out.found = "the API server has another way to log in"
	}
	if len(people) > 0 {
		out.found += "; users and groups with roles: " + shown(people)
	} else {
		out.found += "; no user and no group has roles but administrators and components"
	}
	return out
}

// people are users and groups with roles, without the components and the groups of administrators.
func (o *objects) people() []string {
	found := map[string]bool{}
	for _, b := range o.bindings {
		for _, s := range b.subjects {
			if s.Kind != rbacv1.ServiceAccountKind && !strings.HasPrefix(s.Name, "system:") && !isComponent(b, s) {
				found[subjectName(s)] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(found))
}

func tokenUsers(f *facts) finding {
	if len(f.objects.tokens) > 0 {
		return finding{verdict: Judge, found: "Secrets with a token that does not expire: " + shown(f.objects.tokens), reason: "only a person knows who uses these"}
	}
	return finding{verdict: Passed, found: "no Secret has a token of a ServiceAccount, so each token expires"}
}

// joinRoles are the roles with which kubeadm lets a bootstrap token join a node.
var joinRoles = []string{
	"system:node-bootstrapper", "system:certificates.k8s.io:certificatesigningrequests:nodeclient", "kubeadm:get-nodes", "kubeadm:kubelet-config",
	"kubeadm:nodes-kubeadm-config", "kube-proxy", "kubeadm:kubeadm-certs",
}

func bootstrapUsers(f *facts) finding {
	if api := f.pods[apiServer]; api != nil && f.value(apiServer, "enable-bootstrap-token-auth").text != "true" {
		return finding{verdict: Passed, found: "the API server does not accept bootstrap tokens"}
	}
	var other []string
	for _, b := range f.objects.bindings {
		for _, s := range b.subjects {
			if s.Kind == rbacv1.GroupKind && strings.HasPrefix(s.Name, "system:bootstrappers") && !slices.Contains(joinRoles, b.role.Name) && !readsOnly(f.objects.rules(b)) {
				other = append(other, b.String()+" ("+b.role.Name+")")
			}
		}
	}
	if len(other) > 0 {
		return finding{verdict: Judge, found: "bootstrap tokens have more roles than to join a node: " + shown(other), reason: "only a person knows whether people use them"}
	}
	return finding{verdict: Passed, found: "a bootstrap token can only join a node"}
}

// readsOnly reports whether rules only read objects that they name.
func readsOnly(rules []rbacv1.PolicyRule) bool {
	return !slices.ContainsFunc(rules, func(r rbacv1.PolicyRule) bool {
		return len(r.ResourceNames) == 0 || slices.ContainsFunc(r.Verbs, func(v string) bool { return v != "get" && v != "list" && v != "watch" })
	})
}

// Admission of pods.

const (
	privileged = "privileged"
	baseline   = "baseline"
	restricted = "restricted"
)

var levels = []string{privileged, baseline, restricted}

func orStricter(level string) string { return level + " or stricter" }

// isUsers reports whether a namespace is none of Kubernetes and of add-ons, whose pods need the host. Kubernetes creates its own ones before any user. The
// name of another one proves nothing: it counts as the user's unless the add-on runs there.
func (o *objects) isUsers(namespace string) bool {
	switch namespace {
	case metav1.NamespaceSystem, metav1.NamespacePublic, corev1.NamespaceNodeLease:
		return false
	case "kube-flannel":
		return !slices.ContainsFunc(o.daemonSets, func(d appsv1.DaemonSet) bool { return d.Namespace == namespace && d.Name == "kube-flannel-ds" })
	case "load-balancer":
		return !slices.ContainsFunc(o.daemonSets, func(d appsv1.DaemonSet) bool { return d.Namespace == namespace && d.Name == "load-balancer" })
	case "local-path-storage":
		return !slices.ContainsFunc(o.pods, func(p corev1.Pod) bool {
			return p.Namespace == namespace && p.Labels["app"] == "local-path-provisioner"
		})
	}
	return true
}

// admissionDefaults reads the cluster's level and the exempt namespaces from the API server's admission configuration.
func (f *facts) admissionDefaults() (level string, exempt []string) {
	var document struct {
		Plugins []struct {
			Name          string         `json:"name"`
			Path          string         `json:"path"`
			Configuration map[string]any `json:"configuration"`
		} `json:"plugins"`
	}
	api := f.pods[apiServer]
	if api == nil || f.document(apiServer, "admission-control-config-file", &document) != nil {
		return privileged, nil
	}
	var is struct {
		Defaults struct {
			Enforce string `json:"enforce"`
		} `json:"defaults"`
		Exemptions struct {
			Namespaces []string `json:"namespaces"`
		} `json:"exemptions"`
	}
	for _, p := range document.Plugins {
		if p.Name != "PodSecurity" {
			continue
		}
		data, _ := yaml.Marshal(p.Configuration) // it was decoded
		if p.Path != "" {
			data, _ = f.read(api.hostPath(p.Path)) // without it, the level is privileged
		}
		if err := yaml.Unmarshal(data, &is); err != nil {
			return privileged, nil
		}
	}
	return cmp.Or(is.Defaults.Enforce, privileged), is.Exemptions.Namespaces
}

// engines are the webhooks of policy engines that decide about pods.
func (o *objects) engines() (names []string) {
	decides := func(rules []admissionv1.RuleWithOperations) bool {
		return slices.ContainsFunc(rules, func(r admissionv1.RuleWithOperations) bool {
			return slices.ContainsFunc(r.Resources, func(s string) bool { return s == "pods" || s == "*" || s == "*/*" })
		})
	}
	for _, w := range o.validating {
		for _, one := range w.Webhooks {
			if decides(one.Rules) && !slices.Contains(names, w.Name) {
				names = append(names, w.Name)
			}
		}
	}
	return names
}

// admits wants that the namespaces of users enforce a Pod Security Standard.
func admits(level string) rule {
	return func(f *facts) finding {
		standard, exempt := f.admissionDefaults()
		on := f.pods[apiServer] == nil || f.hasPlugin("PodSecurity")
		var none, chosen []string
		for _, n := range f.objects.namespaces {
			is, labelled := n.Labels["pod-security.kubernetes.io/enforce"]
			if !labelled {
				is = standard
			}
			if slices.Contains(exempt, n.Name) || !on {
				is, labelled = privileged, on
			}
			switch {
			case !f.objects.isUsers(n.Name) || slices.Index(levels, is) >= slices.Index(levels, level):
			case labelled:
				chosen = append(chosen, n.Name+" ("+is+")")
			default:
				none = append(none, n.Name)
			}
		}
		engines := f.objects.engines()
		switch {
		case len(none)+len(chosen) == 0:
			return finding{verdict: Passed, found: "the namespaces of users enforce " + orStricter(level)}
		case len(engines) > 0:
			return finding{verdict: Judge, found: shown(engines), reason: "another policy engine decides about pods: only a person knows its policies"}
		case len(none) > 0:
			return finding{verdict: Failed, found: "namespaces that do not enforce " + level + ": " + shown(none), files: none}
		}
		return finding{verdict: Judge, found: "namespaces with a lower level, which their labels or the admission configuration name: " + shown(chosen), reason: "only a person knows whether these need it"}
	}
}

func admitFix(level string) string {
	return "for ns in $FILES; do kubectl label namespace $ns pod-security.kubernetes.io/enforce=" + level + "; done"
}

func hostProcess(f *facts) finding {
	if !slices.ContainsFunc(f.objects.nodes, func(n corev1.Node) bool { return n.Status.NodeInfo.OperatingSystem == "windows" }) {
		return finding{verdict: NotApplicable, reason: "the cluster has no node with Windows"}
	}
	return admits(baseline)(f)
}

// Network.

// enforcers are pod networks and their agents that enforce NetworkPolicies, by words in names of DaemonSets.
var enforcers = []string{"calico", "canal", "cilium", "kube-router", "weave", "antrea", "ovnkube", "network-polic", "romana", "kubeovn", "kube-ovn"}

func enforcesPolicies(f *facts) finding {
	var names []string
	for _, d := range f.objects.daemonSets {
		names = append(names, d.Name)
		for _, word := range enforcers {
			if !strings.Contains(d.Name, word) {
				continue
			}
			found, missing := "DaemonSet "+d.Namespace+"/"+d.Name, d.Status.DesiredNumberScheduled-d.Status.NumberReady
			switch {
			case missing > 0:
				return finding{verdict: Failed, found: fmt.Sprintf("%s: %d of %d pods are not Ready", found, missing, d.Status.DesiredNumberScheduled),
					fix: fmt.Sprintf("kubectl describe pods -n %s", d.Namespace)}
			case d.Name == "kube-network-policies" && len(f.kernelLacks) > 0: // its pods are Ready on every kernel
				return finding{verdict: Failed, found: found + ", but the kernel of this host has no " + shown(f.kernelLacks), fix: "use a kernel with these options on each node"}
			}
			return finding{verdict: Passed, found: found}
		}
	}
	if slices.ContainsFunc(names, func(s string) bool { return strings.Contains(s, "flannel") }) {
		return finding{verdict: Failed, found: "flannel does not enforce NetworkPolicies", fix: "build a bundle with the add-on network-policy, and: ./install apply; see ./install docs site"}
	}
	return finding{verdict: Judge, found: "DaemonSets: " + cmp.Or(shown(names), "none"), reason: "the pod network is not known"}
}

// userPods are the pods of users.
func (o *objects) userPods() []corev1.Pod {
	return slices.DeleteFunc(slices.Clone(o.pods), func(p corev1.Pod) bool { return !o.isUsers(p.Namespace) || ended(p) })
}

func ended(p corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}

func hasPolicies(f *facts) finding {
	need := map[string]bool{}
	for _, p := range f.objects.pods {
		if !p.Spec.HostNetwork && !ended(p) { // policies do not apply to the host's network
			need[p.Namespace] = true
		}
	}
	for _, n := range f.objects.policies {
		delete(need, n.Namespace)
	}
	if len(need) > 0 {
		return finding{verdict: Failed, found: "no policy in " + shown(slices.Sorted(maps.Keys(need))), fix: "write a NetworkPolicy for the pods of each of these namespaces: kubectl explain networkpolicy.spec"}
	}
	return finding{verdict: Passed, found: fmt.Sprintf("%d policies", len(f.objects.policies))}
}

// Workloads.

// containers are all containers of a pod.
func containers(p corev1.Pod) []corev1.Container {
	return slices.Concat(p.Spec.InitContainers, p.Spec.Containers)
}

// podsWith judges pods, and names the pods that do not pass.
func podsWith(pods []corev1.Pod, bad func(corev1.Pod) bool, good, found, fix string) finding {
	var names []string
	for _, p := range pods {
		if bad(p) {
			names = append(names, p.Namespace+"/"+p.Name)
		}
	}
	if len(names) > 0 {
		return finding{verdict: Failed, found: found + ": " + shown(names), fix: fix}
	}
	return finding{verdict: Passed, found: good}
}

func secretVariables(f *facts) finding {
	return podsWith(f.objects.pods, func(p corev1.Pod) bool {
		return !ended(p) && slices.ContainsFunc(containers(p), func(c corev1.Container) bool {
			return slices.ContainsFunc(c.EnvFrom, func(e corev1.EnvFromSource) bool { return e.SecretRef != nil }) ||
				slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool { return e.ValueFrom != nil && e.ValueFrom.SecretKeyRef != nil })
		})
	}, "no pod has an environment variable from a Secret", "pods with environment variables from Secrets", "mount the Secrets as volumes in the templates of these pods")
}

func externalStore(f *facts) finding {
	for _, d := range f.objects.csiDrivers {
		if strings.Contains(d, "secrets-store") {
			return finding{verdict: Passed, found: "CSI driver " + d}
		}
	}
	return finding{verdict: Judge, found: "no CSI driver for an external store", reason: "the benchmark asks to consider it; at an isolated site, the cluster with encrypted Secrets may be the only store"}
}

func imageProvenance(f *facts) finding {
	if f.pods[apiServer] != nil && f.hasPlugin("ImagePolicyWebhook") {
		return finding{verdict: Passed, found: "ImagePolicyWebhook is on"}
	}
	return finding{verdict: Judge, found: "webhooks that see pods: " + cmp.Or(shown(f.objects.engines()), "none"), reason: "images are imported from a file whose digests and signature were verified; only a person knows whether the site's registry has others"}
}

func separated(f *facts) finding {
	count := map[string]int{}
	for _, p := range f.objects.userPods() {
		count[p.Namespace]++
	}
	if len(count) == 0 {
		return finding{verdict: Passed, found: "only components run in this cluster, each in its own namespace"}
	}
	var list []string
	for _, name := range slices.Sorted(maps.Keys(count)) {
		list = append(list, fmt.Sprintf("%s (pods: %d)", name, count[name]))
	}
	return finding{verdict: Judge, found: shown(list), reason: "only a person knows which teams and applications these are"}
}

// seccomp wants a profile for each container, but privileged ones, which have none. The kubelet's default counts.
func seccomp(f *facts) finding {
	profiled := func(s *corev1.SeccompProfile) bool { return s != nil && s.Type != corev1.SeccompProfileTypeUnconfined }
	return podsWith(f.objects.pods, func(p corev1.Pod) bool {
		if ended(p) {
			return false
		}
		pod := p.Spec.SecurityContext
		return slices.ContainsFunc(containers(p), func(c corev1.Container) bool {
			own := c.SecurityContext
			switch {
			case own != nil && own.Privileged != nil && *own.Privileged:
				return false
			case own != nil && own.SeccompProfile != nil:
				return !profiled(own.SeccompProfile)
			case pod != nil && pod.SeccompProfile != nil:
				return !profiled(pod.SeccompProfile)
			}
			return !f.objects.seccompDefault[p.Spec.NodeName]
		})
	}, "each pod has a profile, by itself or by its kubelet", "pods without a profile", "set seccompDefault: true in the configuration of all kubelets (check 4.2.14), or the profile in the templates of these pods")
}

func securityContexts(f *facts) finding {
	return podsWith(f.objects.userPods(), func(p corev1.Pod) bool {
		empty := p.Spec.SecurityContext == nil || reflect.ValueOf(*p.Spec.SecurityContext).IsZero()
		return empty && slices.ContainsFunc(containers(p), func(c corev1.Container) bool { return c.SecurityContext == nil })
	}, "each pod of users has a security context", "pods without a security context", "set securityContext in the templates of these pods")
}

func defaultNamespace(f *facts) finding {
	var found []string
	for _, p := range f.objects.pods {
		if p.Namespace == "default" {
			found = append(found, "pod "+p.Name)
		}
	}
	for _, s := range f.objects.services {
		if s.Namespace == "default" && s.Name != "kubernetes" {
			found = append(found, "service "+s.Name)
		}
	}
	if len(found) > 0 {
		return finding{verdict: Failed, found: shown(found), fix: "create these in a namespace of their own, and delete them here: kubectl -n default get all"}
	}
	return finding{verdict: Passed, found: "it has only the Service kubernetes"}
}

// proxyMetrics judges kube-proxy's configuration: the cluster's, or the one that the kubelet mounted on this host.
func proxyMetrics(f *facts) finding {
	text, from := "", "ConfigMap kube-system/kube-proxy"
	if f.objects != nil {
		text = f.objects.proxy
	} else if files := f.glob("/var/lib/kubelet/pods/*/volumes/kubernetes.io~configmap/kube-proxy/config.conf"); len(files) > 0 {
		data, err := f.read(files[0])
		if err != nil {
			return finding{verdict: Judge, reason: files[0] + " cannot be read"}
		}
		text, from = string(data), "the ConfigMap in kube-proxy's pod"
	}
	if text == "" {
		return finding{verdict: NotApplicable, reason: "no such file: this node has no configuration of kube-proxy"}
	}
	var is kubeproxyv1.KubeProxyConfiguration
	if err := yaml.Unmarshal([]byte(text), &is); err != nil {
		return finding{verdict: Judge, reason: from + " cannot be read"}
	}
	address := cmp.Or(is.MetricsBindAddress, "127.0.0.1:10249 (default)")
	local := strings.HasPrefix(address, "127.") || strings.HasPrefix(address, "localhost:") || strings.HasPrefix(address, "[::1]")
	return finding{verdict: verdictOf(local), found: "metricsBindAddress is " + address + " in " + from}
}
