package inventory

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"airlift/scripts/fixtures/testcluster/testclient"

	corev1 "k8s.io/api/core/v1"
	flowcontrolv1beta3 "k8s.io/api/flowcontrol/v1beta3"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	clienttesting "k8s.io/client-go/testing"

	"airlift/installer/cluster"
)

func podOn(node, name string, change func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{"app": name}}, Spec: corev1.PodSpec{NodeName: node}}
	if change != nil {
		change(p)
	}
	return p
}

func ownedBy(kind string) func(*corev1.Pod) {
	yes := true
	return func(p *corev1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{{Kind: kind, Name: "x", Controller: &yes}}
	}
}

func budgetFor(app string, allowed, desired, expected int32) *policyv1.PodDisruptionBudget {
	return &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: app},
		Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}},
		Status:     policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: allowed, DesiredHealthy: desired, ExpectedPods: expected, CurrentHealthy: expected},
	}
}

func TestUpgradeFacts(t *testing.T) {
	static := podOn("cp", "kube-apiserver-cp", func(p *corev1.Pod) {
		p.Namespace, p.Annotations = "kube-system", map[string]string{corev1.MirrorPodAnnotationKey: "x"}
		p.Labels = map[string]string{"component": "kube-apiserver", "tier": "control-plane"}
		p.Spec.Containers = []corev1.Container{{Name: "sidecar", Image: "s"}, {Name: "kube-apiserver", Image: "registry.k8s.io/kube-apiserver:v1.37.1"}}
	})
	dns := func(name string) *corev1.Pod {
		return podOn("w", name, func(p *corev1.Pod) {
			ownedBy("ReplicaSet")(p)
			p.Namespace, p.Labels = "kube-system", map[string]string{"k8s-app": "kube-dns"}
			p.Spec.Containers = []corev1.Container{{Name: "coredns", Image: "coredns:v1.14.6"}}
		})
	}
	client, writes := testclient.Fake(
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "cp", Labels: map[string]string{cluster.ControlPlaneLabel: ""}}, Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: cluster.ControlPlaneLabel, Effect: corev1.TaintEffectNoSchedule}}},
			Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}, NodeInfo: corev1.NodeSystemInfo{KubeletVersion: "v1.37.1", KernelVersion: "6.1", Architecture: "amd64", ContainerRuntimeVersion: "containerd://2.4.2"}}},
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "w"}, Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionFalse, Reason: "KubeletNotReady", Message: "no network"}}}},
		static, dns("coredns-1"), dns("coredns-2"),
		podOn("w", "bare", nil),
		podOn("w", "web", func(p *corev1.Pod) {
			ownedBy("ReplicaSet")(p)
			p.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}, {Name: "other"}}
		}),
		podOn("w", "daemon", ownedBy("DaemonSet")),
		podOn("w", "ended", func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }),
		podOn("", "pending", ownedBy("ReplicaSet")),
		budgetFor("web", 0, 1, 1), budgetFor("bare", 1, 0, 1), budgetFor("daemon", 0, 1, 1), budgetFor("nothing", 0, 1, 0),
	)
	f, err := Read(t.Context(), client.API)
	if err != nil {
		t.Fatal(err)
	}
	if len(f.Nodes) != 2 || !reflect.DeepEqual(f.Nodes[0], Node{Name: "cp", ControlPlane: true, Ready: true, KubeletVersion: "v1.37.1", Kernel: "6.1", Architecture: "amd64", ContainerRuntime: "containerd://2.4.2",
		Taints: []corev1.Taint{{Key: cluster.ControlPlaneLabel, Effect: corev1.TaintEffectNoSchedule}}}) ||
		f.Nodes[1].Ready || !strings.Contains(f.Nodes[1].Reason, "no network") {
		t.Errorf("nodes %+v", f.Nodes)
	}
	if want := []Component{{"coredns", "", "coredns:v1.14.6"}, {"kube-apiserver", "cp", "registry.k8s.io/kube-apiserver:v1.37.1"}}; !slices.Equal(f.Components, want) {
		t.Errorf("components %+v", f.Components)
	}
	var pods []string
	for _, p := range f.Pods {
		text := p.Name
		if p.Bare {
			text += " bare"
		}
		pods = append(pods, text+strings.Join(p.EmptyDirs, ","))
	}
	slices.Sort(pods)
	if got := strings.Join(pods, " "); got != "default/bare bare default/webdata kube-system/coredns-1 kube-system/coredns-2" {
		t.Errorf("pods %s", got)
	}
	if len(f.Budgets) != 1 || f.Budgets[0].Name != "default/web" || !f.Budgets[0].Never || f.Budgets[0].Nodes[0] != "w" {
		t.Errorf("budgets %+v", f.Budgets)
	}
	if w := writes(); len(w) > 0 {
		t.Errorf("written: %v", w)
	}
}

