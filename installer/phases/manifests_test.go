package phases

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"airlift/installer/desired"
	"airlift/installer/node"
	"airlift/installer/workflow"
	"airlift/internal/fault"
	"airlift/scripts/fixtures/testcluster/testclient"
	"airlift/scripts/fixtures/testhost"
)

// While another host applies manifests, the phase manifests of init does not.
func TestPhaseManifestsIsAlone(t *testing.T) {
	h := testhost.Open(t, t.TempDir())
	synctest.Test(t, func(t *testing.T) {
		held := func() *coordinationv1.Lease {
			now := metav1.NowMicro()
			return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "airlift-apply", Namespace: metav1.NamespaceSystem}, Spec: coordinationv1.LeaseSpec{
				HolderIdentity: ptr.To("host2, process 7_abc"), LeaseDurationSeconds: ptr.To(int32(15)), AcquireTime: &now, RenewTime: &now}}
		}
		client, _ := testclient.Fake(held())
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go func() {
			for {
				select {
				case <-ctx.Done():
					return
				case <-time.After(5 * time.Second):
				}
				_, _ = client.API.CoordinationV1().Leases(metav1.NamespaceSystem).Update(ctx, held(), metav1.UpdateOptions{})
			}
		}()
		m := node.NewMachine(h, &workflow.Console{Out: new(bytes.Buffer)})
		s := NewManifests(&API{Machine: m, Client: client}, InitOptions{})
		err := s.ApplyOrPrint(func(context.Context) error { return nil })(ctx, desired.List{})
		if err == nil || err.Error() != "another apply of this cluster runs: on host2, process 7" || !strings.Contains(fault.Hint(err), "run this command again") {
			t.Errorf("%v (%s)", err, fault.Hint(err))
		}
		s.Close()
		stop()
		synctest.Wait()
	})
}
