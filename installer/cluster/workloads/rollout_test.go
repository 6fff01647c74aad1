package workloads

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"airlift/installer/cluster"
	"airlift/installer/cluster/wait"
)

func TestWaitForProxies(t *testing.T) {
	status := func(observed int64, updated, ready int32) appsv1.DaemonSetStatus {
		return appsv1.DaemonSetStatus{ObservedGeneration: observed, DesiredNumberScheduled: 3, UpdatedNumberScheduled: updated, NumberReady: ready}
	}
	for name, c := range map[string]struct {
		status appsv1.DaemonSetStatus
		missed string // in the error
	}{
		"not seen by the controller yet": {status(1, 3, 3), "of 3 nodes, 3 have the new pod"},
		"one node has the previous pod":  {status(2, 2, 3), "of 3 nodes, 2 have the new pod, and 3 a Ready one"},
		"the last pod starts":            {status(2, 3, 2), "of 3 nodes, 3 have the new pod, and 2 a Ready one"},
		"all have it":                    {status(2, 3, 3), ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := &cluster.Client{API: fake.NewClientset(&appsv1.DaemonSet{
					ObjectMeta: metav1.ObjectMeta{Name: "kube-proxy", Namespace: "kube-system", Generation: 2}, Status: c.status,
				})}
				err := WaitForProxies(t.Context(), client.API, wait.Limit{Timeout: time.Minute})
				if (err == nil) != (c.missed == "") || err != nil && !strings.Contains(err.Error(), c.missed) {
					t.Errorf("error %v, want %q", err, c.missed)
				}
			})
		})
	}
	t.Run("no kube-proxy", func(t *testing.T) {
		if err := WaitForProxies(t.Context(), (&cluster.Client{API: fake.NewClientset()}).API, wait.Limit{Timeout: time.Second}); err != nil {
			t.Error(err)
		}
	})
	t.Run("a worker may not read it", func(t *testing.T) {
		api := fake.NewClientset()
		api.PrependReactor("get", "daemonsets", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "daemonsets"}, "kube-proxy", nil)
		})
		if err := WaitForProxies(t.Context(), (&cluster.Client{API: api}).API, wait.Limit{Timeout: time.Second}); err != nil {
			t.Error(err)
		}
	})
}