// A worker's kubelet may read little.
func TestUpgradeFactsWithoutPermission(t *testing.T) {
	client, _ := testclient.Fake()
	client.API.(*fake.Clientset).PrependReactor("list", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: a.GetResource().Resource}, "", nil)
	})
	f, err := Read(t.Context(), client.API)
	if err != nil || strings.Join(f.Unreadable, " ") != "nodes pods poddisruptionbudgets services persistentvolumes storageclasses csidrivers clusterroles roles" {
		t.Errorf("%v %+v", err, f)
	}
}

// The table is generated by Kubernetes. The deprecation guide of kubernetes.io has these rows.
func TestRemovedAPIs(t *testing.T) {
	list := func(from, to int) string {
		var names []string
		for _, a := range RemovedAPIs(from, to) {
			names = append(names, a.groupVersion()+" "+a.Kind)
		}
		return strings.Join(names, ", ")
	}
	for _, c := range []struct {
		from, to int
		want     string
	}{
		{24, 25, "batch/v1beta1 CronJob, discovery.k8s.io/v1beta1 EndpointSlice, events.k8s.io/v1beta1 Event, node.k8s.io/v1beta1 RuntimeClass, policy/v1beta1 Eviction, policy/v1beta1 PodDisruptionBudget"},
		{28, 29, "flowcontrol.apiserver.k8s.io/v1beta2 FlowSchema, flowcontrol.apiserver.k8s.io/v1beta2 PriorityLevelConfiguration"},
		{29, 30, ""},
		{37, 37, ""},
	} {
		if got := list(c.from, c.to); got != c.want {
			t.Errorf("v1.%d to v1.%d: %s", c.from, c.to, got)
		}
	}
	if got := list(31, 32); !strings.Contains(got, "flowcontrol.apiserver.k8s.io/v1beta3 FlowSchema") {
		t.Errorf("v1.31 to v1.32: %s", got)
	}
}

