package apply

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"airlift/installer/cluster"
	"airlift/installer/cluster/wait"
	"airlift/internal/fault"
)

// Annotations of a chart's hooks, and what Airlift writes to the Jobs and Pods that it starts for them.
const (
	hookAnnotation       = "helm.sh/hook"
	hookWeightAnnotation = "helm.sh/hook-weight"
	hookDeleteAnnotation = "helm.sh/hook-delete-policy"
	// runAnnotation names the version and the event for which a hook was started, so that a run that continues finds it.
	runAnnotation = "airlift.dev/hook-run"
)

// The events of hooks that Airlift knows, as Helm names them.
const (
	install  = "install"
	upgrade  = "upgrade"
	rollback = "rollback"
	deletion = "delete"

	beforeObjects = "pre-"
	afterObjects  = "post-"
)

var events = []string{
	beforeObjects + install, afterObjects + install, beforeObjects + upgrade, afterObjects + upgrade,
	beforeObjects + rollback, afterObjects + rollback, beforeObjects + deletion, afterObjects + deletion,
}

// A hook is an object of a chart that is applied when something happens to its manifest. Jobs and Pods are then waited for.
type hook struct {
	object   *unstructured.Unstructured
	events   []string
	weight   int
	policies []string // when the object is deleted
}

// hookOf reads the annotations of a hook. An event that Airlift does not run, such as test, is left out.
func hookOf(o *unstructured.Unstructured) (h *hook, is bool) {
	list := func(text string) (words []string) {
		for word := range strings.SplitSeq(text, ",") {
			words = append(words, strings.ToLower(strings.TrimSpace(word)))
		}
		return words
	}
	text, is := o.GetAnnotations()[hookAnnotation]
	h = &hook{object: o, policies: list(o.GetAnnotations()[hookDeleteAnnotation])}
	for _, e := range list(text) {
		if slices.Contains(events, e) {
			h.events = append(h.events, e)
		}
	}
	h.weight, _ = strconv.Atoi(o.GetAnnotations()[hookWeightAnnotation]) // as in Helm, what is no number is 0
	return h, is
}

// compareHooks orders hooks as Helm does, by weight and then by name, except that what pods read precedes them.
func compareHooks(a, b *hook) int {
	return cmp.Or(a.weight-b.weight, min(rank(a.object), rankOther)-min(rank(b.object), rankOther), strings.Compare(a.object.GetName(), b.object.GetName()))
}

// runs reports whether the hook is something that ends.
func (h *hook) runs() bool {
	kind := h.object.GroupVersionKind().GroupKind().String()
	return kind == "Job.batch" || kind == "Pod"
}

// eventsOf returns the events of a change for which the manifest has hooks.
func (m *Manifest) eventsOf(change string) (pending []string) {
	for _, e := range []string{beforeObjects + change, afterObjects + change} {
		if len(m.hooksFor(e)) > 0 {
			pending = append(pending, e)
		}
	}
	return pending
}

// hooksFor returns the hooks for an event, by weight.
func (m *Manifest) hooksFor(event string) (list []*hook) {
	for _, h := range m.hooks {
		if slices.Contains(h.events, event) {
			list = append(list, h)
		}
	}
	return list
}

// hookNames returns the names of the objects of hooks, each once.
func (s *Applier) hookNames(m *Manifest) (names []string) {
	for _, h := range m.hooks {
		names = append(names, inventoryName(h.object, s.placeOf(m, h.object)))
	}
	return without(names, nil)
}

// runHooks runs the hooks for an event and waits for them. run identifies the version of the manifest: a Job that was started for it
// before is not started again. later is why they cannot run before a worker joins.
func (s *Applier) runHooks(ctx context.Context, m *Manifest, event, run string, done *Applied) (later string, err error) {
	hooks := m.hooksFor(event)
	for i, h := range hooks {
		if h.runs() {
			later, err = s.runHook(ctx, m, h, event, run, done)
		} else {
			it := &item{manifest: m, object: h.object, done: &Applied{}}
			if err = s.repeat(ctx, []*item{it}); len(it.done.Later) > 0 {
				later = it.done.Later[0].Why
			}
			done.Changed = append(done.Changed, it.done.Changed...)
			done.Kept = append(done.Kept, it.done.Kept...)
		}
		if later != "" || err != nil {
			if err != nil && ctx.Err() == nil {
				s.dropHooks(ctx, m, hooks[i:i+1], "hook-failed")
				s.dropHooks(ctx, m, hooks[:i], "hook-succeeded")
			}
			return later, err
		}
	}
	s.dropHooks(ctx, m, hooks, "hook-succeeded")
	return "", nil
}

