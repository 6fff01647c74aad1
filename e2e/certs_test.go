//go:build e2e

package e2e

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"airlift/scripts/lab"
	"airlift/scripts/upstream/components"
)

// TestCertificates adds a user, and renews the certificates of a control plane after they have
// expired.
func TestCertificates(t *testing.T) {
	s := up(t, lab.Options{Name: "e2e-certs", Hosts: 1})
	h := s.Hosts[0]
	install(t, h, 0, "init")

	table := install(t, h, 0, "certs", "check-expiration")
	if strings.Contains(table, "warning") {
		t.Errorf("the cluster's own configuration was not taken:\n%s", table)
	}
	kubeadm, err := components.Path(version, "kubeadm")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.CopyIn(t.Context(), kubeadm, "/root/kubeadm", 0o755); err != nil {
		t.Fatal(err)
	}
	theirs := run(t, h, "sh", "-c", "/root/kubeadm certs check-expiration 2>&1 | sed 's/ *$//'")
	contains(t, theirs, strings.TrimSpace(table))

	run(t, h, "sh", "-c", "/root/install kubeconfig user --client-name jane --org readers --validity-period 1h > /root/jane.conf")
	can := func(args string) string {
		return strings.TrimSpace(run(t, h, "sh", "-c", "kubectl --kubeconfig /root/jane.conf auth "+args+" || true"))
	}
	contains(t, can("whoami"), "jane", "readers")
	if got := can("can-i list pods"); got != "no" {
		t.Errorf("before she is given the right: %q", got)
	}
	kubectl(t, s, "create", "clusterrolebinding", "readers", "--clusterrole", "view", "--group", "readers")
	eventually(t, 10*time.Second, func() string {
		if got := can("can-i list pods"); got != "yes" {
			return got
		}
		return ""
	})

	// All certificates that are renewed here expire in twenty seconds.
	run(t, h, "sh", "-c", `printf '%s\n' 'apiVersion: kubeadm.k8s.io/v1beta4' 'kind: ClusterConfiguration' 'certificateValidityPeriod: 20s' > /root/short.yaml`)
	install(t, h, 0, "certs", "renew", "all", "--config", "/root/short.yaml")
	nodes := func() string {
		return run(t, h, "sh", "-c", "kubectl --kubeconfig /etc/kubernetes/admin.conf --request-timeout 5s get nodes 2>&1 || true")
	}
	eventually(t, 2*time.Minute, func() string {
		if out := nodes(); !strings.Contains(out, "expired") && !strings.Contains(out, "Unauthorized") {
			return out
		}
		return ""
	})
	// Certificates that were created a second later expire a second later.
	eventually(t, 10*time.Second, func() string {
		table = install(t, h, 0, "certs", "check-expiration")
		if n := strings.Count(table, "<expired>"); n != 11 {
			return fmt.Sprintf("%d have expired, not 11:\n%s", n, table)
		}
		return ""
	})
	contains(t, table, "because the cluster's configuration cannot be read")

	processes := func() string { return run(t, h, "sh", "-c", "pgrep -x 'kube-scheduler|kube-controller' || true") }
	before := processes()
	out := install(t, h, 0, "certs", "renew", "all")
	eventually(t, 2*time.Minute, func() string { // the API server reloads its files
		if out := nodes(); !strings.Contains(out, " Ready ") {
			return out
		}
		return ""
	})
	// A kubelet that was offline until its certificate expired.
	serial := func() string {
		return run(t, h, "openssl", "x509", "-noout", "-serial", "-in", "/var/lib/kubelet/pki/kubelet-client-current.pem")
	}
	slept := serial()
	run(t, h, "rm", "/etc/kubernetes/kubelet.conf", "/var/lib/kubelet/pki/kubelet-client-current.pem")
	install(t, h, 0, "init", "phase", "kubeconfig", "kubelet")
	run(t, h, "systemctl", "restart", "kubelet")
	if serial() == slept {
		t.Error("the kubelet has its old certificate")
	}
	heartbeat := func() string {
		return run(t, h, "sh", "-c", "kubectl --kubeconfig /etc/kubernetes/admin.conf -n kube-node-lease get lease -o jsonpath='{.items[0].spec.renewTime}'")
	}
	last := heartbeat()
	eventually(t, time.Minute, func() string {
		if now := heartbeat(); now == last {
			return "no sign of life since " + last
		}
		return ""
	})

	// The printed command restarts the components that need it.
	command := regexp.MustCompile(`(?m)^    (cd /etc/kubernetes/manifests && for pod in) .*(; do .*)$`).FindStringSubmatch(out)
	if command == nil {
		t.Fatalf("how to restart is not in\n%s", out)
	}
	run(t, h, "sh", "-c", command[1]+" kube-scheduler kube-controller-manager"+command[2])
	eventually(t, time.Minute, func() string {
		for _, old := range strings.Fields(before) {
			if strings.Contains(processes(), old) {
				return "still there: " + old
			}
		}
		return ""
	})
	systemIsUp(t, s, 1)
	if table := install(t, h, 0, "certs", "check-expiration"); strings.Count(table, " 364d ") != 11 {
		t.Errorf("after the renewal:\n%s", table)
	}
	install(t, h, 0, "reset", "--force")
	run(t, h, "sh", "-c", "! find / -xdev -name '*.airlift-saved' | grep .")
}
