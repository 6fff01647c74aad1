package installer

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"airlift/fault"
	"airlift/installer/cluster"
	"airlift/installer/host"
)

func TestStatusIsWritten(t *testing.T) {
	s := Status{
		apply: "./install init phase manifests",
		Node:  cluster.NodeState{Name: "host1", Role: "control-plane", Version: "v1.37.1", Ready: true},
		Manifests: []ManifestStatus{
			{Name: "ingress", Chart: "ingress-nginx 4.13.2", State: stateApplied, Applied: "2026-11-23T03:46:18Z", Objects: []cluster.ObjectState{{Object: "Service web/a", Ready: true}}},
			{Name: "app", State: stateDifferent, Objects: []cluster.ObjectState{{Object: "Service web/b", Ready: true}, {Object: "Deployment.apps web/b", Reason: "0 of 1 pods ready\n  a line of a log"}}},
		},
	}
	var out strings.Builder
	s.Write(&out)
	want := `node host1: control-plane, v1.37.1, Ready

MANIFEST   CHART                  STATE       READY   APPLIED
ingress    ingress-nginx 4.13.2   applied     1/1     2026-11-23T03:46:18Z
app        -                      different   1/2     -

Not ready:
  - app: Deployment.apps web/b: 0 of 1 pods ready
        a line of a log

To apply the manifests of this bundle: ./install init phase manifests
`
	if out.String() != want {
		t.Errorf("got:\n%s\nwant:\n%s", out.String(), want)
	}
}

func TestStatusElsewhere(t *testing.T) {
	b := siteBundle(t, nil, nil)
	worker := t.TempDir()
	dir := filepath.Join(worker, "etc/kubernetes")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "kubelet.conf"), []byte("users: [{user: {}}]"), 0o600); err != nil {
		t.Fatal(err)
	}
	for root, want := range map[string]string{t.TempDir(): "this host is not a node", worker: "kubelet.conf does not have this node's name"} {
		h, err := host.Open(root)
		if err != nil {
			t.Fatal(err)
		}
		_, err = ReadStatus(t.Context(), b, h, adminConf)
		if err == nil || !strings.Contains(err.Error(), want) || fault.Hint(err) == "" {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
