package cluster

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestAddOns(t *testing.T) {
	labels := map[string]string{"k8s-app": "kube-dns"}
	two := int32(2)
	template := func(image string) corev1.PodTemplateSpec {
		return corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Image: image}}}}
	}
	c, writes := fakeClient(
		&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "coredns"}, Spec: appsv1.DeploymentSpec{Replicas: &two, Template: template("localhost:5000/coredns:v1.11.1@sha256:ab")}, Status: appsv1.DeploymentStatus{ReadyReplicas: 1}},
		&appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "kube-proxy"}, Spec: appsv1.DaemonSetSpec{Template: template("registry.k8s.io/kube-proxy:v1.37.1")}, Status: appsv1.DaemonSetStatus{NumberReady: 3, DesiredNumberScheduled: 3}},
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "coredns-a", Labels: labels}, Status: corev1.PodStatus{Phase: corev1.PodRunning,
			ContainerStatuses: []corev1.ContainerStatus{{Name: "coredns", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImageNeverPull", Message: "not here"}}}}}},
	)
	list, err := c.AddOns(t.Context())
	if err != nil || len(list) != 2 || len(writes()) != 0 {
		t.Fatalf("%+v, %v", list, err)
	}
	dns, proxy := list[0], list[1]
	if dns.Name != "coredns" || dns.Version != "v1.11.1" || dns.Ready != 1 || dns.Wanted != 2 || dns.Reason != "pod coredns-a: container coredns: ErrImageNeverPull: not here" {
		t.Errorf("%+v", dns)
	}
	if proxy.Name != "kube-proxy" || proxy.Version != "v1.37.1" || proxy.Ready != 3 || proxy.Reason != "" {
		t.Errorf("%+v", proxy)
	}
}

func TestNodeClocks(t *testing.T) {
	renewed := metav1.NewMicroTime(time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC))
	c, _ := fakeClient(
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "host1"}, Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}},
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "host2"}},
		&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-node-lease", Name: "host1"}, Spec: coordinationv1.LeaseSpec{RenewTime: &renewed}},
	)
	list, err := c.NodeClocks(t.Context())
	if err != nil || len(list) != 1 || list[0].Node != "host1" || !list[0].Ready || !list[0].Renewed.Equal(renewed.Time) {
		t.Errorf("%+v, %v", list, err)
	}
}

func TestHealth(t *testing.T) {
	for status, want := range map[int]string{200: "", 401: "", 403: "", 500: "its health check returned 500 Internal Server Error: not ready: etcd"} {
		server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			_, _ = w.Write([]byte("[+]ping ok\n[-]etcd failed: reason withheld\n"))
		}))
		got := ""
		if err := Health(t.Context(), server.URL); err != nil {
			got = err.Error()
		}
		server.Close()
		if got != want {
			t.Errorf("%d: %q, want %q", status, got, want)
		}
		if err := Health(t.Context(), server.URL); err == nil || !strings.Contains(err.Error(), "it does not answer") {
			t.Errorf("closed: %v", err)
		}
	}
}

func TestListRefusesSecrets(t *testing.T) {
	c, _ := fakeClient()
	if _, err := c.List(t.Context(), Listing{Version: "v1", Resource: "secrets"}); err == nil {
		t.Error("Secrets are listed")
	}
}
