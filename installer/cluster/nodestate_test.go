package cluster

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestClassesWithoutHandler(t *testing.T) {
	node := func(name string, handlers ...string) *corev1.Node {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		for _, h := range handlers {
			n.Status.RuntimeHandlers = append(n.Status.RuntimeHandlers, corev1.NodeRuntimeHandler{Name: h})
		}
		return n
	}
	for name, c := range map[string]struct {
		nodes []*corev1.Node
		want  []string
	}{
		"one node has it":        {[]*corev1.Node{node("a", "", "runc"), node("b", "", "runc", "nvidia")}, nil},
		"none has it":            {[]*corev1.Node{node("a", "", "runc"), node("b", "", "runc")}, []string{"gpu (handler nvidia)"}},
		"an older kubelet":       {[]*corev1.Node{node("a", "", "runc"), node("b")}, nil},
		"another one is missing": {[]*corev1.Node{node("a", "", "nvidia")}, []string{"plain (handler runc)"}},
	} {
		client, _ := fakeClient(
			&nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}, Handler: "nvidia"},
			&nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: "plain"}, Handler: "runc"},
		)
		var nodes []NodeState
		for _, n := range c.nodes {
			nodes = append(nodes, stateOf(n))
		}
		if list, err := client.ClassesWithoutHandler(t.Context(), nodes); err != nil || !slices.Equal(list, c.want) {
			t.Errorf("%s: %q, %v", name, list, err)
		}
	}
}
