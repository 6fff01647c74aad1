package apply

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"

	"airlift/installer/cluster"
	"airlift/installer/cluster/wait"
	"airlift/internal/fault"
)

// A Removal is an object that a manifest no longer has, and what happens to it.
type Removal struct {
	Manifest string    `json:"manifest"`
	Object   string    `json:"object"`         // its name in the inventory
	Kept     string    `json:"kept,omitempty"` // why it stays; "" if it is removed
	UID      types.UID `json:"uid,omitempty"`  // only an object with this UID is removed

	// named reports that it is removed if the user names it.
	named bool
	// gone reports that it does not exist, or is another manifest's now. Then only the inventory forgets it.
	gone bool
	// unread reports that nothing is known of it, because what serves its kind does not answer.
	unread bool
	// forget reports that the inventory forgets it although it stays: it is not Airlift's.
	forget bool
}

// A Plan is what is removed, in this order.
type Plan []Removal

// Removed returns the objects that are removed.
func (p Plan) Removed() (list Plan) {
	return slices.DeleteFunc(slices.Clone(p), func(r Removal) bool { return r.gone || r.Kept != "" })
}

// Namespaces returns the namespaces of the plan, and the rest of it.
func (p Plan) Namespaces() (list, others Plan) {
	for _, r := range p {
		if rankOfName(r.Object) == rankNamespace {
			list = append(list, r)
		} else {
			others = append(others, r)
		}
	}
	return list, others
}

// Also reports whether the object is removed if the user names it.
func (r Removal) Also() bool { return r.named }

// Unread reports whether the object stays because it could not be read.
func (r Removal) Unread() bool { return r.unread }

// Kept returns the objects that stay.
func (p Plan) Kept() (list Plan) {
	return slices.DeleteFunc(slices.Clone(p), func(r Removal) bool { return r.gone || r.Kept == "" })
}

// Wanted are objects to remove, by the names of their manifests.
type Wanted struct {
	Manifest string
	Objects  []string
	// Stays are objects of the manifest that are not to be removed, when the inventory does not have them yet.
	Stays []string
}

// PlanRemoval decides which objects are removed. It changes nothing. also are the names of objects that are only removed when they are
// named: definitions, namespaces and what has volumes.
func (s *Applier) PlanRemoval(ctx context.Context, wanted []Wanted, also []string) (plan Plan, err error) {
	inventory, err := ReadInventory(ctx, s.client.API)
	if err != nil {
		return nil, err
	}
	others := claims(inventory)
	for _, w := range wanted {
		for _, name := range w.Stays {
			others[name] = append(others[name], w.Manifest)
		}
	}
	wantedBy := map[string][]string{}
	for _, w := range wanted {
		for _, name := range without(w.Objects, w.Stays) {
			wantedBy[name] = append(wantedBy[name], w.Manifest)
			if !slices.ContainsFunc(plan, func(r Removal) bool { return r.Object == name }) {
				plan = append(plan, Removal{Manifest: w.Manifest, Object: name})
			}
		}
	}
	plan.sort()
	removed := map[string]bool{} // definitions and namespaces are last: what is in them is known then
	for i := range plan {
		r := &plan[i]
		if err := s.judge(ctx, r, without(others[r.Object], wantedBy[r.Object]), removed, also); err != nil {
			return nil, fmt.Errorf("reading %s: %w", r.Object, err)
		}
		removed[r.Object] = r.Kept == "" && !r.gone
	}
	for _, name := range also {
		if !slices.ContainsFunc(plan, func(r Removal) bool { return r.Object == name && (r.named || r.gone || r.unread) }) {
			if s.isGone(ctx, name) { // a run that was interrupted removed it
				continue
			}
			return nil, fault.New(fault.Usage, "--also %q: it is not among the objects that stay until they are named", name).Hint(alsoHint(plan))
		}
	}
	return plan, nil
}

// whenNamed are the kinds of which objects are only removed when they are named.
var whenNamed = append([]string{"Namespace", crdKind, "StatefulSet.apps", "StorageClass.storage.k8s.io"}, withData...)

