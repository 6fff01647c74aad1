package workloads

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/kubernetes"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"airlift/installer/cluster"
	"airlift/installer/cluster/wait"
	"airlift/installer/timeline"
)

// Pods selects the pods to wait for.
type Pods struct {
	// Namespaces in which every pod must be Ready and every Deployment and
	// DaemonSet must have all of its pods.
	Namespaces []string
	// Node limits the wait to the pods of a node, among them one of each DaemonSet. Pods of
	// nodes that are lost never become Ready. Deployments and Service do not count then.
	Node string
	// Service is the "namespace/name" of a Service that must have a ready endpoint; empty for none.
	Service string
	// Names of pods, "namespace/name", that must exist: no Deployment shows
	// that a static pod is missing.
	Names []string
	// OnMissing is called once if some of Names do not exist after MissingAfter.
	MissingAfter time.Duration
	OnMissing    func() error
	// OnProblem, if set, is called at each look with each container that cannot
	// start: the pod, the container, the reason.
	OnProblem func(problem string)
}

// WaitForPods waits until the pods in want exist and are Ready, and the Service
// has a ready endpoint.
func WaitForPods(ctx context.Context, api kubernetes.Interface, want Pods, timeout time.Duration, report wait.Report) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	wake := wait.Watch(ctx, func(ctx context.Context) (watch.Interface, error) {
		return api.CoreV1().Pods(metav1.NamespaceAll).Watch(ctx, metav1.ListOptions{})
	})
	probe := newProber(api)
	defer probe.stop(ctx)
	w := wait.For{
		What:    "the pods in " + strings.Join(want.Namespaces, ", ") + " to be Ready",
		Short:   "pods",
		Hint:    "inspect the pods: kubectl get pods -A -o wide; kubectl describe pod -n NAMESPACE NAME",
		Timeout: timeout, Report: report, Interval: probeInterval / 2,
	}
	deadline := time.Now().Add(want.MissingAfter)
	return w.Until(ctx, wake, func(ctx context.Context) (bool, string, error) {
		missing, err := missingPods(ctx, api, want, probe)
		if err != nil {
			return false, err.Error(), nil
		}
		absent := slices.ContainsFunc(missing, func(s string) bool { return strings.HasSuffix(s, doesNotExist) })
		if absent && want.OnMissing != nil && time.Now().After(deadline) {
			if err := want.OnMissing(); err != nil {
				return false, "", err
			}
			want.OnMissing = nil
		}
		if len(missing) > 0 { // the timeline keeps the last summary
			timeline.Here(ctx).Awaiting(wait.Summary(missing))
		}
		return len(missing) == 0, strings.Join(missing, "; "), nil
	})
}

// doesNotExist ends the line about a pod that is missing by name.
const doesNotExist = ": does not exist"

// missingPods lists what is not there or not ready yet, one line each.
func missingPods(ctx context.Context, api kubernetes.Interface, want Pods, probe *prober) (missing []string, err error) {
	unseen := slices.Clone(want.Names)
	var owners []types.UID
	for _, ns := range want.Namespaces {
		pods, err := api.CoreV1().Pods(ns).List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		for i := range pods.Items {
			pod := &pods.Items[i]
			if IsReplaced(pod) || want.Node != "" && pod.Spec.NodeName != want.Node {
				continue
			}
			if owner := metav1.GetControllerOf(pod); owner != nil {
				owners = append(owners, owner.UID)
			}
			name := cluster.Qualified(pod.Namespace, pod.Name)
			unseen = slices.DeleteFunc(unseen, func(s string) bool { return s == name })
			ready, why := PodReady(pod)
			probe.check(ctx, pod, ready)
			if !ready {
				missing = append(missing, name+": "+why)
			}
			if want.OnProblem != nil {
				for _, problem := range startProblems(pod) {
					want.OnProblem("pod " + name + ": " + problem)
				}
			}
		}
		deployments, err := api.AppsV1().Deployments(ns).List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		for _, d := range deployments.Items {
			if have, all := d.Status.ReadyReplicas, Replicas(d); want.Node == "" && (have < all || d.Status.ObservedGeneration < d.Generation) {
				missing = append(missing, fmt.Sprintf("deployment %s/%s: %d of %d pods ready", ns, d.Name, have, all))
			}
		}
		daemonSets, err := api.AppsV1().DaemonSets(ns).List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		for _, d := range daemonSets.Items {
			s := d.Status
			if want.Node != "" {
				if !slices.Contains(owners, d.UID) {
					missing = append(missing, fmt.Sprintf("daemonset %s/%s: no pod on node %s", ns, d.Name, want.Node))
				}
				continue
			}
			if s.NumberReady < s.DesiredNumberScheduled || s.ObservedGeneration < d.Generation {
				missing = append(missing, fmt.Sprintf("daemonset %s/%s: %d of %d pods ready", ns, d.Name, s.NumberReady, s.DesiredNumberScheduled))
			}
		}
	}
	if namespace, name, ok := strings.Cut(want.Service, "/"); ok && want.Node == "" {
		leads, err := hasEndpoint(ctx, api, namespace, name)
		if err != nil {
			return nil, err
		}
		if !leads {
			missing = append(missing, "service "+want.Service+": it has no ready endpoint")
		}
	}
	for _, name := range unseen {
		missing = append(missing, name+doesNotExist)
	}
	return missing, nil
}

