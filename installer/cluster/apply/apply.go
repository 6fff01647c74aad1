package apply

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"

	"airlift/fault"
	"airlift/installer/cluster"
	"airlift/installer/cluster/wait"
)

// FieldManager owns the fields of the objects of the site's manifests.
const FieldManager = "airlift"

// A Applier applies the site's own manifests by server-side apply, and looks at their objects.
// The manifests are not Airlift's: the API server merges them with what others wrote, and a
// field that another manager has changed since is kept.
type Applier struct {
	client *cluster.Client
	mapper *restmapper.DeferredDiscoveryRESTMapper
	// Force also replaces fields that others have changed.
	Force bool
	// Timeout limits the time without progress for each object.
	Timeout time.Duration
	Report  wait.Report
}

// New returns a Site of the cluster.
func New(c *cluster.Client, timeout time.Duration, report wait.Report) *Applier {
	cached := memory.NewMemCacheClient(c.API.Discovery())
	return &Applier{client: c, mapper: restmapper.NewDeferredDiscoveryRESTMapper(cached), Timeout: timeout, Report: report}
}

// Applied is the result of applying a manifest.
type Applied struct {
	Objects []string // all objects, as "Kind.group namespace/name"
	Changed []string // created or changed objects
	Kept    []string // fields that others have changed, and that were kept
	Later   []Later  // objects that could not be applied yet
}

// Later is an object that needs a node that has not joined yet.
type Later struct{ Object, Why string }

// Apply applies the objects of a manifest in order. It waits for each
// CustomResourceDefinition, and repeats what fails because the API server does not know a
// kind yet, or cannot reach a webhook or an aggregated API. If their pods wait for a worker,
// it continues with the other objects.
func (s *Applier) Apply(ctx context.Context, m *Manifest) (Applied, error) {
	done := Applied{}
	fail := func(o *unstructured.Unstructured, err error) (Applied, error) {
		return done, fault.Wrap(fmt.Errorf("applying %s of manifest %q: %w", cluster.Describe(o), m.Name, err), fault.ExitCode(err), hintOf(o, err))
	}
	if err := s.ensureNamespace(ctx, m, &done); err != nil {
		return done, fmt.Errorf("creating namespace %q of manifest %q: %w", m.Namespace, m.Name, err)
	}
	for _, o := range m.objects {
		name, err := s.applyPatiently(ctx, m, o, &done)
		later := (*laterError)(nil)
		switch {
		case errors.As(err, &later):
			done.Later = append(done.Later, Later{name, later.Error()})
		case err != nil:
			return fail(o, err)
		}
		done.Objects = append(done.Objects, name)
		if isCRD(o) && err == nil {
			if err := s.waitEstablished(ctx, o); err != nil {
				return fail(o, err)
			}
			s.mapper.Reset()
		}
	}
	return done, nil
}

// hintOf returns what to do about an object that cannot be applied. Some fields of an object
// cannot be changed, such as the pod template of a Job.
func hintOf(o *unstructured.Unstructured, err error) string {
	if apierrors.IsInvalid(err) && strings.Contains(err.Error(), "field is immutable") {
		return "if it can be deleted and created again: kubectl delete " + strings.ToLower(o.GetKind()) + " " + o.GetName() + ", in its namespace; then run this command again"
	}
	if hint := fault.Hint(err); hint != "" {
		return hint
	}
	return fixManifest
}

// ensureNamespace creates the manifest's namespace, unless it exists or the manifest has it.
func (s *Applier) ensureNamespace(ctx context.Context, m *Manifest, done *Applied) error {
	has := slices.ContainsFunc(m.objects, func(o *unstructured.Unstructured) bool { return rank(o) == 0 && o.GetName() == m.Namespace })
	if m.Namespace == "" || m.Namespace == metav1.NamespaceDefault || has {
		return nil
	}
	namespaces := s.client.Dynamic.Resource(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"})
	return wait.Retry(ctx, func() error {
		_, err := namespaces.Get(ctx, m.Namespace, metav1.GetOptions{})
		if !apierrors.IsNotFound(err) {
			return err
		}
		o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace"}}
		o.SetName(m.Namespace)
		_, err = namespaces.Create(ctx, o, metav1.CreateOptions{FieldManager: FieldManager})
		if err == nil {
			done.Changed = append(done.Changed, "Namespace "+m.Namespace)
		}
		return err
	})
}

// A laterError reports an object that cannot be applied before a worker joins.
type laterError struct{ why string }

func (e *laterError) Error() string { return e.why }

// applyPatiently applies an object, and repeats it while the error may go away.
func (s *Applier) applyPatiently(ctx context.Context, m *Manifest, o *unstructured.Unstructured, done *Applied) (name string, err error) {
	name = inventoryName(o, s.placeOf(m, o))
	began := time.Now()
	w := wait.For{
		What: "the API server to accept " + cluster.Describe(o), Short: "the API server to accept objects",
		Hint:    "inspect the pods that serve it: kubectl get pods -A -o wide; then run this command again",
		Timeout: s.Timeout, Attempt: cluster.RequestTimeout, Report: s.Report,
	}
	err = w.Until(ctx, nil, func(ctx context.Context) (bool, string, error) {
		resource, mapping, err := s.resource(o, m.Namespace)
		if err == nil {
			namespace := ""
			if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
				namespace = namespaceOf(o, m.Namespace)
			}
			name = inventoryName(o, namespace)
			err = s.applyOnce(ctx, resource, o, namespace, name, done)
		}
		switch {
		case err == nil:
			return true, "", nil
		case ctx.Err() != nil:
			return false, err.Error(), nil
		case !mayPass(o, err):
			return false, "", fault.Wrap(err, fault.Failure, fixManifest)
		}
		s.mapper.Reset()
		if time.Since(began) > laterAfter {
			if why := anyNeedsWorker(ctx, s.client.API); why != "" {
				return false, "", &laterError{err.Error() + "; " + why}
			}
		}
		return false, err.Error(), nil
	})
	return name, err
}