// withData are the kinds of volumes and of their snapshots, of CSI's snapshot controller.
var withData = []string{
	"PersistentVolume", "PersistentVolumeClaim", "VolumeSnapshot.snapshot.storage.k8s.io", "VolumeSnapshotContent.snapshot.storage.k8s.io",
	"VolumeGroupSnapshot.groupsnapshot.storage.k8s.io", "VolumeGroupSnapshotContent.groupsnapshot.storage.k8s.io",
}

// isGone reports whether there is no object of this name, of a kind that the user may name.
func (s *Applier) isGone(ctx context.Context, name string) bool {
	if kind, _, _ := strings.Cut(name, " "); !slices.Contains(whenNamed, kind) {
		return false
	}
	if resource, _, err := s.resourceOf(name); err != nil || resource == nil {
		return false
	}
	have, err := s.find(ctx, name)
	return err == nil && have == nil
}

// alsoHint lists the names that the user can choose.
func alsoHint(plan Plan) string {
	var names []string
	for _, r := range plan {
		if r.named {
			names = append(names, "--also '"+r.Object+"'")
		}
	}
	if len(names) == 0 {
		return "remove --also: there is no such object"
	}
	return "one of: " + strings.Join(names, ", ")
}

// sort puts the objects in the reverse of the order in which they were applied.
func (p Plan) sort() {
	slices.Reverse(p)
	slices.SortStableFunc(p, func(a, b Removal) int { return rankOfName(b.Object) - rankOfName(a.Object) })
}

func rankOfName(name string) int {
	kind, _, _ := strings.Cut(name, " ")
	return rankOf(schema.ParseGroupKind(kind))
}

// claims returns which manifests have an object.
func claims(inventory map[string]Entry) map[string][]string {
	manifests := map[string][]string{}
	for name, e := range inventory {
		for _, o := range without(slices.Concat(e.Objects, e.Later, e.Hooks), nil) {
			manifests[o] = append(manifests[o], name)
		}
	}
	for _, list := range manifests {
		slices.Sort(list)
	}
	return manifests
}

// judge decides what happens to an object. others are manifests that also have it, removed the objects that may be removed with it.
func (s *Applier) judge(ctx context.Context, r *Removal, others []string, removed map[string]bool, also []string) error {
	if len(others) > 0 {
		r.gone = true
		return nil
	}
	have, err := s.find(ctx, r.Object)
	switch {
	case errors.Is(err, errUnknown):
		r.Kept, r.unread = err.Error(), true
		return nil
	case err != nil:
		return err
	case have == nil:
		r.gone = true
		return nil
	}
	r.UID = have.GetUID()
	namespace := rank(have) == rankNamespace
	if why := notOurs(have); why != "" && !(namespace && createdHere(have)) {
		r.Kept, r.forget = why, true
		return nil
	}
	why, named, err := s.reason(ctx, have, r.Object, removed)
	switch {
	case errors.Is(err, errUnknown):
		r.Kept, r.unread = err.Error(), slices.Contains(also, r.Object) // otherwise it stays anyway
		r.forget = namespace && notOurs(have) != ""
		return nil
	case err != nil:
		return err
	}
	r.named = named
	if r.Kept = why; named && slices.Contains(also, r.Object) {
		r.Kept = ""
	}
	r.forget = r.Kept != "" && namespace && notOurs(have) != "" // no manifest has it
	return nil
}

// reason returns why an object stays that Airlift applied; "" if it is removed. named reports that the user may name it.
func (s *Applier) reason(ctx context.Context, have *unstructured.Unstructured, name string, removed map[string]bool) (why string, named bool, err error) {
	if strings.EqualFold(strings.TrimSpace(have.GetAnnotations()["helm.sh/resource-policy"]), "keep") { // as Helm reads it
		return "its annotation helm.sh/resource-policy keeps it", true, nil
	}
	kind := have.GroupVersionKind().GroupKind().String()
	if slices.Contains(withData, kind) {
		return "its data may be needed, so it is only removed if it is named", true, nil
	}
	switch kind {
	case "Namespace":
		others, err := s.othersIn(ctx, have.GetName(), removed)
		if err != nil || len(others) > 0 {
			return "other objects are in it: " + shortList(others), false, err
		}
		return "a namespace is only removed if it is named", true, nil
	case crdKind:
		others, err := s.othersOf(ctx, have, removed)
		if err != nil || len(others) > 0 {
			return "there are other objects of this kind: " + shortList(others), false, err
		}
		return "a definition is only removed if it is named", true, nil
	case "StatefulSet.apps":
		if policy, _, _ := unstructured.NestedString(have.Object, "spec", "persistentVolumeClaimRetentionPolicy", "whenDeleted"); policy == "Delete" {
			return "its volumes would be removed with it (whenDeleted: Delete), so it is only removed if it is named", true, nil
		}
	case "StorageClass.storage.k8s.io":
		volumes, err := wait.List(ctx, s.client.API.CoreV1().PersistentVolumes().List, metav1.ListOptions{})
		if err != nil {
			return "", false, err
		}
		for _, v := range volumes.Items {
			if v.Spec.StorageClassName == have.GetName() {
				return "volumes use it, such as PersistentVolume " + v.Name + ", so it is only removed if it is named", true, nil
			}
		}
	}
	return "", false, nil
}

