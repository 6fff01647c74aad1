package apply

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"

	"k8s.io/client-go/kubernetes"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"airlift/installer/cluster/workloads"
)

// A Readiness is the state of one object.
type Readiness struct {
	Ready bool
	Why   string // if it is not ready
	// Later reports that it becomes ready when a worker joins.
	Later bool
	// Failed reports that it will not become ready by itself.
	Failed bool
	// NodesNotReady is set if all missing pods are on nodes that are not Ready.
	NodesNotReady bool
	lacks         int32 // pods
}

// Kubernetes removes a Job so many seconds after it has ended. Airlift keeps it for jobSeconds at least: with 0 it would be gone before
// anybody has seen whether it failed.
const (
	ttlField         = "ttlSecondsAfterFinished"
	jobSeconds int64 = 600
)

// keepResult makes a Job stay until its result was read.
func keepResult(o *unstructured.Unstructured) {
	if seconds, ok, _ := unstructured.NestedInt64(o.Object, "spec", ttlField); ok && o.GroupVersionKind().GroupKind().String() == "Job.batch" {
		_ = unstructured.SetNestedField(o.Object, max(seconds, jobSeconds), "spec", ttlField) // spec is a map: it has the field
	}
}

// ready looks at an object in the cluster. Kinds without their own state are ready when
// they exist.
func (s *Applier) ready(ctx context.Context, o *unstructured.Unstructured, namespace string, inBundle func(image string) bool) (Readiness, error) {
	resource, _, err := s.resource(o, namespace)
	if err != nil {
		return Readiness{Why: err.Error()}, nil
	}
	have, err := resource.Get(ctx, o.GetName(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		_, removed, _ := unstructured.NestedFieldNoCopy(o.Object, "spec", ttlField)
		return Readiness{Ready: removed, Why: "it does not exist"}, nil
	}
	if err != nil {
		return Readiness{}, err
	}
	r, pods := state(have)
	if have.GroupVersionKind().GroupKind().String() == "PersistentVolumeClaim" {
		if r, err = claimState(ctx, s.client.API, have); err != nil {
			return Readiness{}, err
		}
	}
	if r.Ready {
		return r, nil
	}
	if pods == nil {
		if why := anyNeedsWorker(ctx, s.client.API); why != "" && !r.Failed {
			r.Why, r.Later = r.Why+"; "+why, true
		}
		return r, nil
	}
	return explainPods(ctx, s.client.API, r, have.GetNamespace(), *pods, inBundle)
}

// hasState reports whether state knows a kind: the workloads, and custom resources by their conditions.
func hasState(kind schema.GroupKind) bool {
	return slices.Contains([]string{
		"Deployment.apps", "StatefulSet.apps", "DaemonSet.apps", "ReplicaSet.apps", "Job.batch", "Pod", "PersistentVolumeClaim",
		crdKind, "APIService.apiregistration.k8s.io",
	}, kind.String()) || isCustom(kind.Group)
}

// state returns whether an object is ready by its status, and how to list its pods.
func state(o *unstructured.Unstructured) (Readiness, *metav1.ListOptions) {
	into := func(typed any) bool {
		return runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, typed) == nil
	}
	count := func(have, want int32, current bool) Readiness {
		if !current {
			return Readiness{Why: "its controller has not seen it yet"}
		}
		return Readiness{Ready: have >= want, Why: fmt.Sprintf("%d of %d pods ready", have, want), lacks: want - have}
	}
	switch o.GroupVersionKind().GroupKind().String() {
	case "Deployment.apps":
		d := appsv1.Deployment{}
		if !into(&d) {
			break
		}
		r := count(min(d.Status.UpdatedReplicas, d.Status.AvailableReplicas), workloads.Replicas(d), d.Status.ObservedGeneration >= d.Generation)
		return r, selectorOf(d.Spec.Selector)
	case "StatefulSet.apps":
		d := appsv1.StatefulSet{}
		if !into(&d) {
			break
		}
		want, updated := int32(1), d.Status.UpdatedReplicas
		if d.Spec.Replicas != nil {
			want = *d.Spec.Replicas
		}
		if u := d.Spec.UpdateStrategy; u.Type == appsv1.OnDeleteStatefulSetStrategyType || u.RollingUpdate != nil && u.RollingUpdate.Partition != nil && *u.RollingUpdate.Partition > 0 {
			updated = want // the user decides when pods are replaced
		}
		return count(min(updated, d.Status.ReadyReplicas), want, d.Status.ObservedGeneration >= d.Generation), selectorOf(d.Spec.Selector)
	case "DaemonSet.apps":
		d := appsv1.DaemonSet{}
		if !into(&d) {
			break
		}
		updated := d.Status.UpdatedNumberScheduled
		if d.Spec.UpdateStrategy.Type == appsv1.OnDeleteDaemonSetStrategyType {
			updated = d.Status.DesiredNumberScheduled
		}
		return count(min(updated, d.Status.NumberReady), d.Status.DesiredNumberScheduled, d.Status.ObservedGeneration >= d.Generation), selectorOf(d.Spec.Selector)
	case "ReplicaSet.apps":
		d := appsv1.ReplicaSet{}
		if !into(&d) {
			break
		}
		want := int32(1)
		if d.Spec.Replicas != nil {
			want = *d.Spec.Replicas
		}
		return count(d.Status.ReadyReplicas, want, d.Status.ObservedGeneration >= d.Generation), selectorOf(d.Spec.Selector)
	case "Job.batch":
		j := batchv1.Job{}
		if !into(&j) {
			break
		}
		return jobState(j), selectorOf(j.Spec.Selector)
	case "Pod":
		p := corev1.Pod{}
		if !into(&p) {
			break
		}
		ready, why := workloads.PodReady(&p)
		failed := p.Status.Phase == corev1.PodFailed && p.Spec.RestartPolicy == corev1.RestartPolicyNever
		return Readiness{Ready: ready, Why: why, Failed: failed}, &metav1.ListOptions{FieldSelector: "metadata.name=" + p.Name}
	case "CustomResourceDefinition.apiextensions.k8s.io":
		status, why := condition(o, "Established")
		return Readiness{Ready: status == "True", Why: strings.TrimSpace("it is not Established " + why)}, nil
	case "APIService.apiregistration.k8s.io":
		status, why := condition(o, "Available")
		return Readiness{Ready: status == "True", Why: strings.TrimSpace("it is not Available: " + why)}, nil
	}
	if isCustom(o.GroupVersionKind().Group) {
		return customState(o), nil
	}
	return Readiness{Ready: true}, nil
}

