package revision

import (
	"io"
	"strings"
	"testing"

	kubeletv1 "k8s.io/kubelet/config/v1beta1"

	"airlift/installer/config"
	"airlift/installer/host"
	"airlift/installer/node"
	"airlift/installer/phases"
	"airlift/installer/workflow"
	"airlift/scripts/fixtures/testhost"
)

// TestCgroupDriverStays: a document that the cluster printed has the driver of the cluster. A node with another one keeps it: the
// cgroups of its containers belong to that.
func TestCgroupDriverStays(t *testing.T) {
	h, unlock, err := host.OpenLocked(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	r := New(&phases.Plan{Config: &config.Config{}}, Options{Kind: Reconfigure}, node.NewMachine(h, &workflow.Console{Out: io.Discard}))
	r.Change = newVersion{}
	for _, given := range []string{"systemd", ""} {
		c := testhost.Config(nil)
		c.Kubelet = &kubeletv1.KubeletConfiguration{CgroupDriver: given, MaxPods: 123}
		c.Facts.CgroupDriver = "cgroupfs"
		s, err := r.KubeletDocuments(c)
		if err != nil || !strings.Contains(string(s.Data), "cgroupDriver: cgroupfs\n") || !strings.Contains(string(s.Data), "maxPods: 123\n") {
			t.Errorf("given %q: %v\n%s", given, err, s.Data)
		}
	}
}
