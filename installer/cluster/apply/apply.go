package apply

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"

	"airlift/installer/cluster"
	"airlift/installer/cluster/wait"
	"airlift/internal/fault"
)

// FieldManager owns the fields of the objects of the site's manifests.
const FieldManager = "airlift"

// An Applier applies the site's own manifests by server-side apply, and looks at their objects.
// The manifests are not Airlift's: the API server merges them with what others wrote, and a
// field that another manager has changed since is kept.
type Applier struct {
	client *cluster.Client
	mapper *restmapper.DeferredDiscoveryRESTMapper
	unread map[string]error // kinds that what serves them does not answer for
	// Force also replaces fields that others have changed.
	Force bool
	// Timeout limits the time without progress for each object.
	Timeout time.Duration
	Report  wait.Report
	// InBundle reports whether the bundle has an image, to explain why a hook does not run; it may be nil.
	InBundle func(image string) bool
	// Note reports what takes long: a hook that runs; it may be nil.
	Note func(format string, args ...any)
}

// New returns an Applier of the cluster.
func New(c *cluster.Client, timeout time.Duration, report wait.Report) *Applier {
	cached := memory.NewMemCacheClient(c.API.Discovery())
	return &Applier{client: c, mapper: restmapper.NewDeferredDiscoveryRESTMapper(cached), unread: map[string]error{}, Timeout: timeout, Report: report}
}

// Applied is the result of applying a manifest.
type Applied struct {
	Objects []string // all objects, as "Kind.group namespace/name"
	Changed []string // created or changed objects
	Kept    []string // fields that others have changed, and that were kept
	Later   []Later  // objects that could not be applied yet
}

// Later is an object that needs a node that has not joined yet.
type Later struct{ Manifest, Object, Why string }

// An item is an object that is applied.
type item struct {
	manifest *Manifest
	object   *unstructured.Unstructured
	name     string // in the inventory
	done     *Applied
	err      error // why the API server cannot accept it yet
}

// Apply applies the objects of manifests, without hooks: first the Namespaces of all manifests, then all CustomResourceDefinitions, for
// each of which it waits, then the other objects, manifest by manifest, in the order of their ranks. What the API
// server cannot accept yet, because it does not know a kind or a namespace, or cannot reach a webhook or an
// aggregated API, is repeated after all other objects were applied. If the pods of the cluster wait for a
// worker, these objects are applied later.
func (s *Applier) Apply(ctx context.Context, manifests []*Manifest) ([]Applied, error) {
	return s.apply(ctx, manifests, func(int, *Applied) (string, error) { return "", nil })
}

// apply calls first before the objects of a manifest that are neither Namespaces nor CustomResourceDefinitions. If later is not "", these are
// applied later.
func (s *Applier) apply(ctx context.Context, manifests []*Manifest, first func(i int, done *Applied) (later string, err error)) ([]Applied, error) {
	all := make([]Applied, len(manifests))
	items, early := make([][]*item, len(manifests)), make([][]*item, rankDefinition+1)
	for i, m := range manifests {
		if err := s.ensureNamespace(ctx, m, manifests, &all[i]); err != nil {
			return all, fmt.Errorf("creating namespace %q of manifest %q: %w", m.Namespace, m.Name, err)
		}
		for _, o := range m.objects {
			it := &item{manifest: m, object: o, done: &all[i]}
			if r := rank(o); r <= rankDefinition {
				early[r] = append(early[r], it)
			} else {
				items[i] = append(items[i], it)
			}
		}
	}
	for _, it := range slices.Concat(early...) {
		if err := s.repeat(ctx, []*item{it}); err != nil {
			return all, err
		}
		if !isCRD(it.object) || it.err != nil {
			continue
		}
		if err := s.waitEstablished(ctx, it.object); err != nil {
			return all, it.fail(err)
		}
		s.mapper.Reset()
	}
	var waiting []*item
	hangs := false // the API server: each object would wait as long
	for i := range manifests {
		later, err := first(i, &all[i])
		if err != nil {
			return all, err
		}
		for _, it := range items[i] {
			if later != "" {
				it.done.Later = append(it.done.Later, Later{it.manifest.Name, inventoryName(it.object, s.placeOf(it.manifest, it.object)), later})
				continue
			}
			if hangs {
				waiting = append(waiting, it)
				continue
			}
			again, err := s.attempt(ctx, it)
			if err != nil && !again {
				return all, it.fail(err)
			}
			if err != nil {
				waiting = append(waiting, it)
			}
			hangs = errors.Is(err, context.DeadlineExceeded)
		}
	}
	if err := s.repeat(ctx, waiting); err != nil {
		return all, err
	}
	for i, m := range manifests { // in the manifest's order, whenever they were applied
		order := map[string]int{}
		for n, o := range m.objects {
			name := inventoryName(o, s.placeOf(m, o))
			order[name] = n + 1
			all[i].Objects = append(all[i].Objects, name)
		}
		slices.SortStableFunc(all[i].Changed, func(a, b string) int { return order[a] - order[b] })
	}
	return all, nil
}

