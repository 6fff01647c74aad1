package clustercmd

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"airlift/installer/multihost/live"
)

// Commands that bring values to hosts find all mistakes before they connect; the others work with such a file.
func TestMistakesAreFoundBeforeConnections(t *testing.T) {
	c := newConsole(t)
	wrong := description + "---\napiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\nnetworking: {podSubnet: 10.244.0.0/33}\napiServer: {certSANs: [\"a b\"]}\n" +
		"---\napiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nmaxPods: -1\n"
	if err := os.WriteFile(c.path("cluster.yaml"), []byte(wrong), 0o600); err != nil {
		t.Fatal(err)
	}
	texts := []string{"cluster.yaml has 3 errors:", "cluster.yaml:14: ClusterConfiguration.networking.podSubnet", "cluster.yaml:15: ClusterConfiguration.apiServer.certSANs[0]", "cluster.yaml:19: KubeletConfiguration.maxPods is -1"}
	c.dialed = func(*live.Display) { t.Error("connects") }
	for _, command := range []string{"validate", "plan", "preflight", "apply"} {
		c.want(2, texts, "", command)
	}
	out, code := c.run("", "validate", "-o", "json")
	var v struct {
		Valid  bool
		Errors []struct {
			File, Field, Message, Hint string
			Line                       int
		}
	}
	document, _, _ := strings.Cut(out, "error: ")
	if err := json.Unmarshal([]byte(document), &v); err != nil || code != 2 || v.Valid || len(v.Errors) != 3 ||
		v.Errors[2].Field != "KubeletConfiguration.maxPods" || v.Errors[2].Line != 19 || v.Errors[2].File != c.path("cluster.yaml") || v.Errors[2].Hint == "" {
		t.Errorf("%d: %v: %s", code, err, out)
	}
	c.want(2, []string{"--skip has no effect"}, "", "validate", "--skip", "w1")
	c.dialed = nil
	if out, code := c.run("", "status"); code == 2 {
		t.Errorf("status: %s", out)
	}
	if err := os.WriteFile(c.path("cluster.yaml"), []byte(description), 0o600); err != nil {
		t.Fatal(err)
	}
	c.want(0, []string{"cluster.yaml is valid: 5 hosts, Kubernetes v1.37.1\n"}, "", "validate")
	c.want(0, []string{"valid: true\n", "errors: []\n"}, "", "validate", "-o", "yaml")
}
