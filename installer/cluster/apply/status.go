package apply

import (
	"context"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// An State is the state of an object in the inventory.
type State struct {
	Object string `json:"object"`
	Ready  bool   `json:"ready"`
	Reason string `json:"reason,omitempty"` // if it is not ready
	// NodesNotReady is set if all missing pods are on nodes that are not Ready.
	NodesNotReady bool `json:"-"`
}

// States looks at the objects of an entry of the inventory.
func (s *Applier) States(ctx context.Context, e Entry, inBundle func(image string) bool) (list []State, err error) {
	for _, name := range e.Objects {
		o, err := objectOf(name)
		if err != nil {
			return nil, err
		}
		r, err := s.ready(ctx, o, o.GetNamespace(), inBundle)
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", name, err)
		}
		state := State{Object: name, Ready: r.Ready, NodesNotReady: r.NodesNotReady}
		if !r.Ready {
			state.Reason = r.Why
		}
		list = append(list, state)
	}
	return list, nil
}

// objectOf returns an object with the kind and name of one in the inventory.
func objectOf(name string) (*unstructured.Unstructured, error) {
	kind, place, ok := strings.Cut(name, " ")
	if !ok {
		return nil, fmt.Errorf("reading ConfigMap %s/%s: object %q has no name", metav1.NamespaceSystem, InventoryName, name)
	}
	o := &unstructured.Unstructured{Object: map[string]any{}}
	gk := schema.ParseGroupKind(kind)
	o.SetGroupVersionKind(gk.WithVersion("")) // the API server's preferred version
	if namespace, short, ok := strings.Cut(place, "/"); ok {
		o.SetNamespace(namespace)
		place = short
	}
	o.SetName(place)
	return o, nil
}
