//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"airlift/scripts/lab"
	"airlift/scripts/lab/site"
)

// TestCluster installs a cluster on two fresh hosts, does everything that an operator does with
// it, and resets the hosts.
func TestCluster(t *testing.T) {
	s := up(t, lab.Options{Name: "e2e-cluster", Hosts: 2})
	control, worker := s.Hosts[0], s.Hosts[1]
	bare := map[*lab.Host]string{control: untouched(t, control), worker: untouched(t, worker)}

	var join []string
	var pods []site.Pod
	steps := []struct {
		name string
		test func(t *testing.T)
	}{
		{"init", func(t *testing.T) {
			out := install(t, control, 0, "init", "--timeline", timelineFile)
			var err error
			if join, err = site.JoinArgs(out); err != nil {
				t.Fatal(err)
			}
			contains(t, out, "waited for")
			timelineTells(t, control, out, []string{"etcd", "kube-apiserver", "kube-proxy", "coredns"}, join[3], strings.Split(join[3], ".")[1], "PRIVATE KEY")
			systemIsUp(t, s, 1)
		}},
		{"init again changes nothing", func(t *testing.T) {
			allControllersWork(t, control)
			before := footprint(t, s)
			started := time.Now()
			out := install(t, control, 0, "init")
			t.Logf("second init took %s", time.Since(started).Round(10*time.Millisecond))
			contains(t, out, "Nothing was changed")
			same(t, before, footprint(t, s))
			if again, err := site.JoinArgs(out); err != nil || strings.Join(again, " ") != strings.Join(join, " ") {
				t.Errorf("join command %q, want %q (%v)", again, join, err)
			}
		}},
		{"init again with other settings is refused", func(t *testing.T) {
			before := footprint(t, s)
			contains(t, install(t, control, 3, "init", "--pod-network-cidr", "10.60.0.0/16"), "10.244.0.0/16", "10.60.0.0/16", "hint: ")
			same(t, before, footprint(t, s))
		}},
		{"init with another bundle is refused", func(t *testing.T) {
			carryOther(t, control, worker)
			refusesOther(t, control, "init")
			refusesOther(t, control, "init", "phase", "control-plane", "all")
			run(t, control, otherBundle, "token", "list") // it does not need this bundle
		}},
		{"join with a wrong token", func(t *testing.T) {
			wrong := append([]string{}, join...)
			wrong[3] = "abcdef.0123456789abcdef"
			contains(t, install(t, worker, 1, wrong...), "the cluster has no token", "hint: ", "token create")
			wrong[3] = strings.Split(join[3], ".")[0] + ".0123456789abcdef"
			contains(t, install(t, worker, 1, wrong...), "hint: ")
			same(t, bare[worker], untouched(t, worker))
		}},
		{"join with a wrong CA hash", func(t *testing.T) {
			wrong := append([]string{}, join...)
			wrong[5] = "sha256:" + strings.Repeat("0", 64)
			contains(t, install(t, worker, 1, wrong...), wrong[5], join[5], "hint: ")
			same(t, bare[worker], untouched(t, worker))
		}},
		{"join with an expired token", func(t *testing.T) {
			out := install(t, control, 0, "token", "create", "--ttl", "3s", "--print-join-command")
			expired, err := site.JoinArgs(out)
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(4 * time.Second)
			contains(t, install(t, worker, 1, expired...), "token", "expired", "hint: ")
			same(t, bare[worker], untouched(t, worker))
		}},
		{"join an unreachable host", func(t *testing.T) {
			gone := append([]string{}, join...)
			// No listener; no route; no DNS name.
			for _, address := range []string{worker.Addr.String() + ":6443", "192.0.2.1:6443", "no-such-host.invalid:6443"} {
				gone[1] = address
				contains(t, install(t, worker, 1, append(gone, "--discovery-timeout", "3s")...), strings.TrimSuffix(address, ":6443"), "hint: ")
			}
			same(t, bare[worker], untouched(t, worker))
		}},
		{"join under a name that is taken", func(t *testing.T) {
			contains(t, install(t, worker, 1, append(join[:len(join):len(join)], "--node-name", control.Name)...), control.Name, "hint: ")
			same(t, bare[worker], untouched(t, worker))
		}},
		{"join", func(t *testing.T) {
			out := install(t, worker, 0, append(join[:len(join):len(join)], "--timeline", timelineFile)...)
			timelineTells(t, worker, out, []string{"pause", "kube-proxy"}, join[3], strings.Split(join[3], ".")[1])
			if ready := kubectl(t, s, "get", "node", worker.Name, "-o", `jsonpath={.status.conditions[?(@.type=="Ready")].status}`); ready != "True" {
				t.Errorf("%s: Ready is %q when join returns", worker.Name, ready)
			}
			contains(t, run(t, worker, "cat", "/etc/kubernetes/kubelet.conf"), "server: https://"+join[1])
			run(t, worker, "sh", "-c", "test ! -e /usr/local/bin/kubectl")
			if images := run(t, worker, "ctr", "-n", "k8s.io", "images", "ls", "-q"); strings.Contains(images, "/etcd:") || strings.Contains(images, "/kube-apiserver:") || !strings.Contains(images, "/kube-proxy:") {
				t.Errorf("a worker's images:\n%s", images)
			}
			systemIsUp(t, s, 2)
		}},
		{"a node of one kind does not become the other", func(t *testing.T) {
			before := hostState(t, worker)
			contains(t, install(t, worker, 3, "init"), "a worker already", "reset")
			same(t, before, hostState(t, worker))
			before = hostState(t, control)
			contains(t, install(t, control, 3, join...), "a control plane already", "reset")
			same(t, before, hostState(t, control))
		}},
		{"join with another bundle is refused", func(t *testing.T) {
			refusesOther(t, worker, join...)
			run(t, worker, "rm", otherBundle)
			run(t, control, "rm", otherBundle)
		}},
		{"join again changes nothing", func(t *testing.T) {
			before := hostState(t, worker)
			contains(t, install(t, worker, 0, join...), "Nothing was changed")
			same(t, before, hostState(t, worker))
		}},
		{"the command airlift", func(t *testing.T) {
			for _, h := range s.Hosts {
				contains(t, run(t, h, "airlift", "status"), "node "+h.Name, "none of this file missing")
				run(t, h, "mv", "/root/install", "/root/away")
				contains(t, run(t, h, "airlift", "status"), "node "+h.Name)
				contains(t, run(t, h, "sh", "-c", "! airlift images list 2>&1"), "without a payload", "copy the file of Kubernetes "+version, "it was /root/install")
				run(t, h, "mv", "/root/away", "/root/install")
			}
		}},
		{"a Service answers across hosts by its DNS name", func(t *testing.T) {
			var err error
			if pods, err = s.Deploy(t.Context(), version); err != nil {
				t.Fatal(err)
			}
			answersAcrossHosts(t, s, pods)
		}},
		{"host processes reach Services", func(t *testing.T) {
			ip := kubectl(t, s, "get", "service", "hello", "-o", "jsonpath={.spec.clusterIP}")
			for _, h := range s.Hosts {
				run(t, h, "curl", "--silent", "--fail", "--max-time", "10", "http://"+ip+"/hostname")
			}
		}},
		{"images are whole to containerd after its restart", func(t *testing.T) {
			for _, h := range s.Hosts {
				run(t, h, "systemctl", "restart", "containerd")
				out := run(t, h, "ctr", "-n", "k8s.io", "images", "check")
				t.Log("\n" + out)
				for line := range strings.Lines(out) {
					if strings.Contains(line, "registry.k8s.io/") && !strings.HasSuffix(strings.TrimSpace(line), "true") {
						t.Errorf("%s: not unpacked: %s", h.Name, line)
					}
				}
			}
			systemIsUp(t, s, 2)
		}},
		{"everything comes back after a reboot", func(t *testing.T) {
			rebooted := time.Now().UTC().Format(time.RFC3339)
			for _, h := range s.Hosts {
				if err := h.Reboot(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			// At first the API reports the pods as they were before.
			eventually(t, 3*time.Minute, func() string { return startedSince(t, s, rebooted) })
			systemIsUp(t, s, 2)
			eventually(t, time.Minute, func() string {
				pods, err := s.Pods(t.Context())
				if err != nil || len(pods) != len(s.Hosts) {
					return fmt.Sprintf("pods %v (%v)", pods, err)
				}
				answered, err := s.AskEach(t.Context(), pods, s.ServiceURL())
				for _, p := range pods {
					if err != nil || len(answered[p.Name]) != len(pods) {
						return fmt.Sprintf("%s heard from %v (%v)", p.Name, answered[p.Name], err)
					}
				}
				return ""
			})
		}},
		{"reset puts the hosts back", func(t *testing.T) {
			for _, h := range []*lab.Host{worker, control} {
				contains(t, install(t, h, 2, "reset"), "--yes")
				install(t, h, 0, "reset", "--force")
				same(t, bare[h], untouched(t, h))
			}
			install(t, worker, 0, "reset", "--force") // again, on a host without an installation
			same(t, bare[worker], untouched(t, worker))
		}},
		{"init and join again", func(t *testing.T) {
			out := install(t, control, 0, "init")
			again, err := site.JoinArgs(out)
			if err != nil {
				t.Fatal(err)
			}
			install(t, worker, 0, again...)
			systemIsUp(t, s, 2)
			pods, err := s.Deploy(t.Context(), version)
			if err != nil {
				t.Fatal(err)
			}
			answersAcrossHosts(t, s, pods)
		}},
		{"no packet tried to leave", func(t *testing.T) {
			counts, err := s.Escapes(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("\n%s", counts)
			if counts.Escaped != 0 {
				t.Errorf("%d packets tried to leave: %v", counts.Escaped, counts.Offenders)
			}
			if counts.Inside == 0 {
				t.Error("the counter saw no packet at all")
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

// startedSince names a container that was not started after the given time (RFC 3339, UTC),
// according to the API, or returns "".
func startedSince(t *testing.T, s *site.Site, moment string) string {
	t.Helper()
	out, err := s.Kubectl(t.Context(), "get", "pods", "-A", "-o",
		`jsonpath={range .items[*]}{.metadata.name} {.status.containerStatuses[0].state.running.startedAt}{"\n"}{end}`)
	if err != nil {
		return err.Error()
	}
	for line := range strings.Lines(out) {
		if f := strings.Fields(line); len(f) != 2 || f[1] < moment {
			return "not started again: " + strings.TrimSpace(line)
		}
	}
	return ""
}

// systemIsUp waits until every node and every system pod is Ready.
func systemIsUp(t *testing.T, s *site.Site, nodes int) {
	t.Helper()
	eventually(t, 3*time.Minute, func() string {
		out, err := s.Kubectl(t.Context(), "get", "nodes", "-o", `jsonpath={range .items[*]}{.status.conditions[?(@.type=="Ready")].status}{"\n"}{end}`)
		if err != nil {
			return err.Error()
		}
		if got := strings.Count(out, "True\n"); got != nodes {
			return "Ready nodes: " + strings.ReplaceAll(out, "\n", " ")
		}
		// Also wait for pods that do not exist yet.
		for _, want := range []string{"daemonset/kube-proxy", "deployment/coredns"} {
			if _, err := s.Kubectl(t.Context(), "-n", "kube-system", "rollout", "status", want, "--timeout", "1s"); err != nil {
				return err.Error()
			}
		}
		if out, err = s.Kubectl(t.Context(), "get", "pods", "-A", "--no-headers"); err != nil {
			return err.Error()
		}
		for line := range strings.Lines(out) {
			f := strings.Fields(line)
			if ready, want, _ := strings.Cut(f[2], "/"); ready != want || f[3] != "Running" {
				return strings.TrimSpace(line)
			}
		}
		return ""
	})
}

// answersAcrossHosts sends requests to the Service by its DNS name from each pod, until the pods
// of both hosts have answered.
func answersAcrossHosts(t *testing.T, s *site.Site, pods []site.Pod) {
	t.Helper()
	nodes := map[string]bool{}
	for _, p := range pods {
		nodes[p.Node] = true
	}
	if len(nodes) != len(s.Hosts) {
		t.Fatalf("the pods are on %d hosts, want %d: %v", len(nodes), len(s.Hosts), pods)
	}
	answered, err := s.AskEach(t.Context(), pods, s.ServiceURL())
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range pods {
		if len(answered[p.Name]) != len(pods) {
			t.Errorf("%s on %s heard only from %v", p.Name, p.Node, answered[p.Name])
		}
	}
}

// footprint is what a second init must not change: the files and processes of the host, and the
// versions of the objects that init creates.
func footprint(t *testing.T, s *site.Site) string {
	t.Helper()
	objects := kubectl(t, s, "get", "-A", "-o", `jsonpath={range .items[*]}{.kind} {.metadata.namespace}/{.metadata.name} {.metadata.resourceVersion}{"\n"}{end}`,
		"configmaps,secrets,serviceaccounts,roles,rolebindings,clusterroles,clusterrolebindings,services")
	generations := kubectl(t, s, "get", "-A", "-o", `jsonpath={range .items[*]}{.kind} {.metadata.namespace}/{.metadata.name} {.metadata.generation}{"\n"}{end}`, "deployments,daemonsets")
	return hostState(t, s.Hosts[0]) + objects + generations
}

// hostState lists the files that the installer wrote, with their times, and the processes that it
// started.
// It leaves out what services keep for themselves: the log of runs, and the API servers that answered last.
func hostState(t *testing.T, h *lab.Host) string {
	t.Helper()
	return run(t, h, "sh", "-c", `
		find /etc/kubernetes /etc/containerd /etc/systemd/system /etc/cni /etc/sysctl.d /var/lib/airlift /var/lib/kubelet/config.yaml \
			/var/lib/kubelet/kubeadm-flags.env /var/lib/kubelet/pki /usr/local /opt/cni \
			! -path /var/lib/airlift ! -path /var/lib/airlift/runs.json ! -path "/var/lib/airlift/endpoint*" -printf '%p %T@ %m %s\n'
		systemctl show -p MainPID -p NRestarts kubelet containerd`)
}

// diagnose logs what helps to find the cause of a failure.
func diagnose(t *testing.T, s *site.Site) {
	for _, argv := range [][]string{
		{"kubectl", "--kubeconfig", "/etc/kubernetes/admin.conf", "get", "nodes,pods", "-A", "-o", "wide"},
		{"sh", "-c", "journalctl -u kubelet --no-pager -n 40 -o cat | cut -c1-300"},
		{"sh", "-c", "journalctl -u containerd --no-pager -n 20 -o cat | cut -c1-300"},
		{"sh", "-c", "ip -brief address; ip route; journalctl -u airlift-service-route --no-pager -n 20 -o short-precise"},
	} {
		for _, h := range s.Hosts {
			ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
			out, _ := h.Output(ctx, argv...)
			cancel()
			if out != "" {
				t.Logf("%s: %s\n%s", h.Name, strings.Join(argv, " "), out)
			}
		}
	}
}
