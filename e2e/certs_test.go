//go:build e2e

package e2e

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"airlift/scripts/lab"
	"airlift/scripts/lab/site"
	"airlift/scripts/oracle/upstream/components"
)

// TestCertificates adds a user, and renews the certificates of a cluster after all of them have
// expired, those of the kubelets too.
func TestCertificates(t *testing.T) {
	s := up(t, lab.Options{Name: "e2e-certs", Hosts: 2})
	h, worker := s.Hosts[0], s.Hosts[1]
	join, err := site.JoinArgs(install(t, h, 0, "init"))
	if err != nil {
		t.Fatal(err)
	}
	install(t, worker, 0, join...)

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

	// All certificates that are renewed here expire in twenty seconds, and both kubelets are
	// offline until then.
	run(t, h, "sh", "-c", `printf '%s\n' 'apiVersion: kubeadm.k8s.io/v1beta4' 'kind: ClusterConfiguration' 'certificateValidityPeriod: 20s' > /root/short.yaml`)
	run(t, h, "sh", "-c", "systemctl stop kubelet && rm /etc/kubernetes/kubelet.conf "+kubeletCert)
	install(t, h, 0, "init", "phase", "kubeconfig", "kubelet", "--config", "/root/short.yaml")
	run(t, worker, "systemctl", "stop", "kubelet")
	expireKubelet(t, h, worker)
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

	run(t, h, "systemctl", "start", "kubelet")
	run(t, worker, "systemctl", "start", "kubelet")
	eventually(t, time.Minute, func() string {
		for _, h := range s.Hosts {
			if log := run(t, h, "journalctl", "--unit", "kubelet", "--no-pager", "--lines", "100"); !strings.Contains(log, "expired") {
				return h.Name + ": the kubelet does not report an expired certificate"
			}
		}
		return ""
	})

	// One command brings the control plane back.
	processes := func() []string {
		return strings.Fields(run(t, h, "pgrep", "-x", "etcd|kube-apiserver|kube-scheduler|kube-controller"))
	}
	before := processes()
	out := install(t, h, 0, "certs", "renew", "all", "--restart")
	contains(t, out, "kubelet.conf renewed", "kubelet restarted", "etcd restarted", "kube-apiserver restarted",
		"kube-controller-manager restarted", "kube-scheduler restarted")
	if after := processes(); len(after) != 4 || slices.ContainsFunc(after, func(pid string) bool { return slices.Contains(before, pid) }) {
		t.Errorf("processes %v before and %v after the restart", before, after)
	}
	for port, cert := range map[string]string{"6443": "apiserver", "2379": "etcd/server"} {
		served := run(t, h, "sh", "-c", "openssl s_client -connect 127.0.0.1:"+port+" </dev/null 2>/dev/null | openssl x509 -noout -serial")
		if want := run(t, h, "openssl", "x509", "-noout", "-serial", "-in", "/etc/kubernetes/pki/"+cert+".crt"); served != want {
			t.Errorf("port %s has the certificate with %s, and %s.crt is %s", port, served, cert, want)
		}
	}
	ready := func(host *lab.Host) {
		eventually(t, 2*time.Minute, func() string {
			if out := nodes(); !regexp.MustCompile(`(?m)^` + host.Name + ` +Ready `).MatchString(out) {
				return out
			}
			return ""
		})
	}
	heartbeat(t, h, h.Name)
	ready(h)

	// A worker has nothing to sign with: it joins again.
	eventually(t, 2*time.Minute, func() string {
		if out := nodes(); !regexp.MustCompile(`(?m)^` + worker.Name + ` +NotReady `).MatchString(out) {
			return out
		}
		return ""
	})
	run(t, worker, "rm", "/etc/kubernetes/kubelet.conf")
	again := strings.Fields(install(t, h, 0, "token", "create", "--print-join-command"))
	install(t, worker, 0, again[slices.Index(again, "join"):]...)
	run(t, worker, "systemctl", "restart", "kubelet")
	heartbeat(t, h, worker.Name)
	ready(worker)
	systemIsUp(t, s, 2)
	if table := install(t, h, 0, "certs", "check-expiration"); strings.Count(table, " 364d ") != 11 {
		t.Errorf("after the renewal:\n%s", table)
	}
	contains(t, install(t, h, 0, "certs", "renew", "all", "--due", "--restart"), "no certificate is due")
	contains(t, install(t, worker, 1, "certs", "auto"), "this host is not a control plane")

	// The timer's service renews what is due, and reset removes both.
	contains(t, install(t, h, 0, "certs", "auto"), "started")
	contains(t, install(t, h, 0, "certs", "auto"), "is already active")
	contains(t, run(t, h, "systemctl", "list-timers", "airlift-certs-renew.timer"), "airlift-certs-renew.service")
	run(t, h, "sed", "-i", "s/20s/2000h/", "/root/short.yaml")
	install(t, h, 0, "certs", "renew", "scheduler.conf", "--config", "/root/short.yaml")
	run(t, h, "systemctl", "start", "airlift-certs-renew.service")
	log := run(t, h, "journalctl", "--unit", "airlift-certs-renew.service", "--no-pager", "--output", "cat")
	contains(t, log, "scheduler.conf renewed", "kube-scheduler restarted")
	if strings.Contains(log, "apiserver renewed") {
		t.Errorf("a certificate was renewed that was not due:\n%s", log)
	}
	if holder := kubectl(t, s, "-n", "kube-system", "get", "lease", "airlift-control-plane", "--ignore-not-found", "-o", "name"); holder != "" {
		t.Errorf("the Lease is still held by %s", holder)
	}
	contains(t, install(t, h, 0, "certs", "auto", "--off"), "removed")
	run(t, h, "sh", "-c", "! systemctl cat airlift-certs-renew.timer")
	install(t, h, 0, "certs", "auto")
	systemIsUp(t, s, 2)
	install(t, worker, 0, "reset", "--force")
	install(t, h, 0, "reset", "--force")
	run(t, h, "sh", "-c", "! find / -xdev -name '*.airlift-saved' | grep .")
	run(t, h, "sh", "-c", "! find /etc/systemd /usr/local -name '*airlift*' | grep .")
}

