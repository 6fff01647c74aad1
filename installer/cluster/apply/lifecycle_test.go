package apply

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"pgregory.net/rapid"

	"airlift/installer/cluster"
	"airlift/internal/fault"
	_ "airlift/scripts/fixtures/seed"
	"airlift/scripts/fixtures/testcluster"
	"airlift/scripts/fixtures/testcluster/testclient"
)

// newest is the version of the API server of these tests.
const newest = "v1.37.1"

// A life is a cluster whose applications live and die.
type life struct {
	*testing.T
	p      *testcluster.ControlPlane
	client *cluster.Client
	site   *Applier
	ctx    context.Context
	now    time.Time
}

// TestRealLifeOfApplications has all tests of prune, undo, diff, hooks and removal, on one real API server.
func TestRealLifeOfApplications(t *testing.T) {
	p := testcluster.StartVersion(t, newest)
	p.ControllerManager(t) // it deletes what has an owner
	for _, c := range []struct {
		name string
		test func(*life)
	}{
		{"prune", testPrune}, {"what others own", testOthers}, {"namespaces and definitions", testNamed}, {"finalizers", testFinalizers}, {"diff", testDiff},
		{"undo", testUndo}, {"history", testHistory}, {"killed", testKilled}, {"hooks", testHooks}, {"failed hooks", testFailedHooks}, {"removal", testRemoval},
		{"order", testOrder}, {"custom resources", testCustomState}, {"edges", testEdges}, {"shared", testShared}, {"existed", testExisted}, {"unread", testUnread}, {"sequences", testSequences},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			t.Cleanup(cancel)
			client := testclient.Super(t, p)
			l := &life{T: t, p: p, client: client, site: New(client, 20*time.Second, nil), ctx: ctx, now: time.Unix(1e9, 0)}
			l.clear()
			c.test(l)
		})
	}
}

// clear removes what another test left in the inventory and the history.
func (l *life) clear() {
	l.Helper()
	_ = l.client.API.CoreV1().ConfigMaps("kube-system").Delete(l.ctx, InventoryName, metav1.DeleteOptions{})
	must(l.T, l.site.dropHistory(l.ctx, manifestLabel))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%v (%s)", err, fault.Hint(err))
	}
}

func (l *life) manifest(name, text string) *Manifest {
	l.Helper()
	return testcluster.Must(Parse(Manifest{Name: name, Namespace: l.namespace(), SHA256: digestText(text), Bundle: "bundle of " + name, File: "more"}, []byte(text)))(l.T)
}

func (l *life) chart(name, text string) *Manifest {
	l.Helper()
	return testcluster.Must(Parse(Manifest{Name: name, Chart: name + " 1.0.0", Namespace: l.namespace(), SHA256: digestText(text), Bundle: "bundle of " + name, File: "more"}, []byte(text)))(l.T)
}

// namespace is the namespace of a test.
func (l *life) namespace() string {
	return strings.ReplaceAll(strings.ToLower(l.Name()[strings.LastIndex(l.Name(), "/")+1:]), "_", "-")
}

// apply applies manifests, with all hooks, as if their workloads ran.
func (l *life) apply(manifests ...*Manifest) {
	l.Helper()
	must(l.T, l.tryApply(l.ctx, l.site, manifests...))
}

func (l *life) tryApply(ctx context.Context, site *Applier, manifests ...*Manifest) error {
	l.now = l.now.Add(time.Second)
	if _, _, err := site.ApplyRecorded(ctx, manifests, l.now); err != nil {
		return err
	}
	for _, m := range manifests {
		if later, err := site.AfterWorkloads(ctx, m); err != nil || later != "" {
			return errors.Join(err, errors.New(later))
		}
	}
	return nil
}

// prune applies manifests and removes what is former then. It returns the plan.
func (l *life) tryPrune(ctx context.Context, site *Applier, also []string, manifests ...*Manifest) (plan Plan, err error) {
	wanted, err := site.FormerOf(ctx, manifests)
	if err != nil {
		return nil, err
	}
	if plan, err = site.PlanRemoval(ctx, wanted, also); err != nil {
		return nil, err
	}
	if err := l.tryApply(ctx, site, manifests...); err != nil {
		return plan, err
	}
	_, err = site.Remove(ctx, plan, also)
	return plan, err
}

func (l *life) prune(also []string, manifests ...*Manifest) Plan {
	l.Helper()
	plan, err := l.tryPrune(l.ctx, l.site, also, manifests...)
	must(l.T, err)
	return plan
}

// tryUndo does what apply undo does.
func (l *life) tryUndo(ctx context.Context, site *Applier, names ...string) error {
	undos, err := site.Undos(ctx, names)
	if err != nil {
		return err
	}
	var wanted []Wanted
	var again []*Manifest
	for _, u := range undos {
		w := site.WantedOf(u)
		if wanted = append(wanted, w); u.To != nil {
			again = append(again, u.Manifest)
		}
	}
	plan, err := site.PlanRemoval(ctx, wanted, nil)
	if err != nil {
		return err
	}
	if err := l.tryApply(ctx, site, again...); err != nil {
		return err
	}
	for i, u := range undos {
		if u.To == nil {
			if err := site.BeginRemoval(ctx, wanted[i]); err != nil {
				return err
			}
		}
	}
	if _, err := site.Remove(ctx, plan, nil); err != nil {
		return err
	}
	var ended []string
	for _, u := range undos {
		if ended = append(ended, u.Name); u.To == nil {
			if _, err := site.EndRemoval(ctx, u.Name); err != nil {
				return err
			}
		}
	}
	return site.EndUndo(ctx, ended)
}

// tryRemove does what apply remove does.
func (l *life) tryRemove(ctx context.Context, site *Applier, also []string, name string) (left []string, err error) {
	e, err := site.Known(ctx, name)
	if err != nil {
		return nil, err
	}
	w := site.Everything(name, e)
	plan, err := site.PlanRemoval(ctx, []Wanted{w}, also)
	if err != nil {
		return nil, err
	}
	if err := site.BeginRemoval(ctx, w); err != nil {
		return nil, err
	}
	if later, err := site.RemovalHooks(ctx, name, false); err != nil || later != "" {
		return nil, errors.Join(err, errors.New(later))
	}
	namespaces, others := plan.Namespaces()
	if _, err := site.Remove(ctx, others, also); err != nil {
		return nil, err
	}
	if later, err := site.RemovalHooks(ctx, name, true); err != nil || later != "" {
		return nil, errors.Join(err, errors.New(later))
	}
	hooks, err := site.HookObjects(ctx, name, e)
	if err != nil {
		return nil, err
	}
	rest, err := site.PlanRemoval(ctx, []Wanted{hooks}, nil)
	if err != nil {
		return nil, err
	}
	if _, err := site.Remove(ctx, append(rest, namespaces...), also); err != nil {
		return nil, err
	}
	return site.EndRemoval(ctx, name)
}

func (l *life) entry(name string) Entry {
	l.Helper()
	return testcluster.Must(ReadInventory(l.ctx, l.client.API))(l.T)[name]
}

