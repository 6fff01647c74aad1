//go:build e2e

package e2e

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"airlift/scripts/lab"
	"airlift/scripts/lab/site"
)

// TestEndpointChange: a cluster that began with one control plane and no endpoint gets an address and a balancer, and then
// a second and a third control plane, under a client that loses no request; and goes back to what it was.
func TestEndpointChange(t *testing.T) {
	s := up(t, lab.Options{Name: "e2e-change", Hosts: 4, Virtual: []netip.Addr{netip.MustParseAddr(virtual)}})
	first, second, third, worker := s.Hosts[0], s.Hosts[1], s.Hosts[2], s.Hosts[3]
	var own, vip *probe
	stop := func() {}
	watch := func(ctx context.Context, address string) *probe { return startProbe(ctx, worker, address) }
	lossless := func(t *testing.T, name string, p *probe) {
		<-p.done
		t.Logf("%s: %d of %d requests failed, longest time without an answer %s", name, p.failed, p.sent, p.longest.Round(10*time.Millisecond))
		if p.failed > 0 || p.sent == 0 {
			t.Errorf("%s: %d of %d requests failed", name, p.failed, p.sent)
		}
	}
	var before string
	join := func(t *testing.T, args ...string) []string {
		t.Helper()
		out := install(t, first, 0, append([]string{"token", "create", "--print-join-command"}, args...)...)
		m := regexp.MustCompile(`(?m)\./install (join .*)$`).FindStringSubmatch(out)
		if m == nil {
			t.Fatal("no join command")
		}
		return strings.Fields(m[1])
	}
	inOrder(t, s, []stage{
		{"one control plane and a worker", func(t *testing.T) {
			install(t, first, 0, "init")
			install(t, worker, 0, join(t)...)
			systemIsUp(t, s, 2)
			before = clusterFiles(t, first)
		}},
		{"what is refused changes nothing", func(t *testing.T) {
			files := hostState(t, first)
			contains(t, install(t, second, 3, append(join(t), "--control-plane")...), "endpoint apply --control-plane-vip")
			contains(t, install(t, first, 2, "endpoint", "apply"), "no endpoint was given", "hint: ")
			contains(t, install(t, first, 2, "endpoint", "apply", "--control-plane-vip", worker.Addr.String()), worker.Name, "hint: ")
			contains(t, install(t, first, 2, "endpoint", "apply", "--control-plane-vip", "10.96.0.9"), "10.96.0.9", "Service")
			contains(t, install(t, first, 3, "endpoint", "apply", "--control-plane-vip", "192.0.2.1"), "192.0.2.1", "ControlPlaneVIP")
			contains(t, install(t, first, 3, "endpoint", "undo"), "was not changed")
			contains(t, install(t, worker, 3, "endpoint", "node"), "was not changed")
			contains(t, install(t, worker, 3, "endpoint", "apply", "--control-plane-vip", virtual), "worker")
			contains(t, install(t, first, 0, "endpoint", "apply", "--control-plane-vip", virtual, "--dry-run"), virtual, "Nothing was changed")
			same(t, files, hostState(t, first))
			same(t, before, clusterFiles(t, first))
		}},
		{"an address and a balancer", func(t *testing.T) {
			var ctx context.Context
			ctx, stop = context.WithCancel(t.Context())
			own = watch(ctx, first.Addr.String()+":6443")
			vips := []string{"endpoint", "apply", "--control-plane-vip", virtual, "--control-plane-balancer"}
			for step := 1; step <= 8; step++ {
				killed(t, first, step, vips...)
			}
			out := install(t, first, 0, vips...)
			contains(t, out, worker.Name, "endpoint node")
			vip = watch(ctx, virtual+":6443")
			for step := 1; step <= 4; step++ {
				killed(t, worker, step, "endpoint", "node")
			}
			contains(t, install(t, worker, 0, "endpoint", "node"), "follows the change")
			contains(t, install(t, first, 0, "endpoint", "node"), "All nodes reach the API at https://"+virtual+":6443")
			for _, h := range []*lab.Host{first, worker} {
				contains(t, run(t, h, "cat", "/etc/kubernetes/kubelet.conf"), "server: https://"+balancer)
				contains(t, install(t, h, 0, "endpoint", "status"), balancer, "ready")
			}
			contains(t, run(t, first, "cat", "/etc/kubernetes/admin.conf"), "server: https://"+virtual+":6443")
			contains(t, clusterFiles(t, first), "controlPlaneEndpoint: "+virtual+":6443", "server: https://"+balancer, "server: https://"+virtual+":6443")
			systemIsUp(t, s, 2)
			for _, h := range []*lab.Host{first, worker} {
				files := hostState(t, h)
				install(t, h, 0, "endpoint", "node")
				same(t, files, hostState(t, h))
			}
			files, objects := hostState(t, first), clusterFiles(t, first)
			install(t, first, 0, "endpoint", "apply", "--control-plane-vip", virtual, "--control-plane-balancer")
			same(t, files, hostState(t, first))
			same(t, objects, clusterFiles(t, first))
		}},
		{"a second and a third control plane", func(t *testing.T) {
			key := strings.TrimSpace(install(t, first, 0, "certs", "certificate-key"))
			install(t, first, 0, "init", "phase", "upload-certs", "--upload-certs", "--certificate-key", key)
			args := append(join(t), "--control-plane", "--certificate-key", key)
			if !strings.Contains(strings.Join(args, " "), virtual+":6443") {
				t.Errorf("%q does not name the endpoint", args)
			}
			install(t, second, 0, args...)
			install(t, third, 0, args...)
			stop()
			lossless(t, "the first API server", own)
			lossless(t, "the virtual address", vip)
			systemIsUp(t, s, 4)
			holder(t, s.Hosts[:3])
			contains(t, install(t, first, 3, "endpoint", "undo"), "and it has 3", "node remove")
			contains(t, install(t, first, 0, "endpoint", "node"), "All nodes reach the API")
		}},
		{"the first one is off", func(t *testing.T) {
			if err := first.PowerCut(t.Context()); err != nil {
				t.Fatal(err)
			}
			ctx, end := context.WithTimeout(t.Context(), 20*time.Second)
			defer end()
			for _, address := range []string{balancer, virtual + ":6443"} {
				p := watch(ctx, address)
				defer func() {
					<-p.done
					t.Logf("%s: %d of %d requests failed, longest time without an answer %s", address, p.failed, p.sent, p.longest.Round(10*time.Millisecond))
					if p.longest > 15*time.Second {
						t.Errorf("%s was away for %s", address, p.longest)
					}
				}()
			}
			<-ctx.Done()
			if err := first.Boot(t.Context()); err != nil {
				t.Fatal(err)
			}
			systemIsUp(t, s, 4)
		}},
		{"back to one", func(t *testing.T) {
			for _, h := range []*lab.Host{second, third} {
				install(t, first, 0, "node", "remove", h.Name, "--yes")
				install(t, h, 0, "reset", "--force")
			}
			for step := 1; step <= 7; step++ {
				killed(t, first, step, "endpoint", "undo")
			}
			contains(t, install(t, first, 0, "endpoint", "undo"), worker.Name, "endpoint node")
			contains(t, install(t, worker, 0, "endpoint", "node"), "follows the change")
			contains(t, install(t, first, 0, "endpoint", "node"), "is undone")
			systemIsUp(t, s, 2)
			same(t, before, clusterFiles(t, first))
			for _, h := range []*lab.Host{first, worker} {
				if out, err := h.Output(t.Context(), "sh", "-c", "systemctl is-active airlift-endpoint; systemctl is-enabled airlift-endpoint; ls /etc/kubernetes/endpoint.yaml /etc/systemd/system/airlift-endpoint.service"); err == nil || strings.Contains(out, "\nenabled") || strings.HasPrefix(out, "active") {
					t.Errorf("%s still has the service: %s", h.Name, out)
				}
				if kubeconfig := run(t, h, "cat", "/etc/kubernetes/kubelet.conf"); !strings.Contains(kubeconfig, "server: https://"+first.Addr.String()+":6443") {
					t.Errorf("%s: %s", h.Name, kubeconfig)
				}
			}
			if out := run(t, first, "ip", "-o", "addr", "show"); strings.Contains(out, virtual) {
				t.Errorf("the address is still there: %s", out)
			}
			files := hostState(t, first)
			contains(t, install(t, first, 0, "endpoint", "undo"), "is undone")
			same(t, files, hostState(t, first))
		}},
	})
}