// dropHooks deletes the objects of hooks that have a policy and that no other manifest has, without waiting. An object that stays is in the
// inventory.
func (s *Applier) dropHooks(ctx context.Context, m *Manifest, hooks []*hook, policy string) {
	inventory, err := ReadInventory(ctx, s.client.API)
	if err != nil {
		return
	}
	others := claims(inventory)
	for _, h := range slices.Backward(hooks) {
		if !slices.Contains(h.policies, policy) || rank(h.object) <= rankDefinition { // Helm, too, never deletes definitions
			continue
		}
		resource, _, err := s.resource(h.object, m.Namespace)
		if err != nil || len(without(others[inventoryName(h.object, s.placeOf(m, h.object))], []string{m.Name})) > 0 {
			continue
		}
		if have, err := resource.Get(ctx, h.object.GetName(), metav1.GetOptions{}); err == nil && notOurs(have) == "" {
			_ = resource.Delete(ctx, have.GetName(), deleteOptions(have))
		}
	}
}

// runHook starts a Job or a Pod, and waits until it has succeeded.
func (s *Applier) runHook(ctx context.Context, m *Manifest, h *hook, event, run string, done *Applied) (later string, err error) {
	want := h.object.DeepCopy()
	mark := run + "-" + event
	annotations := want.GetAnnotations()
	annotations[runAnnotation] = mark
	want.SetAnnotations(annotations)
	watched := want.DeepCopy()
	unstructured.RemoveNestedField(watched.Object, "spec", ttlField) // a hook that does not exist has not succeeded
	name := inventoryName(want, s.placeOf(m, want))
	what := fmt.Sprintf("the %s hook %s of manifest %q", event, cluster.Describe(want), m.Name)
	fail := func(err error, hint string) (string, error) {
		return "", fault.Wrap(fmt.Errorf("running %s: %w", what, err), fault.ExitCode(err), hint)
	}
	if s.Note != nil {
		s.Note("%s: running the %s hook %s", m.Name, event, name)
	}
	started, err := s.freeHook(ctx, m, want, mark)
	if err != nil {
		return fail(err, fault.Hint(err))
	}
	if !started {
		it := &item{manifest: m, object: want, done: &Applied{}}
		if err := s.repeat(ctx, []*item{it}); err != nil {
			return "", err
		}
		if len(it.done.Later) > 0 {
			return it.done.Later[0].Why, nil
		}
	}
	timeout := s.Timeout
	if seconds, ok, _ := unstructured.NestedInt64(want.Object, "spec", "activeDeadlineSeconds"); ok {
		timeout = max(timeout, time.Duration(seconds)*time.Second) // it ends by itself then
	}
	failed := ""
	w := wait.For{What: what, Short: "hooks", Timeout: timeout, Interval: time.Second, Report: s.Report, Hint: "inspect it: kubectl describe " + kubectlName(want, s.placeOf(m, want))}
	err = w.Until(ctx, nil, func(ctx context.Context) (bool, string, error) {
		r, err := s.ready(ctx, watched, m.Namespace, s.InBundle)
		if err == nil && r.Ready && want.GetKind() == "Pod" {
			r.Ready, r.Why = s.podSucceeded(ctx, m, want)
		}
		switch {
		case err != nil:
			return false, err.Error(), nil
		case r.Ready:
			return true, "", nil
		case r.Later:
			later = name + ": " + r.Why
			return true, "", nil
		case r.Failed:
			failed = r.Why
			return false, "", fault.New(fault.Failure, "%s", r.Why)
		}
		return false, name + ": " + r.Why, nil
	})
	if failed != "" {
		return fail(fault.New(fault.Failure, "%s", failed), "its whole log: kubectl logs "+kubectlName(want, s.placeOf(m, want))+"; correct what failed, and run this command again: it runs the hook again")
	}
	if err == nil && later == "" {
		done.Changed = append(done.Changed, name)
	}
	return later, err
}

