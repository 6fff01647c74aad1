package reconfigure

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"airlift/installer/cluster"
	"airlift/installer/config"
	"airlift/installer/preflight"
	"airlift/installer/profile"
	"airlift/installer/render"
	"airlift/scripts/fixtures/testcluster/testclient"
	"airlift/scripts/fixtures/testhost"
)

// A running cluster gets the profile and loses it. What it stores for kubelets stays, without a document of the user, and a second run has
// nothing to do.
func TestProfileOfARunningCluster(t *testing.T) {
	use := func(name string, stored *cluster.Stored) (*Reconfigure, *config.Config) {
		t.Helper()
		own := testhost.Config(nil)
		own.Cluster, own.Kubelet = stored.Cluster, nil
		r, h := reconfiguring(t, Options{Profile: name})
		r.API.Client, _ = testclient.Fake(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "worker"}}) // its kubelet cannot be reached
		if _, err := h.WriteFile(own.CertificatesDir+"/ca.crt", nil, 0o644); err != nil {
			t.Fatal(err)
		}
		initial := *own
		if err := r.useProfile(t.Context(), own, &initial, stored); err != nil {
			t.Fatal(err)
		}
		return r, own
	}
	kubelet := "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nmaxPods: 7\npodPidsLimit: 99\nstreamingConnectionIdleTimeout: 0s\n"
	stored := &cluster.Stored{FetchedConfig: &cluster.FetchedConfig{Cluster: testhost.Config(nil).Cluster}}
	stored.Kubelet = []byte(kubelet)
	stored.Cluster.APIServer.ExtraArgs = config.Args{{Name: "audit-log-maxage", Value: "7"}}
	r, own := use(profile.Hardened, stored)
	k := own.Kubelet
	if k == nil || k.MaxPods != 7 || *k.PodPidsLimit != 99 || !k.ProtectKernelDefaults || !r.hardens || !profile.Used(&own.Cluster) {
		t.Fatalf("%+v, %+v", r, k)
	}
	for _, want := range []string{"ClusterConfiguration.apiServer.extraArgs: audit-log-maxage=7", "KubeletConfiguration.podPidsLimit"} {
		if !slices.Contains(r.kept, want) {
			t.Errorf("%q does not name %s", r.kept, want)
		}
	}
	text, err := render.KubeletConfig(own)
	if err != nil {
		t.Fatal(err)
	}
	hardened := &cluster.Stored{FetchedConfig: &cluster.FetchedConfig{Cluster: own.Cluster}}
	hardened.Kubelet, hardened.Cluster.Kubelet = text, nil
	again, same := use(profile.Hardened, hardened)
	if again.hardens || same.Kubelet != nil || !reflect.DeepEqual(same.APIServer, own.APIServer) || !reflect.DeepEqual(same.Scheduler, own.Scheduler) {
		t.Errorf("a second run changes %+v, kubelet %+v", same.Cluster, same.Kubelet)
	}
	_, back := use(profile.None, hardened)
	k = back.Kubelet
	if k == nil || k.MaxPods != 7 || *k.PodPidsLimit != 99 || k.ProtectKernelDefaults || profile.Used(&back.Cluster) ||
		!slices.Equal(back.APIServer.ExtraArgs, stored.Cluster.APIServer.ExtraArgs) || len(back.Scheduler.ExtraArgs) > 0 {
		t.Errorf("%+v, kubelet %+v", back.Cluster, k)
	}
	_, none := use("", hardened)
	if none.Kubelet != nil || !profile.Used(&none.Cluster) {
		t.Error("without a profile, something changes")
	}
	// A document for one field takes nothing of the profile away, and the plan reports it.
	file := filepath.Join(t.TempDir(), "kubeadm.yaml")
	if err := os.WriteFile(file, []byte("apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nmaxPods: 8\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	given, _, err := config.ReadReconfigure(file)
	if err != nil {
		t.Fatal(err)
	}
	own = testhost.Config(nil)
	own.Cluster, own.Kubelet = hardened.Cluster, given.Config.Kubelet
	r, _ = reconfiguring(t, Options{Given: given})
	initial := *own
	if err := r.useProfile(t.Context(), own, &initial, hardened); err != nil {
		t.Fatal(err)
	}
	k = own.Kubelet
	if k == nil || k.MaxPods != 8 || !k.ProtectKernelDefaults || k.StreamingConnectionIdleTimeout.Duration == 0 || !profile.Used(&own.Cluster) || r.hardens || !r.keepsProfile {
		t.Errorf("%+v, kubelet %+v", r, k)
	}
	warned := slices.ContainsFunc(r.profileWarnings(t.Context()), func(p preflight.Problem) bool { return strings.Contains(p.Fix, "--profile none") })
	if !warned {
		t.Error("the plan does not name the profile")
	}
}
