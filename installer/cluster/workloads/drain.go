package workloads

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"airlift/installer/cluster/wait"
	"airlift/internal/fault"
)

// A Drain evicts the pods of a node, as kubectl drain does. It does not read DaemonSets. So a
// kubelet's permissions suffice, and a worker can drain itself.
type Drain struct {
	api     kubernetes.Interface
	node    string
	Timeout time.Duration // without progress
	Report  wait.Report
	// Waiting is called with each new reason why a pod is not evicted.
	Waiting func(pod, reason string)
}

// NewDrain returns the Drain of a node.
func NewDrain(api kubernetes.Interface, node string, timeout time.Duration) *Drain {
	return &Drain{api: api, node: node, Timeout: timeout, Report: func(string) {}, Waiting: func(string, string) {}}
}

// Pods lists the pods to evict, as namespace/name, and the pods that no controller would create
// again elsewhere. Pods of DaemonSets, static pods and pods that have ended stay.
func (d *Drain) Pods(ctx context.Context) (evict, bare []string, err error) {
	pods, err := d.list(ctx)
	if err != nil {
		return nil, nil, err
	}
	for _, p := range pods {
		evict = append(evict, p.Namespace+"/"+p.Name)
		if metav1.GetControllerOf(&p) == nil {
			bare = append(bare, p.Namespace+"/"+p.Name)
		}
	}
	return evict, bare, nil
}

func (d *Drain) list(ctx context.Context) (pods []corev1.Pod, err error) {
	list, err := wait.List(ctx, d.api.CoreV1().Pods(metav1.NamespaceAll).List, d.onNode())
	if err != nil {
		return nil, fmt.Errorf("listing the pods of node %q: %w", d.node, err)
	}
	for _, p := range list.Items {
		if Evicts(&p) {
			pods = append(pods, p)
		}
	}
	return pods, nil
}

// onNode selects the pods of the node. A kubelet may list and watch only these.
func (d *Drain) onNode() metav1.ListOptions {
	return metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("spec.nodeName", d.node).String()}
}

// Evicts reports whether a drain evicts a pod.
func Evicts(p *corev1.Pod) bool {
	if _, mirror := p.Annotations[corev1.MirrorPodAnnotationKey]; mirror {
		return false
	}
	if p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
		return false
	}
	owner := metav1.GetControllerOf(p)
	return owner == nil || owner.Kind != "DaemonSet"
}

// Run evicts the pods and waits until they are gone. A PodDisruptionBudget may delay an
// eviction: it is requested again until the budget allows it.
func (d *Drain) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	wake := wait.Watch(ctx, func(ctx context.Context) (watch.Interface, error) {
		return d.api.CoreV1().Pods(metav1.NamespaceAll).Watch(ctx, d.onNode())
	})
	reasons := map[string]string{}
	w := wait.For{
		What: fmt.Sprintf("the pods of node %q to move to other nodes", d.node), Short: "the drain",
		Timeout: d.Timeout, Interval: time.Second, Report: d.Report,
		Hint: "make the pods movable (kubectl get pods,poddisruptionbudgets -A), then run this command again; or continue without moving them: --drain=false",
	}
	return w.Until(ctx, wake, func(ctx context.Context) (bool, string, error) {
		pods, err := d.list(ctx)
		if err != nil {
			return false, err.Error(), nil
		}
		if len(pods) == 0 {
			return true, "", nil
		}
		var state []string
		for _, p := range pods {
			name := p.Namespace + "/" + p.Name
			if p.DeletionTimestamp != nil {
				state = append(state, name+" is terminating")
				continue
			}
			reason, err := d.evict(ctx, &p)
			if err != nil {
				return false, "", err
			}
			if reason == "" {
				state = append(state, name+" is evicted")
				continue
			}
			state = append(state, name+": "+reason)
			if reasons[name] != reason {
				reasons[name] = reason
				d.Waiting(name, reason)
			}
		}
		slices.Sort(state)
		return false, strings.Join(state, "; "), nil
	})
}

// evict requests the eviction of a pod. reason is why it must wait.
func (d *Drain) evict(ctx context.Context, p *corev1.Pod) (reason string, err error) {
	err = d.api.PolicyV1().Evictions(p.Namespace).Evict(ctx, &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &p.UID}},
	})
	switch {
	case err == nil, apierrors.IsNotFound(err), apierrors.IsConflict(err):
		return "", nil
	case apierrors.IsTooManyRequests(err):
		return budgetOf(err), nil
	case wait.IsOutage(err):
		return "the API server does not answer: " + err.Error(), nil
	case apierrors.IsForbidden(err) && apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return "its namespace is being deleted", nil
	}
	return "", fault.New(fault.Failure, "evicting pod %s/%s: %w", p.Namespace, p.Name, err).Hint("evict it, or continue without moving the pods: --drain=false")
}

// budgetOf returns which PodDisruptionBudget delays an eviction.
func budgetOf(err error) string {
	reason := err.Error()
	if status := apierrors.APIStatus(nil); errors.As(err, &status) && status.Status().Details != nil {
		for _, cause := range status.Status().Details.Causes {
			if cause.Type == policyv1.DisruptionBudgetCause {
				reason = cause.Message
			}
		}
	}
	return reason
}
