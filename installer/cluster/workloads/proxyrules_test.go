package workloads

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"airlift/scripts/fixtures/testcluster/testclient"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"airlift/installer/cluster"
	"airlift/installer/cluster/wait"
)

// proxyOn serves the health check of kube-proxy on an address of this host, with its text. The real
// kube-proxies do in the tests of upgrades.
func proxyOn(t *testing.T, address, service string, endpoints *atomic.Int32) (port int) {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		n := endpoints.Load()
		if n == 0 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_, _ = fmt.Fprintf(w, "{\n\t\"service\": {\n\t\t\"namespace\": \"kube-system\",\n\t\t\"name\": %q\n\t},\n\t\"localEndpoints\": %d,\n\t\"serviceProxyHealthy\": true\n}", service, n)
	})}
	go func() { _ = s.Serve(l) }()
	t.Cleanup(func() { _ = s.Close() })
	return l.Addr().(*net.TCPAddr).Port
}

func proxyPod(node, address string, ready corev1.ConditionStatus) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "kube-proxy-" + node, Namespace: "kube-system", Labels: map[string]string{"k8s-app": "kube-proxy"}},
		Spec:       corev1.PodSpec{NodeName: node},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning, HostIP: address,
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}},
		},
	}
}

// serviceNamed gives a new Service what the API server would: a name and a port.
func serviceNamed(c *cluster.Client, name string, port int) {
	c.API.(*fake.Clientset).PrependReactor("create", "services", func(a clienttesting.Action) (bool, runtime.Object, error) {
		s := a.(clienttesting.CreateAction).GetObject().(*corev1.Service)
		s.Name, s.UID, s.Spec.HealthCheckNodePort = name, "uid", int32(port)
		return false, nil, nil
	})
}

func probesLeft(t *testing.T, c *cluster.Client) (n int) {
	t.Helper()
	services, err := c.API.CoreV1().Services("kube-system").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	slices, err := c.API.DiscoveryV1().EndpointSlices("kube-system").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return len(services.Items) + len(slices.Items)
}

func TestWaitForProxyRules(t *testing.T) {
	var first, second atomic.Int32
	port := proxyOn(t, "127.0.0.1:0", "airlift-probe-x", &first)
	proxyOn(t, fmt.Sprintf("127.0.0.2:%d", port), "airlift-probe-x", &second)
	c, _ := testclient.Fake(
		proxyPod("host1", "127.0.0.1", corev1.ConditionTrue), proxyPod("host2", "127.0.0.2", corev1.ConditionTrue),
		proxyPod("down", "127.0.0.3", corev1.ConditionFalse),
	)
	serviceNamed(c, "airlift-probe-x", port)
	first.Store(1)
	err := WaitForProxyRules(t.Context(), c.API, wait.Limit{Timeout: 1500 * time.Millisecond})
	if err == nil || !strings.Contains(err.Error(), "node host2: it has the Service, but not its endpoints") || strings.Contains(err.Error(), "host1") {
		t.Errorf("host2 is behind: %v", err)
	}
	if n := probesLeft(t, c); n != 0 {
		t.Errorf("%d objects are left", n)
	}

	ended := make(chan error, 1)
	go func() { ended <- WaitForProxyRules(t.Context(), c.API, wait.Limit{Timeout: time.Minute}) }()
	for probesLeft(t, c) < 2 {
		select {
		case err := <-ended:
			t.Fatalf("it did not wait: %v", err)
		case <-time.After(10 * time.Millisecond):
		}
	}
	slices, err := c.API.DiscoveryV1().EndpointSlices("kube-system").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if n := len(slices.Items[0].Endpoints); n != 2 {
		t.Errorf("%d endpoints, want one for each kube-proxy that is Ready", n)
	}
	second.Store(1)
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if n := probesLeft(t, c); n != 0 {
		t.Errorf("%d objects are left", n)
	}
}

// Another program may listen on the port, or nothing.
func TestWaitForProxyRulesOfOthers(t *testing.T) {
	var endpoints atomic.Int32
	endpoints.Store(1)
	for name, tc := range map[string]struct {
		port int
		want string
	}{
		"another Service": {proxyOn(t, "127.0.0.1:0", "other", &endpoints), "is not served by kube-proxy"},
		"nothing":         {1, "connection refused"},
	} {
		t.Run(name, func(t *testing.T) {
			c, _ := testclient.Fake(proxyPod("host1", "127.0.0.1", corev1.ConditionTrue))
			serviceNamed(c, "airlift-probe-x", tc.port)
			if err := WaitForProxyRules(t.Context(), c.API, wait.Limit{Timeout: 100 * time.Millisecond}); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%v, want %q", err, tc.want)
			}
		})
	}
}

func TestWaitForProxyRulesNotNeeded(t *testing.T) {
	c, _ := testclient.Fake()
	if err := WaitForProxyRules(context.Background(), c.API, wait.Limit{Timeout: time.Minute}); err != nil {
		t.Errorf("a cluster without kube-proxy: %v", err)
	}
	c, _ = testclient.Fake(proxyPod("host1", "127.0.0.1", corev1.ConditionTrue))
	c.API.(*fake.Clientset).PrependReactor("create", "services", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "services"}, "", nil)
	})
	if err := WaitForProxyRules(context.Background(), c.API, wait.Limit{Timeout: time.Minute}); err != nil {
		t.Errorf("a client that may not create Services: %v", err)
	}
}
