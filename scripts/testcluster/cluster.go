package testcluster

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"airlift/installer/config"
	"airlift/installer/pki"
	"airlift/installer/render"
)

// API returns a client with the rights of system:masters.
func (p *ControlPlane) API(t *testing.T) kubernetes.Interface {
	t.Helper()
	return Must(kubernetes.NewForConfig(p.rest(t)))(t)
}

func (p *ControlPlane) rest(t *testing.T) *rest.Config {
	t.Helper()
	return Must(clientcmd.BuildConfigFromFlags("", p.Super))(t)
}

// InitPhases returns the phases of init that only apply objects.
func (p *ControlPlane) InitPhases() map[string]func() ([]runtime.Object, error) {
	p.Config.Images = map[string]string{
		"coredns":    "registry.k8s.io/coredns/coredns:v1.11.1",
		"kube-proxy": "registry.k8s.io/kube-proxy:" + Version,
		"flannel":    "ghcr.io/flannel-io/flannel:v0.28.4",
		"pause":      "registry.k8s.io/pause:3.9",
		"etcd":       "registry.k8s.io/etcd:3.5.16-0",
	}
	ca, err := os.ReadFile(filepath.Join(p.Config.CertificatesDir, "ca.crt"))
	return map[string]func() ([]runtime.Object, error){
		"upload-config": func() ([]runtime.Object, error) { return UploadConfig(p.Config) },
		"bootstrap-token": func() ([]runtime.Object, error) {
			return append(render.BootstrapRBAC(p.Config), render.ClusterInfo(p.Config, ca)...), err
		},
		"upload-certs": func() ([]runtime.Object, error) { return render.UploadCertsRBAC(), nil },
		"coredns":      func() ([]runtime.Object, error) { return render.CoreDNS(p.Config) },
		"kube-proxy":   func() ([]runtime.Object, error) { return render.KubeProxy(p.Config) },
		"flannel":      func() ([]runtime.Object, error) { return render.Flannel(p.Config) },
	}
}

// Init applies what a node needs to join, and starts the controller manager. apply is the method of a client.
func (p *ControlPlane) Init(t *testing.T, apply func(context.Context, ...runtime.Object) ([]string, error)) {
	t.Helper()
	for _, name := range []string{"upload-config", "bootstrap-token", "upload-certs"} {
		Must(apply(Within(t), Must(p.InitPhases()[name]())(t)...))(t)
	}
	p.ControllerManager(t)
}

// addNode registers a node as a kubelet would.
func (p *ControlPlane) AddNode(t *testing.T, name string, ready bool) {
	t.Helper()
	ctx, api := Within(t), p.API(t)
	_, err := api.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: name, Labels: map[string]string{corev1.LabelHostname: name}, // kubeadm waits for the label
	}}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	status := corev1.ConditionFalse
	if ready {
		status = corev1.ConditionTrue
	}
	patch := Must(json.Marshal(map[string]any{"status": map[string]any{"conditions": []corev1.NodeCondition{
		{Type: corev1.NodeReady, Status: status, Message: "container runtime network not ready: cni plugin not initialized"},
		{Type: corev1.NodeDiskPressure, Status: corev1.ConditionFalse, Message: "kubelet has no disk pressure"},
	}}}))(t)
	Must(api.CoreV1().Nodes().Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{}, "status"))(t)
}

// Taints returns a node's Taints, without the taint of every new node.
func (p *ControlPlane) Taints(t *testing.T, name string) (list []string) {
	t.Helper()
	node := Must(p.API(t).CoreV1().Nodes().Get(Within(t), name, metav1.GetOptions{}))(t)
	for _, taint := range node.Spec.Taints {
		if taint.Key != corev1.TaintNodeNotReady {
			list = append(list, taint.ToString())
		}
	}
	slices.Sort(list)
	return list
}

// KubeletConf writes a kubelet.conf for the node cp1 and returns its path.
func (p *ControlPlane) KubeletConf(t *testing.T) string {
	t.Helper()
	cfg := *p.Config
	cfg.CertificatesDir = config.CertificatesDir
	files := Must(pki.KubeletClient(&cfg, os.DirFS(p.Dir), time.Now()))(t)
	dir := t.TempDir()
	for _, f := range files.Files {
		path := filepath.Join(dir, filepath.Base(f.Path))
		if f.Link != "" {
			if err := os.Symlink(filepath.Base(f.Link), path); err != nil {
				t.Fatal(err)
			}
			continue
		}
		data := bytes.ReplaceAll(f.Data, []byte(config.KubeletPKIDir), []byte(dir))
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(dir, "kubelet.conf")
}

// Objects returns all objects of the kinds that init creates, as JSON by name,
// without the fields that change with every write.
func (p *ControlPlane) Objects(t *testing.T) map[string]string {
	t.Helper()
	ctx, client := Within(t), Must(dynamic.NewForConfig(p.rest(t)))(t)
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
		list := Must(client.Resource(resource).List(ctx, metav1.ListOptions{}))(t)
		for i := range list.Items {
			o := &list.Items[i]
			o.SetManagedFields(nil)
			o.SetResourceVersion("")
			objects[o.GetKind()+" "+strings.TrimPrefix(o.GetNamespace()+"/"+o.GetName(), "/")] = string(Must(json.Marshal(o.Object))(t))
		}
	}
	return objects
}

// UploadConfig returns the objects that store the cluster's configuration.
func UploadConfig(cfg *config.Config) ([]runtime.Object, error) {
	cluster, err := render.UploadClusterConfig(cfg)
	if err != nil {
		return nil, err
	}
	kubelet, err := render.UploadKubeletConfig(cfg)
	return append(cluster, kubelet...), err
}
