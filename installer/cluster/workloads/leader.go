package workloads

import (
	"context"
	"fmt"
	"time"

	"k8s.io/client-go/kubernetes"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"airlift/installer/cluster/wait"
)

// WaitForControllerManager waits until a controller manager acts, and above all keeps the
// endpoints of Services up to date. The one that was the leader may have ended without giving its
// lease back, and a new leader needs seconds to start its controllers. Meanwhile a pod that ends
// stays in its Services. So it creates a Service without pods in kube-system, waits for its
// EndpointSlice, and deletes it. A client that may not create Services does not wait.
func WaitForControllerManager(ctx context.Context, api kubernetes.Interface, timeout time.Duration, report wait.Report) error {
	probe, err := createProbe(ctx, api, corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone, Selector: map[string]string{probeLabel: "none"}})
	if apierrors.IsForbidden(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("creating a Service without pods, to check that a controller manager is active: %w", err)
	}
	defer RemoveProbes(context.WithoutCancel(ctx), api)
	w := wait.For{What: "an active controller manager", Timeout: timeout, Report: report}
	return w.Until(ctx, nil, func(ctx context.Context) (bool, string, error) {
		slices, err := api.DiscoveryV1().EndpointSlices(metav1.NamespaceSystem).List(ctx, metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + probe.Name})
		if err != nil {
			return false, err.Error(), nil
		}
		return len(slices.Items) > 0, "the new Service " + probe.Name + " has no EndpointSlice yet", nil
	})
}