// live returns the ConfigMaps of the test's namespace with their data, without Kubernetes' own.
func (l *life) live() map[string]string {
	l.Helper()
	list := testcluster.Must(l.client.API.CoreV1().ConfigMaps(l.namespace()).List(l.ctx, metav1.ListOptions{}))(l.T)
	found := map[string]string{}
	for _, c := range list.Items {
		if c.Name != "kube-root-ca.crt" {
			found[c.Name] = c.Data["value"]
		}
	}
	return found
}

func (l *life) wantLive(what string, want ...string) {
	l.Helper()
	if names := slices.Sorted(maps.Keys(l.live())); !slices.Equal(names, want) {
		l.Fatalf("%s: the ConfigMaps are %q, want %q", what, names, want)
	}
}

func configMap(name, value string) string {
	return fmt.Sprintf("---\n{apiVersion: v1, kind: ConfigMap, metadata: {name: %s}, data: {value: %q}}\n", name, value)
}

func names(plan Plan) (list []string) {
	for _, r := range plan {
		list = append(list, r.Object)
	}
	return list
}

const thingsCRD = `---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: GROUPthings.life.example.com}
spec:
  group: life.example.com
  scope: Namespaced
  names: {kind: GROUPThing, plural: GROUPthings, singular: GROUPthing, listKind: GROUPThingList}
  versions:
  - {name: v1, served: true, storage: true, subresources: {status: {}}, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
`

func crd(group string) string {
	return strings.ReplaceAll(strings.ReplaceAll(thingsCRD, "GROUPThing", strings.ToUpper(group[:1])+group[1:]+"thing"), "GROUP", group)
}

func testPrune(l *life) {
	const more = `---
{apiVersion: v1, kind: ServiceAccount, metadata: {name: runner}}
---
{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: data}, spec: {accessModes: [ReadWriteOnce], storageClassName: none, resources: {requests: {storage: 1Gi}}}}
---
{apiVersion: apps/v1, kind: Deployment, metadata: {name: front}, spec: {replicas: 0, selector: {matchLabels: {app: front}}, template: {metadata: {labels: {app: front}}, spec: {containers: [{name: c, image: "registry.example.com/web:v1"}]}}}}
---
{apiVersion: life.example.com/v1, kind: Prunething, metadata: {name: one}}
`
	first := l.manifest("web", configMap("a", "1")+configMap("b", "1")+more+crd("prune"))
	second := l.manifest("web", configMap("a", "2"))
	l.apply(first)
	if plan := l.prune(nil, first); len(plan) > 0 {
		l.Errorf("nothing is former, and the plan has %q", names(plan))
	}
	l.apply(second)
	if former := l.entry("web").Former; len(former) != 6 {
		l.Errorf("former: %q", former)
	}
	plan := l.prune(nil, second)
	ns := l.namespace()
	if want := []string{"Prunething.life.example.com " + ns + "/one", "Deployment.apps " + ns + "/front", "ServiceAccount " + ns + "/runner", "ConfigMap " + ns + "/b"}; !slices.Equal(names(plan.Removed()), want) {
		l.Errorf("removed %q, want %q", names(plan.Removed()), want)
	}
	stays := []string{"PersistentVolumeClaim " + ns + "/data", "CustomResourceDefinition.apiextensions.k8s.io prunethings.life.example.com"}
	if !slices.Equal(names(plan.Kept()), stays) {
		l.Errorf("kept %+v, want %q", plan.Kept(), stays)
	}
	l.wantLive("pruned", "a")
	if former := l.entry("web").Former; len(former) != 2 || !slices.Contains(former, stays[0]) || !slices.Contains(former, stays[1]) {
		l.Errorf("former objects after the prune: %q", former)
	}
	if _, err := l.tryPrune(l.ctx, l.site, []string{"ConfigMap x/y"}, second); fault.ExitCode(err) != fault.Usage || !strings.Contains(fault.Hint(err), "--also '"+stays[0]+"'") {
		l.Errorf("a name that is not there: %v (%s)", err, fault.Hint(err))
	}
	l.unprotect("data")
	l.prune(stays, second)
	if former := l.entry("web").Former; len(former) > 0 {
		l.Errorf("former objects after they were named: %q", former)
	}
}

// unprotect removes the finalizer of a claim: no controller does it here.
func (l *life) unprotect(claim string) {
	l.Helper()
	testcluster.Must(l.client.API.CoreV1().PersistentVolumeClaims(l.namespace()).Patch(l.ctx, claim, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}))(l.T)
}

// as applies a ConfigMap as another field manager.
func (l *life) as(manager, name, text string) {
	l.Helper()
	force := true
	testcluster.Must(l.client.API.CoreV1().ConfigMaps(l.namespace()).Patch(l.ctx, name, types.ApplyPatchType, []byte(text), metav1.PatchOptions{FieldManager: manager, Force: &force}))(l.T)
}

