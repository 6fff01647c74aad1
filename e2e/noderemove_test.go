//go:build e2e

package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"airlift/scripts/lab"
)

// TestNodeRemove removes a lost control plane, a living one and a worker from the cluster. Each host
// comes back, does no harm, and joins again under its name.
func TestNodeRemove(t *testing.T) {
	s := up(t, lab.Options{Name: "e2e-remove", Hosts: 4})
	first, second, third, worker := s.Hosts[0], s.Hosts[1], s.Hosts[2], s.Hosts[3]
	var join, joinWorker []string
	joins := func(t *testing.T, h *lab.Host, args []string) {
		endpointAt(t, h, first)
		install(t, h, 0, args...)
		if h != worker {
			endpointAt(t, h, h)
		}
	}
	returns := func(t *testing.T, h *lab.Host) {
		if err := h.PowerCut(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := h.Boot(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	inOrder(t, s, []stage{
		{"three control planes and a worker", func(t *testing.T) {
			join = joinPlanes(t, s.Hosts[:3])
			joinWorker = join[:len(join)-3]
			joins(t, worker, joinWorker)
			systemIsUp(t, s, 4)
			if _, err := s.Deploy(t.Context(), version); err != nil {
				t.Fatal(err)
			}
		}},
		{"what is refused changes nothing", func(t *testing.T) {
			contains(t, install(t, first, 2, "node", "remove", "host9"), `no node "host9"`, first.Name+", "+second.Name)
			contains(t, install(t, first, 2, "node", "remove", first.Name), "is this host", "/root/install reset")
			contains(t, install(t, first, 2, "node", "remove"), "hint: ")
			contains(t, install(t, worker, 1, "node", "remove", first.Name), "not a control plane", "hint: ")
			contains(t, install(t, first, 2, "node", "remove", third.Name), "--yes")
			contains(t, install(t, first, 0, "node", "remove", third.Name, "--dry-run"), third.Name+", control plane", "its kubelet answers, and the node is Ready",
				"2 voting members left, 2 healthy, 2 needed", "2 control planes ("+first.Name+", "+second.Name+") and 1 worker", "Nothing was changed")
			voters(t, first, 3)
			systemIsUp(t, s, 4)
		}},
		{"a control plane without power", func(t *testing.T) {
			if err := third.PowerCut(t.Context()); err != nil {
				t.Fatal(err)
			}
			contains(t, answered(t, first, 0, "node", "remove", third.Name), "does not answer", "Make sure that the host is off", "[y/N]",
				"not drained", "removed member "+third.Name, "deleted node "+third.Name, "./install reset --force")
			voters(t, first, 2)
			announced(t, first, first, second)
			removed(t, first, third)
			contains(t, install(t, first, 2, "node", "remove", third.Name), "no node")
		}},
		{"it comes back", func(t *testing.T) {
			if err := third.Boot(t.Context()); err != nil {
				t.Fatal(err)
			}
			harmless(t, first, third, first, second)
		}},
		{"it joins under its name", func(t *testing.T) {
			install(t, third, 0, "reset", "--force")
			if registered(t, first, third) {
				install(t, first, 0, "node", "remove", third.Name, "--yes")
			}
			joins(t, third, join)
			voters(t, first, 3)
			announced(t, first, first, second, third)
			systemIsUp(t, s, 4)
		}},
		{"a control plane that runs", func(t *testing.T) {
			contains(t, install(t, third, 0, "node", "remove", second.Name, "--yes"), "its kubelet answers", "moving default/hello-", "removed member "+second.Name, "deleted node "+second.Name)
			voters(t, first, 2)
			announced(t, first, first, third)
			removed(t, first, second)
			harmless(t, first, second, first, third)
			returns(t, second)
			harmless(t, first, second, first, third)
			install(t, second, 0, "reset", "--force")
		}},
		{"a worker", func(t *testing.T) {
			contains(t, install(t, third, 0, "node", "remove", worker.Name, "--yes"), worker.Name+", worker", "moving default/hello-", "deleted node "+worker.Name)
			removed(t, first, worker)
			// As documented, its kubelet registers the node again.
			returns(t, worker)
			eventually(t, 2*time.Minute, func() string {
				if registered(t, first, worker) {
					return ""
				}
				return "the worker has not registered again"
			})
			contains(t, kubectlAt(t, first, "get", "node", worker.Name), "<none>")
			if err := worker.PowerCut(t.Context()); err != nil {
				t.Fatal(err)
			}
			contains(t, install(t, first, 0, "node", "remove", worker.Name, "--yes"), "does not answer")
			removed(t, first, worker)
			if err := worker.Boot(t.Context()); err != nil {
				t.Fatal(err)
			}
			install(t, worker, 0, "reset", "--force")
			if registered(t, first, worker) {
				install(t, first, 0, "node", "remove", worker.Name, "--yes")
			}
			joins(t, worker, joinWorker)
			systemIsUp(t, s, 3)
		}},
		{"one of two without power is refused, one that runs is not", func(t *testing.T) {
			if err := third.PowerCut(t.Context()); err != nil {
				t.Fatal(err)
			}
			contains(t, install(t, first, 1, "node", "remove", third.Name, "--yes"), "of its 2 voting members are healthy, 2 are needed", "hint: ") // 1 or 0: without the other one, it soon has no leader
			if err := third.Boot(t.Context()); err != nil {
				t.Fatal(err)
			}
			voters(t, first, 2)
			systemIsUp(t, s, 3)
			contains(t, install(t, first, 0, "node", "remove", third.Name, "--yes"), "1 control plane ("+first.Name+")", "removed member "+third.Name)
			voters(t, first, 1)
			announced(t, first, first)
			harmless(t, first, third, first)
		}},
	})
}

// announced waits until the Service kubernetes has the API servers of exactly these hosts.
func announced(t *testing.T, at *lab.Host, hosts ...*lab.Host) {
	t.Helper()
	eventually(t, time.Minute, func() string { return announcedNow(t, at, hosts...) })
}

func announcedNow(t *testing.T, at *lab.Host, hosts ...*lab.Host) string {
	out, err := kubectlTry(t.Context(), at, "get", "endpointslices", "-l", "kubernetes.io/service-name=kubernetes", "-o", "jsonpath={.items[*].endpoints[*].addresses[*]}")
	var want []string
	for _, h := range hosts {
		want = append(want, h.Addr.String())
	}
	got := strings.Fields(out)
	slices.Sort(got)
	slices.Sort(want)
	if err != nil || !slices.Equal(got, want) {
		return fmt.Sprintf("the Service kubernetes has %v, want %v: %v", got, want, err)
	}
	return ""
}

func registered(t *testing.T, at, h *lab.Host) bool {
	return kubectlAt(t, at, "get", "node", h.Name, "--ignore-not-found", "-o", "name") != ""
}

// removed waits until no object of a node is left.
func removed(t *testing.T, at, h *lab.Host) {
	t.Helper()
	began := time.Now()
	eventually(t, 3*time.Minute, func() string {
		out, err := kubectlTry(t.Context(), at, "get", "nodes,csinodes", "-o", "name")
		leases, leaseErr := kubectlTry(t.Context(), at, "-n", "kube-node-lease", "get", "leases", "-o", "name")
		pods, podErr := kubectlTry(t.Context(), at, "get", "pods", "-A", "-o", "name", "--field-selector", "spec.nodeName="+h.Name)
		if all := out + leases; err != nil || leaseErr != nil || podErr != nil || strings.Contains(all, "/"+h.Name+"\n") || pods != "" {
			return fmt.Sprintf("left of %s: %s%s %v %v %v", h.Name, all, pods, err, leaseErr, podErr)
		}
		return ""
	})
	t.Logf("nothing is left of %s %s after the command", h.Name, time.Since(began).Round(time.Second))
}

// harmless watches the cluster for a minute while a removed control plane runs: etcd and the API have the
// members that stay, which answer, and the host's API server does not.
func harmless(t *testing.T, at, back *lab.Host, stay ...*lab.Host) {
	t.Helper()
	eventually(t, 2*time.Minute, func() string {
		if _, err := back.Output(t.Context(), "sh", "-c", "grep -rqs 'permanently removed\\|removed from the cluster' /var/log/pods/*etcd-*"); err != nil {
			return "etcd on " + back.Name + " has not ended"
		}
		return ""
	})
	for until := time.Now().Add(time.Minute); time.Now().Before(until); time.Sleep(5 * time.Second) {
		if state := announcedNow(t, at, stay...); state != "" {
			t.Error(state)
		}
		if out, err := at.Output(t.Context(), "curl", "-sk", "--max-time", "5", "https://"+back.Addr.String()+":6443/readyz"); err == nil && out == "ok" {
			t.Errorf("the API server of %s is ready", back.Name)
		}
		if registered(t, at, back) {
			if labels := kubectlAt(t, at, "get", "node", back.Name, "--show-labels"); strings.Contains(labels, "node-role.kubernetes.io/control-plane") {
				t.Errorf("it is a control plane again: %s", labels)
			}
		}
	}
	t.Logf("%s is registered: %t", back.Name, registered(t, at, back))
	voters(t, at, len(stay))
}