// shortList joins the first names of a list.
func shortList(names []string) string {
	const most = 5
	if n := len(names) - most; n > 0 {
		return strings.Join(names[:most], ", ") + fmt.Sprintf(" and %d more", n)
	}
	return strings.Join(names, ", ")
}

// errUnknown is why nothing is known of an object.
var errUnknown = errors.New("")

// find returns an object of the inventory, nil if it does not exist.
func (s *Applier) find(ctx context.Context, name string) (*unstructured.Unstructured, error) {
	resource, o, err := s.resourceOf(name)
	if meta.IsNoMatchError(err) {
		s.mapper.Reset() // the kind may be new
		if resource, o, err = s.resourceOf(name); meta.IsNoMatchError(err) {
			return nil, s.served(ctx, o.GroupVersionKind().Group)
		}
	}
	if err != nil || resource == nil {
		return nil, err
	}
	var have *unstructured.Unstructured
	err = s.read(ctx, o.GroupVersionKind().GroupKind().String(), func(ctx context.Context) (err error) {
		have, err = resource.Get(ctx, o.GetName(), metav1.GetOptions{})
		if apierrors.IsNotFound(err) { // for Retry, a namespace that is gone is an outage
			have, err = nil, nil
		}
		return err
	})
	return have, err
}

// unreadAfter is how long an object is retried when the API server answers other requests.
const unreadAfter = 10 * time.Second

// read retries do while the API server is unavailable. If only what serves a kind does not answer, such as a conversion webhook or the pods of an
// APIService, the error is an errUnknown, and the other objects of this kind have the same.
func (s *Applier) read(ctx context.Context, kind string, do func(context.Context) error) error {
	if err := s.unread[kind]; err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, min(s.Timeout, unreadAfter))
	err := wait.Retry(limited, func() error { return do(limited) })
	cancel()
	if err == nil || apierrors.IsNotFound(err) || ctx.Err() != nil {
		return err
	}
	if _, err := ReadInventory(ctx, s.client.API); err != nil { // it waits for the API server
		return err
	}
	once, cancel := context.WithTimeout(ctx, cluster.RequestTimeout)
	defer cancel()
	if err = do(once); err != nil && !apierrors.IsNotFound(err) && ctx.Err() == nil {
		err = fmt.Errorf("it cannot be read: %w%w", err, errUnknown)
		s.unread[kind] = err
	}
	return err
}

// resourceOf finds the REST resource of an object of the inventory. It is nil if there can be no such object: a name with a namespace
// of a kind that has none, or the reverse.
func (s *Applier) resourceOf(name string) (dynamic.ResourceInterface, *unstructured.Unstructured, error) {
	o, err := objectOf(name)
	if err != nil {
		return nil, nil, err
	}
	resource, mapping, err := s.resource(o, "")
	if err != nil {
		return nil, o, err
	}
	if (mapping.Scope.Name() == meta.RESTScopeNameNamespace) != (o.GetNamespace() != "") {
		return nil, o, nil
	}
	return resource, o, nil
}