func testOthers(l *life) {
	ns := l.namespace()
	maps := l.client.API.CoreV1().ConfigMaps(ns)
	annotate := func(key, value string) func() {
		return func() {
			patch := testcluster.Must(json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{key: value}}}))(l.T)
			testcluster.Must(maps.Patch(l.ctx, "b", types.MergePatchType, patch, metav1.PatchOptions{FieldManager: "someone"}))(l.T)
		}
	}
	other := func() {
		l.as("helm", "b", "{apiVersion: v1, kind: ConfigMap, metadata: {name: b}, data: {theirs: x}}")
	}
	replace := func() {
		must(l.T, maps.Delete(l.ctx, "b", metav1.DeleteOptions{}))
		testcluster.Must(maps.Create(l.ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "b"}}, metav1.CreateOptions{FieldManager: "someone"}))(l.T)
	}
	for name, c := range map[string]struct {
		before, between func()
		gone            bool
		why             string
	}{
		"nothing":                 {gone: true},
		"changed by kubectl edit": {before: func() { annotate("example.com/x", "y")() }, gone: true},
		"its only field changed": {before: func() {
			testcluster.Must(maps.Patch(l.ctx, "b", types.MergePatchType, []byte(`{"data":{"value":"edited"}}`), metav1.PatchOptions{FieldManager: "kubectl-edit"}))(l.T)
		}, gone: true},
		"changed after the list":     {between: annotate("example.com/x", "y"), gone: true},
		"applied by Helm":            {before: other, why: `it was also applied by "helm"`},
		"applied after the list":     {between: other, why: `it was also applied by "helm"`},
		"a release of Helm":          {before: annotate("meta.helm.sh/release-name", "db"), why: `Helm release "db"`},
		"applied by kubectl":         {before: annotate("kubectl.kubernetes.io/last-applied-configuration", "{}"), why: "kubectl"},
		"Helm keeps it":              {before: annotate("helm.sh/resource-policy", "keep"), why: "helm.sh/resource-policy"},
		"another object of its name": {before: replace, why: "Airlift did not apply it"},
		"replaced after the list":    {between: replace, why: "replaced by another object"},
		"a controller has it": {before: func() {
			testcluster.Must(maps.Patch(l.ctx, "b", types.MergePatchType, []byte(`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Namespace","name":"default","uid":"`+string(testcluster.Must(l.client.API.CoreV1().Namespaces().Get(l.ctx, "default", metav1.GetOptions{}))(l.T).UID)+`","controller":true}]}}`), metav1.PatchOptions{}))(l.T)
		}, why: "Namespace default controls it"},
		"another manifest has it": {before: func() { l.apply(l.manifest("other", configMap("b", "theirs"))) }, why: ""},
		"moved after the list":    {between: func() { l.apply(l.manifest("other", configMap("b", "theirs"))) }, why: "the manifest other has it now"},
		"gone":                    {before: func() { must(l.T, maps.Delete(l.ctx, "b", metav1.DeleteOptions{})) }, gone: true},
		"gone after the list":     {between: func() { must(l.T, maps.Delete(l.ctx, "b", metav1.DeleteOptions{})) }, gone: true},
	} {
		l.Run(name, func(t *testing.T) {
			l := &life{T: t, p: l.p, client: l.client, site: l.site, ctx: l.ctx, now: l.now}
			l.clear()
			_ = maps.DeleteCollection(l.ctx, metav1.DeleteOptions{}, metav1.ListOptions{FieldSelector: "metadata.name=b"})
			// The namespace is that of the parent test.
			parse := func(name, text string) *Manifest {
				return testcluster.Must(Parse(Manifest{Name: name, Namespace: ns, SHA256: digestText(text), Bundle: "x"}, []byte(text)))(t)
			}
			l.apply(parse("web", configMap("a", "1")+configMap("b", "1")))
			second := parse("web", configMap("a", "1"))
			l.apply(second)
			if c.before != nil {
				c.before()
			}
			wanted := testcluster.Must(l.site.FormerOf(l.ctx, []*Manifest{second}))(t)
			plan := testcluster.Must(l.site.PlanRemoval(l.ctx, wanted, nil))(t)
			if c.between != nil {
				c.between()
			}
			kept, err := l.site.Remove(l.ctx, plan, nil)
			must(t, err)
			_, err = maps.Get(l.ctx, "b", metav1.GetOptions{})
			if apierrors.IsNotFound(err) != c.gone {
				t.Errorf("it is gone: %v, want %t", err, c.gone)
			}
			var reasons []string
			for _, r := range append(plan.Kept(), kept...) {
				reasons = append(reasons, r.Kept)
			}
			if text := strings.Join(reasons, "; "); !strings.Contains(text, c.why) || c.why == "" && text != "" {
				t.Errorf("kept because %q, want %q", text, c.why)
			}
			// A second prune finds nothing to remove, and tries no other way.
			l.prune(nil, second)
			if _, err = maps.Get(l.ctx, "b", metav1.GetOptions{}); apierrors.IsNotFound(err) != c.gone && name != "replaced after the list" {
				t.Errorf("after a second prune: %v", err)
			}
		})
	}
}

func testNamed(l *life) {
	ns := l.namespace()
	const theirs = "theirs-of-the-site"
	text := crd("named") + "---\n{apiVersion: v1, kind: Namespace, metadata: {name: " + theirs + "}}\n" +
		"---\n{apiVersion: v1, kind: ConfigMap, metadata: {name: ours, namespace: " + theirs + "}}\n" +
		"---\n{apiVersion: life.example.com/v1, kind: Namedthing, metadata: {name: ours, namespace: " + theirs + "}}\n"
	l.apply(l.manifest("web", text))
	next := l.manifest("web", configMap("a", "1"))
	l.apply(next)
	strangers := l.client.API.CoreV1().ConfigMaps(theirs)
	testcluster.Must(strangers.Create(l.ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "stranger"}}, metav1.CreateOptions{}))(l.T)
	thing := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "life.example.com/v1", "kind": "Namedthing", "metadata": map[string]any{"name": "stranger", "namespace": ns}}}
	resource, _, err := l.site.resource(thing, ns)
	must(l.T, err)
	testcluster.Must(resource.Create(l.ctx, thing, metav1.CreateOptions{}))(l.T)

	both := []string{"Namespace " + theirs, "CustomResourceDefinition.apiextensions.k8s.io namedthings.life.example.com"}
	_, err = l.tryPrune(l.ctx, l.site, both, next)
	if fault.ExitCode(err) != fault.Usage {
		l.Errorf("what has objects of others, named: %v", err)
	}
	plan := l.prune(nil, next)
	for _, r := range plan.Kept() {
		if r.named || !strings.Contains(r.Kept, "stranger") {
			l.Errorf("%+v: it does not name the object of others", r)
		}
	}
	if len(plan.Kept()) != 2 {
		l.Errorf("kept: %+v", plan.Kept())
	}
	must(l.T, resource.Delete(l.ctx, "stranger", metav1.DeleteOptions{}))
	must(l.T, strangers.Delete(l.ctx, "stranger", metav1.DeleteOptions{}))
	if kept := l.prune(nil, next).Kept(); len(kept) != 2 || !kept[0].named || !kept[1].named {
		l.Errorf("without objects of others: %+v", kept)
	}
	done := make(chan struct{})
	go func() { // as the namespace controller does
		defer close(done)
		for l.ctx.Err() == nil {
			n, err := l.client.API.CoreV1().Namespaces().Get(l.ctx, theirs, metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				return
			}
			if err == nil && n.DeletionTimestamp != nil {
				n.Spec.Finalizers = nil
				if _, err := l.client.API.CoreV1().Namespaces().Finalize(l.ctx, n, metav1.UpdateOptions{}); err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
					l.Errorf("finalizing the namespace: %v", err)
					return
				}
				_ = l.client.API.CoreV1().Namespaces().Delete(l.ctx, theirs, metav1.DeleteOptions{})
			}
			time.Sleep(50 * time.Millisecond)
		}
	}()
	l.prune(both, next)
	<-done
	if former := l.entry("web").Former; len(former) > 0 {
		l.Errorf("former: %q", former)
	}
}

func testFinalizers(l *life) {
	maps := l.client.API.CoreV1().ConfigMaps(l.namespace())
	l.apply(l.manifest("web", configMap("a", "1")+configMap("b", "1")))
	next := l.manifest("web", configMap("a", "1"))
	l.apply(next)
	patch := func(finalizers string) {
		l.Helper()
		testcluster.Must(maps.Patch(l.ctx, "b", types.MergePatchType, []byte(`{"metadata":{"finalizers":`+finalizers+`}}`), metav1.PatchOptions{}))(l.T)
	}
	patch(`["example.com/hangs"]`)
	err := testcluster.LastSeen(func(timeout time.Duration) error {
		_, err := l.tryPrune(l.ctx, New(l.client, timeout, nil), nil, next)
		return err
	})
	if err == nil || !strings.Contains(err.Error(), "example.com/hangs") || !strings.Contains(err.Error(), `manifest "web"`) || fault.Hint(err) == "" {
		l.Errorf("%v (%s)", err, fault.Hint(err))
	}
	if former := l.entry("web").Former; len(former) != 1 {
		l.Errorf("an object that is still there is not former: %q", former)
	}
	patch("null")
	l.prune(nil, next)
	if former := l.entry("web").Former; len(former) > 0 {
		l.Errorf("former: %q", former)
	}
	l.wantLive("at last", "a")
}

