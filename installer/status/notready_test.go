package status

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"pgregory.net/rapid"

	"airlift/installer/cluster"
	"airlift/installer/host"
	_ "airlift/scripts/fixtures/seed"
	"airlift/scripts/fixtures/testcluster/testclient"
)

// TestNodesThatAreNotReadyComeFirst: each is named before anything else, once. A workload whose missing pods are all on them is not listed; a pod that is
// broken on another node is.
func TestNodesThatAreNotReadyComeFirst(t *testing.T) {
	h, err := host.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		var objects []runtime.Object
		down := map[string]bool{}
		for i := range rapid.IntRange(1, 4).Draw(t, "nodes") {
			name := fmt.Sprintf("n%d", i)
			down[name] = rapid.Bool().Draw(t, name+" is down")
			ready := corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionTrue}
			if down[name] {
				ready.Status, ready.Message = corev1.ConditionUnknown, "Kubelet stopped posting node status."
			}
			objects = append(objects, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{ready}}})
		}
		broken := map[string]string{} // by add-on: a pod on a healthy node
		for addOn, namespace := range map[string]string{"kube-proxy": "kube-system", "kube-flannel": "kube-flannel"} {
			labels := map[string]string{"app": addOn}
			set := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: addOn}}
			if addOn == "kube-flannel" {
				set.Name += "-ds"
			}
			set.Spec.Template.Labels = labels
			for node := range down {
				condition := corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue}
				p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: addOn + "-" + node, Labels: labels}, Spec: corev1.PodSpec{NodeName: node}}
				p.Status.Phase = corev1.PodRunning
				set.Status.DesiredNumberScheduled++
				switch {
				case down[node]:
					condition.Status = corev1.ConditionFalse
				case rapid.IntRange(0, 3).Draw(t, p.Name) == 0:
					condition.Status = corev1.ConditionFalse
					broken[addOn] = p.Name
				default:
					set.Status.NumberReady++
				}
				p.Status.Conditions = []corev1.PodCondition{condition}
				objects = append(objects, p)
			}
			objects = append(objects, set)
		}
		c, _ := testclient.Fake(objects...)
		r := &Reader{Host: h, Kubeconfig: "admin.conf", Only: []string{"addOns", "api"}}
		r.dial = func(context.Context) (*cluster.Client, error) { return c, nil }
		s, err := r.Read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		s.Problems = slices.DeleteFunc(s.Problems, func(p Problem) bool { return strings.Contains(p.Message, "does not have this node's name") })
		var first []string
		for node := range down {
			if down[node] {
				first = append(first, "the node "+node+" is not Ready: Ready is Unknown: Kubelet stopped posting node status.")
			}
		}
		slices.Sort(first)
		got := messages(s)
		if len(got) != len(first)+len(broken) || !slices.Equal(got[:len(first)], first) {
			t.Fatalf("not Ready: %v, broken: %v, problems:\n%s", first, broken, strings.Join(got, "\n"))
		}
		for addOn, pod := range broken {
			if !slices.ContainsFunc(got[len(first):], func(m string) bool { return strings.HasPrefix(m, addOn+" has ") && strings.Contains(m, "kube-") }) {
				t.Fatalf("%s is not listed:\n%s", pod, strings.Join(got, "\n"))
			}
			for _, m := range got[len(first):] {
				for node := range down {
					if down[node] && strings.Contains(m, "-"+node+":") {
						t.Fatalf("a pod on %s is listed: %s", node, m)
					}
				}
			}
		}
	})
}
