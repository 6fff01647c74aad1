package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes/scheme"

	"airlift/installer/cluster/wait"
)

// Apply creates or updates the objects in order, so that each has at least the
// given fields. It returns what it created or changed, as "Kind namespace/name".
//
// An object in which every given field has the given value is not changed:
// server defaults, status, and additions by others (a signature in
// cluster-info, a label) are not compared. Otherwise the given fields are sent
// as a JSON merge patch, which keeps all other fields. Lists are compared and
// replaced as a whole, and so is the data of a Secret: no other client writes it,
// and an old key could still grant access. Server-side apply would need no
// read, but it owns fields permanently and makes a later kubectl edit conflict.
func (c *Client) Apply(ctx context.Context, objects ...runtime.Object) (changed []string, err error) {
	for _, object := range objects {
		want, err := toUnstructured(object)
		if err != nil {
			return changed, err
		}
		name := Describe(want)
		did := false
		err = wait.Retry(ctx, func() (err error) {
			did, err = c.applyOne(ctx, want)
			return err
		})
		if err != nil {
			return changed, fmt.Errorf("applying %s: %w", name, err)
		}
		if did {
			changed = append(changed, name)
		}
	}
	return changed, nil
}

func (c *Client) applyOne(ctx context.Context, want *unstructured.Unstructured) (bool, error) {
	resource := c.resource(want)
	for {
		have, err := resource.Get(ctx, want.GetName(), metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			_, err = resource.Create(ctx, want, metav1.CreateOptions{})
			if apierrors.IsAlreadyExists(err) {
				continue // created by another client: compare with that object
			}
			return err == nil, err
		}
		if err != nil {
			return false, err
		}
		data, err := patchFor(have, want)
		if err != nil || data == nil {
			return false, err
		}
		_, err = resource.Patch(ctx, want.GetName(), types.MergePatchType, data, metav1.PatchOptions{})
		return err == nil, err
	}
}

// patchFor returns the JSON merge patch that gives an object the fields of want; nil if it has them.
func patchFor(have, want *unstructured.Unstructured) ([]byte, error) {
	patch := want.DeepCopy()
	dropLeftovers(patch, have)
	if containsFields(have.Object, patch.Object) {
		return nil, nil
	}
	return json.Marshal(patch)
}

// resource derives the REST resource from the kind (lower case, plural) without
// a request; that is right for every kind of Kubernetes.
func (c *Client) resource(o *unstructured.Unstructured) dynamic.ResourceInterface {
	gvr, _ := meta.UnsafeGuessKindToResource(o.GroupVersionKind())
	if ns := o.GetNamespace(); ns != "" {
		return c.Dynamic.Resource(gvr).Namespace(ns)
	}
	return c.Dynamic.Resource(gvr)
}

// toUnstructured returns the fields that are set, with apiVersion and kind,
// which typed objects usually leave empty.
func toUnstructured(object runtime.Object) (*unstructured.Unstructured, error) {
	gvk := object.GetObjectKind().GroupVersionKind()
	if gvk.Empty() {
		kinds, _, err := scheme.Scheme.ObjectKinds(object)
		if err != nil {
			return nil, fmt.Errorf("finding the kind of %T: %w", object, err)
		}
		gvk = kinds[0]
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return nil, fmt.Errorf("converting %s: %w", gvk.Kind, err)
	}
	u := &unstructured.Unstructured{Object: runtime.DeepCopyJSON(content)}
	u.SetGroupVersionKind(gvk)
	// Only the server writes status; here it is Go's zero value.
	delete(u.Object, "status")
	prune(u.Object)
	if u.GetName() == "" {
		return nil, fmt.Errorf("applying %s: it has no name", gvk.Kind)
	}
	return u, nil
}

// prune removes nulls, such as an unset creationTimestamp: in a merge patch
// they would mean "delete".
func prune(v any) {
	switch v := v.(type) {
	case map[string]any:
		for key, value := range v {
			if value == nil {
				delete(v, key)
			} else {
				prune(value)
			}
		}
	case []any:
		for _, value := range v {
			prune(value)
		}
	}
}

// dropLeftovers adds a null, which deletes the key in a merge patch, for each
// existing data key of a Secret that the patch does not set, and for kubeadm's
// checksum of a ConfigMap whose data is no longer kubeadm's defaults.
func dropLeftovers(patch, have *unstructured.Unstructured) {
	if patch.GetKind() == "ConfigMap" {
		dropHash(patch, have)
	}
	if patch.GetKind() != "Secret" {
		return
	}
	data, _, _ := unstructured.NestedMap(have.Object, "data")
	for key := range data {
		if _, ours, _ := unstructured.NestedFieldNoCopy(patch.Object, "data", key); !ours {
			_ = unstructured.SetNestedField(patch.Object, nil, "data", key)
		}
	}
}

func dropHash(patch, have *unstructured.Unstructured) {
	_, sets := patch.GetAnnotations()[componentHash]
	data, _, err := unstructured.NestedStringMap(have.Object, "data")
	if have.GetAnnotations()[componentHash] == "" || sets || err != nil {
		return
	}
	own, _, err := unstructured.NestedStringMap(patch.Object, "data")
	if err != nil || len(own) == 0 {
		return
	}
	maps.Copy(data, own)
	if dataHash(&corev1.ConfigMap{Data: data}) != have.GetAnnotations()[componentHash] {
		_ = unstructured.SetNestedField(patch.Object, nil, "metadata", "annotations", componentHash)
	}
}

// containsFields reports whether have contains every field of want with the same
// value. A null in want means that the field must be absent.
func containsFields(have, want any) bool {
	switch want := want.(type) {
	case nil:
		return have == nil
	case map[string]any:
		h, ok := have.(map[string]any)
		if !ok && have != nil {
			return false
		}
		for key, value := range want {
			if !containsFields(h[key], value) {
				return false
			}
		}
		return true
	case []any:
		h, ok := have.([]any)
		if !ok && have != nil || len(h) != len(want) {
			return false
		}
		for i := range want {
			if !containsFields(h[i], want[i]) {
				return false
			}
		}
		return true
	default:
		return reflect.DeepEqual(have, want)
	}
}

func Describe(o *unstructured.Unstructured) string {
	return strings.TrimSpace(o.GetKind() + " " + Qualified(o.GetNamespace(), o.GetName()))
}

func Qualified(namespace, name string) string {
	if namespace == "" {
		return name
	}
	return namespace + "/" + name
}
