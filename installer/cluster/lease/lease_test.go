package lease

import (
	"cmp"
	"errors"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	"airlift/installer/cluster"
)

// leaseStore has one Lease, and stores it as an API server does: with resource versions, UIDs and
// preconditions. TestRealLease compares both.
type leaseStore struct {
	mu      sync.Mutex
	lease   *coordinationv1.Lease
	version int
	// edit, if set, changes a Lease before it is stored.
	edit func(*coordinationv1.Lease)
}

func (s *leaseStore) holder() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lease == nil {
		return ""
	}
	return *s.lease.Spec.HolderIdentity
}

// react answers the requests of a fake client.
func (s *leaseStore) react(action clienttesting.Action) (bool, runtime.Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	resource := coordinationv1.Resource("leases")
	refused := func(why string) error { return apierrors.NewConflict(resource, turnLease, errors.New(why)) }
	put := func(l *coordinationv1.Lease, uid types.UID) *coordinationv1.Lease {
		l = l.DeepCopy()
		s.version++
		l.ResourceVersion, l.UID = strconv.Itoa(s.version), cmp.Or(uid, types.UID(strconv.Itoa(s.version)))
		if s.edit != nil {
			s.edit(l)
		}
		s.lease = l
		return l.DeepCopy()
	}
	if create, ok := action.(clienttesting.CreateAction); ok && action.GetVerb() == "create" {
		if s.lease != nil {
			return true, nil, apierrors.NewAlreadyExists(resource, turnLease)
		}
		return true, put(create.GetObject().(*coordinationv1.Lease), ""), nil
	}
	if s.lease == nil && action.GetVerb() == "update" {
		return true, nil, refused("precondition failed") // the object in the request has the UID of one that is gone
	}
	if s.lease == nil {
		return true, nil, apierrors.NewNotFound(resource, turnLease)
	}
	switch a := action.(type) {
	case clienttesting.UpdateActionImpl:
		l := a.GetObject().(*coordinationv1.Lease)
		if l.ResourceVersion != s.lease.ResourceVersion {
			return true, nil, refused("the object has been modified")
		}
		return true, put(l, s.lease.UID), nil
	case clienttesting.DeleteActionImpl:
		if p := a.DeleteOptions.Preconditions; p != nil && (*p.UID != s.lease.UID || *p.ResourceVersion != s.lease.ResourceVersion) {
			return true, nil, refused("precondition failed")
		}
		s.lease = nil
		return true, nil, nil
	}
	return true, s.lease.DeepCopy(), nil
}

// client returns a client that uses the store.
func (s *leaseStore) client(server string, objects ...runtime.Object) *cluster.Client {
	api := fake.NewClientset(objects...)
	api.PrependReactor("*", "leases", s.react)
	return &cluster.Client{API: api, Server: server}
}

// A Lease has one holder until it is dropped, or until another process has seen no renewal for its
// duration. What the holder's clock shows makes no difference.
func TestLease(t *testing.T) {
	for _, wrong := range []time.Duration{0, -time.Hour, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			s := &leaseStore{edit: func(l *coordinationv1.Lease) {
				if holderNode(*l.Spec.HolderIdentity) == "a" {
					at := metav1.NewMicroTime(time.Now().Add(wrong))
					l.Spec.AcquireTime, l.Spec.RenewTime = &at, &at
				}
			}}
			c := s.client("")
			leases := map[string]*lease{}
			for _, node := range []string{"a", "b"} {
				leases[node] = newLease("turn", node, time.Minute)
			}
			for i, step := range []struct {
				pause time.Duration
				node  string
				want  string
				drop  string
			}{
				{node: "a", want: "a"},
				{pause: time.Hour, node: "b", want: "a"}, // b has not waited yet
				{pause: 59 * time.Second, node: "b", want: "a"},
				{node: "a", want: "a"}, // a renews it
				{pause: 59 * time.Second, node: "b", want: "a", drop: "b"},
				{pause: 59 * time.Second, node: "b", want: "a"},
				{pause: 61 * time.Second, node: "b", want: "a"}, // b has not looked for too long
				{pause: 59 * time.Second, node: "b", want: "a"},
				{pause: 2 * time.Second, node: "b", want: "b", drop: "a"},
				{node: "a", want: "b"}, // a has lost it
				{pause: 50 * time.Second, node: "a", want: "b"},
				{pause: 50 * time.Second, node: "a", want: "b", drop: "b"},
				{node: "b", want: "b"},
			} {
				time.Sleep(step.pause)
				has, err := leases[step.node].take(t.Context(), c)
				if err != nil {
					t.Fatal(err)
				}
				if has = cmp.Or(has, step.node); has != step.want {
					t.Errorf("clock wrong by %s, step %d: %s has the Lease, not %s", wrong, i, has, step.want)
				}
				if step.drop != "" {
					if err := leases[step.drop].drop(t.Context(), c); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
}

// A process does not share the Lease with another one on its host. It has the lock of the host, so the
// other one was killed: it takes the Lease at once, also from an earlier version of Airlift, which
// wrote only the node's name. The killed process cannot take it back or drop it.
func TestLeaseOfOneHost(t *testing.T) {
	s := &leaseStore{}
	c := s.client("")
	take := func(l *lease, want string) {
		t.Helper()
		if other, err := l.take(t.Context(), c); err != nil || other != want {
			t.Errorf("%s: the Lease belongs to %q, want %q; %v", l.holder, other, want, err)
		}
	}
	killed, again, other := newLease("turn", "host1", time.Minute), newLease("turn", "host1", time.Minute), newLease("turn", "host10", time.Minute)
	if killed.holder == again.holder {
		t.Fatalf("two processes are %s", killed.holder)
	}
	take(killed, "")
	take(other, "host1")
	take(again, "")
	take(killed, "host1")
	for range 2 {
		if err := killed.drop(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	if s.holder() != again.holder {
		t.Errorf("the holder is %q after the drop by another process", s.holder())
	}
	s.lease.Spec.HolderIdentity = ptr.To("host1")
	take(other, "host1")
	take(newLease("turn", "host1", time.Minute), "")
}

// A late answer does not make a process lose the Lease, nor keep it from dropping it.
func TestLeaseConflict(t *testing.T) {
	for _, verb := range []string{"update", "delete"} {
		s := &leaseStore{}
		c := s.client("")
		l := newLease("turn", "host1", time.Minute)
		if other, err := l.take(t.Context(), c); other != "" || err != nil {
			t.Fatal(other, err)
		}
		once := true
		c.API.(*fake.Clientset).PrependReactor(verb, "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
			if once {
				s.lease.ResourceVersion += "1" // its own request from before
			}
			once = false
			return false, nil, nil
		})
		if other, err := l.take(t.Context(), c); other != "" || err != nil {
			t.Errorf("%s: %q has it, %v", verb, other, err)
		}
		if err := l.drop(t.Context(), c); err != nil || s.lease != nil {
			t.Errorf("%s: %v, left: %v", verb, err, s.lease)
		}
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
		c := &cluster.Client{API: api}
		if got, err := ReleaseLeadership(t.Context(), c.API, "kube-controller-manager", "host1", time.Millisecond); got != test.givenBack || err != nil {
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

// TestHolderNode: the name of a host may have an underscore.
func TestHolderNode(t *testing.T) {
	for _, node := range []string{"one", "my_host", "_", "a_b_c"} {
		if got := holderNode(newLease("turn", node, time.Second).holder); got != node {
			t.Errorf("%q became %q", node, got)
		}
	}
	if got := holderNode("one"); got != "one" { // of an earlier version
		t.Error(got)
	}
}