// killed kills the installer when it has begun a step, counted from 1. It may have finished before.
func killed(t *testing.T, h *lab.Host, step int, args ...string) {
	t.Helper()
	run(t, h, "sh", "-c", fmt.Sprintf(`%s %s >/root/killed.log 2>&1 &
		while kill -0 $! 2>/dev/null && ! grep -q '^\[ *%d/' /root/killed.log; do sleep 0.01; done; kill -9 $!; wait; tail -n 3 /root/killed.log`,
		site.Installer, strings.Join(args, " "), step))
}

// clusterFiles is every place in which a cluster of kubeadm stores its endpoint, and the names of the API server's
// certificate.
func clusterFiles(t *testing.T, h *lab.Host) string {
	t.Helper()
	return run(t, h, "sh", "-c", `export KUBECONFIG=/etc/kubernetes/admin.conf
		kubectl -n kube-system get configmap kubeadm-config -o jsonpath='{.data.ClusterConfiguration}'
		kubectl -n kube-system get configmap kube-proxy -o jsonpath='{.data.kubeconfig\.conf}'
		kubectl -n kube-system get configmap kube-proxy -o jsonpath='{.metadata.annotations}'
		kubectl -n kube-public get configmap cluster-info -o jsonpath='{.data.kubeconfig}'
		kubectl -n kube-flannel get daemonset kube-flannel-ds -o jsonpath='{.spec.template.spec.containers[0].env}'
		grep server: /etc/kubernetes/*.conf`) + servedNames(t, h)
}

// servedNames are the names in the certificate that an API server serves, one per line.
func servedNames(t *testing.T, h *lab.Host) string {
	t.Helper()
	conn, err := h.Dial(t.Context(), "tcp", h.Addr.String()+":6443")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	client := tls.Client(conn, &tls.Config{InsecureSkipVerify: true})
	if err := client.HandshakeContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	names := client.ConnectionState().PeerCertificates[0].DNSNames
	for _, ip := range client.ConnectionState().PeerCertificates[0].IPAddresses {
		names = append(names, ip.String())
	}
	slices.Sort(names)
	return "\n" + strings.Join(names, "\n") + "\n"
}
