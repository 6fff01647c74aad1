package pods

import (
	"io"
	"testing"

	"airlift/installer/config"
	"airlift/installer/host"
	"airlift/installer/node"
	"airlift/installer/workflow"
)

// An etcd that cannot start, because of what is in its manifest, may be replaced: join and init do so
// after a patch was corrected.
func TestRestartOfAnEtcdThatCannotStart(t *testing.T) {
	h, unlock, err := host.OpenLocked(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	for name, text := range map[string]string{
		"etcd":           "spec: {containers: [{name: etcd, command: [etcd, --no-such-flag]}]}\n",
		"kube-apiserver": "spec: {containers: [{name: kube-apiserver, command: [kube-apiserver, '--etcd-servers=https://127.0.0.1:1', --etcd-cafile=/etc/kubernetes/pki/etcd/ca.crt]}]}\n",
	} {
		if _, err := h.WriteFile(node.ManifestPath(name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s := WithWatch(NewWatch(node.NewMachine(h, &workflow.Console{Out: io.Discard}), nil), config.Timeouts{})
	if err := s.mayRestart(t.Context(), node.EtcdPod); err != nil {
		t.Error(err)
	}
}
