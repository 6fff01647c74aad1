package cluster

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"airlift/installer/cluster/wait"
	"airlift/internal/fault"
)

// EnsureAdmin gives admin.conf's group its permissions by applying binding, the
// ClusterRoleBinding kubeadm:cluster-admins. It uses admin if admin is already
// allowed to do this, and otherwise superAdmin, which is in system:masters and
// needs no binding. superAdmin may be nil: an administrator may have removed
// super-admin.conf after init.
//
// It returns when the API server accepts admin: the authorizer reads bindings
// from a cache that is updated a moment later.
func EnsureAdmin(ctx context.Context, admin, superAdmin *Client, binding runtime.Object) (changed []string, err error) {
	changed, err = admin.Apply(ctx, binding)
	if !apierrors.IsForbidden(err) {
		return changed, err
	}
	if superAdmin == nil {
		return nil, fault.Wrap(err, fault.Failure,
			"admin.conf's group has no permissions, and this host has no super-admin.conf to grant them: restore super-admin.conf, or as another administrator run: kubectl create clusterrolebinding kubeadm:cluster-admins --clusterrole=cluster-admin --group=kubeadm:cluster-admins")
	}
	if changed, err = superAdmin.Apply(ctx, binding); err != nil {
		return changed, err
	}
	u, err := toUnstructured(binding)
	if err != nil {
		return changed, err
	}
	w := wait.For{What: "the API server to accept admin.conf", Timeout: wait.Outage}
	return changed, w.Until(ctx, nil, func(ctx context.Context) (bool, string, error) {
		_, err := admin.resource(u).Get(ctx, u.GetName(), metav1.GetOptions{})
		return err == nil, fmt.Sprint(err), nil
	})
}
