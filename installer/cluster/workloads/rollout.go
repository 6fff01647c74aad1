package workloads

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/kubernetes"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"airlift/installer/cluster"
	"airlift/installer/cluster/wait"
)

// restartedFor is the annotation of a pod template that restarts its pods once for each value.
const restartedFor = "airlift.dev/restarted-for"

// Restart replaces the pods of all Deployments, DaemonSets and StatefulSets in these namespaces, as
// kubectl rollout restart does, once for each value of reason. It returns the restarted workloads,
// as "Kind namespace/name".
func Restart(ctx context.Context, api kubernetes.Interface, reason string, namespaces ...string) (restarted []string, err error) {
	workloads, err := workloads(ctx, api, namespaces)
	if err != nil {
		return nil, err
	}
	for _, w := range workloads {
		again, err := w.restart(ctx, reason)
		if err != nil {
			return restarted, err
		}
		if again {
			restarted = append(restarted, w.name)
		}
	}
	return restarted, nil
}

// RestartDaemonSet is Restart of one DaemonSet, which may be missing.
func RestartDaemonSet(ctx context.Context, api kubernetes.Interface, reason, namespace, name string) (restarted bool, err error) {
	d, err := wait.Get(ctx, api.AppsV1().DaemonSets(namespace).Get, name)
	switch {
	case apierrors.IsNotFound(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("reading DaemonSet %s/%s: %w", namespace, name, err)
	}
	return daemonSet(api, d).restart(ctx, reason)
}

// restart restarts the workload, unless that was done for this reason.
func (w workload) restart(ctx context.Context, reason string) (restarted bool, err error) {
	if w.annotations[restartedFor] == reason {
		return false, nil
	}
	patch := fmt.Appendf(nil, `{"spec":{"template":{"metadata":{"annotations":{%q:%q}}}}}`, restartedFor, reason)
	if err := wait.Retry(ctx, func() error { return w.patch(ctx, patch) }); err != nil {
		return false, fmt.Errorf("restarting %s: %w", w.name, err)
	}
	return true, nil
}

// WaitForRollouts waits until the Deployments, DaemonSets and StatefulSets in these namespaces
// have only pods of their current templates, all Ready.
func WaitForRollouts(ctx context.Context, api kubernetes.Interface, with wait.Limit, namespaces ...string) error {
	w := wait.For{
		What: "the restarted pods in " + strings.Join(namespaces, ", ") + " to be Ready", Timeout: with.Timeout, Report: with.Report, Interval: time.Second,
		Hint: "inspect the pods: kubectl get pods -A -o wide; then run this command again",
	}
	return w.Until(ctx, nil, func(ctx context.Context) (bool, string, error) {
		workloads, err := workloads(ctx, api, namespaces)
		if err != nil {
			return false, err.Error(), nil
		}
		var left []string
		for _, w := range workloads {
			if !w.current {
				left = append(left, w.name)
			}
		}
		return len(left) == 0, strings.Join(left, ", "), nil
	})
}

// WaitForProxies waits until all pods of kube-proxy have its current template and are Ready: a node
// whose kube-proxy restarts still sends requests to pods that have ended. A client that may not read
// DaemonSets does not wait.
func WaitForProxies(ctx context.Context, api kubernetes.Interface, with wait.Limit) error {
	return WaitForDaemonSet(ctx, api, with, metav1.NamespaceSystem, "kube-proxy")
}

// WaitForDaemonSet waits until all pods of a DaemonSet have its current template and are Ready. It does not wait for one
// that does not exist, or that the client may not read.
func WaitForDaemonSet(ctx context.Context, api kubernetes.Interface, with wait.Limit, namespace, name string) error {
	w := wait.For{What: "the new pods of " + name + " to be Ready", Short: name + "'s pods", Timeout: with.Timeout, Report: with.Report, Interval: time.Second}
	return w.Until(ctx, nil, func(ctx context.Context) (bool, string, error) {
		d, err := api.AppsV1().DaemonSets(namespace).Get(ctx, name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err) || apierrors.IsForbidden(err):
			return true, "", nil
		case err != nil:
			return false, err.Error(), nil
		}
		s := d.Status
		return daemonSet(api, d).current, fmt.Sprintf("of %d nodes, %d have the new pod, and %d a Ready one", s.DesiredNumberScheduled, s.UpdatedNumberScheduled, s.NumberReady), nil
	})
}

