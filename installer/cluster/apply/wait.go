package apply

import (
	"context"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"

	"airlift/installer/cluster/wait"
	"airlift/installer/timeline"
	"airlift/internal/fault"
)

// Workloads selects the objects of manifests to wait for.
type Workloads struct {
	Manifests []*Manifest
	// Skip are objects, by their names in the inventory, that are not waited for.
	Skip []string
	// InBundle reports whether the bundle has an image.
	InBundle func(image string) bool
	// OnProblem, if set, is called once for each reason why an object is not ready, if the reason
	// looks permanent.
	OnProblem func(problem string)
}

// WaitForWorkloads waits until the workloads of the manifests run, and their Jobs are complete. It
// does not wait for workloads that need a worker, and returns them.
func (s *Applier) WaitForWorkloads(ctx context.Context, want Workloads) (later []Later, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	wake := wait.Watch(ctx, func(ctx context.Context) (watch.Interface, error) {
		return s.client.API.CoreV1().Pods(metav1.NamespaceAll).Watch(ctx, metav1.ListOptions{})
	})
	w := wait.For{
		What: "the workloads of the site's manifests", Short: "workloads", Timeout: s.Timeout, Interval: time.Second, Report: s.Report,
		Hint: "inspect the pods: kubectl get pods -A -o wide; kubectl describe pod -n NAMESPACE NAME; to continue without them: --skip-phases wait-manifests",
	}
	shown, settled := map[string]bool{}, map[string]bool{} // a chart may have hundreds of custom resources
	err = w.Until(ctx, wake, func(ctx context.Context) (bool, string, error) {
		var missing []string
		later = nil
		for _, m := range want.Manifests {
			for _, o := range m.objects {
				name := inventoryName(o, s.placeOf(m, o))
				if settled[name] || slices.Contains(want.Skip, name) || !hasState(o.GroupVersionKind().GroupKind()) {
					continue
				}
				r, err := s.ready(ctx, o, m.Namespace, want.InBundle)
				switch {
				case err != nil:
					return false, err.Error(), nil
				case r.Ready:
					settled[name] = isCustom(o.GroupVersionKind().Group)
				case r.Later:
					later = append(later, Later{m.Name, name, r.Why})
				case r.Failed:
					return false, "", fault.New(fault.Failure, "%s of manifest %q: %s", name, m.Name, r.Why).Hint(fixManifest)
				default:
					missing = append(missing, name+": "+r.Why)
					if problem := m.Name + ": " + name + ": " + r.Why; isProblem(r.Why) && want.OnProblem != nil && !shown[wait.WithoutNumbers(problem)] {
						shown[wait.WithoutNumbers(problem)] = true
						want.OnProblem(problem)
					}
				}
			}
		}
		if len(missing) > 0 {
			timeline.Here(ctx).Awaiting(wait.Summary(missing))
		}
		return len(missing) == 0, strings.Join(missing, "; "), nil
	})
	return later, err
}

// isProblem reports whether a reason looks permanent.
func isProblem(why string) bool {
	return slices.ContainsFunc(append(slices.Clone(imageReasons), "exited with code"), func(s string) bool { return strings.Contains(why, s) })
}

// placeOf returns an object's namespace, "" if its kind has none. The manifest's own
// CustomResourceDefinitions define the kinds that the API server does not know yet.
func (s *Applier) placeOf(m *Manifest, o *unstructured.Unstructured) string {
	gvk := o.GroupVersionKind()
	mapping, err := s.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	global := err == nil && mapping.Scope.Name() == meta.RESTScopeNameRoot
	for _, crd := range m.objects {
		field := func(path ...string) string {
			text, _, _ := unstructured.NestedString(crd.Object, append([]string{"spec"}, path...)...)
			return text
		}
		if err != nil && isCRD(crd) && field("group") == gvk.Group && field("names", "kind") == gvk.Kind {
			global = field("scope") == "Cluster"
		}
	}
	if global {
		return ""
	}
	return namespaceOf(o, m.Namespace)
}
