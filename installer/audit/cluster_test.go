package audit

import (
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"airlift/installer/cluster"
	"airlift/installer/host/detection"
	"airlift/installer/render"
	"airlift/scripts/fixtures/testcluster"
)

func TestMain(m *testing.M) { testcluster.Main(m) }

func configMap(t *testing.T, text []byte) map[string]string {
	t.Helper()
	var m corev1.ConfigMap
	if err := yaml.Unmarshal(text, &m); err != nil {
		t.Fatal(err)
	}
	return m.Data
}

func meta(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name}
}

// clean is a cluster in which no check fails.
func clean() *objects {
	no := false
	app := meta("", "app")
	app.Labels = map[string]string{"pod-security.kubernetes.io/enforce": "restricted"}
	unused := meta("", "default")
	unused.Labels = app.Labels
	o := &objects{
		namespaces:     []corev1.Namespace{{ObjectMeta: app}, {ObjectMeta: unused}, {ObjectMeta: meta("", "kube-system")}},
		accounts:       []corev1.ServiceAccount{{ObjectMeta: meta("kube-system", "default"), AutomountServiceAccountToken: &no}},
		services:       []corev1.Service{{ObjectMeta: meta("default", "kubernetes")}},
		nodes:          []corev1.Node{{ObjectMeta: meta("", "one")}},
		daemonSets:     []appsv1.DaemonSet{{ObjectMeta: meta("kube-system", "kube-router")}},
		policies:       []networkingv1.NetworkPolicy{{ObjectMeta: meta("kube-system", "p")}},
		proxy:          "metricsBindAddress: \"\"\n",
		seccompDefault: map[string]bool{"one": true},
		clusterRoles: []rbacv1.ClusterRole{
			role("cluster-admin", true, rbacv1.PolicyRule{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}}),
			role("reader", false, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"list"}}),
			role("named", false, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get"}, ResourceNames: []string{"one"}}),
			role("system:public-info-viewer", true, rbacv1.PolicyRule{NonResourceURLs: []string{"/version"}, Verbs: []string{"get"}}),
		},
		bindings: []binding{
			{"", "cluster-admin", true, rbacv1.RoleRef{Kind: "ClusterRole", Name: "cluster-admin"}, []rbacv1.Subject{{Kind: "Group", Name: "system:masters"}}},
			{"", "kubeadm:cluster-admins", false, rbacv1.RoleRef{Kind: "ClusterRole", Name: "cluster-admin"}, []rbacv1.Subject{{Kind: "Group", Name: "kubeadm:cluster-admins"}}},
			{"", "system:public-info-viewer", true, rbacv1.RoleRef{Kind: "ClusterRole", Name: "system:public-info-viewer"}, []rbacv1.Subject{{Kind: "Group", Name: "system:unauthenticated"}, {Kind: "Group", Name: "system:authenticated"}}},
			{"app", "named", false, rbacv1.RoleRef{Kind: "ClusterRole", Name: "named"}, []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "app", Name: "used"}}},
		},
		pods: []corev1.Pod{pod("kube-system", "agent")},
	}
	return o
}

func role(name string, standard bool, rules ...rbacv1.PolicyRule) rbacv1.ClusterRole {
	r := rbacv1.ClusterRole{ObjectMeta: meta("", name), Rules: rules}
	if standard {
		r.Labels = map[string]string{"kubernetes.io/bootstrapping": "rbac-defaults"}
	}
	return r
}

// pod is a pod that no check complains about, but for its namespace.
func pod(namespace, name string) corev1.Pod {
	return corev1.Pod{ObjectMeta: meta(namespace, name), Spec: corev1.PodSpec{
		NodeName: "one", ServiceAccountName: "used", SecurityContext: &corev1.PodSecurityContext{}, Containers: []corev1.Container{{Name: "c", SecurityContext: &corev1.SecurityContext{}}},
	}}
}

// bind gives a subject a right, in all namespaces.
func bind(o *objects, s rbacv1.Subject, r rbacv1.PolicyRule) {
	o.clusterRoles = append(o.clusterRoles, role("more", false, r))
	o.bindings = append(o.bindings, binding{"", "more", false, rbacv1.RoleRef{Kind: "ClusterRole", Name: "more"}, []rbacv1.Subject{s}})
}

