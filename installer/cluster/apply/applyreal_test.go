package apply

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"airlift/scripts/fixtures/testcluster/testclient"

	"airlift/installer/cluster"
	"airlift/scripts/fixtures/testcluster"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"airlift/internal/fault"
)

func parsed(t *testing.T, name, namespace, text string) *Manifest {
	t.Helper()
	return testcluster.Must(Parse(Manifest{Name: name, Namespace: namespace, SHA256: digestText(text)}, []byte(text)))(t)
}

// applyOne applies one manifest, and recordOne also records it.
func applyOne(ctx context.Context, s *Applier, m *Manifest) (Applied, error) {
	applied, err := s.Apply(ctx, []*Manifest{m})
	return applied[0], err
}

func recordOne(ctx context.Context, s *Applier, m *Manifest, bundle string, now time.Time) (Applied, Entry, error) {
	m.Bundle = bundle
	applied, entries, err := s.ApplyRecorded(ctx, []*Manifest{m}, now)
	if err != nil {
		return Applied{}, Entry{}, err
	}
	return applied[0], entries[0], nil
}

func digestText(text string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(text))) }

// versions returns the resourceVersions of a manifest's objects: a server-side apply without
// an effect does not change them.
func versions(t *testing.T, s *Applier, m *Manifest) (list []string) {
	t.Helper()
	for _, o := range m.objects {
		resource, _, err := s.resource(o, m.Namespace)
		if err != nil {
			t.Fatal(err)
		}
		have := testcluster.Must(resource.Get(testcluster.Within(t), o.GetName(), metav1.GetOptions{}))(t)
		list = append(list, cluster.Describe(have)+" "+have.GetResourceVersion())
	}
	return list
}

const webManifest = `
# The custom resource precedes its definition, and everything its namespace.
apiVersion: example.com/v1
kind: Widget
metadata: {name: w1}
spec: {size: 3}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: front, labels: {app: front}}
spec:
  replicas: 2
  selector: {matchLabels: {app: front}}
  template:
    metadata: {labels: {app: front}}
    spec:
      containers:
      - {name: web, image: "registry.example.com/web:v1", ports: [{containerPort: 80}], env: [{name: MODE, value: plain}]}
---

---
apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: ConfigMap
  metadata: {name: web-config, namespace: kube-public, creationTimestamp: null}
  data: {a: "1", b: "2"}
- apiVersion: rbac.authorization.k8s.io/v1
  kind: ClusterRole
  metadata: {name: web-reader, namespace: ignored}
  rules: [{apiGroups: [""], resources: [pods], verbs: [get]}]
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {kind: Widget, plural: widgets, singular: widget, listKind: WidgetList}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {size: {type: integer}}}}}}
`

func TestRealManifestIsAppliedOnce(t *testing.T) {
	p := testcluster.Start(t)
	ctx, client := testcluster.Within(t), testclient.Super(t, p)
	site := New(client, 20*time.Second, nil)
	m := parsed(t, "web", "web", webManifest)
	applied, entry, err := recordOne(ctx, site, m, "bundle1", time.Unix(0, 0))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"CustomResourceDefinition.apiextensions.k8s.io widgets.example.com", "ConfigMap kube-public/web-config",
		"ClusterRole.rbac.authorization.k8s.io web-reader", "Deployment.apps web/front", "Widget.example.com web/w1",
	}
	if !slices.Equal(applied.Objects, want) {
		t.Errorf("objects %q, want %q", applied.Objects, want)
	}
	if changed := append([]string{"Namespace web"}, want...); !slices.Equal(applied.Changed, changed) {
		t.Errorf("changed %q, want %q", applied.Changed, changed)
	}
	if entry.Applied != "1970-01-01T00:00:00Z" || entry.Bundle != "bundle1" || !slices.Equal(entry.Objects, want) || entry.Former != nil {
		t.Errorf("inventory: %+v", entry)
	}
	before := versions(t, site, m)
	again, same, err := recordOne(ctx, New(client, 20*time.Second, nil), m, "bundle2", time.Unix(1e9, 0))
	if err != nil || len(again.Changed) > 0 || len(again.Kept) > 0 {
		t.Errorf("second run: %+v, %v", again, err)
	}
	if after := versions(t, site, m); !slices.Equal(before, after) {
		t.Errorf("the second run wrote: before %q, after %q", before, after)
	}
	if same.Applied != entry.Applied || same.Bundle != "bundle1" {
		t.Errorf("the second run changed the inventory: %+v", same)
	}
	stored := testcluster.Must(ReadInventory(ctx, client.API))(t)["web"]
	if stored.Applied != entry.Applied || !slices.Equal(stored.Objects, want) {
		t.Errorf("stored: %+v", stored)
	}

	// The next version of the manifest changes one object and has one less.
	next := strings.Replace(webManifest, `data: {a: "1", b: "2"}`, `data: {a: "3"}`, 1)
	next = next[strings.Index(next, "---"):] // without the Widget
	changed, entry, err := recordOne(ctx, site, parsed(t, "web", "web", next), "bundle2", time.Unix(1e9, 0))
	if err != nil || !slices.Equal(changed.Changed, []string{"ConfigMap kube-public/web-config"}) {
		t.Errorf("next version: %+v, %v", changed, err)
	}
	if !slices.Equal(entry.Former, []string{"Widget.example.com web/w1"}) || entry.Bundle != "bundle2" {
		t.Errorf("inventory of the next version: %+v", entry)
	}
	data := testcluster.Must(client.API.CoreV1().ConfigMaps("kube-public").Get(ctx, "web-config", metav1.GetOptions{}))(t).Data
	if len(data) != 1 || data["a"] != "3" {
		t.Errorf("data = %v: a key that the manifest no longer has stays", data)
	}
}

