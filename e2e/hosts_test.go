//go:build e2e

package e2e

import (
	"context"
	"io"
	"testing"
	"time"

	"airlift/scripts/lab"
	"airlift/scripts/site"
)

// TestOwnContainerd installs on a host that has Debian's containerd running:
// it is used, and reset leaves it as it was.
func TestOwnContainerd(t *testing.T) {
	s := up(t, lab.Options{Name: "e2e-containerd", Hosts: 1, ExtraPackages: []string{"containerd"}})
	h := s.Hosts[0]
	if _, err := h.Output(t.Context(), "systemctl", "is-active", "containerd"); err != nil {
		t.Fatal(err)
	}
	// As it comes it cannot start a pod on a host without CAP_SYS_RESOURCE:
	// that is found before anything is changed, and the fix is what the hint says.
	contains(t, install(t, h, 3, "init"), "restrict_oom_score_adj", "hint: ")
	run(t, h, "sh", "-c", `mkdir -p /etc/containerd && cat >/etc/containerd/config.toml <<'END'
version = 2
[plugins."io.containerd.grpc.v1.cri"]
  restrict_oom_score_adj = true
[plugins."io.containerd.grpc.v1.cri".cni]
  bin_dir = "/opt/cni/bin"
END
systemctl restart containerd`)
	config := run(t, h, "cat", "/etc/containerd/config.toml")
	bare := untouched(t, h)

	contains(t, install(t, h, 0, "init"), "this host's own containerd 1.6")
	systemIsUp(t, s, 1)
	if got := run(t, h, "cat", "/etc/containerd/config.toml"); got != config {
		t.Errorf("containerd's settings became:\n%s", got)
	}
	if _, err := s.Deploy(t.Context(), version); err != nil {
		t.Error(err)
	}

	install(t, h, 0, "reset", "--force")
	run(t, h, "systemctl", "is-active", "containerd")
	if out := run(t, h, "ctr", "-n", "k8s.io", "containers", "ls", "-q"); out != "" {
		t.Errorf("containers left: %s", out)
	}
	_ = bare
}

// TestSeveralAddresses: with two networks and no default route there is no
// telling which address is meant, so init asks, and takes the answer.
func TestSeveralAddresses(t *testing.T) {
	s := up(t, lab.Options{Name: "e2e-addresses", Hosts: 1, Interfaces: 2, NoexecTmp: true})
	h := s.Hosts[0]
	bare := untouched(t, h)
	second := h.Addrs[1].Addr().String()
	contains(t, install(t, h, 2, "init"), "eth0 "+h.Addr.String(), "eth1 "+second, "--apiserver-advertise-address")
	same(t, bare, untouched(t, h))
	install(t, h, 0, "init", "--apiserver-advertise-address", second)
	systemIsUp(t, s, 1)
	contains(t, kubectl(t, s, "get", "nodes", "-o", "wide"), second)
	contains(t, run(t, h, "cat", "/etc/kubernetes/admin.conf"), "https://"+second+":6443")
}

// TestInterrupted stops init in the middle, gently and not, and lets a second
// run finish the job.
func TestInterrupted(t *testing.T) {
	s := up(t, lab.Options{Name: "e2e-interrupted", Hosts: 1})
	h := s.Hosts[0]
	bare := untouched(t, h)

	t.Run("Ctrl-C", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		defer cancel()
		out, err := site.Install(ctx, h, io.Discard, "init")
		if err == nil {
			t.Fatal("init was done before it could be interrupted")
		}
		contains(t, out, "interrupted", "hint: ")
	})
	t.Run("kill -9", func(t *testing.T) {
		for _, after := range []string{"0.5", "2", "4", "7"} {
			run(t, h, "sh", "-c", site.Installer+" init >/dev/null 2>&1 & sleep "+after+"; kill -9 $! 2>/dev/null; wait; true")
		}
	})
	t.Run("power cut", func(t *testing.T) {
		if err := h.PowerCut(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := h.Boot(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("init finishes", func(t *testing.T) {
		install(t, h, 0, "init")
		systemIsUp(t, s, 1)
	})
	t.Run("reset", func(t *testing.T) {
		install(t, h, 0, "reset", "--force")
		same(t, bare, untouched(t, h))
	})
}

// TestDryRun changes nothing and shows everything.
func TestDryRun(t *testing.T) {
	s := up(t, lab.Options{Name: "e2e-dryrun", Hosts: 1})
	h := s.Hosts[0]
	bare := untouched(t, h)
	contains(t, install(t, h, 0, "init", "--dry-run"), "Nothing was changed")
	same(t, bare, untouched(t, h))
	contains(t, run(t, h, "sh", "-c", "cd /tmp/airlift-init-dry-run-*; find . -type f"),
		"./etc/kubernetes/manifests/kube-apiserver.yaml", "./etc/kubernetes/pki/ca.crt", "./var/lib/kubelet/config.yaml", "configmap-kubeadm-config.yaml")
}

// TestPreflight: what is wrong with a host is said all at once.
func TestPreflight(t *testing.T) {
	s := up(t, lab.Options{Name: "e2e-preflight", Hosts: 1})
	h := s.Hosts[0]
	run(t, h, "sh", "-c", "mkdir -p /etc/kubernetes/manifests /var/lib/etcd/member && echo {} >/etc/kubernetes/manifests/kube-apiserver.yaml")
	bare := untouched(t, h)
	contains(t, install(t, h, 3, "init"),
		"FileAvailable--etc-kubernetes-manifests-kube-apiserver.yaml", "DirAvailable--var-lib-etcd")
	same(t, bare, untouched(t, h))
}