// TestEachBreakOfCluster: one wrong object changes exactly the checks that are about it.
func TestEachBreakOfCluster(t *testing.T) {
	everyone := rbacv1.Subject{Kind: "Group", Name: "system:authenticated"}
	account := rbacv1.Subject{Kind: "ServiceAccount", Namespace: "app", Name: "used"}
	right := func(group, resource string, verbs ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, Verbs: verbs}
	}
	const privileges = "5.2.1 5.2.2 5.2.3 5.2.4 5.2.5 5.2.6 5.2.7 5.2.8 5.2.9 5.2.11 5.2.12"
	const every = "5.1.1 5.1.2 5.1.4 5.1.8 5.1.9 5.1.10 5.1.11 5.1.12 5.1.13" // cluster-admin has all rights
	const strict = "5.2.6 5.2.7 5.2.8 5.2.9"
	level := func(o *objects, text string) {
		o.namespaces[0].Labels = map[string]string{"pod-security.kubernetes.io/enforce": text}
	}
	withPod := func(o *objects, change func(*corev1.Pod)) {
		p := pod("kube-system", "other")
		change(&p)
		o.pods = append(o.pods, p)
	}
	type c struct {
		failed, judged string
		apply          func(*objects)
	}
	cases := []c{
		{every, "", func(o *objects) { o.bindings[1].subjects[0] = everyone }},
		{"", every, func(o *objects) {
			o.bindings[1].subjects[0] = rbacv1.Subject{Kind: "ServiceAccount", Namespace: "app", Name: "deployer"}
		}},
		{"", "5.1.3", func(o *objects) { o.clusterRoles[1].Rules = []rbacv1.PolicyRule{right("apps", "*", "get")} }},
		{"5.1.5", "", func(o *objects) { o.accounts[0].AutomountServiceAccountToken = nil }},
		{"5.1.5", "", func(o *objects) { o.bindings[3].subjects[0].Name = "default" }},
		{"5.1.6", "", func(o *objects) {
			withPod(o, func(p *corev1.Pod) {
				p.Spec.Volumes = []corev1.Volume{{Name: "kube-api-access-x", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{}}}}}}}
			})
		}},
		{"5.1.7", "", func(o *objects) { o.bindings[3].subjects[0] = rbacv1.Subject{Kind: "Group", Name: "system:masters"} }},
		{"1.2.1", "", func(o *objects) { o.bindings[3].subjects[0] = rbacv1.Subject{Kind: "User", Name: "system:anonymous"} }},
		{privileges, "", func(o *objects) { o.namespaces[0].Labels = nil }},
		{"", strict, func(o *objects) { level(o, "baseline") }},
		// A name does not hide a namespace, also not the one of a test that runs.
		{privileges, "", func(o *objects) {
			o.namespaces = append(o.namespaces, corev1.Namespace{ObjectMeta: meta("", "airlift-test")})
		}},
		{privileges, "", func(o *objects) {
			o.namespaces = append(o.namespaces, corev1.Namespace{ObjectMeta: meta("", "kube-flannel")})
		}},
		{privileges, "", func(o *objects) {
			o.namespaces = append(o.namespaces, corev1.Namespace{ObjectMeta: meta("", "local-path-storage")})
		}},
		{"", "", func(o *objects) {
			o.namespaces = append(o.namespaces, corev1.Namespace{ObjectMeta: meta("", "kube-flannel")}, corev1.Namespace{ObjectMeta: meta("", "local-path-storage")})
			o.daemonSets = append(o.daemonSets, appsv1.DaemonSet{ObjectMeta: meta("kube-flannel", "kube-flannel-ds")})
			withPod(o, func(p *corev1.Pod) {
				p.Namespace, p.Labels = "local-path-storage", map[string]string{"app": "local-path-provisioner"}
			})
			o.policies = append(o.policies, networkingv1.NetworkPolicy{ObjectMeta: meta("local-path-storage", "p")})
		}},
		{"", privileges, func(o *objects) { level(o, "privileged") }},
		{"", privileges, func(o *objects) {
			o.namespaces[0].Labels = nil
			o.validating = []admissionv1.ValidatingWebhookConfiguration{{ObjectMeta: meta("", "kyverno"), Webhooks: []admissionv1.ValidatingWebhook{{Rules: []admissionv1.RuleWithOperations{{Rule: admissionv1.Rule{Resources: []string{"pods"}}}}}}}}
		}},
		{strings.Replace(privileges, "5.2.11", "5.2.10 5.2.11", 1), "", func(o *objects) { o.nodes[0].Status.NodeInfo.OperatingSystem = "windows"; o.namespaces[0].Labels = nil }},
		{"5.3.1", "", func(o *objects) { o.daemonSets[0].Name = "kube-flannel-ds" }},
		{"", "5.3.1", func(o *objects) { o.daemonSets[0].Name = "own-network" }},
		{"5.3.1", "", func(o *objects) {
			o.daemonSets[0].Status = appsv1.DaemonSetStatus{DesiredNumberScheduled: 3, NumberReady: 2}
		}},
		{"5.3.2", "", func(o *objects) { o.policies = nil }},
		{"5.4.1", "", func(o *objects) {
			withPod(o, func(p *corev1.Pod) {
				p.Spec.Containers[0].EnvFrom = []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{}}}
			})
		}},
		{"", "5.6.1", func(o *objects) {
			o.pods = append(o.pods, pod("app", "web"))
			o.policies = append(o.policies, networkingv1.NetworkPolicy{ObjectMeta: meta("app", "p")})
		}},
		{"5.6.2", "", func(o *objects) { withPod(o, func(p *corev1.Pod) { p.Spec.NodeName = "two" }) }},
		{"5.6.2", "", func(o *objects) {
			withPod(o, func(p *corev1.Pod) {
				p.Spec.SecurityContext.SeccompProfile = &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeUnconfined}
			})
		}},
		{"5.6.3", "5.6.1", func(o *objects) {
			p := pod("app", "web")
			p.Spec.Containers[0].SecurityContext = nil
			o.pods, o.policies = append(o.pods, p), append(o.policies, networkingv1.NetworkPolicy{ObjectMeta: meta("app", "p")})
		}},
		{"5.6.4", "", func(o *objects) { o.services = append(o.services, corev1.Service{ObjectMeta: meta("default", "web")}) }},
		{"4.3.1", "", func(o *objects) { o.proxy = "metricsBindAddress: 0.0.0.0:10249\n" }},
		{"", "3.1.2", func(o *objects) { o.tokens = []string{"app/token"} }},
		{"", "3.1.3", func(o *objects) {
			bind(o, rbacv1.Subject{Kind: "Group", Name: "system:bootstrappers:x"}, right("", "nodes", "delete"))
		}},
		{"", "", func(o *objects) { // what Airlift itself lets joining nodes read
			for _, one := range render.APIServersRBAC() {
				switch r := one.(type) {
				case *rbacv1.Role:
					o.roles = append(o.roles, *r)
				case *rbacv1.RoleBinding:
					o.bindings = append(o.bindings, binding{r.Namespace, r.Name, false, r.RoleRef, r.Subjects})
				}
			}
			if len(o.roles) != 1 {
				t.Fatal("no role")
			}
		}},
	}
	cases = append(cases, c{"", "", func(o *objects) { // Airlift's own process
		bind(o, rbacv1.Subject{Kind: "User", Name: "airlift:serving-approver"}, right("certificates.k8s.io", "certificatesigningrequests/approval", "update"))
	}})
	for id, rule := range map[string]rbacv1.PolicyRule{
		"5.1.2": right("", "secrets", "get"), "5.1.4": right("", "pods", "create"), "5.1.8": right("", "users", "impersonate"), "5.1.9": right("", "persistentvolumes", "create"), "5.1.10": right("", "nodes/proxy", "get"),
		"5.1.11": right("certificates.k8s.io", "certificatesigningrequests/approval", "update"), "5.1.12": right("admissionregistration.k8s.io", "validatingwebhookconfigurations", "patch"), "5.1.13": right("", "serviceaccounts/token", "create"),
	} {
		cases = append(cases, c{id, "", func(o *objects) { bind(o, everyone, rule) }}, c{"", id, func(o *objects) { bind(o, account, rule) }})
	}
	n := hardened(t)
	before := n.verdicts(clean())
	for i, one := range cases {
		o := clean()
		one.apply(o)
		var failed, judged []string
		for id, r := range n.verdicts(o) {
			switch {
			case r.Verdict == before[id].Verdict:
			case r.Verdict == Failed:
				failed = append(failed, id)
				if r.Fix == "" {
					t.Errorf("%s has no fix", id)
				}
			case r.Verdict == Judge:
				judged = append(judged, id)
			}
		}
		slices.SortFunc(failed, Compare)
		slices.SortFunc(judged, Compare)
		if got := strings.Join(failed, " "); got != one.failed {
			t.Errorf("case %d: failed %s, want %s", i, got, one.failed)
		}
		if got := strings.Join(judged, " "); got != one.judged {
			t.Errorf("case %d: judged %s, want %s", i, got, one.judged)
		}
	}
}

