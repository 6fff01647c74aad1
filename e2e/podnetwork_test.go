//go:build e2e

package e2e

import (
	"os"
	"path/filepath"
	"testing"

	"airlift/scripts/lab"
	"airlift/scripts/lab/site"
)

// TestPodNetwork installs the example of docs/site.md on two hosts: a bundle with a pod network of the
// site's own. It connects pods of both hosts, and enforces policies between them.
func TestPodNetwork(t *testing.T) {
	s := up(t, lab.Options{Name: "e2e-podnetwork", Hosts: 2})
	control, worker := s.Hosts[0], s.Hosts[1]
	dir := t.TempDir() // bundle build writes a lock next to the file
	if err := os.CopyFS(dir, os.DirFS("../docs/kube-router")); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "install")
	out := buildBundle(t, path, "--addon-images", "--", "--file", filepath.Join(dir, "bundle.yaml"))
	contains(t, out, "every image that the workloads in kube-router name is in the bundle")
	before := map[*lab.Host]string{}
	for _, h := range s.Hosts {
		if _, err := h.CopyIn(t.Context(), path, site.Installer, 0o755); err != nil {
			t.Fatal(err)
		}
		before[h] = untouched(t, h)
	}
	inOrder(t, s, []stage{
		{"init and join", func(t *testing.T) {
			join, err := site.JoinArgs(install(t, control, 0, "init", "--pod-network-cidr", "10.244.0.0/16"))
			if err != nil {
				t.Fatal(err)
			}
			install(t, worker, 0, join...)
			systemIsUp(t, s, 2)
			contains(t, install(t, control, 0, "status"), "kube-router", "applied")
		}},
		{"policies between pods of both hosts are enforced", func(t *testing.T) {
			pods, err := s.Deploy(t.Context(), version)
			if err == nil {
				err = s.CheckPolicies(t.Context(), pods[0], pods[1], t.Logf)
			}
			if err == nil { // the other way
				err = s.CheckPolicies(t.Context(), pods[1], pods[0], t.Logf)
			}
			if err != nil {
				log, _ := s.Kubectl(t.Context(), "-n", "kube-system", "logs", "-l", "app=kube-router", "--prefix", "--tail", "40")
				t.Fatalf("%v\n%s", err, log)
			}
		}},
		{"reset leaves only the pod network", func(t *testing.T) {
			for _, h := range []*lab.Host{worker, control} {
				contains(t, install(t, h, 0, "reset", "--force"), "left: /etc/cni/net.d/10-kuberouter.conflist: Airlift did not create it")
				run(t, h, "sh", "-ec", `
					rm -r /etc/cni /var/lib/cni
					ip link delete kube-bridge
					ip route flush proto 17 # kube-router's routes to the other hosts
					iptables -F FORWARD; iptables -t nat -F POSTROUTING`)
				same(t, before[h], untouched(t, h))
			}
		}},
	})
}
