package lease

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// TestAlone: while one process renews the Lease, another one is refused; one that was killed is followed within half a minute.
func TestAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &leaseStore{}
		c := s.client("")
		// Both are this process, so the other one is written as it would write itself.
		renew := func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			now := metav1.NowMicro()
			s.version++
			s.lease = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "x", UID: "1", ResourceVersion: "1"}, Spec: coordinationv1.LeaseSpec{
				HolderIdentity: ptr.To("other, process 7_abc"), LeaseDurationSeconds: ptr.To(int32(15)), AcquireTime: &now, RenewTime: &now}}
		}
		renew()
		renewing, stop := context.WithCancel(t.Context())
		go func() {
			for renewing.Err() == nil {
				time.Sleep(5 * time.Second)
				if renewing.Err() == nil {
					renew()
				}
			}
		}()
		waited := ""
		began := time.Now()
		_, _, err := Alone(t.Context(), c, "x", "here", func(holder string) { waited = holder })
		if busy := (*BusyError)(nil); !errors.As(err, &busy) || busy.Holder != "other, process 7" || waited != busy.Holder || time.Since(began) > 10*time.Second {
			t.Errorf("after %s: %v, waited for %q", time.Since(began), err, waited)
		}
		stop() // it was killed
		time.Sleep(6 * time.Second)
		began = time.Now()
		held, release, err := Alone(t.Context(), c, "x", "here", nil)
		if err != nil || time.Since(began) > 20*time.Second {
			t.Fatalf("after %s: %v", time.Since(began), err)
		}
		time.Sleep(time.Minute) // it renews
		if held.Err() != nil {
			t.Error(context.Cause(held))
		}
		renew() // somebody took it
		time.Sleep(6 * time.Second)
		if busy := (*BusyError)(nil); !errors.As(context.Cause(held), &busy) {
			t.Errorf("the Lease is lost: %v", context.Cause(held))
		}
		release()
		if s.holder() != "other, process 7_abc" {
			t.Errorf("the holder is %q", s.holder())
		}
		s.lease = nil
		_, release, err = Alone(t.Context(), c, "x", "here", nil)
		if err != nil {
			t.Fatal(err)
		}
		release()
		if s.holder() != "" {
			t.Errorf("it is not given back: %q", s.holder())
		}
	})
}
