package rotation

import (
	"context"
	"testing"

	"airlift/scripts/fixtures/testcluster/testclient"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

// TestInterruptedRemovalOfARotation interrupts RemoveRotation before each of its writes. As long as the
// cluster has the rotation, every node has its stage: otherwise no node could reach the last stage again.
func TestInterruptedRemovalOfARotation(t *testing.T) {
	const id = "sha256:a"
	meta := metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: rotationName}
	for after := 0; ; after++ {
		c, _ := testclient.Fake(
			&corev1.Secret{ObjectMeta: meta},
			&corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"stage": "finish", "id": id}},
			&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", Annotations: map[string]string{"airlift.dev/ca-rotation": "finish " + id}}},
			&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "b", Annotations: map[string]string{"airlift.dev/ca-rotation": "finish " + id}}},
		)
		ctx, interrupt := context.WithCancel(t.Context())
		defer interrupt()
		writes := 0
		for _, verb := range []string{"delete", "patch"} {
			c.API.(*fake.Clientset).PrependReactor(verb, "*", func(clienttesting.Action) (bool, runtime.Object, error) {
				if writes++; writes > after {
					interrupt()
				}
				return ctx.Err() != nil, nil, ctx.Err()
			})
		}
		err := Remove(ctx, c)
		if err == nil {
			if after != 6 { // two of the writes delete the Role and the RoleBinding, which do not exist
				t.Errorf("%d writes", after)
			}
			return
		}
		ctx = t.Context()
		r, err := Read(ctx, c.API)
		if err != nil {
			t.Fatal(err)
		}
		nodes, err := Nodes(ctx, c.API, id)
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range nodes {
			if r != nil && n.Stage != "finish" {
				t.Errorf("after %d writes, the rotation goes on, and node %s has the stage %q", after, n.Name, n.Stage)
			}
		}
	}
}
