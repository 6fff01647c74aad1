package cluster

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"
)

// A Lease has one holder until it is dropped, or until another process has seen no renewal for its
// duration. What the holder's clock shows makes no difference.
func TestLease(t *testing.T) {
	for _, wrong := range []time.Duration{0, -time.Hour, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			c := &Client{api: fake.NewClientset()}
			leases := map[string]*Lease{}
			for _, holder := range []string{"a", "b"} {
				leases[holder] = &Lease{Name: "turn", Holder: holder, Duration: time.Minute}
			}
			for i, step := range []struct {
				pause  time.Duration
				holder string
				want   string
				drop   string
			}{
				{holder: "a", want: "a"},
				{pause: time.Hour, holder: "b", want: "a"}, // b has not waited yet
				{pause: 59 * time.Second, holder: "b", want: "a"},
				{holder: "a", want: "a"}, // a renews it
				{pause: 59 * time.Second, holder: "b", want: "a", drop: "b"},
				{pause: 59 * time.Second, holder: "b", want: "a"},
				{pause: 2 * time.Second, holder: "b", want: "b", drop: "b"},
				{holder: "a", want: "a"},
			} {
				time.Sleep(step.pause)
				has, err := leases[step.holder].Take(t.Context(), c)
				if err != nil {
					t.Fatal(err)
				}
				if has != step.want {
					t.Errorf("clock wrong by %s, step %d: %s has the Lease, not %s", wrong, i, has, step.want)
				}
				if has == "a" && step.holder == "a" {
					recordTimes(t, c, time.Now().Add(wrong))
				}
				if step.drop != "" {
					if err := leases[step.drop].Drop(t.Context(), c); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
}

// recordTimes writes the times of another clock into the Lease.
func recordTimes(t *testing.T, c *Client, at time.Time) {
	t.Helper()
	leases := c.api.CoordinationV1().Leases(systemNamespace)
	lease, err := leases.Get(t.Context(), "turn", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	lease.Spec.AcquireTime, lease.Spec.RenewTime = ptr.To(metav1.NewMicroTime(at)), ptr.To(metav1.NewMicroTime(at))
	if _, err := leases.Update(t.Context(), lease, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// The second holder waits until the first one drops the Lease, which is then gone.
func TestWaitForLease(t *testing.T) {
	c := &Client{api: fake.NewClientset()}
	a, b := &Lease{Name: "turn", Holder: "a", Duration: time.Minute}, &Lease{Name: "turn", Holder: "b", Duration: time.Minute}
	if err := a.Wait(t.Context(), c, time.Minute, nil); err != nil {
		t.Fatal(err)
	}
	waiting := make(chan string, 100)
	done := make(chan error)
	go func() { done <- b.Wait(t.Context(), c, time.Minute, func(text string) { waiting <- text }) }()
	if text := <-waiting; !strings.HasPrefix(text, "a restarts its control plane") {
		t.Errorf("it reports %q", text)
	}
	if err := a.Drop(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	for range 2 { // the second time there is none
		if err := b.Drop(t.Context(), c); err != nil {
			t.Error(err)
		}
	}
	if list, err := c.api.CoordinationV1().Leases(systemNamespace).List(t.Context(), metav1.ListOptions{}); err != nil || len(list.Items) > 0 {
		t.Errorf("left: %v, %v", list.Items, err)
	}
}

// Someone who gives up waiting leaves the Lease to its holder.
func TestWaitForLeaseInterrupted(t *testing.T) {
	c := &Client{api: fake.NewClientset()}
	a, b := &Lease{Name: "turn", Holder: "a", Duration: time.Minute}, &Lease{Name: "turn", Holder: "b", Duration: time.Minute}
	if _, err := a.Take(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	if err := b.Wait(ctx, c, time.Minute, func(string) { cancel() }); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if has, err := a.Take(t.Context(), c); has != "a" || err != nil {
		t.Errorf("%q has it, %v", has, err)
	}
}

// Only a Lease that a process of this host had, and that no one renews, is given back.
func TestReleaseLeadership(t *testing.T) {
	const uuid = "_6a2f41a3-c54c-fce8-32d2-0324e1c32e22"
	for _, test := range []struct {
		holder             string
		renewed, givenBack bool
	}{
		{holder: "host1" + uuid, givenBack: true},
		{holder: "host1" + uuid, renewed: true}, // by another host with this name
		{holder: "host10" + uuid},
		{holder: "host1_b" + uuid},
		{holder: "host1"},
		{holder: ""},
	} {
		first := &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: "kube-controller-manager", Namespace: "kube-system"},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: ptr.To(test.holder), LeaseDurationSeconds: ptr.To(int32(15))},
		}
		api := fake.NewClientset(first)
		reads := 0
		api.PrependReactor("get", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
			if reads++; reads == 2 && test.renewed {
				renewed := first.DeepCopy()
				renewed.Spec.RenewTime = ptr.To(metav1.NowMicro())
				if err := api.Tracker().Update(coordinationv1.SchemeGroupVersion.WithResource("leases"), renewed, "kube-system"); err != nil {
					t.Error(err)
				}
			}
			return false, nil, nil
		})
		c := &Client{api: api}
		if got, err := c.ReleaseLeadership(t.Context(), "kube-controller-manager", "host1", time.Millisecond); got != test.givenBack || err != nil {
			t.Errorf("%+v: %v, %v", test, got, err)
		}
		lease, err := api.CoordinationV1().Leases("kube-system").Get(t.Context(), "kube-controller-manager", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		want := test.holder
		if test.givenBack {
			want = ""
		}
		if got := *lease.Spec.HolderIdentity; got != want {
			t.Errorf("%+v: the holder is %q", test, got)
		}
	}
}
