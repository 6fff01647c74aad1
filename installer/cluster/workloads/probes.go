package workloads

import (
	"context"

	"k8s.io/client-go/kubernetes"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"airlift/installer/cluster"
	"airlift/installer/cluster/wait"
)

// probeLabel marks the Services and EndpointSlices with which WaitForControllerManager and
// WaitForProxyRules check the cluster.
const probeLabel = "airlift.dev/controller-probe"

// createProbe creates a Service that RemoveProbes removes. It adds a port, because the API requires one;
// nothing connects to it.
func createProbe(ctx context.Context, api kubernetes.Interface, spec corev1.ServiceSpec) (probe *corev1.Service, err error) {
	spec.Ports = []corev1.ServicePort{{Port: 1}}
	err = wait.Retry(ctx, func() (err error) {
		probe, err = api.CoreV1().Services(metav1.NamespaceSystem).Create(ctx, &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "airlift-probe-", Labels: map[string]string{probeLabel: ""}},
			Spec:       spec,
		}, metav1.CreateOptions{})
		return err
	})
	return probe, err
}

// RemoveProbes removes the Services and EndpointSlices of this and of interrupted runs. If it cannot, the
// next run does.
func RemoveProbes(ctx context.Context, api kubernetes.Interface) {
	ctx, cancel := context.WithTimeout(ctx, cluster.RequestTimeout)
	defer cancel()
	services, slices := api.CoreV1().Services(metav1.NamespaceSystem), api.DiscoveryV1().EndpointSlices(metav1.NamespaceSystem)
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
