package cluster

import (
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"
)

// A Lease has one holder until it is dropped or its duration has passed.
func TestLease(t *testing.T) {
	c := &Client{api: fake.NewClientset()}
	now := time.Now()
	take := func(holder string, at time.Time) string {
		has, err := c.TakeLease(t.Context(), "turn", holder, time.Minute, at)
		if err != nil {
			t.Fatal(err)
		}
		return has
	}
	for i, step := range []struct {
		holder string
		after  time.Duration
		want   string
		drop   string
	}{
		{holder: "a", want: "a"},
		{holder: "b", want: "a"},
		{holder: "a", after: time.Second, want: "a"}, // the same command again
		{holder: "b", after: time.Minute, want: "a", drop: "b"},
		{holder: "b", after: 62 * time.Second, want: "b", drop: "b"},
		{holder: "a", after: 63 * time.Second, want: "a"},
	} {
		if has := take(step.holder, now.Add(step.after)); has != step.want {
			t.Errorf("step %d: %s has the Lease, not %s", i, has, step.want)
		}
		if step.drop != "" {
			if err := c.DropLease(t.Context(), "turn", step.drop); err != nil {
				t.Error(err)
			}
		}
	}
}

// The second holder waits until the first one drops the Lease, which is then gone.
func TestWaitForLease(t *testing.T) {
	c := &Client{api: fake.NewClientset()}
	wait := func(holder string, seen func(string)) error {
		return c.WaitForLease(t.Context(), "turn", holder, time.Minute, time.Minute, seen)
	}
	if err := wait("a", func(string) {}); err != nil {
		t.Fatal(err)
	}
	waiting := make(chan string, 100)
	done := make(chan error)
	go func() { done <- wait("b", func(text string) { waiting <- text }) }()
	if text := <-waiting; !strings.HasPrefix(text, "a restarts its control plane") {
		t.Errorf("it reports %q", text)
	}
	if err := c.DropLease(t.Context(), "turn", "a"); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	for range 2 { // the second time there is none
		if err := c.DropLease(t.Context(), "turn", "b"); err != nil {
			t.Error(err)
		}
	}
	if list, err := c.api.CoordinationV1().Leases(systemNamespace).List(t.Context(), metav1.ListOptions{}); err != nil || len(list.Items) > 0 {
		t.Errorf("left: %v, %v", list.Items, err)
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