func TestRealChangesOfOthersAreKept(t *testing.T) {
	p := testcluster.Start(t)
	ctx, client := testcluster.Within(t), testclient.Super(t, p)
	site := New(client, 20*time.Second, nil)
	const text = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: scaled, annotations: {example.com/owner: site}}
spec:
  replicas: 2
  selector: {matchLabels: {app: scaled}}
  template:
    metadata: {labels: {app: scaled}}
    spec:
      containers:
      - {name: first, image: "registry.example.com/first:v1"}
      - {name: web, image: "registry.example.com/web:v1", ports: [{containerPort: 80, name: http}], env: [{name: MODE, value: plain}]}
`
	m := parsed(t, "scaled", "default", text)
	testcluster.Must(applyOne(ctx, site, m))(t)

	deployments := client.API.AppsV1().Deployments("default")
	scale := testcluster.Must(deployments.GetScale(ctx, "scaled", metav1.GetOptions{}))(t)
	scale.Spec.Replicas = 5
	testcluster.Must(deployments.UpdateScale(ctx, "scaled", scale, metav1.UpdateOptions{FieldManager: "kubectl"}))(t)
	edit := []byte(`{"metadata":{"annotations":{"example.com/owner":"admin"}},"spec":{"template":{"spec":{"containers":[{"name":"web","image":"registry.example.com/web:hotfix"}]}}}}`)
	testcluster.Must(deployments.Patch(ctx, "scaled", types.StrategicMergePatchType, edit, metav1.PatchOptions{FieldManager: "kubectl-edit"}))(t)

	check := func(what string, replicas int32, image, owner string) *appsv1.Deployment {
		t.Helper()
		d := testcluster.Must(deployments.Get(ctx, "scaled", metav1.GetOptions{}))(t)
		if *d.Spec.Replicas != replicas || d.Spec.Template.Spec.Containers[1].Image != image || d.Annotations["example.com/owner"] != owner {
			t.Errorf("%s: %d replicas, image %s, owner %s", what, *d.Spec.Replicas, d.Spec.Template.Spec.Containers[1].Image, d.Annotations["example.com/owner"])
		}
		return d
	}
	const hotfix = "registry.example.com/web:hotfix"
	for i := range 2 {
		before := versions(t, site, m)
		applied := testcluster.Must(applyOne(ctx, site, m))(t)
		want := []string{
			`Deployment.apps default/scaled: .metadata.annotations.example.com/owner was changed by "kubectl-edit" and is kept: it is admin, and site in the manifest`,
			`Deployment.apps default/scaled: .spec.replicas was changed by "kubectl" and is kept: it is 5, and 2 in the manifest`,
			`Deployment.apps default/scaled: .spec.template.spec.containers[name="web"].image was changed by "kubectl-edit" and is kept: it is registry.example.com/web:hotfix, and registry.example.com/web:v1 in the manifest`,
		}
		if !slices.Equal(applied.Kept, want) || len(applied.Changed) > 0 {
			t.Errorf("kept %q, want %q; changed %q", applied.Kept, want, applied.Changed)
		}
		// The first time, Airlift gives up the fields in managedFields.
		if after := versions(t, site, m); i > 0 && !slices.Equal(before, after) {
			t.Errorf("it was written: %q, %q", before, after)
		}
		check("kept", 5, hotfix, "admin")
	}

	// A field that nobody else changed follows the manifest.
	next := parsed(t, "scaled", "default", strings.ReplaceAll(strings.ReplaceAll(text, "value: plain", "value: fast"), "first:v1", "first:v2"))
	applied := testcluster.Must(applyOne(ctx, site, next))(t)
	d := check("next version", 5, hotfix, "admin")
	if len(applied.Changed) != 1 || len(applied.Kept) != 3 || d.Spec.Template.Spec.Containers[1].Env[0].Value != "fast" || d.Spec.Template.Spec.Containers[0].Image != "registry.example.com/first:v2" {
		t.Errorf("next version: %+v, %+v", applied, d.Spec.Template.Spec.Containers)
	}

	site.Force = true
	applied = testcluster.Must(applyOne(ctx, site, next))(t)
	if len(applied.Changed) != 1 || len(applied.Kept) > 0 {
		t.Errorf("forced: %+v", applied)
	}
	check("forced", 2, "registry.example.com/web:v1", "site")
}

func TestRealKindsAppearLater(t *testing.T) {
	p := testcluster.Start(t)
	ctx, client := testcluster.Within(t), testclient.Super(t, p)
	crds := client.Dynamic.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	crd := strings.ReplaceAll(webManifest[strings.Index(webManifest, "apiVersion: apiextensions"):], "widget", "gadget")
	crd = strings.ReplaceAll(strings.ReplaceAll(crd, "Widget", "Gadget"), "Namespaced", "Cluster")
	var states []string
	site := New(client, 20*time.Second, func(state string) { states = append(states, state) })
	time.AfterFunc(time.Second, func() { // as an operator does
		crds.Create(ctx, parsed(t, "x", "", crd).objects[0], metav1.CreateOptions{})
	})
	m := parsed(t, "gadgets", "", "{apiVersion: example.com/v1, kind: Gadget, metadata: {name: g1}, spec: {size: 1}}")
	applied, err := applyOne(ctx, site, m)
	if err != nil || !slices.Equal(applied.Changed, []string{"Gadget.example.com g1"}) {
		t.Errorf("%+v, %v", applied, err)
	}
	if len(states) == 0 || !strings.Contains(states[0], `no matches for kind "Gadget"`) {
		t.Errorf("states: %q", states)
	}

	never := parsed(t, "never", "", "{apiVersion: never.example.com/v1, kind: Never, metadata: {name: n1}}")
	err = testcluster.LastSeen(func(timeout time.Duration) error {
		_, err := applyOne(ctx, New(client, timeout, nil), never)
		return err
	})
	for _, want := range []string{`manifest "never"`, "Never n1", "gave up after", "no matches for kind"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("a kind that never appears: %v, does not contain %q", err, want)
		}
	}
}

func TestRealWebhookThatComesLater(t *testing.T) {
	p := testcluster.Start(t)
	ctx, client := testcluster.Within(t), testclient.Super(t, p)
	site := New(client, 20*time.Second, nil)
	nobody := net.JoinHostPort("127.0.0.1", "1")
	testcluster.Must(applyOne(ctx, site, parsed(t, "hook", "", `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: later}
