package rotation

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/client-go/kubernetes"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// controllerRole is the name prefix of the ClusterRoleBindings of controllers.
// The API server creates them when it starts.
const controllerRole = "system:controller:"

// notStarted are controllers that a controller manager does not start. Some need a built-in cloud
// provider, which it does not have since v1.29. Others start only if --controllers names them.
var notStarted = []string{"route-controller", "service-controller", "selinux-warning-controller"}

// EnsureControllerAccounts creates the service accounts that the controller
// manager otherwise creates for its controllers on its first start. The
// controller manager sends at most twenty requests a second (--kube-api-qps),
// and no controller works before all accounts exist.
func EnsureControllerAccounts(ctx context.Context, api kubernetes.Interface) error {
	bindings, err := api.RbacV1().ClusterRoleBindings().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("listing the controllers: %w", err)
	}
	for _, b := range bindings.Items {
		if !strings.HasPrefix(b.Name, controllerRole) {
			continue
		}
		for _, s := range b.Subjects {
			if s.Kind != rbacv1.ServiceAccountKind || s.Namespace != metav1.NamespaceSystem || slices.Contains(notStarted, s.Name) {
				continue
			}
			account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: s.Name, Namespace: s.Namespace}}
			_, err := api.CoreV1().ServiceAccounts(s.Namespace).Create(ctx, account, metav1.CreateOptions{})
			if err != nil && !apierrors.IsAlreadyExists(err) {
				return fmt.Errorf("creating service account %s: %w", s.Name, err)
			}
		}
	}
	return nil
}

// HadControllerManager reports whether a controller manager has ever been the
// leader in this cluster.
func HadControllerManager(ctx context.Context, api kubernetes.Interface) (bool, error) {
	_, err := api.CoordinationV1().Leases(metav1.NamespaceSystem).Get(ctx, "kube-controller-manager", metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("looking for a controller manager: %w", err)
	}
	return true, nil
}
