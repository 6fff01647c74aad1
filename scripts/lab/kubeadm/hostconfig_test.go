package kubeadm

import (
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"airlift/scripts/fixtures/rig"
	"airlift/scripts/lab"
)

// Real kubeadm of each version reads the configuration for it.
func TestConfigIsValid(t *testing.T) {
	h := &lab.Host{Addr: netip.MustParseAddr("10.77.0.11")}
	for version, cgroupV1 := range map[string]bool{"v1.29.15": false, "v1.37.1": true} {
		kubeadm := rig.Component(t, version, "kubeadm")
		text := Config(h, ConfigOptions{Version: version, Endpoint: "10.77.0.11:6443"})
		file := filepath.Join(t.TempDir(), "kubeadm.yaml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command(kubeadm, "config", "validate", "--config", file).CombinedOutput(); err != nil || !strings.Contains(string(out), "ok") {
			t.Errorf("%s: %v\n%s", version, err, out)
		}
		if strings.Contains(text, "failCgroupV1: false") != cgroupV1 {
			t.Errorf("%s: whether the kubelet may run on cgroup v1:\n%s", version, text)
		}
		k := &Kit{Version: version}
		if strings.Contains(k.IgnoredChecks(), "SystemVerification") != cgroupV1 {
			t.Errorf("%s tolerates %s", version, k.IgnoredChecks())
		}
	}
}