webhooks:
- name: later.example.com
  clientConfig: {url: "https://`+nobody+`/"}
  admissionReviewVersions: [v1]
  sideEffects: None
  failurePolicy: Fail
  rules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [limitranges]}]
`)))(t)
	hooks := client.API.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	t.Cleanup(func() { _ = hooks.Delete(context.Background(), "later", metav1.DeleteOptions{}) })
	m := parsed(t, "limits", "limits", "{apiVersion: v1, kind: LimitRange, metadata: {name: l}, spec: {limits: [{type: Pod, max: {cpu: 1}}]}}")
	var states []string
	site.Report = func(state string) { states = append(states, state) }
	time.AfterFunc(time.Second, func() { _ = hooks.Delete(ctx, "later", metav1.DeleteOptions{}) })
	applied, err := applyOne(ctx, site, m)
	if err != nil || len(applied.Changed) != 2 {
		t.Errorf("%+v, %v", applied, err)
	}
	if len(states) == 0 || !strings.Contains(states[0], "later.example.com") {
		t.Errorf("states: %q", states)
	}
}

func TestRealMistakesAreReportedAtOnce(t *testing.T) {
	p := testcluster.Start(t)
	ctx := testcluster.Within(t)
	for text, wants := range map[string][]string{
		"{apiVersion: apps/v1, kind: Deploymnt, metadata: {name: a}}":                              {"Deploymnt a", `manifest "bad"`, "no matches for kind"},
		"{apiVersion: v1, kind: Service, metadata: {name: a}, spec: {ports: [{port: 99999}]}}":     {"Service a", "99999", "Invalid value"},
		"{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: nowhere}, data: {a: 1}}": {"ConfigMap nowhere/a"},
	} {
		var states []string // a state is reported before it is tried again
		_, err := New(testclient.Super(t, p), 2*time.Second, func(state string) { states = append(states, state) }).Apply(ctx, []*Manifest{parsed(t, "bad", "", text)})
		for _, want := range wants {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, does not contain %q", text, err, want)
			}
		}
		if !strings.Contains(text, "nowhere") && len(states) > 0 {
			t.Errorf("%s: it was tried again: %q", text, states)
		}
	}
}

// setStatus sets the status of an object as its controller would.
func setStatus(t *testing.T, s *Applier, o *unstructured.Unstructured, namespace string, status map[string]any) {
	t.Helper()
	resource, _, err := s.resource(o, namespace)
	if err != nil {
		t.Fatal(err)
	}
	patch := testcluster.Must(json.Marshal(map[string]any{"status": status}))(t)
	testcluster.Must(resource.Patch(testcluster.Within(t), o.GetName(), types.MergePatchType, patch, metav1.PatchOptions{}, "status"))(t)
}

func TestRealWorkloadsAreWaitedFor(t *testing.T) {
	p := testcluster.Start(t)
	ctx, client := testcluster.Within(t), testclient.Super(t, p)
	site := New(client, 20*time.Second, nil)
	m := parsed(t, "wait", "default", `