// laterAfter is how long an object is retried before the reason may be that the cluster has
// no worker yet.
const laterAfter = 3 * time.Second

// mayPass reports whether an error may go away by itself: the API server is away, does not
// know a kind yet, or cannot reach what serves a webhook or an API.
func mayPass(o *unstructured.Unstructured, err error) bool {
	switch {
	case meta.IsNoMatchError(err):
		// Kinds of groups without a dot are built into the API server: no CRD can define them.
		return strings.Contains(o.GroupVersionKind().Group, ".")
	case apierrors.IsNotFound(err):
		// The API server does not serve a new kind yet, or creates a namespace.
		return true
	case apierrors.IsForbidden(err):
		return strings.Contains(err.Error(), "error looking up service account") // of a new namespace
	}
	return wait.IsOutage(err)
}

// resource finds the REST resource of an object.
func (s *Applier) resource(o *unstructured.Unstructured, namespace string) (dynamic.ResourceInterface, *meta.RESTMapping, error) {
	gvk := o.GroupVersionKind()
	mapping, err := s.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	if err != nil {
		return nil, nil, err
	}
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		return s.client.Dynamic.Resource(mapping.Resource).Namespace(namespaceOf(o, namespace)), mapping, nil
	}
	return s.client.Dynamic.Resource(mapping.Resource), mapping, nil
}

// namespaceOf returns the namespace of a namespaced object.
func namespaceOf(o *unstructured.Unstructured, manifest string) string {
	for _, namespace := range []string{o.GetNamespace(), manifest} {
		if namespace != "" {
			return namespace
		}
	}
	return metav1.NamespaceDefault
}

// applyOnce applies an object. Fields in conflict with another manager are left out, and
// recorded as kept.
func (s *Applier) applyOnce(ctx context.Context, resource dynamic.ResourceInterface, object *unstructured.Unstructured, namespace, name string, done *Applied) error {
	want := object.DeepCopy()
	want.SetNamespace(namespace)
	before, err := resource.Get(ctx, want.GetName(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		before, err = nil, nil
	}
	if err != nil {
		return err
	}
	var kept []string
	for range 3 { // leaving fields out may show further conflicts
		after, err := resource.Apply(ctx, want.GetName(), want, metav1.ApplyOptions{FieldManager: FieldManager, Force: s.Force})
		if err == nil {
			if before == nil || !sameObject(before, after) {
				done.Changed = append(done.Changed, name)
			}
			for _, field := range kept {
				done.Kept = append(done.Kept, name+": "+field)
			}
			return nil
		}
		if !apierrors.IsConflict(err) || before == nil {
			return err
		}
		fields := leaveOut(want, before, err)
		if len(fields) == 0 {
			return err
		}
		kept = append(kept, fields...)
	}
	return fmt.Errorf("fields that other field managers have changed cannot be left out: %s", strings.Join(kept, ", "))
}

// sameObject reports whether two versions of an object differ only in fields that the API server
// and controllers write.
func sameObject(a, b *unstructured.Unstructured) bool {
	plain := func(o *unstructured.Unstructured) map[string]any {
		content := maps.Clone(o.Object)
		delete(content, "status")
		metadata, _ := content["metadata"].(map[string]any)
		metadata = maps.Clone(metadata)
		for _, field := range []string{"resourceVersion", "managedFields", "generation"} {
			delete(metadata, field)
		}
		content["metadata"] = metadata
		return content
	}
	return reflect.DeepEqual(plain(a), plain(b))
}

// waitEstablished waits until the API server serves the kind of a CustomResourceDefinition.
func (s *Applier) waitEstablished(ctx context.Context, crd *unstructured.Unstructured) error {
	w := wait.For{What: cluster.Describe(crd) + " to be Established", Short: "CustomResourceDefinitions", Hint: fixManifest, Timeout: s.Timeout, Attempt: cluster.RequestTimeout, Report: s.Report}
	return w.Until(ctx, nil, func(ctx context.Context) (bool, string, error) {
		resource, _, err := s.resource(crd, "")
		if err != nil {
			return false, err.Error(), nil
		}
		have, err := resource.Get(ctx, crd.GetName(), metav1.GetOptions{})
		if err != nil {
			return false, err.Error(), nil
		}
		if status, _ := condition(have, "Established"); status == "True" {
			return true, "", nil
		}
		if status, why := condition(have, "NamesAccepted"); status == "False" {
			return false, "", fmt.Errorf("its names are not accepted: %s", why)
		}
		return false, "it is not served yet", nil
	})
}

// condition returns the status and the message of a condition of an object.
func condition(o *unstructured.Unstructured, kind string) (status, message string) {
	list, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	for _, c := range list {
		if c, ok := c.(map[string]any); ok && c["type"] == kind {
			status, _ = c["status"].(string)
			message, _ = c["message"].(string)
		}
	}
	return status, message
}

// inventoryName names an object in the inventory: "Deployment.apps web/front".
func inventoryName(o *unstructured.Unstructured, namespace string) string {
	return o.GroupVersionKind().GroupKind().String() + " " + cluster.Qualified(namespace, o.GetName())
}