// TestEnforcement: the pods of the add-on network-policy are Ready on every kernel, and enforce nothing on one that cannot queue packets.
func TestEnforcement(t *testing.T) {
	all := "CONFIG_NFT_QUEUE=m\nCONFIG_NETFILTER_NETLINK_QUEUE=m\nCONFIG_NFT_CT=y\nCONFIG_NF_CONNTRACK_LABELS=y\nCONFIG_NF_CT_NETLINK=m\n"
	release, err := detection.Kernel()
	if err != nil {
		t.Fatal(err)
	}
	for options, want := range map[string]Verdict{all: Passed, strings.Replace(all, "NFT_QUEUE=m", "NFT_QUEUE=n", 1): Failed, "": Passed} {
		n := hardened(t)
		n.write("/boot/config-"+release, options, 0o600)
		o := clean()
		o.daemonSets[0].Name = "kube-network-policies"
		if r := n.verdicts(o)["5.3.1"]; r.Verdict != want || want == Failed && (!strings.Contains(r.Found, "CONFIG_NFT_QUEUE") || r.Fix == "") {
			t.Errorf("%q: %+v", options, r)
		}
	}
}

// TestAdmissionConfiguration: the levels of namespaces without a label come from the API server's file.
func TestAdmissionConfiguration(t *testing.T) {
	n := hardened(t)
	n.write("/etc/kubernetes/pki/admission.yaml", `apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: PodSecurity
  configuration:
    apiVersion: pod-security.admission.config.k8s.io/v1
    kind: PodSecurityConfiguration
    defaults: {enforce: restricted}
    exemptions: {namespaces: [app]}
`, 0o600)
	n.flag(apiServer, "admission-control-config-file", "/etc/kubernetes/pki/admission.yaml")
	o := clean()
	o.namespaces[0].Labels, o.namespaces[1].Labels = nil, nil
	r := n.verdicts(o)["5.2.2"]
	if r.Verdict != Judge || !strings.Contains(r.Found, "app (privileged)") || strings.Contains(r.Found, "default (") {
		t.Errorf("%+v", r)
	}
}