// fail names the object that cannot be applied.
func (it *item) fail(err error) error {
	return fault.Wrap(fmt.Errorf("applying %s of manifest %q: %w", cluster.Describe(it.object), it.manifest.Name, err), fault.ExitCode(err), hintOf(it.object, err))
}

// Unserved returns the objects of manifests whose kinds are Kubernetes' own, and that the API server does not serve in their version: a newer
// Kubernetes has removed it. What defines other kinds may come with the manifests.
func (s *Applier) Unserved(manifests []*Manifest) (names []string) {
	for _, m := range manifests {
		all := slices.Clone(m.objects)
		for _, h := range m.hooks {
			all = append(all, h.object)
		}
		for _, o := range all {
			gvk := o.GroupVersionKind()
			if _, err := s.mapper.RESTMapping(gvk.GroupKind(), gvk.Version); meta.IsNoMatchError(err) && !isCustom(gvk.Group) {
				names = append(names, fmt.Sprintf("%s: %s of %s", m.Name, cluster.Describe(o), gvk.GroupVersion()))
			}
		}
	}
	return names
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

// ensureNamespace creates the manifest's namespace, unless it exists or one of the manifests has it.
func (s *Applier) ensureNamespace(ctx context.Context, m *Manifest, manifests []*Manifest, done *Applied) error {
	has := slices.ContainsFunc(manifests, func(other *Manifest) bool {
		return slices.ContainsFunc(other.objects, func(o *unstructured.Unstructured) bool { return rank(o) == 0 && o.GetName() == m.Namespace })
	})
	if m.Namespace == "" || m.Namespace == metav1.NamespaceDefault || has {
		return nil
	}
	namespaces := s.client.Dynamic.Resource(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"})
	w := wait.For{What: "namespace " + m.Namespace + " of an earlier version to be gone", Short: "namespaces", Timeout: s.Timeout, Attempt: cluster.RequestTimeout, Report: s.Report}
	err := w.Until(ctx, nil, func(ctx context.Context) (bool, string, error) {
		have, err := namespaces.Get(ctx, m.Namespace, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return true, "", nil
		case err != nil && wait.IsOutage(err):
			return false, err.Error(), nil
		case err != nil:
			return false, "", err
		case have.GetDeletionTimestamp() != nil:
			return false, terminating(have), nil
		}
		return true, "", nil
	})
	if err != nil {
		return err
	}
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

// attempt applies an object once. again reports whether the error may go away by itself.
func (s *Applier) attempt(parent context.Context, it *item) (again bool, err error) {
	ctx, cancel := context.WithTimeout(parent, cluster.RequestTimeout)
	defer cancel()
	it.name = inventoryName(it.object, s.placeOf(it.manifest, it.object))
	resource, mapping, err := s.resource(it.object, it.manifest.Namespace)
	if err == nil {
		namespace := ""
		if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
			namespace = namespaceOf(it.object, it.manifest.Namespace)
		}
		it.name = inventoryName(it.object, namespace)
		err = s.applyOnce(ctx, resource, it.object, namespace, it.name, it.done)
	}
	if ctx.Err() != nil && err != nil {
		err = fmt.Errorf("%w: %w", ctx.Err(), err)
	}
	it.err = err
	return parent.Err() == nil && (ctx.Err() != nil || mayPass(it.object, err)), err
}

// repeat applies objects until the API server accepts all of them, while the errors may go away. If the
// pods of the cluster wait for a worker, it leaves the rest for later.
func (s *Applier) repeat(ctx context.Context, waiting []*item) error {
	if len(waiting) == 0 {
		return nil
	}
	began := time.Now()
	what := "the API server to accept " + cluster.Describe(waiting[0].object)
	if n := len(waiting) - 1; n > 0 {
		what += fmt.Sprintf(" and %d other objects", n)
	}
	w := wait.For{What: what, Short: "the API server to accept objects", Timeout: s.Timeout, Attempt: time.Duration(len(waiting)) * cluster.RequestTimeout, Report: s.Report}
	var failed *item
	err := w.Until(ctx, nil, func(ctx context.Context) (bool, string, error) {
		var states []string
		waiting = slices.DeleteFunc(waiting, func(it *item) bool {
			if failed != nil || ctx.Err() != nil {
				return false
			}
			again, err := s.attempt(ctx, it)
			if err == nil {
				return true
			}
			if !again && ctx.Err() == nil {
				failed = it
			}
			states = append(states, cluster.Describe(it.object)+": "+err.Error())
			return false
		})
		if failed != nil {
			return false, "", failed.err
		}
		if len(waiting) == 0 {
			return true, "", nil
		}
		s.mapper.Reset()
		if time.Since(began) > laterAfter {
			if why := anyNeedsWorker(ctx, s.client.API); why != "" {
				for _, it := range waiting {
					it.done.Later = append(it.done.Later, Later{it.manifest.Name, it.name, it.err.Error() + "; " + why})
				}
				return true, "", nil
			}
		}
		return false, strings.Join(states, "; "), nil
	})
	switch {
	case err == nil:
		return nil
	case failed != nil:
		return failed.fail(err)
	case ctx.Err() != nil:
		return waiting[0].fail(err)
	}
	return waiting[0].fail(fault.Wrap(err, fault.Failure, missingHint(waiting[0])))
}

// missingHint returns what to do about an object that the API server did not accept in time. All others
// that it accepts were applied.
func missingHint(it *item) string {
	switch status := apierrors.APIStatus(nil); {
	case meta.IsNoMatchError(it.err):
		return fmt.Sprintf("if nothing in the cluster creates the CustomResourceDefinition of %s, add it to a manifest and build the bundle again", it.object.GetKind())
	case apierrors.IsNotFound(it.err) && errors.As(it.err, &status) && status.Status().Details != nil && status.Status().Details.Kind == "namespaces":
		return "create it: kubectl create namespace " + status.Status().Details.Name + "; then run this command again"
	}
	return "inspect the pods that serve it: kubectl get pods -A -o wide; then run this command again"
}

// laterAfter is how long objects are retried before the reason may be that the cluster has
// no worker yet.
const laterAfter = 3 * time.Second

// errTerminating is why an object is not applied that is being deleted: what is applied to it goes with it.
var errTerminating = errors.New("an object of this name is there")

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
	case errors.Is(err, errTerminating), apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
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

// applyOnce applies an object, and records what it changed and kept.
func (s *Applier) applyOnce(ctx context.Context, resource dynamic.ResourceInterface, object *unstructured.Unstructured, namespace, name string, done *Applied) error {
	before, after, kept, err := s.merge(ctx, resource, object, namespace, false)
	if err != nil {
		return err
	}
	if before == nil || !sameObject(before, after) {
		done.Changed = append(done.Changed, name)
	}
	for _, field := range kept {
		done.Kept = append(done.Kept, name+": "+field)
	}
	return nil
}

// merge applies an object, or asks the API server what that would do. Fields in conflict with another manager are left out, and returned
// as kept. before is nil if there was no such object.
func (s *Applier) merge(ctx context.Context, resource dynamic.ResourceInterface, object *unstructured.Unstructured, namespace string, dryRun bool) (before, after *unstructured.Unstructured, kept []string, err error) {
	want := object.DeepCopy()
	want.SetNamespace(namespace)
	before, err = resource.Get(ctx, want.GetName(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		before, err = nil, nil
	}
	if err != nil {
		return nil, nil, nil, err
	}
	if before != nil && before.GetDeletionTimestamp() != nil && !dryRun {
		return nil, nil, nil, fmt.Errorf("%w: %s", errTerminating, terminating(before))
	}
	if err := mark(want, before); err != nil {
		return nil, nil, nil, err
	}
	keepResult(want)
	options := metav1.ApplyOptions{FieldManager: FieldManager, Force: s.Force}
	if dryRun {
		options.DryRun = []string{metav1.DryRunAll}
	}
	for range 3 { // leaving fields out may show further conflicts
		after, err := resource.Apply(ctx, want.GetName(), want, options)
		if isSecret(want) {
			err = withoutValues(err)
		}
		if err == nil {
			return before, after, kept, nil
		}
		if !apierrors.IsConflict(err) || before == nil {
			return before, nil, nil, err
		}
		fields := leaveOut(want, before, err)
		if len(fields) == 0 {
			return before, nil, nil, err
		}
		kept = append(kept, fields...)
	}
	return before, nil, nil, fmt.Errorf("fields that other field managers have changed cannot be left out: %s", strings.Join(kept, ", "))
}

// appliedAnnotation is on each object that Airlift applied, with one of these values. So Airlift remains one of its managers also if others have
// changed all other fields, or if there are none.
const (
	appliedAnnotation = "airlift.dev/applied"
	isCreated         = "true"    // by Airlift
	hasExisted        = "existed" // before: Airlift changes such an object, as a Node that gets a label, and never removes it
)

// mark sets the annotation of an object that is applied. before is nil if there is no such object yet.
func mark(want, before *unstructured.Unstructured) error {
	value := isCreated
	if before != nil && existed(before) {
		value = hasExisted
	}
	if v, found, _ := unstructured.NestedFieldNoCopy(want.Object, "metadata", "annotations"); found && v == nil {
		unstructured.RemoveNestedField(want.Object, "metadata", "annotations")
	}
	return unstructured.SetNestedField(want.Object, value, "metadata", "annotations", appliedAnnotation)
}

// existed reports whether an object existed before Airlift first applied it.
func existed(have *unstructured.Unstructured) bool {
	return have.GetAnnotations()[appliedAnnotation] == hasExisted || !slices.ContainsFunc(have.GetManagedFields(), func(m metav1.ManagedFieldsEntry) bool { return m.Manager == FieldManager })
}

// shownValue is a value in an error of the API server about a field that has another type.
var shownValue = regexp.MustCompile(`got &value\..*`)

// withoutValues returns the error about a Secret without its values.
func withoutValues(err error) error {
	status := (*apierrors.StatusError)(nil)
	if !errors.As(err, &status) || !shownValue.MatchString(status.ErrStatus.Message) {
		return err
	}
	hidden := &apierrors.StatusError{ErrStatus: *status.ErrStatus.DeepCopy()}
	hidden.ErrStatus.Message = shownValue.ReplaceAllString(hidden.ErrStatus.Message, "got another type")
	return hidden
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
