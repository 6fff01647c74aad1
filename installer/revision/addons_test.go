package revision

import (
	"io"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"airlift/installer/cluster"
	"airlift/installer/cluster/inventory"
	"airlift/installer/config"
	"airlift/installer/node"
	"airlift/installer/phases"
	"airlift/installer/pods"
	"airlift/installer/workflow"
)

// A worker's kubelet may create a static pod with the labels of an API server. It is no control plane that add-ons wait for.
func TestAddOnsWaitForNoWorker(t *testing.T) {
	w1 := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "w1"}, Status: corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{KubeletVersion: "v1.37.1"}}}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "kube-apiserver-w1", Labels: map[string]string{"component": "kube-apiserver", "tier": "control-plane"}},
		Spec:       corev1.PodSpec{NodeName: "w1", Containers: []corev1.Container{{Name: "kube-apiserver", Image: "anything"}}},
	}
	c := &config.Config{}
	c.Images = map[string]string{"kube-apiserver": "registry.k8s.io/kube-apiserver:v1.37.1", "kube-proxy": "registry.k8s.io/kube-proxy:v1.37.1"}
	a := &Revision{
		Node:   &phases.Node{Machine: &node.Machine{Console: &workflow.Console{Out: io.Discard}}, Config: c},
		API:    &phases.API{Client: &cluster.Client{API: fake.NewClientset(w1, pod)}},
		Change: hasImages{}, Pods: &pods.StaticPods{},
	}
	if ready, err := a.addOnReady(t.Context(), "kube-proxy", &inventory.Workload{}); !ready || err != nil {
		t.Errorf("kube-proxy waits for w1: %v", err)
	}
}

// hasImages is a Change whose images all nodes have.
type hasImages struct{ Change }

func (hasImages) HasImages(inventory.Node, bool) bool { return true }
