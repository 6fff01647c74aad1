//go:build e2e

package e2e

import (
	"strings"
	"testing"

	"airlift/scripts/lab"
)

// TestPhases creates a cluster phase by phase, each in a separate process. Then init finds
// nothing to do.
func TestPhases(t *testing.T) {
	s := up(t, lab.Options{Name: "e2e-phases", Hosts: 1})
	h := s.Hosts[0]
	t.Run("what an earlier phase brings is asked for by name", func(t *testing.T) {
		bare := untouched(t, h)
		contains(t, install(t, h, 1, "init", "phase", "certs", "apiserver"), "ca.crt", "hint: ")
		contains(t, install(t, h, 2, "init", "phase", "certs", "apiservre"), `"apiservre"`, "apiserver-kubelet-client")
		contains(t, install(t, h, 0, "init", "phase", "kubelet-start", "--dry-run"), "Nothing was changed")
		run(t, h, "sh", "-c", "rm -r /tmp/airlift-*")
		same(t, bare, untouched(t, h))
	})
	for _, phase := range []string{
		"preflight", "unpack", "runtime", "certs ca", "certs all", "kubeconfig admin", "kubeconfig all", "etcd local",
		"control-plane apiserver", "control-plane all", "images", "kubelet-start", "wait-control-plane",
		"upload-config kubeadm", "upload-config all", "upload-certs --upload-certs", "mark-control-plane",
		"bootstrap-token", "kubelet-finalize experimental-cert-rotation", "addon coredns", "addon all", "pod-network", "wait-node", "show-join-command",
	} {
		out := install(t, h, 0, append([]string{"init", "phase"}, strings.Fields(phase)...)...)
		t.Logf("%s", out)
	}
	systemIsUp(t, s, 1)
	contains(t, install(t, h, 0, "init"), "Nothing was changed", "./install join ")
	manifests := run(t, h, "sh", "-c", "/root/install init phase addon --render-dir /root/addons --kube-proxy-server https://192.0.2.7:8443 && cat /root/addons/kube-proxy.yaml")
	contains(t, manifests, "server: https://192.0.2.7:8443", "kind: DaemonSet")
	contains(t, kubectl(t, s, "diff", "-f", "/root/addons/coredns.yaml", "-f", "/root/addons/flannel.yaml"), "")
}
