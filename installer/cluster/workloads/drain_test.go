package workloads

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"airlift/scripts/fixtures/testcluster/testclient"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

// aPod is a pod of a node; owner is the kind of its controller, "" for none.
func aPod(name, owner string, edit func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: "uid-" + "1"}, Spec: corev1.PodSpec{NodeName: "one"}}
	if owner != "" {
		yes := true
		p.OwnerReferences = []metav1.OwnerReference{{Kind: owner, Name: "owner", Controller: &yes}}
	}
	if edit != nil {
		edit(p)
	}
	return p
}

// TestDrain evicts the right pods, and repeats an eviction that a budget forbids.
func TestDrain(t *testing.T) {
	c, _ := testclient.Fake(
		aPod("web", "ReplicaSet", nil), aPod("bare", "", nil), aPod("agent", "DaemonSet", nil),
		aPod("static", "Node", func(p *corev1.Pod) { p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"} }),
		aPod("done", "Job", func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }),
	)
	api := c.API.(*fake.Clientset)
	refusals := 2
	api.PrependReactor("create", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
		if a.GetSubresource() != "eviction" {
			return false, nil, nil
		}
		e := a.(clienttesting.CreateAction).GetObject().(*policyv1.Eviction)
		if e.Name == "web" && refusals > 0 {
			refusals--
			err := apierrors.NewTooManyRequests("not now", 0)
			err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: policyv1.DisruptionBudgetCause, Message: "the budget needs 2 pods"}}
			return true, nil, err
		}
		if e.DeleteOptions.Preconditions == nil || *e.DeleteOptions.Preconditions.UID != "uid-1" {
			t.Errorf("the eviction of %s does not name the pod's UID", e.Name)
		}
		return true, nil, api.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("pods"), e.Namespace, e.Name)
	})
	d := NewDrain(c.API, "one", time.Minute)
	evict, bare, err := d.Pods(context.Background())
	slices.Sort(evict)
	if err != nil || strings.Join(evict, " ") != "default/bare default/web" || strings.Join(bare, " ") != "default/bare" {
		t.Errorf("%q, %q, %v", evict, bare, err)
	}
	var waited []string
	d.Waiting = func(pod, reason string) { waited = append(waited, pod+": "+reason) }
	if err := d.Run(context.Background()); err != nil {
		t.Fatal(err)
	}
	if strings.Join(waited, "\n") != "default/web: the budget needs 2 pods" {
		t.Errorf("waited for %q", waited)
	}
	left, err := c.API.CoreV1().Pods("default").List(context.Background(), metav1.ListOptions{})
	if err != nil || len(left.Items) != 3 {
		t.Errorf("left %v, %v", left, err)
	}
}
