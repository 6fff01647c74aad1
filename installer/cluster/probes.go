package cluster

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// probeLabel marks the Services and EndpointSlices with which WaitForControllerManager and
// WaitForProxyRules check the cluster.
const probeLabel = "airlift.dev/controller-probe"

// createProbe creates a Service that RemoveProbes removes. It adds a port, because the API requires one;
// nothing connects to it.
func (c Rollouts) createProbe(ctx context.Context, spec corev1.ServiceSpec) (probe *corev1.Service, err error) {
	spec.Ports = []corev1.ServicePort{{Port: 1}}
	err = persist(ctx, func() (err error) {
		probe, err = c.client.api.CoreV1().Services(systemNamespace).Create(ctx, &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "airlift-probe-", Labels: map[string]string{probeLabel: ""}},
			Spec:       spec,
		}, metav1.CreateOptions{})
		return err
	})
	return probe, err
}

// RemoveProbes removes the Services and EndpointSlices of this and of interrupted runs. If it cannot, the
// next run does.
func (c Rollouts) RemoveProbes(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	services, slices := c.client.api.CoreV1().Services(systemNamespace), c.client.api.DiscoveryV1().EndpointSlices(systemNamespace)
	probes := metav1.ListOptions{LabelSelector: probeLabel}
	if list, err := services.List(ctx, probes); err == nil {
		for _, s := range list.Items {
			_ = services.Delete(ctx, s.Name, metav1.DeleteOptions{})
		}
	}
	if list, err := slices.List(ctx, probes); err == nil {
		for _, s := range list.Items {
			_ = slices.Delete(ctx, s.Name, metav1.DeleteOptions{})
		}
	}
}