// customState returns whether a custom resource is ready, by the conventions of Kubernetes' conditions: its controller has seen this
// version of it, and neither Ready nor Available is false. A custom resource without such conditions is ready.
func customState(o *unstructured.Unstructured) Readiness {
	if seen, ok, _ := unstructured.NestedInt64(o.Object, "status", "observedGeneration"); ok && seen < o.GetGeneration() {
		return Readiness{Why: "its controller has not seen it yet"}
	}
	if status, why := condition(o, "Stalled"); status == "True" {
		return Readiness{Why: strings.TrimSpace("it is Stalled: " + why), Failed: true}
	}
	for _, kind := range []string{"Ready", "Available"} {
		if status, why := condition(o, kind); status != "" && status != "True" {
			return Readiness{Why: strings.TrimSpace("it is not " + kind + ": " + why)}
		}
	}
	if status, why := condition(o, "Reconciling"); status == "True" {
		return Readiness{Why: strings.TrimSpace("it is Reconciling: " + why)}
	}
	return Readiness{Ready: true}
}

// claimState returns whether a claim has its volume. A claim whose volume is only created for a pod is ready without.
func claimState(ctx context.Context, api kubernetes.Interface, o *unstructured.Unstructured) (Readiness, error) {
	claim := corev1.PersistentVolumeClaim{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &claim); err != nil {
		return Readiness{}, err
	}
	switch {
	case claim.Status.Phase == corev1.ClaimBound:
		return Readiness{Ready: true}, nil
	case claim.Status.Phase == corev1.ClaimLost:
		return Readiness{Why: "its volume does not exist any more"}, nil
	case claim.Spec.StorageClassName == nil || *claim.Spec.StorageClassName == "":
		return Readiness{Ready: true}, nil // an administrator may create the volume
	}
	class, err := api.StorageV1().StorageClasses().Get(ctx, *claim.Spec.StorageClassName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return Readiness{Why: "there is no StorageClass " + *claim.Spec.StorageClassName}, nil
	}
	if err != nil {
		return Readiness{}, err
	}
	waits := class.VolumeBindingMode != nil && *class.VolumeBindingMode == storagev1.VolumeBindingWaitForFirstConsumer
	return Readiness{Ready: waits || class.Provisioner == "kubernetes.io/no-provisioner", Why: "it waits for a volume of the StorageClass " + class.Name}, nil
}

func selectorOf(s *metav1.LabelSelector) *metav1.ListOptions {
	if s == nil {
		return nil
	}
	return &metav1.ListOptions{LabelSelector: metav1.FormatLabelSelector(s)}
}

func jobState(j batchv1.Job) Readiness {
	if j.Spec.Suspend != nil && *j.Spec.Suspend {
		return Readiness{Ready: true}
	}
	for _, c := range j.Status.Conditions {
		switch {
		case c.Status != corev1.ConditionTrue:
		case c.Type == batchv1.JobComplete:
			return Readiness{Ready: true}
		case c.Type == batchv1.JobFailed:
			return Readiness{Why: fmt.Sprintf("the Job failed: %s: %s", c.Reason, c.Message), Failed: true}
		}
	}
	return Readiness{Why: fmt.Sprintf("%d pods succeeded, %d failed", j.Status.Succeeded, j.Status.Failed)}
}