func TestAPIUses(t *testing.T) {
	schemaOf := func(name, manager, version string) *flowcontrolv1beta3.FlowSchema {
		return &flowcontrolv1beta3.FlowSchema{
			TypeMeta:   metav1.TypeMeta{APIVersion: "flowcontrol.apiserver.k8s.io/v1beta3", Kind: "FlowSchema"},
			ObjectMeta: metav1.ObjectMeta{Name: name, ManagedFields: []metav1.ManagedFieldsEntry{{Manager: manager, APIVersion: "flowcontrol.apiserver.k8s.io/" + version, Operation: "Update"}}},
		}
	}
	applied := schemaOf("applied", "x", "v1")
	applied.Annotations = map[string]string{"kubectl.kubernetes.io/last-applied-configuration": `{"apiVersion":"flowcontrol.apiserver.k8s.io/v1beta3"}`}
	client, _ := testclient.Fake()
	client.Dynamic = dynamicfake.NewSimpleDynamicClient(scheme.Scheme, schemaOf("old", "helm", "v1beta3"), schemaOf("new", "helm", "v1"), schemaOf("own", "api-priority-and-fairness-config-producer-v1", "v1beta3"), applied)
	client.API.(*fake.Clientset).Resources = []*metav1.APIResourceList{{GroupVersion: "flowcontrol.apiserver.k8s.io/v1beta3", APIResources: []metav1.APIResource{{Name: "flowschemas", Kind: "FlowSchema", Verbs: metav1.Verbs{"list"}}}}}
	uses, err := APIUses(t.Context(), client, 31, 32)
	if err != nil {
		t.Fatal(err)
	}
	want := []APIUse{
		{"flowcontrol.apiserver.k8s.io/v1beta3", "FlowSchema", "applied", "kubectl apply", "v1.32", "flowcontrol.apiserver.k8s.io/v1, FlowSchema", ""},
		{"flowcontrol.apiserver.k8s.io/v1beta3", "FlowSchema", "old", "helm", "v1.32", "flowcontrol.apiserver.k8s.io/v1, FlowSchema", ""},
	}
	if !slices.Equal(uses, want) {
		t.Errorf("%+v", uses)
	}
	if uses, err = APIUses(t.Context(), client, 32, 33); err != nil || len(uses) > 0 {
		t.Errorf("%v %+v", err, uses)
	}
}

// Objects of an API version that the new version does not have are listed, whoever wrote them.
func TestLostObjects(t *testing.T) {
	object := func(api, kind, name string) *unstructured.Unstructured {
		u := &unstructured.Unstructured{}
		u.SetAPIVersion(api)
		u.SetKind(kind)
		u.SetNamespace("default")
		u.SetName(name)
		return u
	}
	const alpha, resources = "scheduling.k8s.io/v1alpha2", "resource.k8s.io/v1alpha3"
	client, _ := testclient.Fake()
	client.Dynamic = dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{
		{Group: "scheduling.k8s.io", Version: "v1alpha2", Resource: "workloads"}:           "WorkloadList",
		{Group: "scheduling.k8s.io", Version: "v1alpha2", Resource: "podgroups"}:           "PodGroupList",
		{Group: "resource.k8s.io", Version: "v1alpha3", Resource: "podschedulingcontexts"}: "PodSchedulingContextList",
		{Group: "resource.k8s.io", Version: "v1alpha3", Resource: "resourceclaims"}:        "ResourceClaimList",
	}, object(alpha, "Workload", "job"), object(alpha, "PodGroup", "gang"), object(resources, "PodSchedulingContext", "classic"), object(resources, "ResourceClaim", "claim"))
	list := metav1.Verbs{"list"}
	client.API.(*fake.Clientset).Resources = []*metav1.APIResourceList{
		{GroupVersion: alpha, APIResources: []metav1.APIResource{{Name: "workloads", Kind: "Workload", Verbs: list}, {Name: "podgroups", Kind: "PodGroup", Verbs: list}, {Name: "podgroups/status", Kind: "PodGroup", Verbs: list}}},
		{GroupVersion: resources, APIResources: []metav1.APIResource{{Name: "podschedulingcontexts", Kind: "PodSchedulingContext", Verbs: list}, {Name: "resourceclaims", Kind: "ResourceClaim", Verbs: list}}},
	}
	for _, c := range []struct {
		from, to int
		want     []APIUse
	}{
		{36, 37, []APIUse{
			{API: alpha, Kind: "Workload", Object: "default/job", Removed: "v1.37", Replacement: "scheduling.k8s.io/v1beta1", Lost: "workloads"},
			{API: alpha, Kind: "PodGroup", Object: "default/gang", Removed: "v1.37", Replacement: "scheduling.k8s.io/v1beta1", Lost: "podgroups"},
		}},
		{31, 32, []APIUse{{API: resources, Kind: "PodSchedulingContext", Object: "default/classic", Removed: "v1.32", Lost: "podschedulingcontexts"}}},
		{35, 36, nil},
		{37, 37, nil},
	} {
		if uses, err := APIUses(t.Context(), client, c.from, c.to); err != nil || !slices.Equal(uses, c.want) {
			t.Errorf("v1.%d to v1.%d: %v %+v", c.from, c.to, err, uses)
		}
	}
}

