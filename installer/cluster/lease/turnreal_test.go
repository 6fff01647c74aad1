package lease

import (
	"context"
	"slices"
	"strings"
	"testing"

	"airlift/scripts/fixtures/testcluster/testclient"

	"airlift/installer/cluster"
	"airlift/scripts/fixtures/testcluster"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// TestRealLease sends the same requests to a real API server and to the store of the simulation.
func TestRealLease(t *testing.T) {
	p := testcluster.Start(t)
	results := map[string][]string{}
	for name, c := range map[string]*cluster.Client{"real": testclient.Super(t, p), "store": (&leaseStore{}).client("")} {
		ctx, leases := testcluster.Within(t), c.API.CoordinationV1().Leases(metav1.NamespaceSystem)
		of := func(holder string) *coordinationv1.Lease {
			return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: turnLease}, Spec: coordinationv1.LeaseSpec{HolderIdentity: ptr.To(holder)}}
		}
		note := func(what string, err error) {
			results[name] = append(results[name], what+": "+string(apierrors.ReasonForError(err)))
		}
		drop := func(uid, version string) error {
			return leases.Delete(ctx, turnLease, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: (*types.UID)(&uid), ResourceVersion: &version}})
		}
		_, err := leases.Get(ctx, turnLease, metav1.GetOptions{})
		note("get none", err)
		first, err := leases.Create(ctx, of("a"), metav1.CreateOptions{})
		note("create", err)
		_, err = leases.Create(ctx, of("b"), metav1.CreateOptions{})
		note("create again", err)
		updated := first.DeepCopy()
		updated.Spec.HolderIdentity = ptr.To("b")
		updated, err = leases.Update(ctx, updated, metav1.UpdateOptions{})
		note("update", err)
		_, err = leases.Update(ctx, first, metav1.UpdateOptions{})
		note("update an old version", err)
		note("delete an old version", drop(string(first.UID), first.ResourceVersion))
		note("delete another object", drop("x", updated.ResourceVersion))
		note("delete", drop(string(updated.UID), updated.ResourceVersion))
		note("delete again", drop(string(updated.UID), updated.ResourceVersion))
		_, err = leases.Update(ctx, updated, metav1.UpdateOptions{})
		note("update none", err)
		second, err := leases.Create(ctx, of("c"), metav1.CreateOptions{})
		note("create after delete", err)
		note("delete the former object", drop(string(first.UID), second.ResourceVersion))
		note("delete at the end", drop(string(second.UID), second.ResourceVersion))
	}
	if !slices.Equal(results["real"], results["store"]) {
		t.Errorf("the real API server and the store differ:\n%s\n\n%s", strings.Join(results["real"], "\n"), strings.Join(results["store"], "\n"))
	}
}

// TestRealTurn gives the turn from one process to another through a real API server.
func TestRealTurn(t *testing.T) {
	p := testcluster.Start(t)
	ctx, api := testcluster.Within(t), testclient.Super(t, p).API
	p.AddNode(t, "cp1", true)
	p.AddNode(t, "cp2", true)
	testcluster.Must(testclient.Super(t, p).NodeObjects().MarkControlPlane(ctx, "cp1", nil))(t)
	testcluster.Must(testclient.Super(t, p).NodeObjects().MarkControlPlane(ctx, "cp2", nil))(t)
	other := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "kube-apiserver-cp2", Labels: map[string]string{"component": "kube-apiserver", "tier": "control-plane"},
			Annotations: map[string]string{cluster.APIServerAnnotation: p.Endpoint(), corev1.MirrorPodAnnotationKey: "x"},
		},
		Spec: corev1.PodSpec{NodeName: "cp2", Containers: []corev1.Container{{Name: "c", Image: "none"}}},
	}
	testcluster.Must(api.CoreV1().Pods(metav1.NamespaceSystem).Create(ctx, other, metav1.CreateOptions{}))(t)
	t.Cleanup(func() {
		for _, name := range []string{"cp1", "cp2"} {
			_ = api.CoreV1().Nodes().Delete(context.Background(), name, metav1.DeleteOptions{})
		}
		_ = api.CoreV1().Pods(metav1.NamespaceSystem).Delete(context.Background(), other.Name, *metav1.NewDeleteOptions(0))
	})
	lost := false // the first API server does not answer
	turn := func(node string) *Turn {
		return &Turn{Node: node, Connect: func(server string) (*cluster.Client, error) {
			if lost && server == "" {
				server = "127.0.0.1:1"
			}
			return cluster.Load(p.Super, server)
		}}
	}
	a, b := turn("cp1"), turn("cp2")
	if err := a.Take(ctx, nil); err != nil {
		t.Fatal(err)
	}
	if want := (apiServer{"cp2", "https://" + p.Endpoint()}); !slices.Contains(a.others, want) || a.alone {
		t.Errorf("other API servers: %v, alone %t", a.others, a.alone)
	}
	if err := a.CheckOthers(ctx); err != nil {
		t.Error(err)
	}
	waits, done := make(chan string, 100), make(chan error)
	go func() { done <- b.Take(ctx, func(text string) { waits <- text }) }()
	if text := <-waits; !strings.HasPrefix(text, "cp1 restarts its control plane") {
		t.Errorf("it reports %q", text)
	}
	lost = true
	before := a.renewed
	if err := a.Confirm(ctx); err != nil || !a.renewed.After(before) {
		t.Errorf("through another API server: %v", err)
	}
	if err := a.End(ctx); err != nil {
		t.Error(err)
	}
	lost = false
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	// Another process on that host takes it at once.
	again := turn("cp2")
	if err := again.Take(ctx, nil); err != nil {
		t.Fatal(err)
	}
	if err := b.Confirm(ctx); err == nil {
		t.Error("the process that was killed may restart a component")
	}
	for _, turn := range []*Turn{b, again} {
		if err := turn.End(ctx); err != nil {
			t.Error(err)
		}
	}
	if _, err := api.CoordinationV1().Leases(metav1.NamespaceSystem).Get(ctx, turnLease, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the Lease is left: %v", err)
	}
}