// explainPods adds to the state of a workload why its pods are not ready.
func explainPods(ctx context.Context, api kubernetes.Interface, r Readiness, namespace string, list metav1.ListOptions, inBundle func(string) bool) (Readiness, error) {
	pods, err := api.CoreV1().Pods(namespace).List(ctx, list)
	if err != nil {
		return r, err
	}
	down, err := workloads.NodesNotReady(ctx, api)
	if err != nil {
		return r, err
	}
	if why := down.Explain(pods.Items, r.lacks); why != "" && !r.Failed {
		r.Why, r.NodesNotReady = r.Why+"; "+why, true
		return r, nil
	}
	waiting := 0
	var unscheduled []corev1.Pod
	detail := ""
	for i := range pods.Items {
		pod := &pods.Items[i]
		ready, why := workloads.PodReady(pod)
		if ready || workloads.IsReplaced(pod) && !r.Failed {
			continue
		}
		waiting++
		if isUnschedulable(pod) {
			unscheduled = append(unscheduled, *pod)
		}
		if problem := podProblem(ctx, api, pod, inBundle); problem != "" {
			why = problem
		}
		if !down.Causes(pod) && (detail == "" || !isUnschedulable(pod)) {
			detail = "pod " + pod.Name + ": " + why
		}
	}
	if waiting > 0 && waiting == len(unscheduled) && !r.Failed {
		if why := needsWorker(ctx, api, unscheduled); why != "" {
			return Readiness{Why: why, Later: true}, nil
		}
	}
	if detail != "" {
		r.Why += "; " + detail
	}
	return r, nil
}

func isUnschedulable(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable
	})
}

// anyNeedsWorker is needsWorker for all pods that wait for a node.
func anyNeedsWorker(ctx context.Context, api kubernetes.Interface) string {
	pods, err := api.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{FieldSelector: "status.phase=Pending"})
	if err != nil {
		return ""
	}
	return needsWorker(ctx, api, slices.DeleteFunc(pods.Items, func(p corev1.Pod) bool { return !isUnschedulable(&p) }))
}

// needsWorker returns why one of the pods cannot be scheduled before a worker joins: it does
// not tolerate the taints of any node. It returns "" if there is none.
func needsWorker(ctx context.Context, api kubernetes.Interface, pods []corev1.Pod) string {
	nodes, err := api.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return ""
	}
	for _, pod := range pods {
		if !slices.ContainsFunc(nodes.Items, func(n corev1.Node) bool { return tolerates(pod, n) }) {
			return "the cluster has only control planes with taints: its pods start when a worker joins"
		}
	}
	return ""
}

// tolerates reports whether a pod tolerates a node's taints. Taints that Kubernetes sets on a node
// that is not ready are ignored: Kubernetes removes them later.
func tolerates(pod corev1.Pod, node corev1.Node) bool {
	for _, taint := range node.Spec.Taints {
		if taint.Effect == corev1.TaintEffectPreferNoSchedule || strings.HasPrefix(taint.Key, "node.kubernetes.io/") {
			continue
		}
		if !slices.ContainsFunc(pod.Spec.Tolerations, func(t corev1.Toleration) bool { return t.ToleratesTaint(logr.Discard(), &taint, false) }) {
			return false
		}
	}
	return true
}

// Reasons of a container that waits for its image.
var imageReasons = []string{"ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName"}

// podLogLines is how many lines of a container's log are shown.
const podLogLines = 5

// podProblem explains why a pod does not run: an image that cannot be pulled, or a container
// that exits, with the last lines of its log.
func podProblem(ctx context.Context, api kubernetes.Interface, pod *corev1.Pod, inBundle func(string) bool) string {
	for _, s := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if w := s.State.Waiting; w != nil && slices.Contains(imageReasons, w.Reason) {
			problem := fmt.Sprintf("container %s: %s of image %s", s.Name, w.Reason, s.Image)
			if inBundle != nil && !inBundle(s.Image) {
				problem += ", which is not in this bundle: build it again with --image " + s.Image
			}
			return problem
		}
		ended := s.LastTerminationState.Terminated
		previous := true
		if s.State.Terminated != nil {
			ended, previous = s.State.Terminated, false
		}
		if ended == nil || ended.ExitCode == 0 || s.Ready {
			continue
		}
		how := fmt.Sprintf("container %s exited with code %d (%s) and restarted %d times", s.Name, ended.ExitCode, ended.Reason, s.RestartCount)
		if lines := logTail(ctx, api, pod, s.Name, previous); len(lines) > 0 {
			return how + "; the last lines of its log:\n  " + strings.Join(lines, "\n  ")
		}
		return how
	}
	return ""
}

// logTail returns the last lines of a container's log, none if they cannot be read.
func logTail(ctx context.Context, api kubernetes.Interface, pod *corev1.Pod, container string, previous bool) []string {
	lines := int64(podLogLines)
	stream, err := api.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, &corev1.PodLogOptions{
		Container: container, Previous: previous, TailLines: &lines,
	}).Stream(ctx)
	if err != nil {
		return nil
	}
	defer stream.Close()
	const limit = 4096 // bytes
	data, err := io.ReadAll(io.LimitReader(stream, limit))
	if err != nil || len(data) == 0 {
		return nil
	}
	text := strings.Map(func(r rune) rune {
		if r != '\n' && !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, string(data))
	return strings.Split(strings.TrimRight(text, "\n"), "\n")
}