// served returns an error if pods serve kinds of a group: then a kind that is not served now may exist.
func (s *Applier) served(ctx context.Context, group string) error {
	list, err := s.client.Dynamic.Resource(schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"}).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, o := range list.Items {
		of, _, _ := unstructured.NestedString(o.Object, "spec", "group")
		if service, _, _ := unstructured.NestedMap(o.Object, "spec", "service"); of == group && len(service) > 0 {
			return fmt.Errorf("the pods of its APIService %s do not serve this kind%w", o.GetName(), errUnknown)
		}
	}
	return nil
}

// notOurs returns why an object is not Airlift's to remove; "" if it is.
func notOurs(have *unstructured.Unstructured) string {
	for _, owner := range have.GetOwnerReferences() {
		if owner.Controller != nil && *owner.Controller {
			return fmt.Sprintf("%s %s controls it", owner.Kind, owner.Name)
		}
	}
	for key, who := range map[string]string{
		"meta.helm.sh/release-name": "the Helm release", "argocd.argoproj.io/tracking-id": "the application of Argo CD",
	} {
		if value := have.GetAnnotations()[key]; value != "" {
			return fmt.Sprintf("it is part of %s %q", who, value)
		}
	}
	if have.GetAnnotations()["kubectl.kubernetes.io/last-applied-configuration"] != "" {
		return "it was also applied by kubectl"
	}
	applied := false
	var others []string
	for _, m := range have.GetManagedFields() {
		switch {
		case m.Operation != metav1.ManagedFieldsOperationApply || m.Subresource != "":
		case m.Manager == FieldManager:
			applied = true
		default:
			others = append(others, fmt.Sprintf("%q", m.Manager))
		}
	}
	slices.Sort(others)
	switch {
	case len(others) > 0:
		return "it was also applied by " + strings.Join(slices.Compact(others), " and ")
	case !applied:
		return "Airlift did not apply it"
	case existed(have):
		return "it existed before a manifest had it"
	}
	return ""
}

// createdHere reports whether Airlift created a namespace for a manifest that does not have it, and nobody else applied it.
func createdHere(have *unstructured.Unstructured) (here bool) {
	if existed(have) {
		return false
	}
	for _, m := range have.GetManagedFields() {
		here = here || m.Manager == FieldManager
		if m.Operation == metav1.ManagedFieldsOperationApply && m.Manager != FieldManager {
			return false
		}
	}
	return here
}

