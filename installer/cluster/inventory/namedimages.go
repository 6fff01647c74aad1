package inventory

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/client-go/kubernetes"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"airlift/installer/cluster/wait"
)

// NamedImages returns the image names in the cluster's workloads. These are the images of
// containers and image volumes, even if no pod runs. The values of environment variables and
// arguments are included: operators read the names of images there. Many of these values are not
// images. Earlier revisions of a Deployment, which are ReplicaSets without pods, are not among the
// workloads.
func NamedImages(ctx context.Context, api kubernetes.Interface) ([]string, error) {
	core, apps, batch, all := api.CoreV1(), api.AppsV1(), api.BatchV1(), metav1.ListOptions{}
	names := map[string]bool{}
	for _, kind := range []struct {
		name string
		list func() (runtime.Object, error)
	}{
		{"pods", func() (runtime.Object, error) { return core.Pods("").List(ctx, all) }},
		{"replicationcontrollers", func() (runtime.Object, error) { return core.ReplicationControllers("").List(ctx, all) }},
		{"deployments", func() (runtime.Object, error) { return apps.Deployments("").List(ctx, all) }},
		{"statefulsets", func() (runtime.Object, error) { return apps.StatefulSets("").List(ctx, all) }},
		{"daemonsets", func() (runtime.Object, error) { return apps.DaemonSets("").List(ctx, all) }},
		{"replicasets", func() (runtime.Object, error) { return apps.ReplicaSets("").List(ctx, all) }},
		{"jobs", func() (runtime.Object, error) { return batch.Jobs("").List(ctx, all) }},
		{"cronjobs", func() (runtime.Object, error) { return batch.CronJobs("").List(ctx, all) }},
	} {
		err := wait.Retry(ctx, func() error {
			list, err := kind.list()
			if err != nil {
				return err
			}
			return meta.EachListItem(list, func(o runtime.Object) error {
				addNames(names, podOf(o))
				return nil
			})
		})
		if err != nil {
			return nil, fmt.Errorf("listing %s: %w", kind.name, err)
		}
	}
	return slices.Sorted(maps.Keys(names)), nil
}

// podOf returns the pod that a workload has or starts.
func podOf(workload runtime.Object) corev1.PodSpec {
	switch o := workload.(type) {
	case *corev1.Pod:
		return o.Spec
	case *corev1.ReplicationController:
		if o.Spec.Template != nil {
			return o.Spec.Template.Spec
		}
	case *appsv1.Deployment:
		return o.Spec.Template.Spec
	case *appsv1.StatefulSet:
		return o.Spec.Template.Spec
	case *appsv1.DaemonSet:
		return o.Spec.Template.Spec
	case *appsv1.ReplicaSet:
		if o.Spec.Replicas == nil || *o.Spec.Replicas > 0 || metav1.GetControllerOf(o) == nil {
			return o.Spec.Template.Spec
		}
	case *batchv1.Job:
		return o.Spec.Template.Spec
	case *batchv1.CronJob:
		return o.Spec.JobTemplate.Spec.Template.Spec
	}
	return corev1.PodSpec{}
}

// addNames adds what a pod names.
func addNames(names map[string]bool, pod corev1.PodSpec) {
	containers := slices.Concat(pod.InitContainers, pod.Containers)
	for _, e := range pod.EphemeralContainers {
		containers = append(containers, corev1.Container(e.EphemeralContainerCommon))
	}
	for _, k := range containers {
		names[k.Image] = true
		for _, e := range k.Env {
			names[e.Value] = true
		}
		for _, arg := range slices.Concat(k.Command, k.Args) {
			_, value, isFlag := strings.Cut(arg, "=")
			names[arg] = true
			if isFlag {
				names[value] = true
			}
		}
	}
	for _, v := range pod.Volumes {
		if v.Image != nil {
			names[v.Image.Reference] = true
		}
	}
	delete(names, "")
}
