package workloads

import (
	"cmp"
	"context"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/kubernetes"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// An AddOn is the state of an add-on of the cluster.
type AddOn struct {
	Name    string `json:"name"`
	Version string `json:"version"` // the tag of its image
	Ready   int32  `json:"ready"`   // pods
	Wanted  int32  `json:"wanted"`
	Reason  string `json:"reason,omitempty"` // if fewer are ready than wanted
	// NodesNotReady is set if all missing pods are on nodes that are not Ready.
	NodesNotReady bool `json:"-"`
	// Starting is set if all missing pods were created less than startTime ago, and nothing has failed in them.
	Starting bool `json:"-"`
}

// startTime is how long the pods of a node that has just joined may take, before they are a problem.
const startTime = time.Minute

// AddOns returns the state of the add-ons that init installs. It leaves out add-ons that the
// cluster does not have.
func AddOns(ctx context.Context, api kubernetes.Interface) (list []AddOn, err error) {
	down, err := NodesNotReady(ctx, api)
	if err != nil {
		return nil, err
	}
	add := func(name string, meta metav1.ObjectMeta, template corev1.PodTemplateSpec, ready, wanted int32) error {
		state := AddOn{Name: name, Ready: ready, Wanted: wanted}
		for _, k := range template.Spec.Containers {
			_, state.Version, _ = strings.Cut(path.Base(k.Image), ":")
			state.Version, _, _ = strings.Cut(state.Version, "@")
		}
		if ready < wanted {
			pods, err := api.CoreV1().Pods(meta.Namespace).List(ctx, metav1.ListOptions{LabelSelector: metav1.FormatLabelSelector(&metav1.LabelSelector{MatchLabels: template.Labels})})
			if err != nil {
				return err
			}
			state.Reason = down.Explain(pods.Items, wanted-ready)
			if state.NodesNotReady = state.Reason != ""; !state.NodesNotReady {
				state.Reason = whyNotReady(pods.Items, down)
				state.Starting = starting(pods.Items, down) == wanted-ready
			}
		}
		list = append(list, state)
		return nil
	}
	d, err := api.AppsV1().Deployments(metav1.NamespaceSystem).Get(ctx, "coredns", metav1.GetOptions{})
	if err == nil {
		err = add("coredns", d.ObjectMeta, d.Spec.Template, d.Status.ReadyReplicas, Replicas(*d))
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("reading the Deployment of coredns: %w", err)
	}
	for _, one := range [][2]string{{metav1.NamespaceSystem, "kube-proxy"}, {"kube-flannel", "kube-flannel-ds"}} {
		set, err := api.AppsV1().DaemonSets(one[0]).Get(ctx, one[1], metav1.GetOptions{})
		if err == nil {
			err = add(strings.TrimSuffix(one[1], "-ds"), set.ObjectMeta, set.Spec.Template, set.Status.NumberReady, set.Status.DesiredNumberScheduled)
		}
		if err != nil && !apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("reading the DaemonSet %s: %w", one[1], err)
		}
	}
	return list, nil
}

// starting counts the pods on nodes that are Ready that have had no time to become Ready.
func starting(pods []corev1.Pod, down NotReady) (n int32) {
	for i := range pods {
		p := &pods[i]
		if ready, _ := PodReady(p); ready || down.Causes(p) {
			continue
		}
		failed := slices.ContainsFunc(slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses), func(s corev1.ContainerStatus) bool {
			t := cmp.Or(s.State.Terminated, s.LastTerminationState.Terminated)
			return t != nil && t.ExitCode != 0
		})
		if age := time.Since(p.CreationTimestamp.Time); age.Abs() < startTime && p.Spec.NodeName != "" && !failed && len(startProblems(p)) == 0 {
			n++
		}
	}
	return n
}

// whyNotReady takes the first pod that is not ready for a reason of its own, and returns the reason.
func whyNotReady(pods []corev1.Pod, down NotReady) string {
	for i := range pods {
		if ready, why := PodReady(&pods[i]); !ready && !down.Causes(&pods[i]) {
			return "pod " + pods[i].Name + ": " + why
		}
	}
	return "a pod does not exist"
}