apiVersion: apps/v1
kind: Deployment
metadata: {name: waited}
spec:
  replicas: 1
  selector: {matchLabels: {app: waited}}
  template:
    metadata: {labels: {app: waited}}
    spec: {containers: [{name: web, image: "registry.example.com/web:v1"}]}
---
apiVersion: batch/v1
kind: Job
metadata: {name: once}
spec: {template: {spec: {restartPolicy: Never, containers: [{name: once, image: "registry.example.com/once:v1"}]}}}
---
{apiVersion: v1, kind: ServiceAccount, metadata: {name: default}}
---
{apiVersion: v1, kind: Pod, metadata: {name: waited-1, labels: {app: waited}}, spec: {automountServiceAccountToken: false, containers: [{name: web, image: "registry.example.com/web:v1"}]}}
`)
	testcluster.Must(applyOne(ctx, site, m))(t)
	var problems []string
	inBundle := func(image string) bool { return image == "registry.example.com/once:v1" }
	wait := func() error {
		return testcluster.LastSeen(func(timeout time.Duration) error {
			site.Timeout, problems = timeout, nil
			_, err := site.WaitForWorkloads(ctx, Workloads{Manifests: []*Manifest{m}, InBundle: inBundle, OnProblem: func(p string) { problems = append(problems, p) }})
			return err
		})
	}
	has := func(err error, wants ...string) {
		t.Helper()
		for _, want := range wants {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, does not contain %q", err, want)
			}
		}
	}
	byKind := map[string]*unstructured.Unstructured{}
	for _, o := range m.objects {
		byKind[o.GetKind()] = o
	}
	has(wait(), "Deployment.apps default/waited: its controller has not seen it yet", "Job.batch default/once: 0 pods succeeded", "Pod default/waited-1: Pending")

	setStatus(t, site, byKind["Deployment"], "default", map[string]any{"observedGeneration": 1, "replicas": 1, "updatedReplicas": 1})
	setStatus(t, site, byKind["Pod"], "default", map[string]any{"phase": "Pending", "containerStatuses": []any{map[string]any{
		"name": "web", "image": "registry.example.com/web:v1", "imageID": "", "ready": false, "restartCount": 0,
		"state": map[string]any{"waiting": map[string]any{"reason": "ImagePullBackOff", "message": "Back-off"}}}}})
	has(wait(), "Deployment.apps default/waited: 0 of 1 pods ready; pod waited-1: container web: ImagePullBackOff of image registry.example.com/web:v1, which is not in this bundle: build it again with --image registry.example.com/web:v1")
	if len(problems) != 2 { // the Deployment and the Pod
		t.Errorf("problems: %q", problems)
	}

	setStatus(t, site, byKind["Pod"], "default", map[string]any{"phase": "Running", "conditions": []any{map[string]any{"type": "Ready", "status": "True"}}})
	setStatus(t, site, byKind["Deployment"], "default", map[string]any{"observedGeneration": 1, "replicas": 1, "updatedReplicas": 1, "readyReplicas": 1, "availableReplicas": 1})
	setStatus(t, site, byKind["Job"], "default", map[string]any{"failed": 1, "startTime": "2026-01-01T00:00:00Z", "conditions": []any{map[string]any{"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded", "message": "too many"}}})
	has(wait(), `Job.batch default/once of manifest "wait": the Job failed: BackoffLimitExceeded: too many`)

	setStatus(t, site, byKind["Job"], "default", map[string]any{"failed": nil, "succeeded": 1, "completionTime": "2026-01-01T00:01:00Z", "conditions": []any{map[string]any{"type": "Complete", "status": "True"}}})
	if err := wait(); err != nil {
		t.Error(err)
	}
	states := testcluster.Must(site.States(ctx, Entry{Objects: []string{"Deployment.apps default/waited", "Pod default/waited-1", "ConfigMap default/none"}}, inBundle))(t)
	if !states[0].Ready || !states[1].Ready || states[2].Ready || states[2].Reason != "it does not exist" {
		t.Errorf("states: %+v", states)
	}
}

// On a control plane alone, what an operator's pods must serve first is left for later.
func TestRealObjectsThatNeedAWorker(t *testing.T) {
	p := testcluster.Start(t)
	ctx, client := testcluster.Within(t), testclient.Super(t, p)
	nodes := client.API.CoreV1().Nodes()
	if err := nodes.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	p.AddNode(t, "alone", true)
	testcluster.Must(client.NodeObjects().MarkControlPlane(ctx, "alone", nil))(t)
	site := New(client, 20*time.Second, nil)
	pod := parsed(t, "operator", "operator", `
{apiVersion: v1, kind: ServiceAccount, metadata: {name: default}}
---
{apiVersion: v1, kind: Pod, metadata: {name: operator}, spec: {automountServiceAccountToken: false, containers: [{name: c, image: none}]}}
`)
	testcluster.Must(applyOne(ctx, site, pod))(t)
	setStatus(t, site, pod.objects[1], "operator", map[string]any{"phase": "Pending", "conditions": []any{map[string]any{
		"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes are available: 1 node(s) had untolerated taint(s)"}}})
	later := testcluster.Must(site.WaitForWorkloads(ctx, Workloads{Manifests: []*Manifest{pod}}))(t)
	if len(later) != 1 || later[0].Object != "Pod operator/operator" {
		t.Errorf("later: %+v", later)
	}

	crd := strings.ReplaceAll(webManifest[strings.Index(webManifest, "apiVersion: apiextensions"):], "widget", "thing")
	crd = strings.ReplaceAll(crd, "Widget", "Thing")
	m := parsed(t, "things", "operator", "{apiVersion: example.com/v1, kind: Thing, metadata: {name: t1}}\n---\n{apiVersion: v1, kind: ConfigMap, metadata: {name: after}}\n")
	applied, entry, err := recordOne(ctx, site, m, "b", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(entry.Later, []string{"Thing.example.com operator/t1"}) || !slices.Equal(applied.Changed, []string{"ConfigMap operator/after"}) || !strings.Contains(applied.Later[0].Why, "when a worker joins") {
		t.Errorf("%+v, %+v", applied, entry)
	}
	// The worker joins, and the operator creates its kind.
	p.AddNode(t, "worker", true)
	testcluster.Must(applyOne(ctx, site, parsed(t, "x", "", crd)))(t)
	applied, entry, err = recordOne(ctx, site, m, "b", time.Now())
	if err != nil || entry.Later != nil || !slices.Equal(applied.Changed, []string{"Thing.example.com operator/t1"}) {
		t.Errorf("%+v, %+v, %v", applied, entry, err)
	}
}

func TestRealImmutableFieldHasAHint(t *testing.T) {
	p := testcluster.Start(t)
	ctx := testcluster.Within(t)
	site := New(testclient.Super(t, p), 5*time.Second, nil)
	const job = "{apiVersion: batch/v1, kind: Job, metadata: {name: fixed}, spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: one}]}}}}"
	testcluster.Must(applyOne(ctx, site, parsed(t, "jobs", "", job)))(t)
	_, err := applyOne(ctx, site, parsed(t, "jobs", "", strings.Replace(job, "one", "two", 1)))
	if err == nil || !strings.Contains(err.Error(), "field is immutable") || !strings.Contains(fault.Hint(err), "kubectl delete job fixed") {
		t.Errorf("%v (%s)", err, fault.Hint(err))
	}
}
