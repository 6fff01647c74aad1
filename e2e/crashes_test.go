//go:build e2e

package e2e

import (
	"strings"
	"testing"

	"airlift/scripts/lab"
)

// TestCrashes gives components a configuration with which they exit. init shows the exit code
// and the last lines of the log, and gives up long before its time limits. After the API server's
// configuration is corrected, the next run continues.
func TestCrashes(t *testing.T) {
	s := up(t, lab.Options{Name: "e2e-crashes", Hosts: 1})
	h := s.Hosts[0]
	write := func(name, content string) {
		t.Helper()
		if err := h.Exec(t.Context(), strings.NewReader(content), t.Output(), t.Output(), "sh", "-c", "mkdir -p $(dirname "+name+") && cat > "+name); err != nil {
			t.Fatal(err)
		}
	}
	// fails runs init, which must give up because of a process that exits.
	fails := func(t *testing.T, want ...string) {
		t.Helper()
		out := install(t, h, 1, "init", "--config", "/root/init.yaml")
		warning, failure, ok := strings.Cut(out, "error: ")
		if !ok {
			t.Fatalf("no error:\n%s", out)
		}
		contains(t, warning, append(want, "warning: ")...)
		contains(t, failure, append(want, "with the same error", "hint: ")...)
		if strings.Contains(out, "crictl") || strings.Contains(failure, "gave up after") {
			t.Errorf("crictl is not on this host, and no time limit was reached:\n%s", out)
		}
	}
	const cluster = "apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\n"

	t.Run("the API server", func(t *testing.T) {
		write("/root/init.yaml", cluster+"apiServer: {extraArgs: [{name: no-such-flag, value: x}]}\n")
		fails(t, "container kube-apiserver of pod kube-system/kube-apiserver-host1 exited with code 1", "unknown flag: --no-such-flag")
	})
	t.Run("kube-proxy", func(t *testing.T) {
		write("/root/init.yaml", cluster+"---\napiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nnodePortAddresses: [no-range]\n")
		fails(t, "container kube-proxy of pod kube-system/kube-proxy-", "exited with code 1", "no-range")
	})
	install(t, h, 0, "reset", "--force")
	t.Run("the kubelet", func(t *testing.T) {
		write("/etc/systemd/system/kubelet.service.d/99-broken.conf", "[Service]\nExecStart=\nExecStart=/bin/sh -c 'echo the lock file is missing; exit 3'\n")
		fails(t, "the kubelet exited with code 3", "the lock file is missing")
	})
}
