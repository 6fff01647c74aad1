package cluster

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// A Listing selects objects of one resource.
type Listing struct {
	Group, Version, Resource string
	Namespace                string // "" for all
	Fields                   string // a field selector
}

// List returns objects of any kind as maps, without the fields that only the API server needs.
func (c *Client) List(ctx context.Context, l Listing) ([]map[string]any, error) {
	if l.Resource == "secrets" {
		return nil, fmt.Errorf("listing %s: Secrets are not read", l.Resource)
	}
	gvr := schema.GroupVersionResource{Group: l.Group, Version: l.Version, Resource: l.Resource}
	list, err := c.Dynamic.Resource(gvr).Namespace(l.Namespace).List(ctx, metav1.ListOptions{FieldSelector: l.Fields})
	if err != nil {
		return nil, fmt.Errorf("listing %s: %w", l.Resource, err)
	}
	objects := []map[string]any{}
	for _, o := range list.Items {
		o.SetManagedFields(nil)
		unstructured.RemoveNestedField(o.Object, "metadata", "annotations", "kubectl.kubernetes.io/last-applied-configuration")
		objects = append(objects, o.Object)
	}
	return objects, nil
}

// A NodeClock is the time at which a node renewed its lease, by its own clock.
type NodeClock struct {
	Node    string
	Ready   bool
	Renewed time.Time
}

// NodeClocks returns when each node renewed its lease. A kubelet does that every ten seconds,
// and the API server does not compare the time with its own clock.
func (c *Client) NodeClocks(ctx context.Context) (list []NodeClock, err error) {
	nodes, err := c.Nodes(ctx)
	if err != nil {
		return nil, err
	}
	for _, n := range nodes {
		lease, err := c.API.CoordinationV1().Leases("kube-node-lease").Get(ctx, n.Name, metav1.GetOptions{})
		if err != nil || lease.Spec.RenewTime == nil {
			continue // it has not reported yet
		}
		list = append(list, NodeClock{Node: n.Name, Ready: n.Ready, Renewed: lease.Spec.RenewTime.Time})
	}
	return list, nil
}
