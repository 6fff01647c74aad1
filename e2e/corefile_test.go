//go:build e2e

package e2e

import (
	"fmt"
	"strings"
	"testing"

	"airlift/scripts/lab"
)

// TestUpgradeCorefile upgrades a cluster whose Corefile has a plugin that CoreDNS knows and its
// migration does not: the plugin stays, and an upgrade that needs the migration reports it. An unknown
// plugin, with which no new CoreDNS starts, stops the upgrade, and undo leads back.
func TestUpgradeCorefile(t *testing.T) {
	s := up(t, lab.Options{Name: "e2e-corefile", Hosts: 1})
	h := s.Hosts[0]
	to := carryNewer(t, h)
	plugin := func(line string) {
		t.Helper()
		run(t, h, "sh", "-c", fmt.Sprintf(`export KUBECONFIG=/etc/kubernetes/admin.conf
			kubectl -n kube-system get configmap coredns -o json | sed -E 's/(\\n +)(chaos|nosuch)[^\\]*//; s/(\\n +)loop/\1%s\1loop/' | kubectl replace -f -`, line))
		contains(t, kubectl(t, s, "-n", "kube-system", "get", "configmap", "coredns", "-o", "jsonpath={.data.Corefile}"), line+"\n", "loop\n")
	}
	image := func() string {
		return kubectl(t, s, "-n", "kube-system", "get", "deployment", "coredns", "-o", "jsonpath={.spec.template.spec.containers[0].image}")
	}
	inOrder(t, s, []stage{
		{"a plugin that the migration does not know", func(t *testing.T) {
			install(t, h, 0, "init")
			systemIsUp(t, s, 1)
			before := image()
			plugin("chaos site")
			out := newer(t, h, 0, "upgrade", "apply", "--yes")
			if image() != before {
				contains(t, out, "the migration does not know parts of the Corefile", "chaos")
			}
			contains(t, kubectl(t, s, "-n", "kube-system", "get", "configmap", "coredns", "-o", "jsonpath={.data.Corefile}"), "chaos site\n")
			systemIsUp(t, s, 1)
			newer(t, h, 0, "upgrade", "undo", "--yes")
			systemIsUp(t, s, 1)
		}},
		{"a plugin that does not exist", func(t *testing.T) {
			plugin("nosuch")
			out, code := runNewer(t, h, "upgrade", "apply", "--yes")
			if code == 0 { // CoreDNS did not change, and still runs with the Corefile that it has read last
				contains(t, kubectl(t, s, "get", "nodes", "-o", "jsonpath={.items[*].status.nodeInfo.kubeletVersion}"), to)
			} else {
				contains(t, out, "coredns", "nosuch", "hint: ")
			}
			if !strings.Contains(kubectl(t, s, "-n", "kube-system", "get", "configmap", "coredns", "-o", "jsonpath={.data.Corefile}"), "nosuch\n") {
				t.Error("the user's Corefile was changed")
			}
			plugin("chaos site")
			newer(t, h, 0, "upgrade", "undo", "--yes")
			contains(t, kubectl(t, s, "get", "nodes", "-o", "jsonpath={.items[*].status.nodeInfo.kubeletVersion}"), version)
			systemIsUp(t, s, 1)
		}},
	})
}
