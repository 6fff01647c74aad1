package cluster

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"airlift/fault"
)

// EnsureAdmin gives admin.conf's group its rights by applying binding, the
// ClusterRoleBinding kubeadm:cluster-admins. admin does it itself where it may
// already; otherwise superAdmin does, who is in system:masters and needs no
// binding. superAdmin may be nil, as on a host where super-admin.conf was
// taken away after init.
//
// It returns when the API server lets admin act: its authorizer reads bindings
// from a cache that follows a moment later.
func EnsureAdmin(ctx context.Context, admin, superAdmin *Client, binding runtime.Object) (changed []string, err error) {
	changed, err = admin.Apply(ctx, binding)
	if !apierrors.IsForbidden(err) {
		return changed, err
	}
	if superAdmin == nil {
		return nil, fault.Wrap(err, fault.Failure,
			"admin.conf's group has no rights yet, and there is no super-admin.conf to give them: put it back, or create the ClusterRoleBinding kubeadm:cluster-admins by hand")
	}
	if changed, err = superAdmin.Apply(ctx, binding); err != nil {
		return changed, err
	}
	u, err := toUnstructured(binding)
	if err != nil {
		return changed, err
	}
	w := wait{what: "the API server to accept admin.conf", timeout: 30 * time.Second}
	return changed, w.until(ctx, nil, func(ctx context.Context) (bool, string, error) {
		_, err := admin.resource(u).Get(ctx, u.GetName(), metav1.GetOptions{})
		return err == nil, fmt.Sprint(err), nil
	})
}