// TestRealAPIServer reads a real API server. Its own roles and kubeadm's give nobody more than they need.
func TestRealAPIServer(t *testing.T) {
	p := testcluster.Start(t)
	super := testcluster.Must(cluster.Load(p.Super, ""))(t)
	testcluster.Must(cluster.EnsureAdmin(testcluster.Within(t), testcluster.Must(cluster.Load(p.Admin, ""))(t), super, render.ClusterAdmins()))(t)
	p.Init(t, super.Apply)
	n := hardened(t)
	r := n.reader()
	r.Kubeconfig, r.dial = p.Admin, nil
	f, err := r.gather(testcluster.Within(t))
	if err != nil || f.objects == nil {
		t.Fatalf("%v %q", err, f.unread)
	}
	for _, id := range []string{"5.1.1", "5.1.2", "5.1.3", "5.1.4", "5.1.8", "5.1.9", "5.1.10", "5.1.11", "5.1.12", "5.1.13", "3.1.2", "3.1.3"} {
		for _, c := range Checks() {
			if c.ID == id {
				if r := f.result(c); r.Verdict != Passed {
					t.Errorf("%+v", r)
				}
			}
		}
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "long", Namespace: "kube-system", Annotations: map[string]string{corev1.ServiceAccountNameKey: "default"}}, Type: corev1.SecretTypeServiceAccountToken}
	account := &corev1.ServiceAccount{ObjectMeta: meta("kube-system", "default")}
	api := p.API(t)
	_, _ = api.CoreV1().ServiceAccounts("kube-system").Create(t.Context(), account, metav1.CreateOptions{}) // the controller manager may have done it
	if _, err := api.CoreV1().Secrets("kube-system").Create(t.Context(), secret, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if f, err = r.gather(testcluster.Within(t)); err != nil || f.objects == nil || !slices.Equal(f.objects.tokens, []string{"kube-system/long"}) {
		t.Errorf("%v, tokens %v", err, f.objects)
	}
	if writes := p.Writes(t, func() { _, _ = r.gather(testcluster.Within(t)) }); len(writes) > 0 {
		t.Errorf("the audit wrote %v", slices.Sorted(slices.Values(writes)))
	}
}
