//go:build vm

package vm_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"airlift/images/release"
	"airlift/scripts/lab/site"
	"airlift/scripts/lab/vm"
)

// longLeases writes the configuration that init advises on hosts that are too slow for the leases of
// the controller manager and the scheduler. An emulated control plane can be: its controller manager
// exited again and again, and did not sign the certificate of the second node.
const longLeases = `cat >/root/leases.yaml <<EOF
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
controllerManager:
  extraArgs:
  - {name: leader-elect-lease-duration, value: 60s}
  - {name: leader-elect-renew-deadline, value: 45s}
scheduler:
  extraArgs:
  - {name: leader-elect-lease-duration, value: 60s}
  - {name: leader-elect-renew-deadline, value: 45s}
EOF`

// TestNetworkPolicy installs a bundle with the add-on network-policy on two machines. Their kernel
// is Debian's, which can send packets to a process (NFT_QUEUE); the lab's may not. A NetworkPolicy
// denies and allows traffic between pods of both machines, and reset leaves nothing of it.
func TestNetworkPolicy(t *testing.T) {
	version, err := site.KubernetesVersion(*bundlePath)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "install")
	build := exec.CommandContext(t.Context(), "go", "run", "./scripts/buildbundle", "--version", version, "--compression", "fastest", "--output", path,
		"--addon", release.NetworkPolicy)
	build.Dir, build.Stdout, build.Stderr = "../../..", os.Stderr, os.Stderr
	if err := build.Run(); err != nil {
		t.Fatal(err)
	}
	a, b := machines(t, func(o *vm.Options) { o.Bundle = path })
	timed(t, "power on", func() error { return vm.PowerOnAll(t.Context(), a, b) })
	before := map[*vm.Machine]string{a: files(t, a), b: files(t, b)}
	run(t, a, "sh", "-ec", longLeases)
	install(t, b, joinArgs(t, install(t, a, "init", "--config", "/root/leases.yaml"))...)
	systemIsUp(t, a, 2)
	c := site.Cluster{Control: a, Nodes: 2, Slow: slow}
	pods, err := c.Deploy(t.Context(), version)
	if err != nil {
		t.Fatal(err)
	}
	timed(t, "policies", func() error { return c.CheckPolicies(t.Context(), pods[0], pods[1], t.Logf) })
	for _, m := range []*vm.Machine{a, b} {
		if n := queueRules(t, m); n == "0" {
			t.Errorf("%s: no rule sends packets to a process", m.Name)
		}
	}
	for _, m := range []*vm.Machine{b, a} {
		install(t, m, "reset", "--force")
		if n := queueRules(t, m); n != "0" {
			t.Errorf("%s: %s rules are left", m.Name, n)
		}
		same(t, before[m], files(t, m))
	}
}

// queueRules returns how many rules use the kernel module that sends packets to a process.
func queueRules(t *testing.T, m *vm.Machine) string {
	t.Helper()
	for line := range strings.Lines(run(t, m, "cat", "/proc/modules")) {
		if f := strings.Fields(line); f[0] == "nft_queue" {
			t.Logf("%s: %s", m.Name, strings.TrimSpace(line))
			return f[2]
		}
	}
	return "0"
}
