package inventory

import (
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"

	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
)

// A Feature is something that objects use and that a version of Kubernetes changes. Other values
// are types of volumes, with VolumeType.
type Feature string

const (
	// ExternalIPs are the addresses in spec.externalIPs of a Service.
	ExternalIPs Feature = "externalIPs"
	// SELinuxMount is set in a CSIDriver whose volumes can be mounted with an SELinux label.
	SELinuxMount Feature = "seLinuxMount"
	// ConnectByGet is a role that may get and not create connections to pods, such as pods/exec.
	ConnectByGet Feature = "get of pods/exec, pods/attach or pods/portforward"
	// NodeLogs is a role that may read the logs of nodes.
	NodeLogs Feature = "nodes/log"
)

// VolumeType returns the feature of a type of volumes, which is the name of its field: "cephfs".
func VolumeType(field string) Feature { return Feature("volume " + field) }

// Features are the objects that use features: "Service default/web".
type Features map[Feature][]string

func (f Features) add(feature Feature, object string) {
	if !slices.Contains(f[feature], object) {
		f[feature] = append(f[feature], object)
	}
}

// readFeatures finds the objects that use features, except for pods.
func (f *Cluster) readFeatures(ctx context.Context, api kubernetes.Interface) error {
	core, storage, rbac, all := api.CoreV1(), api.StorageV1(), api.RbacV1(), metav1.ListOptions{}
	for _, kind := range []struct {
		what string
		list func() (runtime.Object, error)
	}{
		{"services", func() (runtime.Object, error) { return core.Services("").List(ctx, all) }},
		{"persistentvolumes", func() (runtime.Object, error) { return core.PersistentVolumes().List(ctx, all) }},
		{"storageclasses", func() (runtime.Object, error) { return storage.StorageClasses().List(ctx, all) }},
		{"csidrivers", func() (runtime.Object, error) { return storage.CSIDrivers().List(ctx, all) }},
		{"clusterroles", func() (runtime.Object, error) { return rbac.ClusterRoles().List(ctx, all) }},
		{"roles", func() (runtime.Object, error) { return rbac.Roles("").List(ctx, all) }},
	} {
		err := f.read(ctx, kind.what, func() error {
			list, err := kind.list()
			if err != nil {
				return err
			}
			return meta.EachListItem(list, f.Features.addObject)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// provisioners are the removed provisioners of Kubernetes itself, with the types of their volumes.
var provisioners = map[string]Feature{
	"kubernetes.io/rbd":             VolumeType("rbd"),
	"kubernetes.io/portworx-volume": VolumeType("portworxVolume"),
}

// addObject adds the features that an object uses.
func (f Features) addObject(object runtime.Object) error {
	switch o := object.(type) {
	case *corev1.Pod:
		for _, v := range o.Spec.Volumes {
			f.addVolume(v.VolumeSource, "Pod "+o.Namespace+"/"+o.Name)
		}
	case *corev1.Service:
		if len(o.Spec.ExternalIPs) > 0 {
			f.add(ExternalIPs, "Service "+o.Namespace+"/"+o.Name)
		}
	case *corev1.PersistentVolume:
		f.addVolume(o.Spec.PersistentVolumeSource, "PersistentVolume "+o.Name)
	case *storagev1.StorageClass:
		if feature, ok := provisioners[o.Provisioner]; ok {
			f.add(feature, "StorageClass "+o.Name)
		}
	case *storagev1.CSIDriver:
		if ptr.Deref(o.Spec.SELinuxMount, false) {
			f.add(SELinuxMount, "CSIDriver "+o.Name)
		}
	case *rbacv1.ClusterRole:
		f.addRole("ClusterRole "+o.Name, o.Name, o.Rules)
	case *rbacv1.Role:
		f.addRole("Role "+o.Namespace+"/"+o.Name, o.Name, o.Rules)
	}
	return nil
}

// addVolume adds the type of a volume: the field that is set in its source.
func (f Features) addVolume(source any, object string) {
	fields := map[string]json.RawMessage{}
	if data, err := json.Marshal(source); err == nil && json.Unmarshal(data, &fields) == nil {
		for _, field := range slices.Sorted(maps.Keys(fields)) {
			f.add(VolumeType(field), object)
		}
	}
}

// addRole examines a role that Kubernetes has not created itself.
func (f Features) addRole(object, name string, rules []rbacv1.PolicyRule) {
	if strings.HasPrefix(name, "system:") {
		return
	}
	allowed := map[string][]string{} // verbs by resource
	for _, r := range rules {
		if slices.Contains(r.APIGroups, "") || slices.Contains(r.APIGroups, "*") {
			for _, resource := range r.Resources {
				allowed[resource] = append(allowed[resource], r.Verbs...)
			}
		}
	}
	may := func(verb, resource string) bool {
		return slices.Contains(allowed[resource], verb) || slices.Contains(allowed[resource], "*")
	}
	for _, resource := range []string{"pods/exec", "pods/attach", "pods/portforward", "pods/*"} {
		if may("get", resource) && !may("create", resource) {
			f.add(ConnectByGet, object)
		}
	}
	if may("get", "nodes/log") || may("get", "nodes/*") {
		f.add(NodeLogs, object)
	}
}
