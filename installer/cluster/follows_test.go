package cluster_test

import (
	"context"
	"reflect"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"airlift/installer/cluster"
	"airlift/scripts/fixtures/testcluster/testclient"
)

// TestFormerAnnotations: what a former build recorded, in four annotations, counts until the first change moves it, also if the node
// has the present annotation already. The annotations of others stay.
func TestFormerAnnotations(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := cluster.Follows{}
		annotations := map[string]string{"someone/else": "1"}
		switch rapid.IntRange(0, 2).Draw(t, "before") {
		case 1: // a former build has written since
			annotations["airlift.dev/follows"] = `{"reconfiguration":7}`
		case 2:
			annotations["airlift.dev/follows"] = `{"reconfiguration":` // damaged
		}
		if want.Reconfiguration = rapid.IntRange(0, 9).Draw(t, "reconfiguration"); want.Reconfiguration > 0 || len(annotations) > 1 {
			annotations["airlift.dev/reconfiguration"] = strconv.Itoa(want.Reconfiguration)
		}
		if want.Endpoint = rapid.IntRange(0, 9).Draw(t, "endpoint"); want.Endpoint > 0 {
			annotations["airlift.dev/endpoint-change"] = strconv.Itoa(want.Endpoint)
			if want.OnlyServes = rapid.Bool().Draw(t, "serves"); want.OnlyServes {
				annotations["airlift.dev/endpoint-change"] += " serving"
			}
		}
		if want.UsesRegistry = rapid.Bool().Draw(t, "uses"); want.UsesRegistry {
			want.Registry = rapid.IntRange(0, 9).Draw(t, "registry")
			annotations["airlift.dev/registry"] = strconv.Itoa(want.Registry)
		}
		if rapid.Bool().Draw(t, "rotates") {
			want.Rotation = "trust sha256:ab"
			annotations["airlift.dev/ca-rotation"] = want.Rotation
		}
		client, _ := testclient.Fake(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", Annotations: annotations}})
		follows := func() cluster.Follows {
			n, err := client.Node(context.Background(), "a")
			if err != nil {
				t.Fatal(err)
			}
			return n.Follows
		}
		if got := follows(); got != want {
			t.Fatalf("%+v, want %+v", got, want)
		}
		if changed, err := client.NodeObjects().Follow(context.Background(), "a", func(*cluster.Follows) {}); changed || err != nil {
			t.Fatalf("without a change: %t, %v", changed, err)
		}
		want.Reconfiguration += 10
		if changed, err := client.NodeObjects().Follow(context.Background(), "a", func(f *cluster.Follows) { f.Reconfiguration += 10 }); !changed || err != nil {
			t.Fatalf("%t, %v", changed, err)
		}
		if got := follows(); got != want {
			t.Fatalf("moved: %+v, want %+v", got, want)
		}
		if _, err := client.NodeObjects().Follow(context.Background(), "a", func(f *cluster.Follows) { *f = cluster.Follows{} }); err != nil {
			t.Fatal(err)
		}
		n, err := cluster.GetNode(context.Background(), client.API, "a")
		if err != nil || !reflect.DeepEqual(n.Annotations, map[string]string{"someone/else": "1"}) {
			t.Fatalf("%q, %v", n.Annotations, err)
		}
	})
}
