package agent

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
)

// stores follow the objects that decide about addresses.
type stores struct {
	services, slices, nodes, configMaps store
}

// A store wakes the writer when one of its objects changed.
type store struct {
	cache.Indexer
	reflector *cache.Reflector
	wake      chan<- struct{}
}

const byService = "service"

var byServiceIndex = cache.Indexers{byService: func(object any) ([]string, error) {
	slice := object.(*discoveryv1.EndpointSlice)
	return []string{slice.Namespace + "/" + slice.Labels[discoveryv1.LabelServiceName]}, nil
}}

// newStores starts to follow the objects until ctx ends.
func newStores(ctx context.Context, api kubernetes.Interface, wake chan<- struct{}) *stores {
	core := api.CoreV1()
	s := &stores{
		services: newStore(ctx, wake, &corev1.Service{}, nil,
			func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				return core.Services("").List(ctx, o)
			},
			func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
				return core.Services("").Watch(ctx, o)
			}),
		slices: newStore(ctx, wake, &discoveryv1.EndpointSlice{}, byServiceIndex,
			func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				return api.DiscoveryV1().EndpointSlices("").List(ctx, o)
			},
			func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
				return api.DiscoveryV1().EndpointSlices("").Watch(ctx, o)
			}),
		nodes: newStore(ctx, wake, &corev1.Node{}, nil,
			func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				return core.Nodes().List(ctx, o)
			},
			func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
				return core.Nodes().Watch(ctx, o)
			}),
	}
	only := fields.OneTermEqualSelector(metav1.ObjectNameField, PoolsName).String()
	s.configMaps = newStore(ctx, wake, &corev1.ConfigMap{}, nil,
		func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector = only
			return core.ConfigMaps(Namespace).List(ctx, o)
		},
		func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector = only
			return core.ConfigMaps(Namespace).Watch(ctx, o)
		})
	return s
}

func newStore(ctx context.Context, wake chan<- struct{}, kind runtime.Object, indexers cache.Indexers, list cache.ListWithContextFunc, follow cache.WatchFuncWithContext) store {
	s := store{Indexer: cache.NewIndexer(cache.MetaNamespaceKeyFunc, indexers), wake: wake}
	s.reflector = cache.NewReflectorWithOptions(&cache.ListWatch{ListWithContextFunc: list, WatchFuncWithContext: follow}, kind, s, cache.ReflectorOptions{})
	go s.reflector.RunWithContext(ctx)
	return s
}

func (s store) changed(err error) error {
	notify(s.wake)
	return err
}

func (s store) Add(object any) error    { return s.changed(s.Indexer.Add(object)) }
func (s store) Update(object any) error { return s.changed(s.Indexer.Update(object)) }
func (s store) Delete(object any) error { return s.changed(s.Indexer.Delete(object)) }
func (s store) Replace(list []any, version string) error {
	return s.changed(s.Indexer.Replace(list, version))
}

// synced reports whether all objects are known.
func (s *stores) synced() bool {
	for _, one := range []store{s.services, s.slices, s.nodes, s.configMaps} {
		if one.reflector.LastSyncResourceVersion() == "" {
			return false
		}
	}
	return true
}

// listServices lists the Services of type LoadBalancer, also of other controllers.
func (s *stores) listServices() (list []*corev1.Service) {
	for _, object := range s.services.List() {
		if one := object.(*corev1.Service); one.Spec.Type == corev1.ServiceTypeLoadBalancer {
			list = append(list, one)
		}
	}
	return list
}

func (s *stores) listNodes() (list []*corev1.Node) {
	for _, object := range s.nodes.List() {
		list = append(list, object.(*corev1.Node))
	}
	return list
}

// poolsMap returns the ConfigMap with the pools, nil if there is none.
func (s *stores) poolsMap() *corev1.ConfigMap {
	for _, object := range s.configMaps.List() {
		return object.(*corev1.ConfigMap)
	}
	return nil
}

// nodesWithEndpoints returns the nodes with an endpoint of a Service that gets packets from outside of the cluster there, and whether one of
// these is ready. kube-proxy decides on each node by itself: if no endpoint of the node is ready, it uses endpoints that terminate and still
// serve. bits is the IP family.
func (s *stores) nodesWithEndpoints(service *corev1.Service, bits int) map[string]bool {
	nodes := map[string]bool{}
	objects, _ := s.slices.ByIndex(byService, service.Namespace+"/"+service.Name) // the index exists
	for _, object := range objects {
		slice := object.(*discoveryv1.EndpointSlice)
		if slice.AddressType != map[int]discoveryv1.AddressType{32: discoveryv1.AddressTypeIPv4, 128: discoveryv1.AddressTypeIPv6}[bits] {
			continue
		}
		for _, e := range slice.Endpoints {
			ready := ptr.Deref(e.Conditions.Ready, true)
			serves := ready || ptr.Deref(e.Conditions.Serving, true) && ptr.Deref(e.Conditions.Terminating, false)
			if e.NodeName != nil && serves {
				nodes[*e.NodeName] = nodes[*e.NodeName] || ready
			}
		}
	}
	return nodes
}