// podSucceeded reports whether a Pod that is ready has ended: a hook is not something that keeps running.
func (s *Applier) podSucceeded(ctx context.Context, m *Manifest, o *unstructured.Unstructured) (bool, string) {
	pod, err := s.client.API.CoreV1().Pods(namespaceOf(o, m.Namespace)).Get(ctx, o.GetName(), metav1.GetOptions{})
	if err != nil {
		return false, err.Error()
	}
	return pod.Status.Phase == corev1.PodSucceeded, "it is still running"
}

// freeHook deletes what an earlier version started under the name of a hook, and waits until it is gone. started reports that it was
// started for this version, and did not fail.
func (s *Applier) freeHook(ctx context.Context, m *Manifest, want *unstructured.Unstructured, mark string) (started bool, err error) {
	inventory, err := ReadInventory(ctx, s.client.API)
	if err != nil {
		return false, err
	}
	var others []string
	for _, name := range slices.Sorted(maps.Keys(inventory)) {
		if e := inventory[name]; name != m.Name && slices.Contains(slices.Concat(e.Objects, e.Later), inventoryName(want, s.placeOf(m, want))) {
			others = append(others, name)
		}
	}
	w := wait.For{What: cluster.Describe(want) + " of an earlier version to be gone", Short: "hooks", Timeout: s.Timeout, Attempt: cluster.RequestTimeout, Report: s.Report}
	err = w.Until(ctx, nil, func(ctx context.Context) (bool, string, error) {
		resource, _, err := s.resource(want, m.Namespace)
		if err != nil {
			return false, err.Error(), nil
		}
		have, err := resource.Get(ctx, want.GetName(), metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return true, "", nil
		case err != nil:
			return false, err.Error(), nil
		case have.GetDeletionTimestamp() != nil:
			return false, terminating(have), nil
		}
		why := notOurs(have)
		if why == "" && len(others) > 0 {
			why = "it is an object of the manifest " + strings.Join(others, " and ")
		}
		if why != "" {
			return false, "", fault.New(fault.Failure, "%s exists, and %s", cluster.Describe(have), why).
				Hint("if nothing needs it: kubectl delete " + kubectlName(have, have.GetNamespace()) + "; then run this command again")
		}
		if r, _ := state(have); have.GetAnnotations()[runAnnotation] == mark && !r.Failed {
			started = true
			return true, "", nil
		}
		if err := resource.Delete(ctx, have.GetName(), deleteOptions(have)); err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return false, err.Error(), nil
		}
		return false, "it is being deleted", nil
	})
	return started, err
}

// kubectlName returns kubectl's arguments for an object: "job/migrate -n web".
func kubectlName(o *unstructured.Unstructured, namespace string) string {
	kind := strings.ToLower(o.GetKind())
	if group := o.GroupVersionKind().Group; isCustom(group) {
		kind += "." + group
	}
	text := kind + "/" + o.GetName()
	if namespace != "" {
		text += " -n " + namespace
	}
	return text
}

// AfterWorkloads runs the hooks that follow the workloads of a manifest, and records that this version of it runs. later is why they
// cannot run before a worker joins. It does nothing if that was done.
func (s *Applier) AfterWorkloads(ctx context.Context, m *Manifest) (later string, err error) {
	inventory, err := ReadInventory(ctx, s.client.API)
	if err != nil {
		return "", err
	}
	e, ok := inventory[m.Name]
	if !ok || e.SHA256 != m.SHA256 || e.Applied == "" || len(e.Later) > 0 {
		return "", nil
	}
	for _, event := range slices.Clone(e.Pending) {
		if later, err = s.runHooks(ctx, m, event, e.hookRun(), &Applied{}); later != "" || err != nil {
			return later, err
		}
		e.Pending = without(e.Pending, []string{event})
		if err := s.record(ctx, m.Name, e); err != nil {
			return "", err
		}
	}
	return "", s.complete(ctx, m.Name, e.Revision)
}

// hookRun identifies the version of the manifest for which hooks run.
func (e Entry) hookRun() string { return cmp.Or(e.Run, e.SHA256) }
