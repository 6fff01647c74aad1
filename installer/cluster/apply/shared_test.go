package apply

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"airlift/internal/fault"
	"airlift/scripts/fixtures/testcluster"
)

// testShared: hooks delete nothing that another manifest has.
func testShared(l *life) {
	l.apply(l.manifest("plain", configMap("shared", "1")+"---\n{apiVersion: batch/v1, kind: Job, metadata: {name: theirs}, spec: {suspend: true, template: {spec: {restartPolicy: Never, containers: [{name: c, image: x}]}}}}\n"))
	hook := "---\n{apiVersion: v1, kind: ConfigMap, metadata: {name: NAME, annotations: {helm.sh/hook: pre-install, helm.sh/hook-delete-policy: hook-succeeded}}, data: {value: \"1\"}}\n"
	l.apply(l.chart("app", configMap("a", "1")+strings.ReplaceAll(hook, "NAME", "shared")+strings.ReplaceAll(hook, "NAME", "alone")))
	l.wantLive("after the hooks", "a", "shared")
	err := l.tryApply(l.ctx, l.site, l.chart("jobs", job("theirs", "pre-install", "")))
	if err == nil || !strings.Contains(err.Error(), "it is an object of the manifest plain") {
		l.Errorf("a hook with the name of another manifest's Job: %v", err)
	}
	// An API that Kubernetes has removed.
	old := l.manifest("old", "{apiVersion: policy/v1beta1, kind: PodDisruptionBudget, metadata: {name: b}}")
	if got := l.site.Unserved([]*Manifest{old, l.manifest("new", configMap("a", "1")+"---\n{apiVersion: of.example.com/v1, kind: Operator, metadata: {name: later}}\n")}); !slices.Equal(got, []string{"old: PodDisruptionBudget b of policy/v1beta1"}) {
		l.Errorf("not served: %q", got)
	}
}

// testUnread: a kind that cannot be read does not stop the removal of the others.
func testUnread(l *life) {
	ns, name := l.namespace(), "unreadthings.life.example.com"
	thing, definition := "Unreadthing.life.example.com "+ns+"/one", crdKind+" "+name
	l.apply(l.manifest("web", crd("unread")+configMap("a", "1")+"---\n{apiVersion: life.example.com/v1, kind: Unreadthing, metadata: {name: one}}\n"))
	change := func(conversion map[string]any) {
		l.Helper()
		resource, o, err := l.site.resourceOf(definition)
		must(l.T, err)
		have := testcluster.Must(resource.Get(l.ctx, o.GetName(), metav1.GetOptions{}))(l.T)
		versions, _, _ := unstructured.NestedSlice(have.Object, "spec", "versions")
		second := (&unstructured.Unstructured{Object: versions[0].(map[string]any)}).DeepCopy().Object
		second["name"], second["storage"] = "v2", false
		must(l.T, unstructured.SetNestedSlice(have.Object, []any{versions[0], second}, "spec", "versions"))
		must(l.T, unstructured.SetNestedMap(have.Object, conversion, "spec", "conversion"))
		testcluster.Must(resource.Update(l.ctx, have, metav1.UpdateOptions{}))(l.T)
	}
	change(map[string]any{"strategy": "Webhook", "webhook": map[string]any{"conversionReviewVersions": []any{"v1"}, "clientConfig": map[string]any{"url": "https://127.0.0.1:1/"}}})
	site := func() *Applier { return New(l.client, time.Second, nil) }
	testcluster.Eventually(l.T, func() bool {
		_, err := site().find(l.ctx, thing)
		return err != nil
	})
	plan := testcluster.Must(site().PlanRemoval(l.ctx, []Wanted{l.site.Everything("web", l.entry("web"))}, []string{"Namespace " + ns, definition}))(l.T)
	for _, r := range plan {
		if want := !strings.HasPrefix(r.Object, "ConfigMap"); r.Unread() != want || want && !strings.Contains(r.Kept, "it cannot be read: ") {
			l.Errorf("%s: %t, %q", r.Object, r.Unread(), r.Kept)
		}
	}
	left := testcluster.Must(l.tryRemove(l.ctx, site(), nil, "web"))(l.T)
	l.wantLive("what can be read is removed")
	if !slices.Contains(left, thing) || !slices.Contains(left, definition) {
		l.Errorf("left: %q", left)
	}
	change(map[string]any{"strategy": "None"})
	testcluster.Eventually(l.T, func() bool {
		_, err := site().find(l.ctx, thing)
		return err == nil
	})
	if left, err := l.tryRemove(l.ctx, l.site, []string{definition}, "web"); err != nil || len(left) > 0 {
		l.Errorf("after the repair: %q, %v (%s)", left, err, fault.Hint(err))
	}
}

