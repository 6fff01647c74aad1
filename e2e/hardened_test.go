//go:build e2e

package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"airlift/scripts/lab"
)

// TestHardened creates a cluster with the profile. Two more control planes and a worker join it without a flag.
func TestHardened(t *testing.T) {
	s := up(t, lab.Options{Name: "e2e-hardened", Hosts: 4})
	planes, first, second, worker := s.Hosts[:3], s.Hosts[0], s.Hosts[1], s.Hosts[3]
	files := "cd /etc/kubernetes/hardened && sha256sum *; stat -c '%a %U %n' /etc/kubernetes/hardened/* /var/log/kubernetes/audit /var/log/kubernetes/audit/audit.log"
	inOrder(t, s, []stage{
		{"two more control planes and a worker join", func(t *testing.T) {
			join := joinPlanes(t, planes, "--profile", "hardened")
			plane := strings.Index(strings.Join(join, " "), " --control-plane")
			endpointAt(t, worker, first)
			install(t, worker, 0, strings.Fields(strings.Join(join, " ")[:plane])...)
			systemIsUp(t, s, 4)
		}},
		{"all control planes have the same files", func(t *testing.T) {
			want := run(t, first, "sh", "-c", files)
			for _, h := range planes[1:] {
				if is := run(t, h, "sh", "-c", files); is != want {
					t.Errorf("%s\nand not\n%s", is, want)
				}
			}
			contains(t, want, "600 root /etc/kubernetes/hardened/admission.yaml\n", "600 root /etc/kubernetes/hardened/audit-policy.yaml\n", "700 root /var/log/kubernetes/audit\n", "600 root /var/log/kubernetes/audit/audit.log\n")
		}},
		{"etcd runs as its own user, and its data belongs to it", func(t *testing.T) {
			for _, h := range planes {
				etcdUser(t, h)
			}
			run(t, worker, "sh", "-c", "! grep ^etcd: /etc/passwd")
		}},
		{"etcd uses a renewed certificate", func(t *testing.T) {
			serial := func() string {
				return run(t, second, "sh", "-c", "openssl s_client -connect 127.0.0.1:2379 -CAfile /etc/kubernetes/pki/etcd/ca.crt -cert /etc/kubernetes/pki/etcd/healthcheck-client.crt -key /etc/kubernetes/pki/etcd/healthcheck-client.key </dev/null 2>/dev/null | openssl x509 -noout -serial")
			}
			before := serial()
			install(t, second, 0, "certs", "renew", "etcd-server", "etcd-peer", "--restart")
			if after := serial(); after == before || after != run(t, second, "openssl", "x509", "-noout", "-serial", "-in", "/etc/kubernetes/pki/etcd/server.crt") {
				t.Errorf("etcd serves %s, before %s", after, before)
			}
			etcdUser(t, second)
			systemIsUp(t, s, 4)
		}},
		{"each node has the kernel parameters and the modes", func(t *testing.T) {
			for _, h := range s.Hosts {
				contains(t, run(t, h, "cat", "/etc/sysctl.d/99-airlift.conf"), "kernel.panic = 10\n", "vm.overcommit_memory = 1\n", "kernel.keys.root_maxbytes = 25000000\n")
				contains(t, run(t, h, "sh", "-c", "stat -c '%a %n' /etc/systemd/system/kubelet.service /etc/systemd/system/kubelet.service.d/10-kubeadm.conf /var/lib/kubelet/config.yaml"),
					"600 /etc/systemd/system/kubelet.service\n", "600 /etc/systemd/system/kubelet.service.d/10-kubeadm.conf\n", "600 /var/lib/kubelet/config.yaml\n")
			}
		}},
		{"a pod that uses the host is refused", func(t *testing.T) {
			out, err := kubectlTry(t.Context(), first, "run", "bad", "--image=none", "--privileged")
			if err == nil {
				t.Fatal("the pod was accepted")
			}
			contains(t, out+err.Error(), "violates PodSecurity")
		}},
		{"the cluster signs the kubelets' serving certificates, and logs and exec use them", func(t *testing.T) {
			for _, h := range s.Hosts {
				servesSigned(t, first, h)
			}
			contains(t, install(t, first, 0, "node", "addresses", worker.Name), "recorded   "+worker.Addr.String())
			_, err := kubectlTry(t.Context(), first, "auth", "can-i", "update", "configmap/airlift-node-addresses", "-n", "kube-system", "--as", "system:node:"+worker.Name, "--as-group", "system:nodes")
			if err == nil {
				t.Error("a kubelet can write the record")
			}
		}},
		{"the cluster passes its test", func(t *testing.T) {
			contains(t, install(t, first, 0, "test"), "4 nodes in ", "The cluster passed")
		}},
		{"no automated check of the benchmark fails, and kube-bench agrees", func(t *testing.T) {
			for _, h := range s.Hosts {
				r := audit(t, h)
				r.passes(t, h.Name)
				kubeBench(t, h, r)
			}
		}},
		{"default ServiceAccounts have no tokens", func(t *testing.T) {
			for _, namespace := range []string{"default", "kube-system", "kube-public", "kube-node-lease"} {
				contains(t, kubectlAt(t, first, "get", "serviceaccount", "default", "-n", namespace, "-o", "jsonpath={.automountServiceAccountToken}"), "false")
			}
		}},
		{"a second init changes nothing, and without the profile it is refused", func(t *testing.T) {
			contains(t, install(t, first, 0, "init", "--control-plane-endpoint", endpoint+":6443", "--profile", "hardened"), "Nothing was changed.")
			contains(t, install(t, first, 3, "init", "--control-plane-endpoint", endpoint+":6443"), "--profile")
		}},
		{"nodes start again after a reboot", func(t *testing.T) {
			for _, h := range s.Hosts {
				if err := h.Reboot(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			systemIsUp(t, s, 4)
			for _, h := range s.Hosts {
				servesSigned(t, second, h)
			}
		}},
		{"reset keeps the audit log", func(t *testing.T) {
			install(t, worker, 0, "reset", "--force")
			contains(t, install(t, second, 0, "reset", "--force"), "/var/log/kubernetes/audit")
			run(t, second, "test", "-s", "/var/log/kubernetes/audit/audit.log")
			run(t, second, "test", "!", "-e", "/etc/kubernetes/hardened")
			run(t, second, "sh", "-c", "! grep ^etcd: /etc/passwd /etc/group && ! test -e /etc/kubernetes/etcd && ! test -e /etc/sysusers.d/airlift-etcd.conf")
		}},
	})
}

// etcdUser checks the owners that the benchmark asks for, the user of the process, and that etcd reads copies of its files.
func etcdUser(t *testing.T, h *lab.Host) {
	t.Helper()
	contains(t, run(t, h, "stat", "-c", "%a %U:%G", "/var/lib/etcd"), "700 etcd:etcd")
	contains(t, run(t, h, "sh", "-c", "find /var/lib/etcd ! -user etcd -o ! -group etcd | wc -l; find /etc/kubernetes/pki ! -user root | wc -l; find /etc/kubernetes/pki -name '*.key' -perm /077 | wc -l"), "0\n0\n0")
	contains(t, run(t, h, "sh", "-c", "stat -c %U /proc/$(pgrep -xo etcd); grep CapEff /proc/$(pgrep -xo etcd)/status"), "etcd\n", "0000000000000000")
	run(t, h, "sh", "-c", "cd /etc/kubernetes/etcd && for f in *; do cmp $f ../pki/etcd/$f && stat -c '%a %U:%G' $f | grep -x '600 etcd:etcd'; done && ls | wc -l | grep -x 5")
}

// execs: kubectl logs and exec from a control plane reach a pod on a host.
func execs(t *testing.T, from, h *lab.Host) {
	t.Helper()
	pod := strings.TrimSpace(kubectlAt(t, from, "-n", "kube-system", "get", "pods", "-l", "k8s-app=kube-proxy", "--field-selector", "spec.nodeName="+h.Name, "-o", "name"))
	eventually(t, time.Minute, func() string {
		_, err := kubectlTry(t.Context(), from, "-n", "kube-system", "logs", "--tail", "1", pod)
		if err == nil {
			_, err = kubectlTry(t.Context(), from, "-n", "kube-system", "exec", pod, "--", "kube-proxy", "--version")
		}
		if err != nil {
			return err.Error()
		}
		return ""
	})
}

// servesSigned: the kubelet of a host has a certificate of the cluster's CA for its address, and the API server of another one uses it.
func servesSigned(t *testing.T, from, h *lab.Host) {
	t.Helper()
	eventually(t, time.Minute, func() string {
		_, err := from.Output(t.Context(), "sh", "-c", fmt.Sprintf("openssl s_client -verify_return_error -verify_ip %[1]s -CAfile /etc/kubernetes/pki/ca.crt -connect %[1]s:10250 </dev/null", h.Addr))
		if err != nil {
			return err.Error()
		}
		return ""
	})
	execs(t, from, h)
}

// TestHardenedLater gives a running cluster the profile, and takes it away again. kubectl logs and exec work after each run on each node.
func TestHardenedLater(t *testing.T) {
	s := up(t, lab.Options{Name: "e2e-harden-later", Hosts: 3})
	first, second, worker := s.Hosts[0], s.Hosts[1], s.Hosts[2]
	reaches := func(t *testing.T, signed bool) {
		t.Helper()
		for _, h := range s.Hosts {
			for _, from := range []*lab.Host{first, second} {
				if signed {
					servesSigned(t, from, h)
				} else {
					execs(t, from, h)
				}
			}
		}
	}
	follow := func(t *testing.T) {
		t.Helper()
		for _, h := range []*lab.Host{second, worker} {
			install(t, h, 0, "reconfigure", "node")
			reaches(t, false)
		}
	}
	const flag = "grep -o -- '--kubelet-certificate-authority=.*' /etc/kubernetes/manifests/kube-apiserver.yaml"
	inOrder(t, s, []stage{
		{"a plain cluster", func(t *testing.T) {
			join := joinPlanes(t, s.Hosts[:2])
			plane := strings.Index(strings.Join(join, " "), " --control-plane")
			endpointAt(t, worker, first)
			install(t, worker, 0, strings.Fields(strings.Join(join, " ")[:plane])...)
			systemIsUp(t, s, 3)
		}},
		{"the first run lets kubelets have signed certificates", func(t *testing.T) {
			contains(t, install(t, first, 0, "reconfigure", "--profile", "hardened", "--plan"), "airlift-node-addresses", worker.Addr.String(), "another run")
			contains(t, install(t, first, 0, "reconfigure", "--profile", "hardened", "--yes"), "run the same command here once more")
			reaches(t, false)
			contains(t, install(t, first, 0, "reconfigure", "--profile", "hardened", "--plan"), worker.Name+": ")
			follow(t)
			reaches(t, true)
			contains(t, run(t, first, "sh", "-c", flag), "--kubelet-certificate-authority=\n")
			for _, h := range s.Hosts[:2] {
				etcdUser(t, h)
			}
		}},
		{"the second run lets API servers verify them", func(t *testing.T) {
			install(t, first, 0, "reconfigure", "--profile", "hardened", "--yes")
			reaches(t, true)
			install(t, second, 0, "reconfigure", "node")
			reaches(t, true)
			contains(t, run(t, second, "sh", "-c", flag), "/etc/kubernetes/pki/ca.crt")
			install(t, first, 0, "reconfigure", "--profile", "hardened", "--plan", "--detailed-exitcode")
			install(t, worker, 3, "reconfigure", "undo", "--yes")
		}},
		{"and back, in two runs", func(t *testing.T) {
			install(t, first, 0, "reconfigure", "--profile", "none", "--yes")
			reaches(t, true)
			install(t, second, 0, "reconfigure", "node")
			install(t, first, 0, "reconfigure", "--profile", "none", "--yes")
			reaches(t, false)
			follow(t)
			systemIsUp(t, s, 3)
			for _, h := range s.Hosts[:2] {
				run(t, h, "sh", "-c", "! grep ^etcd: /etc/passwd /etc/group && ! test -e /etc/kubernetes/etcd && ! test -e /etc/systemd/system/airlift-serving.service && ! test -e /etc/kubernetes/serving.yaml")
				run(t, h, "sh", "-c", "! find /var/lib/etcd ! -user root | grep .; ! grep kubelet-certificate-authority /etc/kubernetes/manifests/kube-apiserver.yaml")
			}
			install(t, first, 0, "reconfigure", "--profile", "none", "--plan", "--detailed-exitcode")
		}},
		{"undo of the last run", func(t *testing.T) {
			install(t, first, 0, "reconfigure", "undo", "--yes")
			reaches(t, false)
			follow(t)
			reaches(t, true)
			etcdUser(t, second)
		}},
	})
}
