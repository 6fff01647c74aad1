package manifests_test

import (
	"reflect"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"

	"airlift/builder/manifests"
)

// Kubernetes' own client has a method for each kind. Those of kinds with a namespace have it as
// their parameter.
func TestScopesOfBuiltInKinds(t *testing.T) {
	var scopes manifests.Scopes
	inCluster, namespaced := 0, 0
	for group := range methods(reflect.TypeFor[kubernetes.Interface]()) {
		for kind := range methods(group.Out(0)) {
			get, ok := kind.Out(0).MethodByName("Get")
			if !ok || get.Type.NumOut() != 2 || get.Type.Out(0).Kind() != reflect.Pointer {
				continue // such as TokenReview, which is only created
			}
			object, ok := reflect.New(get.Type.Out(0).Elem()).Interface().(runtime.Object)
			if !ok {
				continue
			}
			kinds, _, err := scheme.Scheme.ObjectKinds(object)
			if err != nil {
				t.Fatal(err)
			}
			want := kind.NumIn() == 0
			if want {
				inCluster++
			} else {
				namespaced++
			}
			o := &manifests.Object{APIVersion: kinds[0].GroupVersion().String(), Kind: kinds[0].Kind}
			if scopes.Cluster(o) != want {
				t.Errorf("%s: in the cluster: %v, want %v", kinds[0], !want, want)
			}
		}
	}
	if inCluster < 30 || namespaced < 30 {
		t.Errorf("the client has %d kinds without and %d with a namespace", inCluster, namespaced)
	}
}

// methods yields the types of an interface's methods that return an interface.
func methods(of reflect.Type) func(yield func(reflect.Type) bool) {
	return func(yield func(reflect.Type) bool) {
		for n := range of.NumMethod() {
			m := of.Method(n).Type
			if m.NumOut() == 1 && m.Out(0).Kind() == reflect.Interface && !yield(m) {
				return
			}
		}
	}
}

func TestScopesOfDefinedKinds(t *testing.T) {
	const text = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: issuers.example.com}
spec: {group: example.com, scope: Namespaced, names: {kind: Issuer}}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: clusterissuers.example.com}
spec: {group: example.com, scope: Cluster, names: {kind: ClusterIssuer}}
---
apiVersion: example.com/v1
kind: ClusterIssuer
metadata: {name: a}
---
apiVersion: example.com/v1
kind: Issuer
metadata: {name: a}
---
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1.example.com}
---
apiVersion: example.org/v1
kind: ClusterIssuer
metadata: {name: a}
`
	objects, err := manifests.Decode("test", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	var scopes manifests.Scopes
	if scopes.Cluster(objects[2]) {
		t.Error("a kind that nothing defines is in the cluster")
	}
	scopes.Add(objects)
	for n, want := range []bool{true, true, true, false, true, false} {
		if scopes.Cluster(objects[n]) != want {
			t.Errorf("%s %s: want %v", objects[n].APIVersion, objects[n], want)
		}
	}
}

// An object that names its namespace is the same as one that gets it from its manifest.
func TestConflict(t *testing.T) {
	object := func(metadata, data string) *manifests.Object {
		t.Helper()
		list, err := manifests.Decode("test", []byte("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a"+metadata+"}\ndata: {x: "+data+"}\n"))
		if err != nil {
			t.Fatal(err)
		}
		return list[0]
	}
	with, without, other := object(", namespace: web", "one"), object("", "one"), object(", namespace: web", "two")
	if field := manifests.Conflict(with, without); field != "" {
		t.Errorf("the same object differs in %s", field)
	}
	for _, o := range []*manifests.Object{with, without} {
		if field := manifests.Conflict(o, other); field != "data.x" {
			t.Errorf("another object differs in %q", field)
		}
	}
	if with.Content["metadata"].(map[string]any)["namespace"] != "web" {
		t.Error("the object was changed")
	}
}