func testDiff(l *life) {
	secret := func(a, b string) string {
		return fmt.Sprintf("---\n{apiVersion: v1, kind: Secret, metadata: {name: s}, stringData: {changed: %s, same: %s}}\n", a, b)
	}
	l.apply(l.manifest("web", configMap("a", "one")+configMap("same", "1")+configMap("old", "1")+secret("oldpassword", "samepassword")))
	maps := l.client.API.CoreV1().ConfigMaps(l.namespace())
	testcluster.Must(maps.Patch(l.ctx, "same", types.MergePatchType, []byte(`{"data":{"value":"edited"}}`), metav1.PatchOptions{FieldManager: "kubectl-edit"}))(l.T)
	next := l.manifest("web", configMap("a", "two")+configMap("same", "2")+secret("newpassword", "samepassword")+configMap("new", "1")+
		"---\n{apiVersion: v1, kind: Service, metadata: {name: bad}, spec: {ports: [{port: 99999}]}}\n"+crd("diff")+"---\n{apiVersion: life.example.com/v1, kind: Diffthing, metadata: {name: one}}\n")
	before := testcluster.Must(maps.List(l.ctx, metav1.ListOptions{}))(l.T)
	d := testcluster.Must(l.site.Diff(l.ctx, []*Manifest{next}))(l.T)[0]
	after := testcluster.Must(maps.List(l.ctx, metav1.ListOptions{}))(l.T)
	if before.ResourceVersion == "" || len(before.Items) != len(after.Items) || before.Items[0].ResourceVersion != after.Items[0].ResourceVersion {
		l.Errorf("a diff wrote: %v, %v", before, after)
	}
	for _, want := range []string{"-  value: one\n+  value: two", "-  changed: (secret, before)\n+  changed: (secret, after)", "same: (secret)", "--- /dev/null\n+++ file/ConfigMap " + l.namespace() + "/new", "+++ file/Diffthing.life.example.com"} {
		if !strings.Contains(d.Diff, want) {
			l.Errorf("the diff does not have %q:\n%s", want, d.Diff)
		}
	}
	for _, never := range []string{"password", "cGFzc3dvcmQ", "b2xkcGFzc3dvcmQ=", "resourceVersion", "managedFields", "uid"} {
		if strings.Contains(d.Diff, never) {
			l.Errorf("the diff has %q:\n%s", never, d.Diff)
		}
	}
	ns := l.namespace()
	if want := []string{"ConfigMap " + ns + "/a", "Secret " + ns + "/s"}; !slices.Equal(d.Changed, want) {
		l.Errorf("changed %q, want %q", d.Changed, want)
	}
	if len(d.Created) != 3 || len(d.Kept) != 1 || !strings.Contains(d.Kept[0], "kubectl-edit") || len(d.Failed) != 1 || !strings.Contains(d.Failed[0], "99999") {
		l.Errorf("created %q, kept %q, failed %q", d.Created, d.Kept, d.Failed)
	}
	good := l.manifest("web", configMap("a", "one")+configMap("same", "1")+configMap("old", "1")+secret("oldpassword", "samepassword"))
	if same := testcluster.Must(l.site.Diff(l.ctx, []*Manifest{good}))(l.T)[0]; same.Any() || same.Diff != "" {
		l.Errorf("the same version: %+v", same)
	}
	// A value of a Secret that others have changed is not shown either.
	keys := l.manifest("keys", "{apiVersion: v1, kind: Secret, metadata: {name: keys}, data: {key: b2xkcGFzc3dvcmQ=}}")
	l.apply(keys)
	testcluster.Must(l.client.API.CoreV1().Secrets(ns).Patch(l.ctx, "keys", types.MergePatchType, []byte(`{"data":{"key":"ZWRpdGVk"}}`), metav1.PatchOptions{FieldManager: "kubectl-edit"}))(l.T)
	d = testcluster.Must(l.site.Diff(l.ctx, []*Manifest{keys}))(l.T)[0]
	if text := strings.Join(d.Kept, "\n"); !strings.Contains(text, ".data.key was changed by \"kubectl-edit\"") || strings.Contains(text, "b2xkcGFzc3dvcmQ") || strings.Contains(text, "ZWRpdGVk") {
		l.Errorf("kept: %q", d.Kept)
	}
}

func testUndo(l *life) {
	value := func(want string) {
		l.Helper()
		if is := l.live()["a"]; is != want {
			l.Fatalf("a is %q, want %q", is, want)
		}
	}
	first := l.manifest("web", configMap("a", "1")+configMap("old", "1"))
	second := l.manifest("web", configMap("a", "2")+configMap("new", "1"))
	if err := l.tryUndo(l.ctx, l.site); fault.ExitCode(err) != fault.Usage {
		l.Errorf("without a history: %v", err)
	}
	l.apply(first)
	l.prune(nil, second)
	l.wantLive("second", "a", "new")
	must(l.T, l.tryUndo(l.ctx, l.site))
	l.wantLive("undone", "a", "old")
	value("1")
	must(l.T, l.tryUndo(l.ctx, l.site))
	l.wantLive("an undo of an undo", "a", "new")
	value("2")
	if e := l.entry("web"); e.Undoes != "" || len(e.Undone) > 0 || len(e.Former) > 0 || e.Revision != 4 {
		l.Errorf("%+v", e)
	}
	must(l.T, l.tryUndo(l.ctx, l.site, "web@1"))
	value("1")
	for name, want := range map[string]string{"nobody": `no manifest "nobody"`, "web@9": "no version", "web@x": "no version", "web@1": "is the present one"} {
		if err := l.tryUndo(l.ctx, l.site, name); fault.ExitCode(err) != fault.Usage || !strings.Contains(err.Error(), want) || fault.Hint(err) == "" {
			l.Errorf("%s: %v (%s)", name, err, fault.Hint(err))
		}
	}

	// A version that did not run is not brought back while one is known that did.
	_, _, err := l.site.ApplyRecorded(l.ctx, []*Manifest{l.manifest("web", configMap("a", "bad"))}, l.now.Add(time.Minute))
	must(l.T, err)
	_, _, err = l.site.ApplyRecorded(l.ctx, []*Manifest{l.manifest("web", configMap("a", "worse"))}, l.now.Add(2*time.Minute))
	must(l.T, err)
	must(l.T, l.tryUndo(l.ctx, l.site))
	value("1")

	// Two manifests of one file are undone together, and a new one is removed. What an earlier apply changed stays.
	l.now = l.now.Add(time.Hour)
	l.apply(l.manifest("db", configMap("db", "1")))
	l.apply(l.manifest("web", configMap("a", "3")), l.manifest("extra", configMap("extra", "1")))
	must(l.T, l.tryUndo(l.ctx, l.site))
	value("1")
	if live := l.live(); live["db"] != "1" || live["extra"] != "" {
		l.Errorf("live: %v", live)
	}
	if e := l.entry("extra"); e.SHA256 != "" {
		l.Errorf("a manifest that was undone is in the inventory: %+v", e)
	}
	if list := testcluster.Must(l.site.History(l.ctx, "extra"))(l.T); len(list) > 0 {
		l.Errorf("it is in the history: %+v", list)
	}
}

