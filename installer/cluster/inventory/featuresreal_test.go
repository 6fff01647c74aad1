package inventory

import (
	"maps"
	"reflect"
	"slices"
	"testing"

	"airlift/scripts/fixtures/testcluster/testclient"

	"airlift/scripts/fixtures/testcluster"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// TestRealFeatures finds nothing in a new cluster, which has many roles of Kubernetes' own, and then each
// object that uses what a version changes, and the objects of an alpha API.
func TestRealFeatures(t *testing.T) {
	p := testcluster.Start(t)
	ctx, c, yes := testcluster.Within(t), testclient.Super(t, p), true
	features := func() Features {
		found := testcluster.Must(Read(ctx, c.API))(t).Features
		maps.DeleteFunc(found, func(f Feature, _ []string) bool { // volumes of other tests' pods
			return !slices.Contains([]Feature{ExternalIPs, SELinuxMount, ConnectByGet, NodeLogs, VolumeType("rbd")}, f)
		})
		return found
	}
	if found := features(); len(found) > 0 {
		t.Errorf("in a new cluster: %+v", found)
	}
	if uses, err := APIUses(ctx, c, 29, 37); err != nil || slices.ContainsFunc(uses, func(u APIUse) bool { return u.Lost != "" }) {
		t.Errorf("in a new cluster: %v %+v", err, uses)
	}
	meta := metav1.ObjectMeta{Name: "used", Namespace: "default"}
	volume := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "used"}, Spec: corev1.PersistentVolumeSpec{
		Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		PersistentVolumeSource: corev1.PersistentVolumeSource{RBD: &corev1.RBDPersistentVolumeSource{CephMonitors: []string{"192.0.2.1"}, RBDImage: "a"}},
	}}
	testcluster.Must(c.API.CoreV1().PersistentVolumes().Create(ctx, volume, metav1.CreateOptions{}))(t)
	testcluster.Must(c.API.StorageV1().CSIDrivers().Create(ctx, &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: "used"}, Spec: storagev1.CSIDriverSpec{SELinuxMount: &yes}}, metav1.CreateOptions{}))(t)
	testcluster.Must(c.API.CoreV1().Services("default").Create(ctx, &corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{ExternalIPs: []string{"192.0.2.1"}, Ports: []corev1.ServicePort{{Port: 80}}}}, metav1.CreateOptions{}))(t)
	class := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "resource.k8s.io/v1alpha2", "kind": "ResourceClass", "metadata": map[string]any{"name": "used"}, "driverName": "a.example",
	}}
	classes := c.Dynamic.Resource(schema.GroupVersionResource{Group: "resource.k8s.io", Version: "v1alpha2", Resource: "resourceclasses"})
	testcluster.Must(classes.Create(ctx, class, metav1.CreateOptions{}))(t)
	defer func() { // other tests use the same cluster
		for what, err := range map[string]error{
			"volume":  c.API.CoreV1().PersistentVolumes().Delete(ctx, "used", metav1.DeleteOptions{}),
			"driver":  c.API.StorageV1().CSIDrivers().Delete(ctx, "used", metav1.DeleteOptions{}),
			"service": c.API.CoreV1().Services("default").Delete(ctx, "used", metav1.DeleteOptions{}),
			"class":   classes.Delete(ctx, "used", metav1.DeleteOptions{}),
		} {
			if err != nil {
				t.Errorf("deleting the %s: %v", what, err)
			}
		}
	}()
	want := Features{VolumeType("rbd"): {"PersistentVolume used"}, SELinuxMount: {"CSIDriver used"}, ExternalIPs: {"Service default/used"}}
	if found := features(); !reflect.DeepEqual(found, want) {
		t.Errorf("%+v", found)
	}
	uses := testcluster.Must(APIUses(ctx, c, 30, 31))(t)
	if !slices.Contains(uses, APIUse{API: "resource.k8s.io/v1alpha2", Kind: "ResourceClass", Object: "used", Removed: "v1.31", Replacement: "resource.k8s.io/v1alpha3", Lost: "resourceclasses"}) {
		t.Errorf("%+v", uses)
	}
}
