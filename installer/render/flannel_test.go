package render

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"

	"airlift/installer/config"
)

// TestFlannelServer: an upgrade or a repeated init in the middle of a change of the endpoint keeps the server that flannel uses: not
// all nodes have the balancer yet.
func TestFlannelServer(t *testing.T) {
	for given, want := range map[string][2]string{"": {"127.0.0.1", "7443"}, "https://[fd00::1]:6444": {"fd00::1", "6444"}} {
		c := &config.Config{Images: map[string]string{"flannel": "flannel"}, FlannelServer: given}
		c.KubernetesVersion, c.Facts.NodeIP, c.Endpoint.Balancer = "v1.37.1", "10.0.0.1", true
		c.CompleteInit()
		objects, err := Flannel(c)
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]string{}
		for _, v := range objects[len(objects)-1].(*appsv1.DaemonSet).Spec.Template.Spec.Containers[0].Env {
			got[v.Name] = v.Value
		}
		if got["KUBERNETES_SERVICE_HOST"] != want[0] || got["KUBERNETES_SERVICE_PORT"] != want[1] {
			t.Errorf("%q: %v", given, got)
		}
	}
}
