package agent

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kubernetes/pkg/proxy"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	_ "airlift/scripts/fixtures/seed"
)

// A node serves a Service with externalTrafficPolicy Local exactly if kube-proxy on that node has an endpoint for packets from outside.
func TestNodesOfKubeProxy(t *testing.T) {
	families := []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6}
	protocols := []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}
	names := []string{"n1", "n2", "n3"}
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}, Spec: corev1.ServiceSpec{
		Type: corev1.ServiceTypeLoadBalancer, ExternalTrafficPolicy: corev1.ServiceExternalTrafficPolicyLocal, ClusterIP: "10.96.0.7", ClusterIPs: []string{"10.96.0.7", "fd96::7"},
		IPFamilies: protocols, HealthCheckNodePort: 31000, Ports: []corev1.ServicePort{{Port: 80, Protocol: corev1.ProtocolTCP}}},
		Status: corev1.ServiceStatus{LoadBalancer: corev1.LoadBalancerStatus{Ingress: []corev1.LoadBalancerIngress{{IP: "198.51.100.7", IPMode: ptr.To(corev1.LoadBalancerIPModeVIP)}, {IP: "fd51::7", IPMode: ptr.To(corev1.LoadBalancerIPModeVIP)}}}}}
	rapid.Check(t, func(t *rapid.T) {
		s := &stores{slices: store{Indexer: cache.NewIndexer(cache.MetaNamespaceKeyFunc, byServiceIndex)}}
		var all []*discoveryv1.EndpointSlice
		for i := range rapid.IntRange(0, 4).Draw(t, "slices") {
			family := rapid.IntRange(0, 1).Draw(t, "family")
			slice := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint("web-", i), Labels: map[string]string{discoveryv1.LabelServiceName: "web"}},
				AddressType: families[family], Ports: []discoveryv1.EndpointPort{{Name: ptr.To(""), Port: ptr.To[int32](8080), Protocol: ptr.To(corev1.ProtocolTCP)}}}
			for j := range rapid.IntRange(0, 4).Draw(t, "endpoints") {
				condition := func(name string) *bool {
					return rapid.SampledFrom([]*bool{nil, ptr.To(true), ptr.To(false)}).Draw(t, name)
				}
				address := fmt.Sprintf([]string{"10.244.%d.%d", "fd24::%d:%d"}[family], i, j+2)
				slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{address},
					NodeName:   rapid.SampledFrom([]*string{nil, &names[0], &names[1], &names[2]}).Draw(t, "node"),
					Conditions: discoveryv1.EndpointConditions{Ready: condition("ready"), Serving: condition("serving"), Terminating: condition("terminating")}})
			}
			if err := s.slices.Indexer.Add(slice); err != nil {
				t.Fatal(err)
			}
			all = append(all, slice)
		}
		for family, protocol := range protocols {
			have := s.nodesWithEndpoints(service, []int{32, 128}[family])
			for _, node := range names {
				services, endpoints := proxy.NewServiceChangeTracker(protocol, nil, nil), proxy.NewEndpointsChangeTracker(protocol, node, nil, nil)
				services.Update(nil, service)
				for _, slice := range all {
					endpoints.EndpointSliceUpdate(slice, false)
				}
				ports, byPort := proxy.ServicePortMap{}, proxy.EndpointsMap{}
				ports.Update(services)
				byPort.Update(endpoints)
				if len(ports) != 1 {
					t.Fatalf("%d ports", len(ports))
				}
				for name, port := range ports {
					_, local, _, _ := proxy.CategorizeEndpoints(byPort[name], port, node, nil)
					ready, serves := have[node]
					if serves != (len(local) > 0) || ready != (len(local) > 0 && local[0].IsReady()) {
						t.Fatalf("%s, %s: serves %t, ready %t; kube-proxy has %v", node, protocol, serves, ready, local)
					}
				}
			}
		}
	})
}