const kubeletCert = "/var/lib/kubelet/pki/kubelet-client-current.pem"

// expireKubelet replaces the client certificate of a worker's kubelet by one that has expired.
func expireKubelet(t *testing.T, control, worker *lab.Host) {
	t.Helper()
	ca, err := tls.X509KeyPair([]byte(run(t, control, "cat", "/etc/kubernetes/pki/ca.crt")), []byte(run(t, control, "cat", "/etc/kubernetes/pki/ca.key")))
	if err != nil {
		t.Fatal(err)
	}
	current, _ := pem.Decode([]byte(run(t, worker, "cat", kubeletCert)))
	cert, err := x509.ParseCertificate(current.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	cert.NotBefore, cert.NotAfter = time.Now().Add(-2*time.Hour), time.Now().Add(-time.Hour)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, ca.Leaf, key.Public(), ca.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "kubelet.pem")
	both := append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})...)
	if err := os.WriteFile(file, both, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := worker.CopyIn(t.Context(), file, "/root/kubelet.pem", 0o600); err != nil {
		t.Fatal(err)
	}
	run(t, worker, "sh", "-c", "cat /root/kubelet.pem >"+kubeletCert+" && rm /root/kubelet.pem")
}

// heartbeat waits until the kubelet of a node renews its Lease.
func heartbeat(t *testing.T, control *lab.Host, node string) {
	t.Helper()
	last := ""
	eventually(t, 2*time.Minute, func() string {
		now := run(t, control, "sh", "-c", "kubectl --kubeconfig /etc/kubernetes/admin.conf -n kube-node-lease get lease "+node+" -o jsonpath='{.spec.renewTime}'")
		if last == "" {
			last = now
		}
		if now == last {
			return node + ": no sign of life since " + last
		}
		return ""
	})
}