// UsingAPI lists the Deployments, DaemonSets and StatefulSets in all other namespaces whose
// pods have the token of a service account, and so may use the API.
func UsingAPI(ctx context.Context, api kubernetes.Interface, except ...string) (names []string, err error) {
	workloads, err := workloads(ctx, api, []string{metav1.NamespaceAll})
	for _, w := range workloads {
		if w.token && !slices.Contains(except, w.namespace) {
			names = append(names, w.name)
		}
	}
	return names, err
}

// A workload is a Deployment, a DaemonSet or a StatefulSet.
type workload struct {
	namespace, name string // name is "Kind namespace/name"
	annotations     map[string]string
	token           bool // its pods have a token
	current         bool // all pods have the current template and are Ready
	patch           func(context.Context, []byte) error
}

func workloads(ctx context.Context, api kubernetes.Interface, namespaces []string) (list []workload, err error) {
	for _, ns := range namespaces {
		apps, some := api.AppsV1(), []workload(nil)
		err := wait.Retry(ctx, func() error {
			deployments, err := apps.Deployments(ns).List(ctx, metav1.ListOptions{})
			if err != nil {
				return err
			}
			daemonSets, err := apps.DaemonSets(ns).List(ctx, metav1.ListOptions{})
			if err != nil {
				return err
			}
			statefulSets, err := apps.StatefulSets(ns).List(ctx, metav1.ListOptions{})
			if err != nil {
				return err
			}
			some = nil
			for _, d := range deployments.Items {
				some = append(some, deployment(api, &d))
			}
			for _, d := range daemonSets.Items {
				some = append(some, daemonSet(api, &d))
			}
			for _, s := range statefulSets.Items {
				some = append(some, statefulSet(api, &s))
			}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("listing the workloads: %w", err)
		}
		list = append(list, some...)
	}
	return list, nil
}

func deployment(api kubernetes.Interface, d *appsv1.Deployment) workload {
	s, all := d.Status, Replicas(*d)
	return workload{
		namespace: d.Namespace, name: "Deployment " + cluster.Qualified(d.Namespace, d.Name), annotations: d.Spec.Template.Annotations, token: hasToken(d.Spec.Template.Spec.AutomountServiceAccountToken),
		current: s.ObservedGeneration >= d.Generation && s.UpdatedReplicas == all && s.Replicas == all && s.ReadyReplicas == all,
		patch: func(ctx context.Context, patch []byte) error {
			_, err := api.AppsV1().Deployments(d.Namespace).Patch(ctx, d.Name, types.MergePatchType, patch, metav1.PatchOptions{})
			return err
		},
	}
}

func daemonSet(api kubernetes.Interface, d *appsv1.DaemonSet) workload {
	s := d.Status
	updated := s.UpdatedNumberScheduled == s.DesiredNumberScheduled || d.Spec.UpdateStrategy.Type == appsv1.OnDeleteDaemonSetStrategyType
	return workload{
		namespace: d.Namespace, name: "DaemonSet " + cluster.Qualified(d.Namespace, d.Name), annotations: d.Spec.Template.Annotations, token: hasToken(d.Spec.Template.Spec.AutomountServiceAccountToken),
		current: s.ObservedGeneration >= d.Generation && updated && s.NumberReady == s.DesiredNumberScheduled,
		patch: func(ctx context.Context, patch []byte) error {
			_, err := api.AppsV1().DaemonSets(d.Namespace).Patch(ctx, d.Name, types.MergePatchType, patch, metav1.PatchOptions{})
			return err
		},
	}
}

func statefulSet(api kubernetes.Interface, d *appsv1.StatefulSet) workload {
	s, all := d.Status, int32(1)
	if d.Spec.Replicas != nil {
		all = *d.Spec.Replicas
	}
	updated := s.UpdateRevision == s.CurrentRevision || d.Spec.UpdateStrategy.Type == appsv1.OnDeleteStatefulSetStrategyType
	return workload{
		namespace: d.Namespace, name: "StatefulSet " + cluster.Qualified(d.Namespace, d.Name), annotations: d.Spec.Template.Annotations, token: hasToken(d.Spec.Template.Spec.AutomountServiceAccountToken),
		current: s.ObservedGeneration >= d.Generation && updated && s.ReadyReplicas == all,
		patch: func(ctx context.Context, patch []byte) error {
			_, err := api.AppsV1().StatefulSets(d.Namespace).Patch(ctx, d.Name, types.MergePatchType, patch, metav1.PatchOptions{})
			return err
		},
	}
}

// hasToken reports whether pods have a service account's token, unless the account forbids it.
func hasToken(automount *bool) bool { return automount == nil || *automount }
