package oracle

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	kubeletv1 "k8s.io/kubelet/config/v1beta1"
	"sigs.k8s.io/yaml"
)

// Want is kubeadm's decoded output with the intended differences applied, which
// package render must produce.
type Want struct {
	Pods         map[string]*corev1.Pod
	Objects      map[string]runtime.Object // by Key
	Kubelet      kubeletv1.KubeletConfiguration
	KubeletFlags string
	// InstanceConfig is instance-config.yaml, empty if there is none.
	InstanceConfig string
	Output         Output
	// Applied are the differences that had an effect in this case.
	Applied []string
}

// Expect runs kubeadm for a case and decodes its output.
func Expect(t testing.TB, c Case) Want {
	t.Helper()
	out := Run(t, c)
	w := Want{Pods: map[string]*corev1.Pod{}, Objects: map[string]runtime.Object{}, Output: out}
	for _, name := range []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler", "etcd"} {
		if name == "etcd" && c.Config.Etcd.External != nil {
			continue
		}
		pod := &corev1.Pod{}
		Decode(t, out.Read(t, name+".yaml"), pod)
		w.Pods[name] = pod
	}
	Decode(t, out.Read(t, "config.yaml"), &w.Kubelet)
	w.KubeletFlags = string(out.Read(t, "kubeadm-flags.env"))
	if data, err := os.ReadFile(filepath.Join(out.Dir, "instance-config.yaml")); err == nil {
		w.InstanceConfig = string(data)
	}
	for _, data := range out.Objects {
		if obj := Object(t, data); obj != nil {
			w.Objects[Key(t, obj)] = obj
		}
	}
	for _, d := range Differences {
		if d.Apply == nil || !d.Have(c.Config.KubernetesVersion) {
			continue
		}
		before := w.encode(t)
		d.Apply(&w, c.Config)
		if w.encode(t) != before {
			w.Applied = append(w.Applied, d.What)
		}
	}
	return w
}

func (w Want) encode(t testing.TB) string {
	t.Helper()
	data, err := json.Marshal([]any{w.Pods, w.Objects, w.Kubelet, w.KubeletFlags})
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// Object decodes an API object of a kind that package render creates; it is nil for
// Secrets and Nodes, which package cluster creates.
func Object(t testing.TB, data []byte) runtime.Object {
	t.Helper()
	var kind struct{ Kind string }
	if err := yaml.Unmarshal(data, &kind); err != nil {
		t.Fatalf("%v\n%s", err, data)
	}
	kinds := map[string]runtime.Object{
		"ClusterRole":        &rbacv1.ClusterRole{},
		"ClusterRoleBinding": &rbacv1.ClusterRoleBinding{},
		"ConfigMap":          &corev1.ConfigMap{},
		"DaemonSet":          &appsv1.DaemonSet{},
		"Deployment":         &appsv1.Deployment{},
		"Namespace":          &corev1.Namespace{},
		"Role":               &rbacv1.Role{},
		"RoleBinding":        &rbacv1.RoleBinding{},
		"Service":            &corev1.Service{},
		"ServiceAccount":     &corev1.ServiceAccount{},
	}
	if kind.Kind == "Secret" || kind.Kind == "Node" {
		return nil
	}
	obj := kinds[kind.Kind]
	if obj == nil {
		t.Fatalf("unexpected kind %q:\n%s", kind.Kind, data)
	}
	Decode(t, data, obj)
	return obj
}

// Decode is strict: a field that the type does not have fails the test.
func Decode(t testing.TB, data []byte, into any) {
	t.Helper()
	if err := yaml.UnmarshalStrict(data, into); err != nil {
		t.Fatalf("decoding into %T: %v\n%s", into, err, data)
	}
}

// Key names an object: "Kind namespace/name".
func Key(t testing.TB, obj runtime.Object) string {
	t.Helper()
	m, err := meta.Accessor(obj)
	if err != nil {
		t.Fatal(err)
	}
	return obj.GetObjectKind().GroupVersionKind().Kind + " " + m.GetNamespace() + "/" + m.GetName()
}

// SignedDefaults reports whether a ConfigMap has kubeadm's checksum, which must then
// be right.
func SignedDefaults(t testing.TB, m *corev1.ConfigMap) bool {
	t.Helper()
	sum, ok := m.Annotations["kubeadm.kubernetes.io/component-config.hash"]
	if !ok {
		return false
	}
	var all strings.Builder
	for _, key := range slices.Sorted(maps.Keys(m.Data)) {
		all.WriteString(m.Data[key])
	}
	if want := fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(all.String()))); sum != want {
		t.Errorf("ConfigMap %s is signed %s, its data is %s", m.Name, sum, want)
	}
	return true
}
