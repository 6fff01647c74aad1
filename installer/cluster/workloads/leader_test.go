package workloads

import (
	"context"
	"strings"
	"testing"
	"time"

	"airlift/scripts/fixtures/testcluster/testclient"

	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

// The endpoint controller of a controller manager that acts creates an EndpointSlice. The real
// one does in the tests of upgrades.
func TestWaitForControllerManager(t *testing.T) {
	ctx := context.Background()
	c, _ := testclient.Fake()
	probes := func() int {
		list, err := c.API.CoreV1().Services("kube-system").List(ctx, metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return len(list.Items)
	}
	if err := WaitForControllerManager(ctx, c.API, time.Second, nil); err == nil || !strings.Contains(err.Error(), "has no EndpointSlice yet") {
		t.Errorf("nobody acts: %v", err)
	}
	if n := probes(); n != 0 {
		t.Errorf("%d Services are left", n)
	}
	ended := make(chan error, 1)
	go func() { ended <- WaitForControllerManager(ctx, c.API, time.Minute, nil) }()
	for probes() == 0 {
		time.Sleep(10 * time.Millisecond)
	}
	// The fake API generates no names: the Service's is empty.
	slice := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: "s", Labels: map[string]string{discoveryv1.LabelServiceName: ""}}}
	if _, err := c.API.DiscoveryV1().EndpointSlices("kube-system").Create(ctx, slice, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if n := probes(); n != 0 {
		t.Errorf("%d Services are left", n)
	}

	c.API.(*fake.Clientset).PrependReactor("create", "services", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "services"}, "", nil)
	})
	if err := WaitForControllerManager(ctx, c.API, time.Minute, nil); err != nil {
		t.Errorf("a client that may not create Services: %v", err)
	}
}
