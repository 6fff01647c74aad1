package cluster

import (
	"encoding/json"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// snapshot returns all objects of the kinds that init creates, as JSON by name,
// without the fields that change with every write.
func (p *controlPlane) snapshot(t *testing.T) map[string]string {
	t.Helper()
	ctx, c := within(t), p.client(t)
	objects := map[string]string{}
	for _, resource := range []schema.GroupVersionResource{
		{Version: "v1", Resource: "configmaps"}, {Version: "v1", Resource: "secrets"},
		{Version: "v1", Resource: "serviceaccounts"}, {Version: "v1", Resource: "services"},
		{Version: "v1", Resource: "nodes"}, {Version: "v1", Resource: "namespaces"},
		{Group: "apps", Version: "v1", Resource: "deployments"}, {Group: "apps", Version: "v1", Resource: "daemonsets"},
		{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "roles"},
		{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "rolebindings"},
		{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterroles"},
		{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterrolebindings"},
	} {
		list := must(c.dyn.Resource(resource).List(ctx, metav1.ListOptions{}))(t)
		for i := range list.Items {
			o := &list.Items[i]
			o.SetManagedFields(nil)
			o.SetResourceVersion("")
			objects[describe(o)] = string(must(json.Marshal(o.Object))(t))
		}
	}
	return objects
}
