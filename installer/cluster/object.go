package cluster

import (
	"context"
	"encoding/json"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"airlift/installer/cluster/wait"
)

// An ObjectName names an object of a namespace.
type ObjectName struct {
	APIVersion, Kind, Namespace, Name string
}

// ReadObject reads an object without what the server adds to it; nil if it does not exist.
func (c *Client) ReadObject(ctx context.Context, o ObjectName) (json.RawMessage, error) {
	want := &unstructured.Unstructured{}
	want.SetGroupVersionKind(schema.FromAPIVersionAndKind(o.APIVersion, o.Kind))
	want.SetNamespace(o.Namespace)
	want.SetName(o.Name)
	var found *unstructured.Unstructured
	err := wait.Retry(ctx, func() (err error) {
		found, err = c.resource(want).Get(ctx, o.Name, metav1.GetOptions{})
		return err
	})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading %s %s/%s: %w", o.Kind, o.Namespace, o.Name, err)
	}
	delete(found.Object, "status")
	for _, field := range []string{"resourceVersion", "uid", "creationTimestamp", "generation", "managedFields", "selfLink"} {
		unstructured.RemoveNestedField(found.Object, "metadata", field)
	}
	return found.MarshalJSON()
}

// ReplaceObject makes an object what ReadObject has read, and reports whether it differed.
func (c *Client) ReplaceObject(ctx context.Context, data json.RawMessage) (changed bool, err error) {
	want := &unstructured.Unstructured{}
	if err := want.UnmarshalJSON(data); err != nil {
		return false, err
	}
	name := ObjectName{want.GetAPIVersion(), want.GetKind(), want.GetNamespace(), want.GetName()}
	now, err := c.ReadObject(ctx, name)
	if err != nil || string(now) == string(data) {
		return false, err
	}
	err = wait.Retry(ctx, func() error {
		if now == nil {
			_, err := c.resource(want).Create(ctx, want, metav1.CreateOptions{})
			if !apierrors.IsAlreadyExists(err) { // created by a request whose answer was late
				return err
			}
		}
		_, err := c.resource(want).Update(ctx, want, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		return false, fmt.Errorf("replacing %s: %w", Describe(want), err)
	}
	return true, nil
}