// hasEndpoint reports whether a Service has a ready endpoint.
func hasEndpoint(ctx context.Context, api kubernetes.Interface, namespace, service string) (bool, error) {
	slices, err := api.DiscoveryV1().EndpointSlices(namespace).List(ctx, metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + service})
	if err != nil {
		return false, err
	}
	for _, slice := range slices.Items {
		for _, e := range slice.Endpoints {
			if e.Conditions.Ready == nil || *e.Conditions.Ready {
				return true, nil
			}
		}
	}
	return false, nil
}

// IsReplaced reports whether a pod is being deleted, or was evicted or ended by
// a shutdown of its node, so that its controller replaces it.
func IsReplaced(pod *corev1.Pod) bool {
	owner := metav1.GetControllerOf(pod)
	ended := pod.Status.Phase == corev1.PodFailed && owner != nil && owner.Kind != "Node" // the owner of a static pod is its Node
	return ended || pod.DeletionTimestamp != nil
}

func Replicas(d appsv1.Deployment) int32 {
	if d.Spec.Replicas == nil {
		return 1 // the API's default
	}
	return *d.Spec.Replicas
}

// PodReady also returns why a pod is not Ready, as precisely as its status allows.
func PodReady(pod *corev1.Pod) (bool, string) {
	if pod.Status.Phase == corev1.PodSucceeded {
		return true, ""
	}
	why := string(pod.Status.Phase)
	for _, cond := range pod.Status.Conditions {
		if cond.Type == corev1.PodReady && cond.Status == corev1.ConditionTrue {
			return steady(pod)
		}
		if cond.Type == corev1.PodScheduled && cond.Status == corev1.ConditionFalse {
			why = "not scheduled: " + cond.Message
		}
	}
	for _, s := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if t := cmp.Or(s.State.Terminated, s.LastTerminationState.Terminated); t != nil && t.ExitCode != 0 {
			why = fmt.Sprintf("container %s exited with code %d (%s) and restarted %d times", s.Name, t.ExitCode, t.Reason, s.RestartCount)
			if w := s.State.Waiting; w != nil && w.Reason == crashLoop {
				why += ": " + crashLoop
			}
		}
	}
	if problems := startProblems(pod); len(problems) > 0 {
		why = problems[0]
	}
	return false, why
}

// steadyAfter is how long a container must run after it failed. A container without a
// readiness probe is Ready as soon as it starts, also in a crash loop. The kubelet waits 10 s
// or more between two starts, so a shorter time would see the same start again.
const steadyAfter = 10 * time.Second

// steady reports whether the containers that failed before have run long enough since. The
// clock of the pod's node may differ from this host's: a start in the future is long ago.
func steady(pod *corev1.Pod) (bool, string) {
	for _, s := range pod.Status.ContainerStatuses {
		t, r := s.LastTerminationState.Terminated, s.State.Running
		if t == nil || t.ExitCode == 0 || r == nil {
			continue
		}
		if age := time.Since(r.StartedAt.Time); age >= 0 && age < steadyAfter {
			return false, fmt.Sprintf("container %s exited with code %d (%s) and restarted %d times, most recently less than %s ago", s.Name, t.ExitCode, t.Reason, s.RestartCount, steadyAfter)
		}
	}
	return true, ""
}

// crashLoop is the reason of a container that waits for its next start because
// it exited.
const crashLoop = "CrashLoopBackOff"

// startProblems lists the containers that the kubelet cannot start, with its
// reason and message: an image that cannot be pulled, a ConfigMap that is
// missing. Containers that started and exited are not among them.
func startProblems(pod *corev1.Pod) (problems []string) {
	for _, s := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		w := s.State.Waiting
		if w == nil || slices.Contains([]string{"", "PodInitializing", "ContainerCreating", crashLoop}, w.Reason) {
			continue
		}
		problems = append(problems, strings.TrimSpace(fmt.Sprintf("container %s: %s: %s", s.Name, w.Reason, w.Message)))
	}
	return problems
}