// testExisted: what existed before a manifest had it is changed, and never removed, whoever created it.
func testExisted(l *life) {
	ns, nodes, namespaces := l.namespace(), l.client.API.CoreV1().Nodes(), l.client.API.CoreV1().Namespaces()
	testcluster.Must(nodes.Create(l.ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "existed"}}, metav1.CreateOptions{FieldManager: "kubelet"}))(l.T)
	testcluster.Must(namespaces.Create(l.ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}, metav1.CreateOptions{FieldManager: "kubectl-create"}))(l.T)
	testcluster.Must(l.client.Apply(l.ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "coredns", Namespace: ns}, Data: map[string]string{"Corefile": "x"}}))(l.T)
	text := "{apiVersion: v1, kind: Node, metadata: {name: existed, labels: {gpu: nvidia}}}\n---\n{apiVersion: v1, kind: Namespace, metadata: {name: " + ns + ", labels: {team: a}}}\n" +
		configMap("coredns", "1") + configMap("created", "1")
	has := func(what string, want ...string) {
		l.Helper()
		l.wantLive(what, want...)
		node, err := nodes.Get(l.ctx, "existed", metav1.GetOptions{})
		if err != nil || node.DeletionTimestamp != nil {
			l.Fatalf("%s: the Node: %v", what, err)
		}
		if place := testcluster.Must(namespaces.Get(l.ctx, ns, metav1.GetOptions{}))(l.T); place.DeletionTimestamp != nil {
			l.Fatalf("%s: the namespace is being deleted", what)
		}
	}
	both := []string{"Namespace " + ns}
	l.apply(l.manifest("labels", text))
	if node := testcluster.Must(nodes.Get(l.ctx, "existed", metav1.GetOptions{}))(l.T); node.Labels["gpu"] != "nvidia" {
		l.Errorf("the Node was not changed: %v", node.Labels)
	}
	must(l.T, l.tryUndo(l.ctx, l.site))
	has("after an undo of the apply that brought the manifest", "coredns")
	l.apply(l.manifest("labels", text))
	l.apply(l.manifest("labels", text+configMap("more", "1"))) // Airlift is one of its managers by now
	plan := l.prune(nil, l.manifest("labels", configMap("last", "1")))
	has("after a prune", "coredns", "last")
	if kept := names(plan.Kept()); len(kept) != 3 || !strings.Contains(plan.Kept()[0].Kept, "it existed before a manifest had it") {
		l.Errorf("kept: %+v", plan.Kept())
	}
	if former := l.entry("labels").Former; len(former) > 0 {
		l.Errorf("former objects: %q", former)
	}
	l.apply(l.manifest("labels", text))
	if _, err := l.tryRemove(l.ctx, l.site, both, "labels"); fault.ExitCode(err) != fault.Usage {
		l.Errorf("a namespace that existed was named: %v", err)
	}
	if left := testcluster.Must(l.tryRemove(l.ctx, l.site, nil, "labels"))(l.T); len(left) > 0 {
		l.Errorf("left in the inventory: %q", left)
	}
	has("after the removal", "coredns")
	// The user can give it to Airlift.
	l.apply(l.manifest("labels", text))
	testcluster.Must(l.client.API.CoreV1().ConfigMaps(ns).Patch(l.ctx, "coredns", types.MergePatchType, []byte(`{"metadata":{"annotations":{"airlift.dev/applied":"true"}}}`), metav1.PatchOptions{FieldManager: "kubectl-annotate"}))(l.T)
	l.apply(l.manifest("labels", text+configMap("more", "1")))
	testcluster.Must(l.tryRemove(l.ctx, l.site, nil, "labels"))(l.T)
	has("given to Airlift, and removed")
}
