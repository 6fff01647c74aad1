package facts

import (
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
	for _, list := range []struct {
		what string
		read func() error
	}{
		{"services", func() error { return f.Features.readServices(ctx, api) }},
		{"persistentvolumes", func() error { return f.Features.readVolumes(ctx, api) }},
		{"storageclasses", func() error { return f.Features.readClasses(ctx, api) }},
		{"csidrivers", func() error { return f.Features.readDrivers(ctx, api) }},
		{"clusterroles", func() error { return f.Features.readClusterRoles(ctx, api) }},
		{"roles", func() error { return f.Features.readRoles(ctx, api) }},
	} {
		if err := f.read(ctx, list.what, list.read); err != nil {
			return err
		}
	}
	return nil
}

func (f Features) addPod(p *corev1.Pod) {
	for _, v := range p.Spec.Volumes {
		f.addVolume(v.VolumeSource, "Pod "+p.Namespace+"/"+p.Name)
	}
}

func (f Features) readServices(ctx context.Context, api kubernetes.Interface) error {
	services, err := api.CoreV1().Services(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, s := range services.Items {
		if len(s.Spec.ExternalIPs) > 0 {
			f.add(ExternalIPs, "Service "+s.Namespace+"/"+s.Name)
		}
	}
	return nil
}

func (f Features) readVolumes(ctx context.Context, api kubernetes.Interface) error {
	volumes, err := api.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, v := range volumes.Items {
		f.addVolume(v.Spec.PersistentVolumeSource, "PersistentVolume "+v.Name)
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

// provisioners are the removed provisioners of Kubernetes itself, with the types of their volumes.
var provisioners = map[string]Feature{
	"kubernetes.io/rbd":             VolumeType("rbd"),
	"kubernetes.io/portworx-volume": VolumeType("portworxVolume"),
}

func (f Features) readClasses(ctx context.Context, api kubernetes.Interface) error {
	classes, err := api.StorageV1().StorageClasses().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, s := range classes.Items {
		if feature, ok := provisioners[s.Provisioner]; ok {
			f.add(feature, "StorageClass "+s.Name)
		}
	}
	return nil
}

func (f Features) readDrivers(ctx context.Context, api kubernetes.Interface) error {
	drivers, err := api.StorageV1().CSIDrivers().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, d := range drivers.Items {
		if ptr.Deref(d.Spec.SELinuxMount, false) {
			f.add(SELinuxMount, "CSIDriver "+d.Name)
		}
	}
	return nil
}

func (f Features) readClusterRoles(ctx context.Context, api kubernetes.Interface) error {
	roles, err := api.RbacV1().ClusterRoles().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, r := range roles.Items {
		f.addRole("ClusterRole "+r.Name, r.Name, r.Rules)
	}
	return nil
}

func (f Features) readRoles(ctx context.Context, api kubernetes.Interface) error {
	roles, err := api.RbacV1().Roles(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, r := range roles.Items {
		f.addRole("Role "+r.Namespace+"/"+r.Name, r.Name, r.Rules)
	}
	return nil
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
