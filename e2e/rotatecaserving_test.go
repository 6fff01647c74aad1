//go:build e2e

package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"airlift/scripts/lab"
	"airlift/scripts/lab/site"
)

// TestRotateCAServing replaces the CAs of a cluster that signs the serving certificates of its
// kubelets (serverTLSBootstrap), and whose API server verifies them.
func TestRotateCAServing(t *testing.T) {
	s := up(t, lab.Options{Name: "e2e-rotateserving", Hosts: 2})
	control, worker := s.Hosts[0], s.Hosts[1]
	run(t, control, "sh", "-c", `cat >/root/kubeadm.yaml <<'END'
apiVersion: kubeadm.k8s.io/v1beta3
kind: ClusterConfiguration
apiServer:
  extraArgs:
    kubelet-certificate-authority: /etc/kubernetes/pki/ca.crt
---
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
serverTLSBootstrap: true
END`)
	join, err := site.JoinArgs(install(t, control, 0, "init", "--config", "/root/kubeadm.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	install(t, worker, 0, join...)

	// approve approves the request of a node, as an administrator does, and waits until the kubelet
	// serves a certificate of a CA.
	approve := func(h *lab.Host, ca string) {
		t.Helper()
		eventually(t, time.Minute, func() string {
			const pending = `{range .items[?(@.spec.signerName=="kubernetes.io/kubelet-serving")]}{.metadata.name} {.spec.username} {.status.conditions}{"\n"}{end}`
			for line := range strings.Lines(kubectl(t, s, "get", "csr", "-o", "jsonpath="+pending)) {
				if f := strings.Fields(line); len(f) == 2 && f[1] == "system:node:"+h.Name {
					kubectl(t, s, "certificate", "approve", f[0])
				}
			}
			_, err := control.Output(t.Context(), "sh", "-c", fmt.Sprintf("openssl s_client -verify_return_error -CAfile %s -connect %s:10250 </dev/null", ca, h.Addr))
			if err != nil {
				return err.Error()
			}
			return ""
		})
	}
	// The API server connects to the kubelets of both nodes.
	logs := func() {
		t.Helper()
		for _, h := range s.Hosts {
			pod := kubectl(t, s, "-n", "kube-system", "get", "pods", "-l", "k8s-app=kube-proxy", "--field-selector", "spec.nodeName="+h.Name, "-o", "name")
			eventually(t, 30*time.Second, func() string { // the API server reads a CA file again after a while
				if _, err := s.Kubectl(t.Context(), "-n", "kube-system", "logs", "--tail", "1", strings.TrimSpace(pod)); err != nil {
					return err.Error()
				}
				return ""
			})
		}
	}
	rotate := func(h *lab.Host, stage string) string {
		t.Helper()
		return install(t, h, 0, "certs", "rotate-ca", stage)
	}
	const former, next = "/root/former.crt", "/root/next.crt"
	run(t, control, "cp", "/etc/kubernetes/pki/ca.crt", former)
	for _, h := range s.Hosts {
		approve(h, former)
	}
	logs()

	for _, h := range s.Hosts {
		rotate(h, "distribute")
	}
	run(t, control, "cp", "/etc/kubernetes/pki/rotation/next/ca.crt", next)
	logs()
	for _, h := range s.Hosts {
		contains(t, rotate(h, "issue"), "requests a new serving certificate", "kubectl certificate approve")
		approve(h, next)
	}
	logs()
	for _, h := range s.Hosts {
		rotate(h, "finish")
	}
	same(t, run(t, control, "cat", next), run(t, control, "cat", "/etc/kubernetes/pki/ca.crt"))
	logs()
	systemIsUp(t, s, 2)
	for _, h := range []*lab.Host{worker, control} {
		install(t, h, 0, "reset", "--force")
	}
}
