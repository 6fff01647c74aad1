//go:build e2e

package e2e

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"

	"airlift/scripts/lab"
	"airlift/scripts/lab/site"
)

// rotationKey returns the key that the stage distribute prints for other control planes.
func rotationKey(t *testing.T, output string) string {
	t.Helper()
	m := regexp.MustCompile(`rotate-ca distribute --certificate-key ([0-9a-f]{64})\n`).FindStringSubmatch(output)
	if m == nil {
		t.Fatalf("no key in\n%s", output)
	}
	return m[1]
}

// TestRotateCA replaces the CAs of three control planes and a worker while a workload answers.
func TestRotateCA(t *testing.T) {
	s := up(t, lab.Options{Name: "e2e-rotateca", Hosts: 4})
	u := &upgraded{Site: s, control: s.Hosts[0], worker: s.Hosts[3], hosts: s.Hosts, planes: 3}
	first, second, third, worker := s.Hosts[0], s.Hosts[1], s.Hosts[2], s.Hosts[3]
	planes := s.Hosts[:u.planes]
	rotate := func(t *testing.T, h *lab.Host, wantCode int, args ...string) string {
		t.Helper()
		return install(t, h, wantCode, append([]string{"certs", "rotate-ca"}, args...)...)
	}
	const pki = "/etc/kubernetes/pki/"
	certs := func(h *lab.Host, file string) string { // the subject keys in a file, one line each
		return run(t, h, "sh", "-c", `awk '/BEGIN CERT/{n++} {print > "/tmp/ca-" n ".pem"}' `+file+` && for f in /tmp/ca-*.pem; do openssl x509 -in $f -noout -pubkey | sha256sum; done; rm /tmp/ca-*`)
	}
	// killed runs a stage until it is not killed any more.
	killed := func(t *testing.T, h *lab.Host, stage string) {
		runs := 0
		for seconds := 5; ; seconds += 12 {
			runs++
			_, err := h.Output(t.Context(), "timeout", "-s", "KILL", fmt.Sprint(seconds), site.Installer, "certs", "rotate-ca", stage)
			if err == nil {
				break
			}
			if code := exitCode(err); code != 137 && code != -1 {
				t.Fatalf("run %d: %v", runs, err)
			}
		}
		t.Logf("%s on %s: %d runs", stage, h.Name, runs)
	}
	state := func() string {
		return run(t, first, "sh", "-c", "cd /etc/kubernetes && sha256sum pki/*.crt pki/*.key pki/etcd/* manifests/* *.conf; ls -R pki")
	}
	var former, next, before string
	inOrder(t, s, []stage{
		{"a cluster", u.create},
		{"bad input changes nothing", func(t *testing.T) {
			before = state()
			contains(t, rotate(t, first, 3, "issue"), "no rotation of the CAs is in progress", "rotate-ca distribute")
			contains(t, rotate(t, worker, 3, "distribute"), "this host is a worker")
			contains(t, rotate(t, first, 3, "cancel"), "no rotation")
			contains(t, rotate(t, first, 0, "status"), "no rotation")
			run(t, first, "mv", pki+"etcd/ca.key", "/root/etcd-ca.key")
			contains(t, rotate(t, first, 1, "distribute"), "etcd/ca.crt", "managed externally")
			run(t, first, "mv", "/root/etcd-ca.key", pki+"etcd/ca.key")
			same(t, before, state())
		}},
		{"a rotation that is cancelled", func(t *testing.T) {
			rotate(t, first, 0, "distribute")
			contains(t, install(t, first, 3, "init"), "are being rotated", "rotate-ca status")
			contains(t, rotate(t, first, 0, "status"), "host1", "distribute", "host2", "host3", "host4")
			contains(t, rotate(t, first, 0, "cancel"), "The rotation is cancelled")
			same(t, before, state())
			contains(t, rotate(t, first, 0, "status"), "no rotation")
			run(t, first, "cp", "/etc/kubernetes/admin.conf", "/root/former.conf")
		}},
		{"distribute", func(t *testing.T) {
			former = certs(first, pki+"ca.crt")
			killed(t, first, "distribute")
			again := rotate(t, first, 0, "distribute")
			contains(t, again, "has reached this stage already", "host2", "host3", "host4")
			key := rotationKey(t, again)
			contains(t, rotate(t, first, 3, "issue"), `these nodes have not reached the stage "distribute": host2, host3, host4`)
			contains(t, rotate(t, second, 3, "distribute"), "needs the key", "--certificate-key")
			contains(t, rotate(t, second, 1, "distribute", "--certificate-key", strings.Repeat("ab", 32)), "decrypting", "--certificate-key")
			for _, h := range planes[1:] {
				rotate(t, h, 0, "distribute", "--certificate-key", key)
			}
			rotate(t, worker, 0, "distribute")
			for _, h := range s.Hosts {
				both := certs(h, pki+"ca.crt")
				if next = strings.TrimPrefix(both, former); next == both || next == "" {
					t.Fatalf("%s trusts\n%s", h.Name, both)
				}
			}
			for _, h := range planes[1:] {
				same(t, run(t, first, "cat", pki+"rotation/next/etcd/ca.key"), run(t, h, "cat", pki+"rotation/next/etcd/ca.key"))
			}
			contains(t, rotate(t, first, 0, "status"), "All nodes have reached it", "rotate-ca issue")
		}},
		{"issue", func(t *testing.T) {
			contains(t, rotate(t, worker, 3, "issue"), `the stage "issue" has not begun`)
			killed(t, first, "issue")
			contains(t, rotate(t, first, 3, "cancel"), "cannot be cancelled any more")
			contains(t, rotate(t, first, 3, "finish"), `these nodes have not reached the stage "issue"`)
			killed(t, second, "issue")
			rotate(t, third, 0, "issue")
			rotate(t, worker, 0, "issue")
			// Everything that is served or shown has the signature of the new CA.
			run(t, first, "sh", "-c", "cp "+pki+"rotation/next/ca.crt /root/next.crt; cp "+pki+"rotation/next/etcd/ca.crt /root/next-etcd.crt")
			for _, h := range planes {
				run(t, first, "sh", "-c", "openssl s_client -verify_return_error -CAfile /root/next.crt -connect "+h.Addr.String()+":6443 </dev/null")
				run(t, first, "sh", "-c", "openssl s_client -verify_return_error -CAfile /root/next-etcd.crt -cert "+pki+"etcd/healthcheck-client.crt -key "+pki+"etcd/healthcheck-client.key -connect "+h.Addr.String()+":2379 </dev/null")
				run(t, h, "sh", "-c", "openssl verify -CAfile "+pki+"rotation/next/ca.crt "+kubeletCert)
			}
			run(t, worker, "sh", "-c", "awk '/BEGIN/{n++} n==1' "+pki+"ca.crt >/root/next.crt; openssl verify -CAfile /root/next.crt "+kubeletCert)
		}},
		{"finish", func(t *testing.T) {
			killed(t, first, "finish")
			contains(t, rotate(t, first, 0, "finish"), "host2", "host3", "host4")
			rotate(t, worker, 0, "finish")
			rotate(t, third, 0, "finish")
			pods := func() (names []string) { // those that are not being deleted
				list := kubectl(t, s, "get", "pods", "-l", "app=steady", "-o", `jsonpath={range .items[*]}{.metadata.name} {.metadata.deletionTimestamp}{"\n"}{end}`)
				for _, line := range strings.Split(strings.TrimSpace(list), "\n") {
					if name, deleted, _ := strings.Cut(line, " "); deleted == "" {
						names = append(names, name)
					}
				}
				return names
			}
			running := pods()
			contains(t, rotate(t, second, 0, "finish", "--restart-workloads"), "The CAs are rotated")
			restarted := pods()
			if len(restarted) != len(running) || slices.ContainsFunc(restarted, func(pod string) bool { return slices.Contains(running, pod) }) {
				t.Errorf("the pods %q were not restarted: %q", running, restarted)
			}
			for _, h := range s.Hosts {
				same(t, next, certs(h, pki+"ca.crt"))
				run(t, h, "sh", "-c", "! ls "+pki+"rotation")
			}
			contains(t, rotate(t, first, 0, "status"), "no rotation")
			objects := kubectl(t, s, "get", "secrets,configmaps,roles,rolebindings,nodes", "-A", "-o", "yaml")
			if strings.Contains(objects, "airlift-ca-rotation") || strings.Contains(objects, "caRotation") {
				t.Error("objects of the rotation are left")
			}
			out, err := first.Output(t.Context(), "kubectl", "--kubeconfig", "/root/former.conf", "--insecure-skip-tls-verify", "get", "nodes")
			if err == nil {
				t.Errorf("a client certificate of the old CA is accepted:\n%s", out)
			}
			for name, field := range map[string]string{"kube-root-ca.crt": `ca\.crt`, "extension-apiserver-authentication": "client-ca-file"} {
				data := kubectl(t, s, "-n", "kube-system", "get", "configmap", name, "-o", "jsonpath={.data."+field+"}")
				same(t, strings.TrimSpace(run(t, first, "cat", pki+"ca.crt")), strings.TrimSpace(data))
			}
			systemIsUp(t, s, 4)
			voters(t, first, 3)
		}},
		{"every request was answered", u.answered},
		{"a new node joins", func(t *testing.T) {
			install(t, worker, 0, "reset", "--force")
			kubectl(t, s, "delete", "node", worker.Name)
			join := strings.Fields(install(t, first, 0, "token", "create", "--print-join-command"))
			install(t, worker, 0, join[slices.Index(join, "join"):]...)
			systemIsUp(t, s, 4)
			kubectl(t, s, "-n", "kube-system", "scale", "deployment/coredns", "--replicas=2") // as init makes it
			contains(t, install(t, first, 0, "init", "--control-plane-endpoint", endpoint+":6443", "-v", "1"), "Nothing was changed")
		}},
		{"control planes renew certificates in turns", func(t *testing.T) {
			for _, h := range planes {
				run(t, h, "sh", "-c", `printf '%s\n' 'apiVersion: kubeadm.k8s.io/v1beta4' 'kind: ClusterConfiguration' 'certificateValidityPeriod: 2000h' > /root/short.yaml`)
				install(t, h, 0, "certs", "renew", "scheduler.conf", "--config", "/root/short.yaml")
				install(t, h, 0, "certs", "auto")
			}
			var all errgroup.Group // the three nights begin at once
			for _, h := range planes {
				all.Go(func() error {
					_, err := h.Output(t.Context(), "systemctl", "start", "airlift-certs-renew.service")
					return err
				})
			}
			if err := all.Wait(); err != nil {
				t.Error(err)
			}
			waited := 0
			for _, h := range planes {
				log := run(t, h, "journalctl", "--unit", "airlift-certs-renew.service", "--no-pager", "--output", "cat")
				contains(t, log, "scheduler.conf renewed", "kube-scheduler restarted")
				if strings.Contains(log, "waiting: host") {
					waited++
				}
			}
			if waited != 2 {
				t.Errorf("%d of 3 control planes waited for another one, not 2", waited)
			}
			systemIsUp(t, s, 4)
		}},
		{"reset", func(t *testing.T) {
			for _, h := range []*lab.Host{worker, third, second, first} {
				install(t, h, 0, "reset", "--force")
				run(t, h, "sh", "-c", "! ls -d /etc/kubernetes")
			}
		}},
	})
}
