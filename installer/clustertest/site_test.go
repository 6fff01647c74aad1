package clustertest

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"airlift/installer/cluster"
	"airlift/scripts/fixtures/testcluster"
	"airlift/scripts/fixtures/testcluster/testclient"
)

// TestStorage: the test uses the class that the API server gives to a claim, and no volume that waits for a claim of the site.
func TestStorage(t *testing.T) {
	p := testcluster.Start(t)
	api, ctx := testclient.Super(t, p).API, testcluster.Within(t)
	classes, claims := api.StorageV1().StorageClasses(), api.CoreV1().PersistentVolumeClaims("default")
	read := func() (class, notes string) {
		t.Helper()
		test := &Test{Client: &cluster.Client{API: api}, site: &site{}}
		if err := test.readStorage(ctx); err != nil {
			t.Fatal(err)
		}
		if test.site.class != nil {
			class = test.site.class.Name
		}
		return class, strings.Join(test.notes, "\n")
	}
	want := func(what, class, note string) {
		t.Helper()
		if got, notes := read(); got != class || !strings.Contains(notes, note) || note == "" && notes != "" {
			t.Errorf("%s: the class %q, and the notes %q; want %q, %q", what, got, notes, class, note)
		}
	}
	create := func(name, annotation string, edit func(*storagev1.StorageClass)) {
		t.Helper()
		c := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{annotation: "true"}}, Provisioner: "example.com/disks"}
		if edit != nil {
			edit(c)
		}
		testcluster.Must(classes.Create(ctx, c, metav1.CreateOptions{}))(t)
	}
	const isDefault = "storageclass.kubernetes.io/is-default-class"
	t.Cleanup(func() { // other tests have the same API server
		for _, name := range []string{"middle", "middle-too", "zone", "alpha", "local", "keeps"} {
			_ = classes.Delete(context.Background(), name, metav1.DeleteOptions{})
		}
		_ = api.CoreV1().PersistentVolumes().Delete(context.Background(), "of-the-site", metav1.DeleteOptions{})
	})
	want("no class", "", "there is no default StorageClass")
	for i, name := range []string{"middle", "middle-too", "zone", "alpha"} {
		create(name, []string{isDefault, isDefault, isDefault, "storageclass.beta.kubernetes.io/is-default-class"}[i], nil)
		testcluster.Eventually(t, func() bool { // the API server knows the class a moment later
			claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("c%d", time.Now().UnixNano())}, Spec: corev1.PersistentVolumeClaimSpec{
				AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Mi")}},
			}}
			chosen := testcluster.Must(claims.Create(ctx, claim, metav1.CreateOptions{}))(t).Spec.StorageClassName
			got, _ := read()
			return ptr.Deref(chosen, "") == got
		})
		time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(time.Second))) // the times of objects have seconds
	}
	want("the newest class", "alpha", "")

	volume := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "of-the-site"}, Spec: corev1.PersistentVolumeSpec{
		StorageClassName: "alpha", Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		PersistentVolumeSource: corev1.PersistentVolumeSource{NFS: &corev1.NFSVolumeSource{Server: "192.0.2.1", Path: "/data"}},
	}}
	volume = testcluster.Must(api.CoreV1().PersistentVolumes().Create(ctx, volume, metav1.CreateOptions{}))(t)
	want("a free volume", "", "StorageClass alpha has the free PersistentVolume of-the-site")
	volume.Spec.ClaimRef = &corev1.ObjectReference{Kind: "PersistentVolumeClaim", Namespace: "default", Name: "data"}
	testcluster.Must(api.CoreV1().PersistentVolumes().Update(ctx, volume, metav1.UpdateOptions{}))(t)
	want("a volume that has a claim", "alpha", "")

	time.Sleep(time.Second)
	create("local", isDefault, func(c *storagev1.StorageClass) { c.Provisioner = "kubernetes.io/no-provisioner" })
	want("volumes that administrators create", "", "nothing creates volumes of the default StorageClass local")
	time.Sleep(time.Second)
	create("keeps", isDefault, func(c *storagev1.StorageClass) { c.ReclaimPolicy = ptr.To(corev1.PersistentVolumeReclaimRetain) })
	want("a class that keeps volumes", "", "StorageClass keeps keeps volumes")
}
