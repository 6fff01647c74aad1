package status

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"airlift/installer/cluster"
	"airlift/installer/config"
	"airlift/installer/host"
	"airlift/installer/node"
)

// TestDrift: each drift is a warning with what to type. Without an answer of the API server, drift is unknown, not none.
func TestDrift(t *testing.T) {
	h, unlock, err := host.OpenLocked(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	if _, err := h.WriteFile(config.KubeletConfigFile, []byte("maxPods: 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	list := []Drift{{Name: "/etc/kubernetes/manifests/etcd.yaml", Cause: Edited, Diff: "+    - --v=2\n", Keep: "a patch"}, {Name: config.KubeletFlagsFile, Cause: Edited, Keep: "kubeletExtraArgs"}, {Name: config.KubeletConfigFile, Cause: Behind}}
	down := errors.New("the API server\ndoes not answer")
	for _, c := range []struct {
		role, unknown string
		reach, fails  error
		fixes         []string
	}{
		{node.ControlPlane, "", nil, nil, []string{"to see it: ./install reconfigure --restore --plan; to drop it: ./install reconfigure --restore; to keep it, use a patch", "restart kubelet; to keep it, use kubeletExtraArgs", "to follow: ./install reconfigure node"}},
		{node.Worker, "", nil, nil, []string{"to drop it: ./install reconfigure node --restore; to keep it, use a patch", "restart kubelet; to keep it, use kubeletExtraArgs", "to follow: ./install reconfigure node"}},
		{node.Worker, "the API server does not answer", down, nil, nil},
		{node.Worker, "the API server does not answer; these files have other contents than Airlift wrote: " + config.KubeletConfigFile, nil, down, nil},
	} {
		if c.fails != nil {
			if err := os.WriteFile(h.Path(config.KubeletConfigFile), []byte("maxPods: 2\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		r := &Reader{Host: h, node: node.Observation{Role: c.role}, api: func() (*cluster.Client, error) { return nil, c.reach }}
		r.Contents.Drift = func(context.Context, string) ([]Drift, error) { return list, c.fails }
		found, err := r.readDrift(t.Context())
		s := &Status{Unknown: map[string]string{}}
		s.add("drift", found, err)
		if s.Unknown["drift"] != c.unknown || len(s.Warnings) != len(c.fixes) || len(s.Problems) > 0 {
			t.Fatalf("%+v: %+v", c, s)
		}
		for i, fix := range c.fixes {
			if w := s.Warnings[i]; w.Part != "drift" || !strings.HasPrefix(w.Message, list[i].Name+" ") || !strings.Contains(w.Fix, fix) {
				t.Errorf("%s: %+v, want %q", c.role, w, fix)
			}
		}
		var out strings.Builder
		s.Node.Role = node.ControlPlane
		s.Write(&out, 0)
		row := "drift         unknown: " + c.unknown + "\n"
		if c.unknown == "" {
			row = "drift         /etc/kubernetes/manifests/etcd.yaml, /var/lib/kubelet/kubeadm-flags.env, /var/lib/kubelet/config.yaml\n"
		}
		if text := out.String(); !strings.Contains(text, row) || c.unknown == "" && !strings.Contains(text, "\n+    - --v=2\n") {
			t.Errorf("%s\nwant %s", text, row)
		}
	}
}
