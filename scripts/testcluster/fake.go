package testcluster

import (
	"slices"

	dynamicfake "k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
)

// Fake returns clients with one store, and a function that returns what they have written since its last
// call: "create secrets".
func Fake(objects ...runtime.Object) (*fake.Clientset, *dynamicfake.FakeDynamicClient, func() []string) {
	api := fake.NewClientset(objects...)
	dyn := dynamicfake.NewSimpleDynamicClient(scheme.Scheme)
	store := clienttesting.ObjectReaction(api.Tracker())
	dyn.PrependReactor("*", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
		if create, ok := a.(clienttesting.CreateAction); ok {
			a = clienttesting.NewCreateAction(a.GetResource(), a.GetNamespace(), typed(create.GetObject()))
		}
		handled, object, err := store(a)
		if err != nil || object == nil {
			return handled, nil, err
		}
		u, err := untyped(object)
		return handled, u, err
	})
	return api, dyn, func() (writes []string) {
		for _, a := range slices.Concat(api.Actions(), dyn.Actions()) {
			if !slices.Contains([]string{"get", "list", "watch"}, a.GetVerb()) {
				writes = append(writes, a.GetVerb()+" "+a.GetResource().Resource)
			}
		}
		api.ClearActions()
		dyn.ClearActions()
		return writes
	}
}

func untyped(object runtime.Object) (*unstructured.Unstructured, error) {
	u := &unstructured.Unstructured{}
	if err := scheme.Scheme.Convert(object, u, nil); err != nil {
		return nil, err
	}
	delete(u.Object, "status")
	return u, nil
}

func typed(object runtime.Object) runtime.Object {
	out, err := scheme.Scheme.New(object.GetObjectKind().GroupVersionKind())
	if err == nil {
		err = scheme.Scheme.Convert(object, out, nil)
	}
	if err != nil {
		panic(err)
	}
	return out
}