func testHistory(l *life) {
	// More than one Secret can have: random text is not compressible.
	var large strings.Builder
	source := uint64(1)
	for range 150000 {
		source = source*6364136223846793005 + 1442695040888963407
		fmt.Fprintf(&large, "# %016x\n", source)
	}
	big := l.manifest("web", configMap("a", "1")+"---\n"+large.String())
	l.apply(big)
	list := testcluster.Must(l.site.History(l.ctx, "web"))(l.T)
	if len(list) != 1 || list[0].Parts < 2 || !list[0].Complete || !list[0].Current || !list[0].New || list[0].File != "more" {
		l.Fatalf("%+v", list[0])
	}
	if m := testcluster.Must(l.site.manifestOf(l.ctx, list[0]))(l.T); string(m.data) != string(big.data) {
		l.Error("another manifest came back")
	}
	for i := range versionsKept + 3 { // none of which runs
		_, _, err := l.site.ApplyRecorded(l.ctx, []*Manifest{l.manifest("web", configMap("a", fmt.Sprint("v", i)))}, l.now.Add(time.Duration(i)*time.Minute))
		must(l.T, err)
	}
	list = testcluster.Must(l.site.History(l.ctx, ""))(l.T)
	if len(list) != versionsKept+1 || list[0].Number != 1 || list[1].Number == 2 {
		l.Errorf("%d versions, the first is %+v", len(list), list[0])
	}
	// A damaged version changes nothing.
	secrets := l.client.API.CoreV1().Secrets("kube-system")
	part := testcluster.Must(secrets.Get(l.ctx, secretName("web", 1, 1), metav1.GetOptions{}))(l.T)
	must(l.T, secrets.Delete(l.ctx, part.Name, metav1.DeleteOptions{}))
	if err := l.tryUndo(l.ctx, l.site, "web@1"); err == nil || !strings.Contains(err.Error(), "is damaged") {
		l.Errorf("without a part: %v", err)
	}
	part.ResourceVersion, part.UID = "", ""
	part.Data[contentKey][10] ^= 1
	testcluster.Must(secrets.Create(l.ctx, part, metav1.CreateOptions{}))(l.T)
	before := l.entry("web")
	if err := l.tryUndo(l.ctx, l.site, "web@1"); err == nil || !strings.Contains(err.Error(), "is damaged") {
		l.Errorf("with another byte: %v", err)
	}
	if after := l.entry("web"); after.Revision != before.Revision {
		l.Errorf("%+v", after)
	}
	// The history that an older Airlift did not keep begins with the next apply, which changes nothing.
	l.clear()
	m := l.manifest("old", configMap("old", "1"))
	must(l.T, l.site.record(l.ctx, "old", Entry{SHA256: m.SHA256, Namespace: m.Namespace, Bundle: m.Bundle, Applied: "2026-01-01T00:00:00Z", Objects: []string{"ConfigMap " + l.namespace() + "/old"}}))
	l.apply(m)
	if e := l.entry("old"); e.Revision != 1 || e.Run != "" {
		l.Errorf("%+v", e)
	}
	if err := l.tryUndo(l.ctx, l.site, "old"); fault.ExitCode(err) != fault.Usage || !strings.Contains(err.Error(), "before the present one is kept") {
		l.Errorf("an undo of what an older Airlift applied: %v", err)
	}
}

