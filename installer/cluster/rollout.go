package cluster

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// mergePatch is the type of JSON merge patches.
const mergePatch = types.MergePatchType

// A Waiting limits a wait without progress, and reports what it sees.
type Waiting struct {
	Timeout time.Duration
	Report  Report
}

// restartedFor is the annotation of a pod template that restarts its pods once for each value.
const restartedFor = "airlift.dev/restarted-for"

// RestartWorkloads replaces the pods of all Deployments, DaemonSets and StatefulSets in these
// namespaces, as kubectl rollout restart does, once for each value of reason. It returns those
// that it restarted, as "Kind namespace/name".
func (c Rollouts) RestartWorkloads(ctx context.Context, reason string, namespaces ...string) (restarted []string, err error) {
	patch := fmt.Appendf(nil, `{"spec":{"template":{"metadata":{"annotations":{%q:%q}}}}}`, restartedFor, reason)
	workloads, err := c.workloads(ctx, namespaces)
	if err != nil {
		return nil, err
	}
	for _, w := range workloads {
		if w.annotations[restartedFor] == reason {
			continue
		}
		if err := persist(ctx, func() error { return w.patch(ctx, patch) }); err != nil {
			return restarted, fmt.Errorf("restarting %s: %w", w.name, err)
		}
		restarted = append(restarted, w.name)
	}
	return restarted, nil
}

// WaitForRollouts waits until the Deployments, DaemonSets and StatefulSets in these namespaces
// have only pods of their current templates, all Ready.
func (c Rollouts) WaitForRollouts(ctx context.Context, with Waiting, namespaces ...string) error {
	w := wait{
		what: "the restarted pods in " + strings.Join(namespaces, ", ") + " to be Ready", timeout: with.Timeout, report: with.Report, interval: time.Second,
		hint: "inspect the pods: kubectl get pods -A -o wide; then run this command again",
	}
	return w.until(ctx, nil, func(ctx context.Context) (bool, string, error) {
		workloads, err := c.workloads(ctx, namespaces)
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
func (c Rollouts) WaitForProxies(ctx context.Context, with Waiting) error {
	w := wait{what: "the new pods of kube-proxy to be Ready", short: "kube-proxy's pods", timeout: with.Timeout, report: with.Report, interval: time.Second}
	return w.until(ctx, nil, func(ctx context.Context) (bool, string, error) {
		d, err := c.client.api.AppsV1().DaemonSets(systemNamespace).Get(ctx, "kube-proxy", metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err) || apierrors.IsForbidden(err):
			return true, "", nil
		case err != nil:
			return false, err.Error(), nil
		}
		s := d.Status
		return c.daemonSet(d).current, fmt.Sprintf("of %d nodes, %d have the new pod, and %d a Ready one", s.DesiredNumberScheduled, s.UpdatedNumberScheduled, s.NumberReady), nil
	})
}

// APIWorkloads lists the Deployments, DaemonSets and StatefulSets in all other namespaces whose
// pods have the token of a service account, and so may use the API.
func (c Rollouts) APIWorkloads(ctx context.Context, except ...string) (names []string, err error) {
	workloads, err := c.workloads(ctx, []string{metav1.NamespaceAll})
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

func (c Rollouts) workloads(ctx context.Context, namespaces []string) (list []workload, err error) {
	for _, ns := range namespaces {
		apps, some := c.client.api.AppsV1(), []workload(nil)
		err := persist(ctx, func() error {
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
				some = append(some, c.deployment(&d))
			}
			for _, d := range daemonSets.Items {
				some = append(some, c.daemonSet(&d))
			}
			for _, s := range statefulSets.Items {
				some = append(some, c.statefulSet(&s))
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

func (c Rollouts) deployment(d *appsv1.Deployment) workload {
	s, all := d.Status, replicas(*d)
	return workload{
		namespace: d.Namespace, name: "Deployment " + qualified(d.Namespace, d.Name), annotations: d.Spec.Template.Annotations, token: hasToken(d.Spec.Template.Spec.AutomountServiceAccountToken),
		current: s.ObservedGeneration >= d.Generation && s.UpdatedReplicas == all && s.Replicas == all && s.ReadyReplicas == all,
		patch: func(ctx context.Context, patch []byte) error {
			_, err := c.client.api.AppsV1().Deployments(d.Namespace).Patch(ctx, d.Name, mergePatch, patch, metav1.PatchOptions{})
			return err
		},
	}
}

func (c Rollouts) daemonSet(d *appsv1.DaemonSet) workload {
	s := d.Status
	updated := s.UpdatedNumberScheduled == s.DesiredNumberScheduled || d.Spec.UpdateStrategy.Type == appsv1.OnDeleteDaemonSetStrategyType
	return workload{
		namespace: d.Namespace, name: "DaemonSet " + qualified(d.Namespace, d.Name), annotations: d.Spec.Template.Annotations, token: hasToken(d.Spec.Template.Spec.AutomountServiceAccountToken),
		current: s.ObservedGeneration >= d.Generation && updated && s.NumberReady == s.DesiredNumberScheduled,
		patch: func(ctx context.Context, patch []byte) error {
			_, err := c.client.api.AppsV1().DaemonSets(d.Namespace).Patch(ctx, d.Name, mergePatch, patch, metav1.PatchOptions{})
			return err
		},
	}
}

func (c Rollouts) statefulSet(d *appsv1.StatefulSet) workload {
	s, all := d.Status, int32(1)
	if d.Spec.Replicas != nil {
		all = *d.Spec.Replicas
	}
	updated := s.UpdateRevision == s.CurrentRevision || d.Spec.UpdateStrategy.Type == appsv1.OnDeleteStatefulSetStrategyType
	return workload{
		namespace: d.Namespace, name: "StatefulSet " + qualified(d.Namespace, d.Name), annotations: d.Spec.Template.Annotations, token: hasToken(d.Spec.Template.Spec.AutomountServiceAccountToken),
		current: s.ObservedGeneration >= d.Generation && updated && s.ReadyReplicas == all,
		patch: func(ctx context.Context, patch []byte) error {
			_, err := c.client.api.AppsV1().StatefulSets(d.Namespace).Patch(ctx, d.Name, mergePatch, patch, metav1.PatchOptions{})
			return err
		},
	}
}

// hasToken reports whether pods have a service account's token, unless the account forbids it.
func hasToken(automount *bool) bool { return automount == nil || *automount }