// othersIn returns the objects in a namespace that are not removed with it, without what Kubernetes itself writes to each namespace, and
// without what goes when its owner goes.
func (s *Applier) othersIn(ctx context.Context, namespace string, removed map[string]bool) (names []string, err error) {
	lists, err := s.client.API.Discovery().ServerPreferredResources()
	if discovery.IsGroupDiscoveryFailedError(err) {
		return nil, fmt.Errorf("it is not known what else is in it: %w%w", err, errUnknown)
	}
	if err != nil {
		return nil, fmt.Errorf("listing the kinds of the cluster: %w", err)
	}
	lists = discovery.FilteredBy(discovery.SupportsAllVerbs{Verbs: []string{"list", "delete"}}, lists)
	for _, list := range lists {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return nil, err
		}
		for _, kind := range list.APIResources {
			if !kind.Namespaced || slices.Contains([]string{"events", "endpoints", "endpointslices", "leases"}, kind.Name) {
				continue
			}
			found, err := s.list(ctx, schema.GroupKind{Group: version.Group, Kind: kind.Kind}.String(), s.client.Dynamic.Resource(version.WithResource(kind.Name)).Namespace(namespace))
			if apierrors.IsNotFound(err) { // its definition is gone
				continue
			}
			if err != nil {
				return nil, fmt.Errorf("listing %s in namespace %q: %w", kind.Name, namespace, err)
			}
			for i := range found {
				o := &found[i]
				o.SetKind(kind.Kind)
				o.SetAPIVersion(list.GroupVersion)
				if name := inventoryName(o, namespace); !removed[name] && !s.goesWithOwner(o, removed) &&
					name != "ServiceAccount "+namespace+"/default" && name != "ConfigMap "+namespace+"/kube-root-ca.crt" {
					names = append(names, name)
				}
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// goesWithOwner reports whether an object has an owner in its namespace, or one that is removed. An owner outside of the namespace stays.
func (s *Applier) goesWithOwner(o *unstructured.Unstructured, removed map[string]bool) bool {
	return slices.ContainsFunc(o.GetOwnerReferences(), func(owner metav1.OwnerReference) bool {
		kind := schema.FromAPIVersionAndKind(owner.APIVersion, owner.Kind)
		mapping, err := s.mapper.RESTMapping(kind.GroupKind(), kind.Version)
		return err != nil || mapping.Scope.Name() == meta.RESTScopeNameNamespace || removed[kind.GroupKind().String()+" "+owner.Name]
	})
}

// othersOf returns the objects of a definition that are not removed with it.
func (s *Applier) othersOf(ctx context.Context, crd *unstructured.Unstructured, removed map[string]bool) (names []string, err error) {
	field := func(path ...string) string {
		text, _, _ := unstructured.NestedString(crd.Object, append([]string{"spec"}, path...)...)
		return text
	}
	versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
	version := ""
	for _, v := range versions {
		if v, ok := v.(map[string]any); ok && v["served"] == true {
			version, _ = v["name"].(string)
		}
	}
	kind := schema.GroupVersionResource{Group: field("group"), Version: version, Resource: field("names", "plural")}
	found, err := s.list(ctx, schema.GroupKind{Group: kind.Group, Kind: field("names", "kind")}.String(), s.client.Dynamic.Resource(kind))
	if apierrors.IsNotFound(err) {
		return nil, nil // it was never served
	}
	for i := range found {
		if name := inventoryName(&found[i], found[i].GetNamespace()); !removed[name] {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, err
}

// list lists objects, page by page.
func (s *Applier) list(ctx context.Context, kind string, resource dynamic.ResourceInterface) (all []unstructured.Unstructured, err error) {
	options := metav1.ListOptions{Limit: 500}
	for {
		var page *unstructured.UnstructuredList
		err := s.read(ctx, kind, func(ctx context.Context) (err error) {
			page, err = resource.List(ctx, options)
			return err
		})
		if err != nil {
			return nil, err
		}
		all = append(all, page.Items...)
		if options.Continue = page.GetContinue(); options.Continue == "" {
			return all, nil
		}
	}
}

// withPods are the kinds that are deleted after their pods.
var withPods = []string{"Deployment.apps", "StatefulSet.apps", "DaemonSet.apps", "ReplicaSet.apps", "ReplicationController", "Job.batch", "CronJob.batch"}

// deleteOptions deletes exactly this version of an object.
func deleteOptions(have *unstructured.Unstructured) metav1.DeleteOptions {
	uid, version, propagation := have.GetUID(), have.GetResourceVersion(), metav1.DeletePropagationBackground
	if slices.Contains(withPods, have.GroupVersionKind().GroupKind().String()) {
		propagation = metav1.DeletePropagationForeground
	}
	return metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &version}, PropagationPolicy: &propagation}
}

// Remove removes what the plan lists, and waits until it is gone. It looks at each object once more: what has changed since the plan was
// made stays. kept are these. What is gone leaves the inventory at once, so a run that is killed can be continued.
func (s *Applier) Remove(ctx context.Context, plan Plan, also []string) (kept Plan, err error) {
	for _, r := range plan {
		if r.gone || r.forget {
			if err := s.forget(ctx, r); err != nil {
				return kept, err
			}
		}
	}
	list := plan.Removed()
	for len(list) > 0 {
		n := 0
		for n < len(list) && rankOfName(list[n].Object) == rankOfName(list[0].Object) {
			n++
		}
		// What is left of the ranks before stays: it is not removed with its namespace or its definition.
		stay, err := s.removeRank(ctx, list, list[:n], also)
		if kept = append(kept, stay...); err != nil {
			return kept, err
		}
		list = list[n:]
	}
	return kept, nil
}

// removeRank removes objects of one rank.
func (s *Applier) removeRank(ctx context.Context, plan, list Plan, also []string) (kept Plan, err error) {
	removed := map[string]bool{}
	for _, r := range plan.Removed() {
		removed[r.Object] = true
	}
	left := slices.Clone(list)
	w := wait.For{What: "removed objects to be gone", Short: "removed objects", Timeout: s.Timeout, Attempt: cluster.RequestTimeout, Report: s.Report,
		Hint: "a finalizer waits for what wrote it: find out why it does not answer; then run the same command again"}
	sent := map[string]bool{}
	err = w.Until(ctx, nil, func(ctx context.Context) (bool, string, error) {
		inventory, err := ReadInventory(ctx, s.client.API)
		if err != nil {
			return false, "", err
		}
		others := claims(inventory)
		var states []string
		var failed error
		left = slices.DeleteFunc(left, func(r Removal) bool {
			if failed != nil {
				return false
			}
			state, stays, err := s.removeOnce(ctx, r, without(others[r.Object], []string{r.Manifest}), removed, also, sent)
			switch {
			case errors.Is(err, errUnknown):
				r.Kept, r.unread = err.Error(), true
				kept = append(kept, r)
				return true
			case err != nil:
				failed = err
				return false
			case stays != "":
				r.Kept = stays
				kept = append(kept, r)
				return true
			case state != "":
				states = append(states, r.Object+": "+state)
				return false
			}
			if failed = s.forget(ctx, r); failed != nil {
				return false
			}
			return true
		})
		return len(left) == 0, strings.Join(states, "; "), failed
	})
	if err != nil && len(left) > 0 {
		err = fault.Wrap(fmt.Errorf("removing %s of manifest %q: %w", left[0].Object, left[0].Manifest, err), fault.ExitCode(err), cmp.Or(fault.Hint(err), w.Hint))
	}
	return kept, err
}

// removeOnce deletes an object, or looks whether it is gone: then state and stays are "". stays is why it is not removed.
func (s *Applier) removeOnce(ctx context.Context, r Removal, others []string, removed map[string]bool, also []string, sent map[string]bool) (state, stays string, err error) {
	now := Removal{Manifest: r.Manifest, Object: r.Object}
	have, err := s.find(ctx, r.Object)
	switch {
	case errors.Is(err, errUnknown):
		return "", "", err
	case err != nil && wait.IsOutage(err):
		return err.Error(), "", nil
	case err != nil:
		return "", "", err
	case have == nil:
		return "", "", nil
	case have.GetUID() != r.UID && sent[r.Object]: // something created it again
		return "", "something created it again", nil
	case have.GetUID() != r.UID:
		return "", "it was replaced by another object of this name", nil
	case have.GetDeletionTimestamp() != nil:
		return terminating(have), "", nil
	}
	if err := s.judge(ctx, &now, others, removed, also); err != nil {
		return "", "", err
	}
	if now.gone && len(others) > 0 {
		return "", "the manifest " + strings.Join(others, " and ") + " has it now", nil
	}
	if now.unread {
		return "", "", fmt.Errorf("%s%w", now.Kept, errUnknown)
	}
	if now.Kept != "" {
		return "", now.Kept, nil
	}
	resource, _, err := s.resourceOf(r.Object)
	if err != nil {
		return err.Error(), "", nil
	}
	err = resource.Delete(ctx, have.GetName(), deleteOptions(have))
	switch {
	case err == nil:
		sent[r.Object] = true
		return terminating(have), "", nil
	case apierrors.IsNotFound(err), apierrors.IsConflict(err), wait.IsOutage(err): // it has changed since: look again
		return err.Error(), "", nil
	}
	return "", "", err
}

// terminating describes an object that is being deleted.
func terminating(have *unstructured.Unstructured) string {
	for _, kind := range []string{"NamespaceDeletionContentFailure", "NamespaceContentRemaining", "NamespaceFinalizersRemaining"} {
		if status, why := condition(have, kind); status == "True" && rank(have) == rankNamespace {
			return "it is being deleted: " + why
		}
	}
	if finalizers := have.GetFinalizers(); len(finalizers) > 0 {
		return "it is being deleted, and waits for its finalizers: " + strings.Join(finalizers, ", ")
	}
	return "it is being deleted"
}

// forget removes an object from the former objects of all manifests.
func (s *Applier) forget(ctx context.Context, r Removal) error {
	inventory, err := ReadInventory(ctx, s.client.API)
	if err != nil {
		return err
	}
	for name, e := range inventory {
		if !slices.Contains(e.Former, r.Object) {
			continue
		}
		e.Former, e.Undone = without(e.Former, []string{r.Object}), without(e.Undone, []string{r.Object})
		if err := s.record(ctx, name, e); err != nil {
			return err
		}
	}
	return nil
}