// A deadly client ends after a number of writes, as a process that is killed.
func (l *life) deadly(writes int64) (site *Applier, ctx context.Context, killed func() bool) {
	l.Helper()
	config := testcluster.Must(clientcmd.BuildConfigFromFlags("", l.p.Super))(l.T)
	ctx, cancel := context.WithCancel(l.ctx)
	l.Cleanup(cancel)
	var n atomic.Int64
	config.Wrap(func(rt http.RoundTripper) http.RoundTripper {
		return roundTrip(func(r *http.Request) (*http.Response, error) {
			if r.Method != http.MethodGet && n.Add(1) > writes {
				cancel()
				return nil, context.Canceled
			}
			return rt.RoundTrip(r)
		})
	})
	config.QPS = -1
	client := &cluster.Client{API: testcluster.Must(kubernetes.NewForConfig(config))(l.T), Dynamic: testcluster.Must(dynamic.NewForConfig(config))(l.T)}
	return New(client, 20*time.Second, nil), ctx, func() bool { return n.Load() > writes }
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// testKilled kills each command after each of its writes, and runs it again.
func testKilled(l *life) {
	first := func() []*Manifest {
		return []*Manifest{l.manifest("web", configMap("a", "1")+configMap("old", "1")), l.manifest("db", configMap("db", "1"))}
	}
	second := func() []*Manifest {
		return []*Manifest{l.manifest("web", configMap("a", "2")+configMap("new", "1")), l.manifest("db", configMap("db", "2")), l.manifest("extra", configMap("extra", "1"))}
	}
	for name, c := range map[string]struct {
		run  func(ctx context.Context, site *Applier) error
		want map[string]string
	}{
		"apply and prune": {func(ctx context.Context, site *Applier) error {
			_, err := l.tryPrune(ctx, site, nil, second()...)
			return err
		}, map[string]string{"a": "2", "new": "1", "db": "2", "extra": "1"}},
		"undo": {func(ctx context.Context, site *Applier) error { return l.tryUndo(ctx, site) }, map[string]string{"a": "1", "old": "1", "db": "1"}},
		"remove": {func(ctx context.Context, site *Applier) error {
			_, err := l.tryRemove(ctx, site, nil, "web")
			return err
		}, map[string]string{"db": "2", "extra": "1"}},
	} {
		for writes := int64(0); ; writes++ {
			l.clear()
			_ = l.client.API.CoreV1().ConfigMaps(l.namespace()).DeleteCollection(l.ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
			l.apply(first()...)
			if name != "apply and prune" {
				l.prune(nil, second()...)
			}
			site, ctx, killed := l.deadly(writes)
			err := c.run(ctx, site)
			if killed() && err == nil {
				l.Fatalf("%s: it was killed after %d writes, and did not fail", name, writes)
			}
			if killed() {
				err = c.run(l.ctx, l.site)
				if name == "remove" && err != nil && strings.Contains(err.Error(), "there is no manifest") {
					err = nil // it was killed after the last write
				}
			}
			must(l.T, err)
			if live := l.live(); !maps.Equal(live, c.want) {
				l.Fatalf("%s, killed after %d writes: %v, want %v", name, writes, live, c.want)
			}
			for manifest, e := range testcluster.Must(ReadInventory(l.ctx, l.client.API))(l.T) {
				if len(e.Former)+len(e.Undone)+len(e.Pending) > 0 || e.Undoes != "" || e.Removing || e.Applied == "" {
					l.Fatalf("%s, killed after %d writes: %s: %+v", name, writes, manifest, e)
				}
			}
			if !killed() {
				l.Logf("%s: %d writes", name, writes)
				break
			}
		}
	}
}

// controller ends the Jobs of the test's namespace: those with a name that has "bad" fail. It returns the names in the order in which they
// ended.
func (l *life) controller() func() []string {
	ctx, cancel := context.WithCancel(l.ctx)
	done := make(chan struct{})
	var ended []string
	jobs := l.client.API.BatchV1().Jobs(l.namespace())
	go func() {
		defer close(done)
		seen := map[types.UID]bool{}
		for ctx.Err() == nil {
			list, err := jobs.List(ctx, metav1.ListOptions{})
			if err != nil {
				continue
			}
			for _, j := range list.Items {
				if seen[j.UID] || j.DeletionTimestamp != nil || len(j.Status.Conditions) > 0 {
					continue
				}
				now := time.Now().UTC().Format(time.RFC3339)
				status := map[string]any{"startTime": now, "completionTime": now, "succeeded": 1, "uncountedTerminatedPods": map[string]any{}, "conditions": []map[string]string{
					{"type": "SuccessCriteriaMet", "status": "True"}, {"type": "Complete", "status": "True", "lastTransitionTime": now}}}
				if strings.Contains(j.Name, "bad") {
					status = map[string]any{"startTime": now, "failed": 1, "uncountedTerminatedPods": map[string]any{}, "conditions": []map[string]string{
						{"type": "FailureTarget", "status": "True", "reason": "BackoffLimitExceeded"}, {"type": "Failed", "status": "True", "lastTransitionTime": now, "reason": "BackoffLimitExceeded", "message": "it has reached the limit"}}}
				}
				patch, _ := json.Marshal(map[string]any{"status": status})
				if _, err := jobs.Patch(ctx, j.Name, types.MergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
					if ctx.Err() == nil {
						l.Errorf("ending Job %s: %v", j.Name, err)
					}
					continue
				}
				seen[j.UID], ended = true, append(ended, j.Name)
			}
			time.Sleep(50 * time.Millisecond)
		}
	}()
	return func() []string {
		cancel()
		<-done
		return ended
	}
}

func job(name, event, more string) string {
	return fmt.Sprintf("---\n{apiVersion: batch/v1, kind: Job, metadata: {name: %s, annotations: {helm.sh/hook: %q%s}}, spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: x}]}}}}\n", name, event, more)
}

func testHooks(l *life) {
	chart := func(value string) *Manifest {
		return l.chart("app", configMap("a", value)+
			job("second", "pre-install,pre-upgrade", `, helm.sh/hook-weight: "5"`)+job("first", "pre-install", `, helm.sh/hook-weight: "-5", helm.sh/hook-delete-policy: hook-succeeded`)+
			job("last", "post-install,post-upgrade", "")+job("undone", "post-rollback", "")+job("bye", "pre-delete", "")+job("gone", "post-delete", "")+job("tested", "test", "")+
			"---\n{apiVersion: v1, kind: ServiceAccount, metadata: {name: runner, annotations: {helm.sh/hook: \"pre-install,pre-upgrade\"}}}\n")
	}
	ran := func(what string, do func(), want ...string) {
		l.Helper()
		end := l.controller()
		do()
		if got := end(); !slices.Equal(got, want) {
			l.Errorf("%s: %q ran, want %q", what, got, want)
		}
	}
	ran("an installation", func() { l.apply(chart("1")) }, "first", "second", "last")
	jobs := l.client.API.BatchV1().Jobs(l.namespace())
	testcluster.Eventually(l.T, func() bool { _, err := jobs.Get(l.ctx, "first", metav1.GetOptions{}); return apierrors.IsNotFound(err) })
	e := l.entry("app")
	if len(e.Objects) != 1 || len(e.Hooks) != 7 || len(e.Pending) > 0 || len(e.Former) > 0 {
		l.Errorf("%+v", e)
	}
	ran("the same version", func() { l.apply(chart("1")) })
	ran("an upgrade", func() { l.apply(chart("2")) }, "second", "last")
	ran("an undo", func() { must(l.T, l.tryUndo(l.ctx, l.site)) }, "undone")
	l.wantLive("undone", "a")
	ran("a removal", func() { testcluster.Must(l.tryRemove(l.ctx, l.site, nil, "app"))(l.T) }, "bye", "gone")
	l.wantLive("removed")
	if list := testcluster.Must(jobs.List(l.ctx, metav1.ListOptions{}))(l.T); len(list.Items) > 0 {
		l.Errorf("the removal left %d Jobs", len(list.Items))
	}
	if _, err := l.client.API.CoreV1().ServiceAccounts(l.namespace()).Get(l.ctx, "runner", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		l.Errorf("the removal left a ServiceAccount: %v", err)
	}
	// In a manifest that is no chart, these are objects.
	plain := l.manifest("plain", configMap("a", "1")+job("first", "pre-install", ""))
	if plain.Objects() != 2 || len(plain.hooks) > 0 {
		l.Errorf("a plain manifest: %+v", plain)
	}
}

func testFailedHooks(l *life) {
	chart := func(name, value string) *Manifest {
		return l.chart("app", configMap("a", value)+job(name, "pre-install", "")+job("last", "post-install,post-upgrade", ""))
	}
	end := l.controller()
	err := l.tryApply(l.ctx, l.site, chart("bad", "1"))
	for _, want := range []string{`pre-install hook Job bad of manifest "app"`, "BackoffLimitExceeded"} {
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(fault.Hint(err), "kubectl logs job/bad -n "+l.namespace()) {
			l.Errorf("%v (%s), want %q", err, fault.Hint(err), want)
		}
	}
	l.wantLive("a hook before the objects failed")
	// The same command runs it again. Another version is still an installation.
	if err := l.tryApply(l.ctx, l.site, chart("bad", "1")); err == nil {
		l.Error("a hook that failed before did not fail again")
	}
	l.apply(chart("good", "2"))
	if got, want := end(), []string{"bad", "bad", "good", "last"}; !slices.Equal(got, want) {
		l.Errorf("%q ran, want %q", got, want)
	}
	if e := l.entry("app"); len(e.Pending) > 0 || !slices.ContainsFunc(e.Former, func(name string) bool { return strings.HasSuffix(name, "/bad") }) {
		l.Errorf("%+v", e)
	}

	// Kubernetes removes a failed Job of this kind before anybody has seen it.
	short := strings.Replace(job("bad", "pre-upgrade", ""), "spec: {", "spec: {ttlSecondsAfterFinished: 0, ", 1)
	plain := l.manifest("plain", strings.Replace(strings.Replace(short, "name: bad", "name: bad-too", 1), "helm.sh/hook", "x", 1))
	end = l.controller()
	l.apply(plain)
	testcluster.Eventually(l.T, func() bool {
		j, err := l.client.API.BatchV1().Jobs(l.namespace()).Get(l.ctx, "bad-too", metav1.GetOptions{})
		return err == nil && len(j.Status.Conditions) > 0
	})
	time.Sleep(2 * time.Second) // for Kubernetes, which removes it
	if _, err := l.site.WaitForWorkloads(l.ctx, Workloads{Manifests: []*Manifest{plain}}); err == nil || !strings.Contains(err.Error(), "BackoffLimitExceeded") {
		l.Errorf("a failed Job that Kubernetes removes at once: %v", err)
	}
	if err := l.tryApply(l.ctx, l.site, l.chart("app", configMap("a", "3")+short)); err == nil || !strings.Contains(err.Error(), "BackoffLimitExceeded") {
		l.Errorf("a failed hook that Kubernetes removes at once: %v", err)
	}
	if got := end(); !slices.Equal(got, []string{"bad-too", "bad"}) {
		l.Errorf("%q ran", got)
	}

	// A run that was killed while a hook ran waits for it, and does not start it again.
	ctx, cancel := context.WithCancel(l.ctx)
	next := l.chart("app", configMap("a", "3")+job("slow", "pre-upgrade", ""))
	jobs := l.client.API.BatchV1().Jobs(l.namespace())
	failed := make(chan error, 1)
	go func() { failed <- l.tryApply(ctx, l.site, next) }()
	testcluster.Eventually(l.T, func() bool { _, err := jobs.Get(l.ctx, "slow", metav1.GetOptions{}); return err == nil })
	cancel()
	if err := <-failed; err == nil {
		l.Error("a run whose context ended did not fail")
	}
	slow := testcluster.Must(jobs.Get(l.ctx, "slow", metav1.GetOptions{}))(l.T)
	end = l.controller()
	l.apply(next)
	end()
	if after := testcluster.Must(jobs.Get(l.ctx, "slow", metav1.GetOptions{}))(l.T); after.UID != slow.UID {
		l.Error("the hook was started twice")
	}

	// A Job of others under the name of a hook is not deleted.
	theirs := testcluster.Must(jobs.Get(l.ctx, "slow", metav1.GetOptions{}))(l.T)
	theirs.ObjectMeta, theirs.Spec.Selector, theirs.Spec.Template.Labels = metav1.ObjectMeta{Name: "theirs"}, nil, nil
	testcluster.Must(jobs.Create(l.ctx, theirs, metav1.CreateOptions{FieldManager: "someone"}))(l.T)
	err = l.tryApply(l.ctx, l.site, l.chart("app", configMap("a", "4")+job("theirs", "pre-upgrade", "")))
	if err == nil || !strings.Contains(err.Error(), "Airlift did not apply it") || !strings.Contains(fault.Hint(err), "kubectl delete job/theirs") {
		l.Errorf("%v (%s)", err, fault.Hint(err))
	}
}

func testRemoval(l *life) {
	ns := l.namespace()
	const claim = "---\n{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: data}, spec: {accessModes: [ReadWriteOnce], storageClassName: none, resources: {requests: {storage: 1Gi}}}}\n"
	l.apply(l.manifest("web", configMap("a", "1")+claim), l.manifest("db", configMap("db", "1")+configMap("both", "1")))
	l.apply(l.manifest("more", configMap("both", "1")))
	left := testcluster.Must(l.tryRemove(l.ctx, l.site, nil, "web"))(l.T)
	if !slices.Equal(left, []string{"PersistentVolumeClaim " + ns + "/data"}) {
		l.Errorf("left: %q", left)
	}
	l.wantLive("web is removed", "both", "db")
	l.unprotect("data")
	if left := testcluster.Must(l.tryRemove(l.ctx, l.site, left, "web"))(l.T); len(left) > 0 {
		l.Errorf("left after it was named: %q", left)
	}
	testcluster.Must(l.tryRemove(l.ctx, l.site, nil, "db"))(l.T)
	l.wantLive("an object of two manifests stays", "both")
	if _, err := l.tryRemove(l.ctx, l.site, nil, "db"); fault.ExitCode(err) != fault.Usage || !strings.Contains(fault.Hint(err), `"more"`) {
		l.Errorf("a manifest that is gone: %v (%s)", err, fault.Hint(err))
	}
	if list := testcluster.Must(l.site.History(l.ctx, ""))(l.T); len(list) != 1 || list[0].Manifest != "more" {
		l.Errorf("history: %+v", list)
	}
	// It can be installed again.
	l.apply(l.manifest("web", configMap("a", "1")))
	if e := l.entry("web"); e.Revision != 1 || e.Removing {
		l.Errorf("%+v", e)
	}
	// The namespace that was created for it is removed by name, and only if nothing else is in it.
	testcluster.Must(l.tryRemove(l.ctx, l.site, nil, "more"))(l.T)
	e := l.entry("web")
	plan := testcluster.Must(l.site.PlanRemoval(l.ctx, []Wanted{l.site.Everything("web", e)}, nil))(l.T)
	if kept := plan.Kept(); len(kept) != 1 || kept[0].Object != "Namespace "+ns || !kept[0].named {
		l.Errorf("kept: %+v", kept)
	}
}

func testOrder(l *life) {
	text := "---\n{apiVersion: life.example.com/v1, kind: Orderthing, metadata: {name: one}}\n" +
		"---\n{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingWebhookConfiguration, metadata: {name: order-of-life}, webhooks: []}\n" +
		"---\n{apiVersion: apps/v1, kind: Deployment, metadata: {name: front}, spec: {replicas: 0, selector: {matchLabels: {app: front}}, template: {metadata: {labels: {app: front}}, spec: {containers: [{name: c, image: x}]}}}}\n" +
		configMap("second", "1") + configMap("first", "1") + crd("order")
	m := l.manifest("web", text)
	var kinds []string
	for _, o := range m.objects {
		kinds = append(kinds, o.GetKind()+" "+o.GetName())
	}
	want := []string{"CustomResourceDefinition orderthings.life.example.com", "ConfigMap second", "ConfigMap first", "Deployment front", "ValidatingWebhookConfiguration order-of-life", "Orderthing one"}
	if !slices.Equal(kinds, want) {
		l.Errorf("%q, want %q", kinds, want)
	}
	l.apply(m)
	if plan := names(l.prune(nil, l.manifest("web", crd("order"))).Removed()); len(plan) != 5 || !strings.HasPrefix(plan[0], "Orderthing") || !strings.HasPrefix(plan[1], "Validating") || !strings.HasPrefix(plan[2], "Deployment") {
		l.Errorf("removed in the order %q", plan)
	}
}

func testCustomState(l *life) {
	m := l.manifest("web", crd("state")+"---\n{apiVersion: life.example.com/v1, kind: Statething, metadata: {name: one}, spec: {a: 1}}\n")
	l.apply(m)
	o := m.objects[1]
	for name, c := range map[string]struct {
		status        map[string]any
		ready, failed bool
	}{
		"no conditions": {map[string]any{"observedGeneration": nil, "conditions": nil}, true, false},
		"not seen":      {map[string]any{"observedGeneration": 0}, false, false},
		"ready":         {map[string]any{"observedGeneration": 9, "conditions": []any{map[string]any{"type": "Ready", "status": "True"}}}, true, false},
		"not ready":     {map[string]any{"observedGeneration": 9, "conditions": []any{map[string]any{"type": "Ready", "status": "False", "message": "no volume"}}}, false, false},
		"not available": {map[string]any{"observedGeneration": 9, "conditions": []any{map[string]any{"type": "Available", "status": "Unknown"}}}, false, false},
		"stalled":       {map[string]any{"observedGeneration": 9, "conditions": []any{map[string]any{"type": "Stalled", "status": "True"}}}, false, true},
	} {
		setStatus(l.T, l.site, o, l.namespace(), c.status)
		r := testcluster.Must(l.site.ready(l.ctx, o, l.namespace(), nil))(l.T)
		if r.Ready != c.ready || r.Failed != c.failed || !r.Ready && r.Why == "" {
			l.Errorf("%s: %+v", name, r)
		}
	}
	claim := func(class, mode string) *Manifest {
		return l.manifest("claims", "---\n{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: "+class+"}, provisioner: example.com/life, volumeBindingMode: "+mode+"}\n"+
			"---\n{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: "+class+"}, spec: {accessModes: [ReadWriteOnce], storageClassName: "+class+", resources: {requests: {storage: 1Gi}}}}\n")
	}
	for class, mode := range map[string]string{"life-now": "Immediate", "life-later": "WaitForFirstConsumer"} {
		m := claim(class, mode)
		l.apply(m)
		if r := testcluster.Must(l.site.ready(l.ctx, m.objects[1], l.namespace(), nil))(l.T); r.Ready != (mode != "Immediate") {
			l.Errorf("a claim with %s: %+v", mode, r)
		}
	}
}

// testSequences runs random commands, and compares the cluster with a model after each.
func testSequences(l *life) {
	maps2 := l.client.API.CoreV1().ConfigMaps(l.namespace())
	l.apply(l.manifest("first", configMap("x", "1")))                          // creates the namespace
	if checks := flag.Lookup("rapid.checks").Value; checks.String() == "100" { // nobody asked for more, and each has hundreds of requests
		must(l.T, checks.Set("15"))
		l.Cleanup(func() { _ = checks.Set("100") })
	}
	rapid.Check(l.T, func(t *rapid.T) {
		l.clear()
		must(l.T, maps2.DeleteCollection(l.ctx, metav1.DeleteOptions{}, metav1.ListOptions{FieldSelector: "metadata.name!=kube-root-ca.crt"}))
		type version struct {
			objects map[string]string
			number  int
		}
		type app struct {
			present  version
			versions []version
			former   map[string]bool
		}
		apps, live, shared := map[string]*app{}, map[string]string{}, map[string]bool{}
		keys := []string{"a", "b", "c", "d", "e"}
		text := func(objects map[string]string) (text string) {
			for _, name := range keys {
				if value, ok := objects[name]; ok {
					text += configMap(name, value)
				}
			}
			return text + "# end\n"
		}
		claimed := func(name, except string) bool {
			for other, a := range apps {
				if _, has := a.present.objects[name]; has && other != except {
					return true
				}
			}
			return false
		}
		install := func(name string, objects map[string]string) {
			a := apps[name]
			if a == nil {
				a = &app{former: map[string]bool{}}
				apps[name] = a
			}
			if len(a.versions) == 0 || !maps.Equal(a.present.objects, objects) {
				for o := range a.present.objects {
					a.former[o] = true
				}
				n := 1
				if k := len(a.versions); k > 0 {
					n = a.versions[k-1].number + 1
				}
				a.present = version{objects, n}
				a.versions = append(a.versions, a.present)
			}
			for o, value := range objects {
				delete(a.former, o)
				live[o] = value
			}
		}
		sweep := func(name string, list map[string]bool) { // removes former objects
			a := apps[name]
			for o := range list {
				if _, has := a.present.objects[o]; has {
					continue
				}
				if !claimed(o, name) && !shared[o] {
					delete(live, o)
				}
				for _, other := range apps {
					delete(other.former, o)
				}
			}
		}
		for range rapid.IntRange(3, 8).Draw(t, "steps") {
			name := rapid.SampledFrom([]string{"web", "db"}).Draw(t, "manifest")
			a := apps[name]
			switch what := rapid.SampledFrom([]string{"apply", "apply", "prune", "prune", "undo", "undo", "remove", "others", "share"}).Draw(t, "command"); what {
			case "apply", "prune":
				objects := map[string]string{}
				for _, o := range rapid.SliceOfNDistinct(rapid.SampledFrom(keys), 1, 3, rapid.ID).Draw(t, "objects") {
					objects[o] = rapid.SampledFrom([]string{"1", "2"}).Draw(t, "value")
				}
				m := l.manifest(name, text(objects))
				l.site.Force = true // two manifests may have the same object with other values
				if install(name, objects); what == "apply" {
					l.apply(m)
					break
				}
				l.prune(nil, m)
				sweep(name, maps.Clone(apps[name].former))
			case "undo":
				if a == nil {
					continue
				}
				var to *version
				for i := range a.versions {
					if v := &a.versions[i]; v.number < a.present.number && !maps.Equal(v.objects, a.present.objects) {
						to = v
					}
				}
				err := l.tryUndo(l.ctx, l.site, name)
				switch {
				case to == nil && a.present.number == 1: // the manifest is removed
					must(l.T, err)
					list := maps.Clone(a.former)
					for o := range a.present.objects {
						list[o] = true
					}
					a.present = version{}
					sweep(name, list)
					delete(apps, name)
				case to == nil:
					t.Fatalf("the model has no version before: %+v", a)
				default:
					must(l.T, err)
					undone := map[string]bool{}
					for o := range a.present.objects {
						undone[o] = true
					}
					install(name, to.objects)
					sweep(name, undone)
				}
			case "remove":
				if a == nil {
					continue
				}
				testcluster.Must(l.tryRemove(l.ctx, l.site, nil, name))(l.T)
				list := maps.Clone(a.former)
				for o := range a.present.objects {
					list[o] = true
				}
				a.present = version{}
				sweep(name, list)
				delete(apps, name)
			case "others": // create an object of their own
				o := "theirs-" + rapid.SampledFrom(keys).Draw(t, "object")
				l.as("someone", o, "{apiVersion: v1, kind: ConfigMap, metadata: {name: "+o+"}, data: {value: x}}")
				live[o] = "x"
			case "share": // also apply one of the objects
				o := rapid.SampledFrom(keys).Draw(t, "object")
				if _, is := live[o]; !is {
					continue
				}
				l.as("someone", o, "{apiVersion: v1, kind: ConfigMap, metadata: {name: "+o+"}, data: {theirs: x}}")
				shared[o] = true
			}
			for o := range shared {
				if _, is := live[o]; !is {
					delete(shared, o)
				}
			}
			if is := l.live(); !maps.Equal(is, live) {
				t.Fatalf("the cluster has %v, the model %v; inventory %+v", is, live, testcluster.Must(ReadInventory(l.ctx, l.client.API))(l.T))
			}
		}
	})
}