func TestFeatures(t *testing.T) {
	rule := func(verbs, resources string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{""}, Verbs: strings.Split(verbs, ","), Resources: strings.Split(resources, ",")}
	}
	role := func(name string, rules ...rbacv1.PolicyRule) *rbacv1.ClusterRole {
		return &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}
	}
	named := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: "default", Name: name} }
	yes := true
	client, writes := testclient.Fake(
		&corev1.Service{ObjectMeta: named("web"), Spec: corev1.ServiceSpec{ExternalIPs: []string{"192.0.2.1"}}}, &corev1.Service{ObjectMeta: named("other")},
		&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "old"}, Spec: corev1.PersistentVolumeSpec{PersistentVolumeSource: corev1.PersistentVolumeSource{RBD: &corev1.RBDPersistentVolumeSource{}}}},
		&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "csi"}, Spec: corev1.PersistentVolumeSpec{PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{}}}},
		podOn("", "git", func(p *corev1.Pod) {
			volume := corev1.Volume{Name: "a", VolumeSource: corev1.VolumeSource{GitRepo: &corev1.GitRepoVolumeSource{}}}
			p.Spec.Volumes = []corev1.Volume{volume, volume}
		}),
		&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "ceph"}, Provisioner: "kubernetes.io/rbd"}, &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "x"}, Provisioner: "x"},
		&storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: "labels"}, Spec: storagev1.CSIDriverSpec{SELinuxMount: &yes}}, &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: "x"}},
		role("debug", rule("get,list", "pods/exec")), role("debug-both", rule("get", "pods/attach"), rule("create", "pods/attach")), role("system:debug", rule("get", "pods/exec,nodes/log")),
		role("admin", rule("*", "pods/exec")), role("logs", rule("get", "nodes/log")),
		&rbacv1.Role{ObjectMeta: named("forward"), Rules: []rbacv1.PolicyRule{rule("get", "pods/portforward")}},
	)
	f, err := Read(t.Context(), client.API)
	if err != nil {
		t.Fatal(err)
	}
	for feature, want := range map[Feature]string{
		ExternalIPs: "Service default/web", VolumeType("rbd"): "PersistentVolume old, StorageClass ceph", VolumeType("gitRepo"): "Pod default/git", SELinuxMount: "CSIDriver labels",
		ConnectByGet: "ClusterRole debug, Role default/forward", NodeLogs: "ClusterRole logs", VolumeType("cephfs"): "",
	} {
		if got := strings.Join(f.Features[feature], ", "); got != want {
			t.Errorf("%s: %s", feature, got)
		}
	}
	if w := writes(); len(w) > 0 {
		t.Errorf("written: %v", w)
	}
}

func TestRequestedAPIs(t *testing.T) {
	const metrics = `# HELP apiserver_requested_deprecated_apis [STABLE] Gauge of deprecated APIs that have been requested
# TYPE apiserver_requested_deprecated_apis gauge
apiserver_requested_deprecated_apis{group="flowcontrol.apiserver.k8s.io",removed_release="1.32",resource="flowschemas",subresource="",version="v1beta3"} 1
apiserver_requested_deprecated_apis{group="",removed_release="",resource="componentstatuses",subresource="",version="v1"} 1
`
	uses := requestedAPIs([]byte(metrics), 31, 32)
	if len(uses) != 1 || uses[0] != (APIUse{API: "flowcontrol.apiserver.k8s.io/v1beta3", Kind: "flowschemas", Removed: "v1.32"}) {
		t.Errorf("%+v", uses)
	}
	if uses := requestedAPIs([]byte(metrics), 32, 33); len(uses) > 0 {
		t.Errorf("%+v", uses)
	}
}
