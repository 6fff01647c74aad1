package cluster

import (
	"context"
	"fmt"
	"slices"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"airlift/installer/cluster/wait"
)

// A Difference is an object that Apply would create or change.
type Difference struct {
	Name          string // "ConfigMap kube-system/kubeadm-config"
	Before, After string // YAML without what the API server sets; Before is empty if the object does not exist
	// EditedByHand reports whether something else than Airlift and kubeadm changed the object last.
	EditedByHand bool
}

// installers are the names under which Airlift and kubeadm write objects, controllers the names of other programs that write to them.
var (
	installers  = []string{userAgent, "airlift", "kubeadm"}
	controllers = []string{"kube-controller-manager", "kube-scheduler", "kubelet"}
)

// EditedByHand reports whether something else than Airlift and kubeadm wrote an object last, apart from controllers and its status.
func EditedByHand(fields []metav1.ManagedFieldsEntry) bool {
	var last metav1.ManagedFieldsEntry
	for _, f := range fields {
		if f.Subresource == "" && f.Time != nil && !slices.Contains(controllers, f.Manager) && (last.Time == nil || last.Time.Before(f.Time)) {
			last = f
		}
	}
	return last.Time != nil && !slices.Contains(installers, last.Manager)
}

// Compare returns what Apply would change in an object; nil if nothing. It only reads.
func (c *Client) Compare(ctx context.Context, object runtime.Object) (*Difference, error) {
	want, err := toUnstructured(object)
	if err != nil {
		return nil, err
	}
	d, err := c.compare(ctx, want)
	if err != nil {
		return nil, fmt.Errorf("comparing %s: %w", Describe(want), err)
	}
	return d, nil
}

func (c *Client) compare(ctx context.Context, want *unstructured.Unstructured) (*Difference, error) {
	d := &Difference{Name: Describe(want)}
	var have *unstructured.Unstructured
	err := wait.Retry(ctx, func() (err error) {
		have, err = c.resource(want).Get(ctx, want.GetName(), metav1.GetOptions{})
		return err
	})
	if apierrors.IsNotFound(err) {
		d.After, err = plain(want)
		return d, err
	}
	if err != nil {
		return nil, err
	}
	patch, err := patchFor(have, want)
	if err != nil || patch == nil {
		return nil, err
	}
	data, err := have.MarshalJSON()
	if err != nil {
		return nil, err
	}
	if data, err = jsonpatch.MergePatch(data, patch); err != nil {
		return nil, err
	}
	after := &unstructured.Unstructured{}
	if err := after.UnmarshalJSON(data); err != nil {
		return nil, err
	}
	d.EditedByHand = EditedByHand(have.GetManagedFields())
	if d.Before, err = plain(have); err == nil {
		d.After, err = plain(after)
	}
	return d, err
}

// plain returns an object as YAML, without what the API server sets.
func plain(o *unstructured.Unstructured) (string, error) {
	o = o.DeepCopy()
	delete(o.Object, "status")
	for _, field := range []string{"creationTimestamp", "generation", "managedFields", "resourceVersion", "uid"} {
		unstructured.RemoveNestedField(o.Object, "metadata", field)
	}
	data, err := yaml.Marshal(o.Object)
	return string(data), err
}
