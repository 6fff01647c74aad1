package apply

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"airlift/internal/fault"
	"airlift/scripts/fixtures/testcluster"
)

// A clock that is set back changes nothing: a later run has a greater name.
func TestRunsAreInOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		inventory, last := map[string]Entry{}, ""
		for i, second := range rapid.SliceOfN(rapid.Int64Range(1e9, 1e9+3), 1, 8).Draw(t, "clock") {
			run := runAfter(time.Unix(second, 0), inventory)
			if run <= last {
				t.Fatalf("%s follows %s", run, last)
			}
			last = run
			e := Entry{Run: run}
			if rapid.Bool().Draw(t, "undone") {
				e = Entry{Undoes: run}
			}
			inventory[fmt.Sprint(i)] = e
		}
	})
}

// testEdges has situations in which a command removed too much, forgot something, or was done too early.
func testEdges(l *life) {
	ns := l.namespace()

	// The clock is set back between two applies: the second one is the last.
	l.apply(l.manifest("web", configMap("a", "1")))
	l.apply(l.manifest("web", configMap("a", "2")), l.manifest("db", configMap("db", "1")))
	l.now = l.now.Add(-time.Hour)
	l.apply(l.manifest("db", configMap("db", "2")))
	must(l.T, l.tryUndo(l.ctx, l.site))
	if live := l.live(); live["a"] != "2" || live["db"] != "1" {
		l.Errorf("an undo after the clock was set back: %v", live)
	}

	// A manifest is named once.
	for _, again := range []string{"web", "web@1"} {
		if _, err := l.site.Undos(l.ctx, []string{"web", again}); fault.ExitCode(err) != fault.Usage || fault.Hint(err) == "" {
			l.Errorf("web and %s: %v", again, err)
		}
	}
	// The present version is applied again to replace what others changed.
	if _, err := l.site.Undos(l.ctx, []string{"web@2"}); fault.ExitCode(err) != fault.Usage {
		l.Errorf("the present version: %v", err)
	}
	maps := l.client.API.CoreV1().ConfigMaps(ns)
	testcluster.Must(maps.Patch(l.ctx, "a", types.MergePatchType, []byte(`{"data":{"value":"edited"}}`), metav1.PatchOptions{FieldManager: "kubectl-edit"}))(l.T)
	force := New(l.client, 20*time.Second, nil)
	force.Force = true
	must(l.T, l.tryUndo(l.ctx, force, "web@2"))
	if live := l.live(); live["a"] != "2" {
		l.Errorf("the present version by force: %v", live)
	}

	// An object that is being deleted does not count as applied.
	testcluster.Must(maps.Patch(l.ctx, "a", types.MergePatchType, []byte(`{"metadata":{"finalizers":["example.com/hangs"]}}`), metav1.PatchOptions{}))(l.T)
	must(l.T, maps.Delete(l.ctx, "a", metav1.DeleteOptions{}))
	err := testcluster.LastSeen(func(timeout time.Duration) error {
		return l.tryApply(l.ctx, New(l.client, timeout, nil), l.manifest("web", configMap("a", "3")))
	})
	if err == nil || !strings.Contains(err.Error(), "example.com/hangs") {
		l.Errorf("applied to an object that is being deleted: %v", err)
	}
	testcluster.Must(maps.Patch(l.ctx, "a", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}))(l.T)
	l.apply(l.manifest("web", configMap("a", "3")))
	if live := l.live(); live["a"] != "3" {
		l.Errorf("after the object was gone: %v", live)
	}

	// The images of an undo that was interrupted are needed to continue it.
	image := func(tag string) *Manifest {
		return l.manifest("images", "{apiVersion: apps/v1, kind: Deployment, metadata: {name: d}, spec: {replicas: 0, selector: {matchLabels: {app: d}}, template: {metadata: {labels: {app: d}}, spec: {containers: [{name: c, image: 'registry.example.com/d:"+tag+"'}]}}}}")
	}
	l.apply(image("one"))
	l.apply(image("two"))
	undos := testcluster.Must(l.site.Undos(l.ctx, []string{"images"}))(l.T)
	begun := testcluster.Must(l.site.begin(l.ctx, undos[0].Manifest, l.entry("images"), "run"))(l.T)
	must(l.T, l.site.record(l.ctx, "images", begun))
	if needed, _, err := NeededImages(l.ctx, l.client.API); err != nil || needed["registry.example.com/d:one"] == "" || needed["registry.example.com/d:two"] == "" {
		l.Errorf("an interrupted undo needs %v, %v", needed, err)
	}
	must(l.T, l.tryUndo(l.ctx, l.site, "images"))

	// Helm reads its annotation in any case.
	l.apply(l.manifest("policy", "{apiVersion: v1, kind: ConfigMap, metadata: {name: keeps, annotations: {helm.sh/resource-policy: ' Keep '}}}"))
	if kept := l.prune(nil, l.manifest("policy", configMap("other", "1"))).Kept(); len(kept) != 1 || !kept[0].named {
		l.Errorf("kept: %+v", kept)
	}

	// The same command can be run again after what it names is gone.
	const claim = "---\n{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: data}, spec: {accessModes: [ReadWriteOnce], storageClassName: none, resources: {requests: {storage: 1Gi}}}}\n"
	l.apply(l.manifest("claims", configMap("c", "1")+claim))
	l.unprotect("data")
	also, next := []string{"PersistentVolumeClaim " + ns + "/data"}, l.manifest("claims", configMap("c", "1"))
	l.prune(also, next)
	l.prune(also, next)
	for _, name := range []string{"PersistentVolumeClaims " + ns + "/data", "PersistentVolumeClaim data", "ConfigMap " + ns + "/gone"} {
		if _, err := l.tryPrune(l.ctx, l.site, []string{name}, next); fault.ExitCode(err) != fault.Usage {
			l.Errorf("--also %q: %v", name, err)
		}
	}

	// An error about a Secret does not have its values.
	bad := l.manifest("secrets", "{apiVersion: v1, kind: Secret, metadata: {name: s}, stringData: {pin: 4711471147114711}}")
	err = testcluster.LastSeen(func(timeout time.Duration) error { return l.tryApply(l.ctx, New(l.client, timeout, nil), bad) }) // the API server reports it as an internal error
	if err == nil || strings.Contains(err.Error(), "4711") || !strings.Contains(err.Error(), ".stringData.pin") {
		l.Errorf("a Secret that is refused: %v", err)
	}
	d := testcluster.Must(l.site.Diff(l.ctx, []*Manifest{bad}))(l.T)[0]
	if text := d.Diff + strings.Join(d.Failed, "\n"); strings.Contains(text, "4711") {
		l.Errorf("the diff: %s", text)
	}

	// An object whose owner is outside of a namespace does not go with the namespace by itself.
	owner := testcluster.Must(l.client.API.CoreV1().Nodes().Create(l.ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "edges"}}, metav1.CreateOptions{}))(l.T)
	testcluster.Must(maps.Create(l.ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "owned", OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: owner.Name, UID: owner.UID}}}}, metav1.CreateOptions{}))(l.T)
	if others := testcluster.Must(l.site.othersIn(l.ctx, ns, nil))(l.T); !slices.Contains(others, "ConfigMap "+ns+"/owned") {
		l.Errorf("in the namespace: %q", others)
	}

	// What stays keeps its definition and its namespace, also if it became another's after the plan was made.
	const place = "edges-of-the-site"
	l.apply(l.manifest("things", crd("edge")+"---\n{apiVersion: v1, kind: Namespace, metadata: {name: "+place+"}}\n"+
		"---\n{apiVersion: v1, kind: ConfigMap, metadata: {name: one, namespace: "+place+"}}\n---\n{apiVersion: life.example.com/v1, kind: Edgething, metadata: {name: one}}\n"))
	last := l.manifest("things", configMap("last", "1"))
	l.apply(last)
	both := []string{"Namespace " + place, "CustomResourceDefinition.apiextensions.k8s.io edgethings.life.example.com"}
	plan := testcluster.Must(l.site.PlanRemoval(l.ctx, []Wanted{{Manifest: "things", Objects: l.entry("things").Former}}, both))(l.T)
	if removed := plan.Removed(); len(removed) != 4 {
		l.Fatalf("removed: %q", names(removed))
	}
	for _, o := range []*unstructured.Unstructured{
		{Object: map[string]any{"apiVersion": "life.example.com/v1", "kind": "Edgething", "metadata": map[string]any{"name": "one", "namespace": ns}}},
		{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "one", "namespace": place}}},
	} {
		resource, _, err := l.site.resource(o, "")
		must(l.T, err)
		o.Object["data"] = map[string]any{"theirs": "1"}
		testcluster.Must(resource.Apply(l.ctx, "one", o, metav1.ApplyOptions{FieldManager: "someone"}))(l.T)
	}
	kept := testcluster.Must(l.site.Remove(l.ctx, plan, both))(l.T)
	if len(kept) != 4 {
		l.Errorf("kept: %q", names(kept))
	}
	for _, name := range both {
		if have := testcluster.Must(l.site.find(l.ctx, name))(l.T); have == nil || have.GetDeletionTimestamp() != nil {
			l.Errorf("%s was removed with what stays", name)
		}
	}
}
