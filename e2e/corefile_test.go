//go:build e2e

package e2e

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"airlift/scripts/lab"
)

// TestUpgradeCorefile upgrades a cluster whose Corefile has a plugin that the migration of CoreDNS does
// not know, one that CoreDNS has and one that it does not have. If CoreDNS is replaced, the upgrade
// prints the plugin and keeps it; it does not wait for the new pods. If not, nothing is migrated: the
// pods run on with the Corefile that they could read last. Undo leads back.
func TestUpgradeCorefile(t *testing.T) {
	s := up(t, lab.Options{Name: "e2e-corefile", Hosts: 1})
	h := s.Hosts[0]
	to := carryNewer(t, h)
	corefile := func() string {
		return kubectl(t, s, "-n", "kube-system", "get", "configmap", "coredns", "-o", "jsonpath={.data.Corefile}")
	}
	plugin := func(t *testing.T, line string) {
		t.Helper()
		run(t, h, "sh", "-c", fmt.Sprintf(`export KUBECONFIG=/etc/kubernetes/admin.conf
			kubectl -n kube-system get configmap coredns -o json | sed -E 's/(\\n +)(chaos|nosuch)[^\\]*//; s/(\\n +)loop/\1%s\1loop/' | kubectl replace -f -`, line))
		contains(t, corefile(), line+"\n", "loop\n")
	}
	image := func() string {
		return kubectl(t, s, "-n", "kube-system", "get", "deployment", "coredns", "-o", "jsonpath={.spec.template.spec.containers[0].image}")
	}
	kubelet := func() string {
		return kubectl(t, s, "get", "nodes", "-o", "jsonpath={.items[*].status.nodeInfo.kubeletVersion}")
	}
	const unknown = "the migration does not know parts of the Corefile, which are not changed: Plugin \"%s\""
	var older string
	inOrder(t, s, []stage{
		{"a cluster with an older CoreDNS", func(t *testing.T) {
			install(t, h, 0, "init")
			systemIsUp(t, s, 1)
			repository, _, _ := strings.Cut(image(), ":")
			older = repository + ":v1.11.0" // by name: then each upgrade replaces it
			run(t, h, "ctr", "-n", "k8s.io", "images", "tag", image(), older)
			kubectl(t, s, "-n", "kube-system", "set", "image", "deployment/coredns", "coredns="+older)
			systemIsUp(t, s, 1)
		}},
		{"a plugin that the migration does not know", func(t *testing.T) {
			plugin(t, "chaos site")
			contains(t, newer(t, h, 0, "upgrade", "apply", "--yes"), fmt.Sprintf(unknown, "chaos"))
			if image() == older {
				t.Error("CoreDNS was not replaced")
			}
			contains(t, corefile(), "chaos site\n")
			systemIsUp(t, s, 1)
		}},
		{"a plugin that does not exist, and CoreDNS stays", func(t *testing.T) {
			plugin(t, "nosuch")
			if out := newer(t, h, 0, "upgrade", "apply", "--yes"); strings.Contains(out, "Corefile") {
				t.Errorf("a Corefile was migrated for the same CoreDNS:\n%s", out)
			}
			contains(t, corefile(), "nosuch\n")
			systemIsUp(t, s, 1)
		}},
		{"undo", func(t *testing.T) {
			newer(t, h, 0, "upgrade", "undo", "--yes")
			same(t, older, image())
			same(t, version, kubelet())
			contains(t, corefile(), "chaos site\n")
			systemIsUp(t, s, 1)
		}},
		{"a plugin that does not exist, and CoreDNS is replaced", func(t *testing.T) {
			plugin(t, "nosuch")
			contains(t, newer(t, h, 0, "upgrade", "apply", "--yes"), fmt.Sprintf(unknown, "nosuch"))
			contains(t, corefile(), "nosuch\n")
			same(t, to, kubelet())
			eventually(t, 2*time.Minute, func() string { // at least one of the former pods stays
				out := kubectl(t, s, "-n", "kube-system", "get", "pods", "-l", "k8s-app=kube-dns", "-o", `jsonpath={range .items[*]}{.spec.containers[0].image} {.status.containerStatuses[0].ready} {.status.containerStatuses[0].restartCount}{"\n"}{end}`)
				if !strings.Contains(out, older+" true ") || !regexp.MustCompile(regexp.QuoteMeta(image())+` false [1-9]`).MatchString(out) {
					return out
				}
				return ""
			})
		}},
		{"undo, then the Corefile is corrected", func(t *testing.T) {
			newer(t, h, 0, "upgrade", "undo", "--yes")
			same(t, older, image())
			same(t, version, kubelet())
			contains(t, corefile(), "nosuch\n") // the Corefile from before the upgrade
			plugin(t, "chaos site")
			kubectl(t, s, "-n", "kube-system", "rollout", "restart", "deployment/coredns") // without the kubelet's back-off
			systemIsUp(t, s, 1)
		}},
	})
}
