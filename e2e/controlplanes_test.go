//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"regexp"
	"strings"
	"testing"
	"time"

	"airlift/scripts/lab"
	"airlift/scripts/lab/site"
)

// TestControlPlanes creates a cluster of three control planes with a virtual address and a name for it, stops and
// restarts one of them, and removes them again. The steps depend on each other.
func TestControlPlanes(t *testing.T) {
	s := up(t, lab.Options{Name: "e2e-planes", Hosts: 3, Virtual: []netip.Addr{netip.MustParseAddr(virtual)}})
	first, second, third := s.Hosts[0], s.Hosts[1], s.Hosts[2]
	bare := map[*lab.Host]string{}
	for _, h := range s.Hosts {
		run(t, h, "sh", "-c", "echo "+virtual+" "+endpoint+" >>/etc/hosts")
		bare[h] = untouched(t, h)
	}
	var joinPlane []string // with the certificate key that init has printed
	steps := []struct {
		name string
		test func(t *testing.T)
	}{
		{"init prints how to add a control plane", func(t *testing.T) {
			out := install(t, first, 0, "init", "--control-plane-endpoint", endpoint+":6443", "--control-plane-vip", virtual, "--upload-certs")
			m := regexp.MustCompile(`(?m)^\s*\./install (join ` + endpoint + `:6443 .* --control-plane --certificate-key [0-9a-f]{64})$`).FindStringSubmatch(out)
			if m == nil {
				t.Fatal("no join command for a control plane")
			}
			joinPlane = strings.Fields(m[1])
		}},
		{"the second joins with the key", func(t *testing.T) {
			contains(t, install(t, second, 0, append(joinPlane, "--dry-run")...), "Nothing was changed")
			contains(t, run(t, second, "sh", "-c", "cd /tmp/airlift-join-dry-run-*; find . -type f"),
				"./etc/kubernetes/manifests/etcd.yaml", "./etc/kubernetes/pki/ca.key", "./etc/kubernetes/bootstrap-kubelet.conf", "./var/lib/kubelet/config.yaml")
			same(t, bare[second], untouched(t, second))

			// Join with kubeadm's configuration file.
			run(t, second, "sh", "-c", fmt.Sprintf(`cat >/root/join.yaml <<'END'
apiVersion: kubeadm.k8s.io/v1beta4
kind: JoinConfiguration
discovery:
  bootstrapToken: {apiServerEndpoint: %q, token: %q, caCertHashes: [%q]}
controlPlane: {certificateKey: %q}
END`, joinPlane[1], joinPlane[3], joinPlane[5], joinPlane[len(joinPlane)-1]))
			// An etcd with a wrong flag never starts. The next run replaces its static pod.
			run(t, second, "sh", "-c", `mkdir /root/patches && echo 'spec: {containers: [{name: etcd, command: [etcd, --no-such-flag]}]}' >/root/patches/etcd.yaml`)
			contains(t, install(t, second, 1, append(joinPlane, "--patches", "/root/patches")...), "container etcd", "no-such-flag", "hint: ")
			install(t, second, 0, "join", "--config", "/root/join.yaml")
			files := hostState(t, second)
			contains(t, install(t, second, 0, joinPlane...), "Nothing was changed")
			same(t, files, hostState(t, second))
		}},
		{"the third joins with certificates by hand, after a kill", func(t *testing.T) {
			byHand := joinPlane[:len(joinPlane)-2]
			contains(t, install(t, third, 3, byHand...), "/etc/kubernetes/pki/ca.crt", "/etc/kubernetes/pki/sa.key",
				"/etc/kubernetes/pki/front-proxy-ca.crt", "/etc/kubernetes/pki/etcd/ca.crt", "--certificate-key")
			same(t, bare[third], untouched(t, third))
			carryCerts(t, first, third)
			// Kill join when etcd has the new member and the member has not started.
			run(t, third, "sh", "-c", site.Installer+" "+strings.Join(byHand, " ")+` >/dev/null 2>&1 &
				while kill -0 $! && ! test -e /etc/kubernetes/manifests/etcd.yaml; do sleep 0.02; done; kill -9 $!; wait; test -e /etc/kubernetes/manifests/etcd.yaml`)
			install(t, third, 0, byHand...)
			contains(t, install(t, third, 0, byHand...), "Nothing was changed")
		}},
		{"all three are control planes", func(t *testing.T) {
			systemIsUp(t, s, 3)
			voters(t, first, 3)
			for _, h := range s.Hosts {
				// The node controller removes the taint of a node that was not Ready a
				// moment after the node is Ready.
				eventually(t, time.Minute, func() string {
					nodes := kubectlAt(t, h, "get", "nodes", "-o", `jsonpath={range .items[*]}{.metadata.name} {.metadata.labels.node-role\.kubernetes\.io/control-plane}. {.spec.taints[*].key}{"\n"}{end}`)
					if strings.Count(nodes, " . node-role.kubernetes.io/control-plane\n") != 3 {
						return "seen from " + h.Name + ":\n" + nodes
					}
					return ""
				})
				// Since v1.33, the kubelet of a control plane uses the API server on its own
				// host (kubeadm's feature gate ControlPlaneKubeletLocalMode).
				server, minor := endpoint, 0
				if _, err := fmt.Sscanf(version, "v1.%d.", &minor); err != nil {
					t.Fatal(err)
				}
				if minor >= 33 {
					server = h.Addr.String()
				}
				contains(t, run(t, h, "cat", "/etc/kubernetes/kubelet.conf"), "server: https://"+server+":6443")
			}
		}},
		{"the first is cut off and the others serve", func(t *testing.T) {
			for range 5 { // the address shall be where the power is cut
				if h := holder(t, s.Hosts); h != first {
					install(t, h, 0, "endpoint", "handover")
				}
			}
			if err := first.PowerCut(t.Context()); err != nil {
				t.Fatal(err)
			}
			holder(t, s.Hosts[1:])
			eventually(t, time.Minute, func() string {
				if _, err := kubectlTry(t.Context(), second, "create", "configmap", "written", "--from-literal", "by=second"); err != nil {
					return err.Error()
				}
				return ""
			})
			eventually(t, 30*time.Second, func() string {
				got, err := kubectlTry(t.Context(), third, "get", "configmap", "written", "-o", "jsonpath={.data.by}")
				if err != nil || got != "second" {
					return fmt.Sprintf("%q %v", got, err)
				}
				return ""
			})
		}},
		{"it comes back", func(t *testing.T) {
			if err := first.Boot(t.Context()); err != nil {
				t.Fatal(err)
			}
			eventually(t, 3*time.Minute, func() string {
				got, err := kubectlTry(t.Context(), first, "get", "configmap", "written", "-o", "jsonpath={.data.by}")
				if err != nil || got != "second" {
					return fmt.Sprintf("%q %v", got, err)
				}
				out, err := etcdctl(t.Context(), first, "endpoint", "health", "--cluster")
				if err != nil || strings.Count(out, "is healthy") != 3 {
					return fmt.Sprintf("%s %v", out, err)
				}
				return ""
			})
			systemIsUp(t, s, 3)
		}},
		{"the member of a lost host is removed", func(t *testing.T) {
			contains(t, install(t, first, 2, "etcd", "member", "remove", "host9"), `"host9"`, first.Name, second.Name, third.Name)
			contains(t, install(t, first, 2, "etcd", "member", "remove", first.Name), "of this host", "/root/install reset")
			contains(t, install(t, first, 1, "etcd", "member", "remove", third.Name), "is healthy", "--force")
			voters(t, first, 3)
			if err := third.PowerCut(t.Context()); err != nil {
				t.Fatal(err)
			}
			id := regexp.MustCompile(`([0-9a-f]{16}) +` + third.Name + " ").FindStringSubmatch(install(t, first, 0, "etcd", "status"))
			if id == nil {
				t.Fatal("status shows no ID of the third member")
			}
			contains(t, install(t, first, 0, "etcd", "member", "remove", id[1]), "removed member "+third.Name, "/root/install node remove "+third.Name)
			contains(t, install(t, first, 2, "etcd", "member", "remove", id[1]), "no member")
			voters(t, first, 2)
			if err := third.Boot(t.Context()); err != nil {
				t.Fatal(err)
			}
			install(t, third, 0, "reset", "--force")
			kubectl(t, s, "delete", "node", third.Name) // its kubelet would create it again before the reset
			carryCerts(t, first, third)
			install(t, third, 0, joinPlane[:len(joinPlane)-2]...)
			voters(t, first, 3)
		}},
		{"reset of the third takes its member along", func(t *testing.T) {
			contains(t, install(t, third, 2, "reset"), "--yes")
			contains(t, answered(t, third, 0, "reset"), "removed member "+third.Name, "/root/install node remove "+third.Name, "left: /etc/kubernetes/pki/ca.key: ")
			run(t, third, "rm", "-r", "/etc/kubernetes") // the files from the manual copy above
			same(t, bare[third], untouched(t, third))
			voters(t, first, 2)
			kubectl(t, s, "delete", "node", third.Name)
		}},
		{"a reset that would end the cluster is refused", func(t *testing.T) {
			if err := first.PowerCut(t.Context()); err != nil {
				t.Fatal(err)
			}
			files := hostState(t, second)
			contains(t, answered(t, second, 3, "reset"), "etcd has no quorum", first.Name, "hint: ", "--force")
			same(t, files, hostState(t, second))
			contains(t, install(t, second, 0, "reset", "--force"), "warning: ")
			same(t, bare[second], untouched(t, second))
		}},
		{"no packet tried to leave", func(t *testing.T) {
			counts, err := s.Escapes(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("\n%s", counts)
			if counts.Escaped != 0 || counts.Inside == 0 {
				t.Errorf("%d packets tried to leave: %v", counts.Escaped, counts.Offenders)
			}
		}},
	}
	for _, step := range steps {
		if !t.Run(step.name, step.test) {
			diagnose(t, s)
			t.FailNow() // the following tests depend on it
		}
	}
}

// endpoint is the common name of the control planes. The test changes its address, as a
// virtual IP or a load balancer would.
const endpoint = "k8s.site.example"

func endpointAt(t *testing.T, on, at *lab.Host) {
	t.Helper()
	run(t, on, "sh", "-c", fmt.Sprintf("sed -i '/%s/d' /etc/hosts && echo '%s %s' >>/etc/hosts", endpoint, at.Addr, endpoint))
}

// carryCerts copies the shared certificates from one control plane to another, as documented.
func carryCerts(t *testing.T, from, to *lab.Host) {
	t.Helper()
	shared := "ca.crt ca.key sa.pub sa.key front-proxy-ca.crt front-proxy-ca.key etcd/ca.crt etcd/ca.key"
	tarball := run(t, from, "sh", "-c", "cd /etc/kubernetes/pki && tar c "+shared)
	if err := to.Exec(t.Context(), strings.NewReader(tarball), io.Discard, io.Discard, "sh", "-c", "mkdir -p /etc/kubernetes/pki && tar x -C /etc/kubernetes/pki"); err != nil {
		t.Fatal(err)
	}
}

func kubectlTry(ctx context.Context, h *lab.Host, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	return h.Output(ctx, append([]string{"kubectl", "--kubeconfig", "/etc/kubernetes/admin.conf"}, args...)...)
}

func kubectlAt(t *testing.T, h *lab.Host, args ...string) string {
	t.Helper()
	out, err := kubectlTry(t.Context(), h, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// etcdctl runs etcdctl in the etcd pod of a host.
func etcdctl(ctx context.Context, h *lab.Host, args ...string) (string, error) {
	const pki = "/etc/kubernetes/pki/etcd/"
	return kubectlTry(ctx, h, append([]string{"-n", "kube-system", "exec", "etcd-" + h.Name, "--",
		"etcdctl", "--cacert", pki + "ca.crt", "--cert", pki + "server.crt", "--key", pki + "server.key"}, args...)...)
}

// voters expects this number of etcd members, all started and no learner.
func voters(t *testing.T, h *lab.Host, want int) {
	t.Helper()
	eventually(t, time.Minute, func() string {
		out, err := etcdctl(t.Context(), h, "member", "list")
		if err != nil {
			return err.Error()
		}
		if strings.Count(out, "\n") != want || strings.Count(out, "started") != want || strings.Count(out, ", false\n") != want {
			return out
		}
		return ""
	})
}

// answered runs the installer and answers its question with yes.
func answered(t *testing.T, h *lab.Host, wantCode int, args ...string) string {
	t.Helper()
	var out strings.Builder
	err := h.Exec(t.Context(), strings.NewReader("y\n"), &out, &out, append([]string{site.Installer}, args...)...)
	t.Log(out.String())
	if code := exitCode(err); code != wantCode {
		t.Fatalf("%s: install %s: exit code %d, want %d", h.Name, strings.Join(args, " "), code, wantCode)
	}
	return out.String()
}
