package apply

import (
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

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
