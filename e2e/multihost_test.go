//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"airlift/scripts/fixtures/seed"
	"airlift/scripts/lab"
	"airlift/scripts/lab/site"
)

// TestMultiHostSmall is the short way through all verbs: a control plane, which is also where the commands run, and a worker. The
// endpoint is the balancer alone, which no host has before it joins.
func TestMultiHostSmall(t *testing.T) {
	m := newMultihost(t, "e2e-multismall", 1, 1)
	first, worker := m.nodes[0], m.nodes[1]
	if _, err := first.CopyIn(t.Context(), *bundlePath, site.Installer, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			diagnose(t, m.Site)
		}
	})
	m.driver = first
	m.learnHostKeys(t, first)
	bare := m.bare(t)
	m.describe(t, "endpoint: {balancer: true}\n", map[*lab.Host]string{worker: ", labels: {zone: a}, taints: ['dedicated=gpu:NoSchedule']"})
	m.cluster(t, 5, "plan", "--detailed-exitcode")
	m.areBare(t, bare)
	m.apply(t)
	contains(t, kubectl(t, m.Site, "get", "node", worker.Name, "-o", "jsonpath={.metadata.labels} {.spec.taints}"), `"zone":"a"`, `"key":"dedicated"`)
	contains(t, install(t, first, 0, "token", "create", "--print-join-command"), "install join "+first.Addr.String()+":6443 ")
	contains(t, run(t, worker, "cat", "/etc/kubernetes/kubelet.conf"), "server: https://127.0.0.1:7443")
	before := m.traces(t)
	m.cluster(t, 0, "plan", "--detailed-exitcode")
	m.cluster(t, 0, "apply", "--yes")
	same(t, before, m.traces(t))
	contains(t, m.cluster(t, 0, "status"), first.Name, worker.Name)
	contains(t, m.cluster(t, 0, "test"), "2 nodes in ", "The cluster passed") // also the balancer, and the node with a taint
	m.reset(t, bare)
}

// TestMultiHost makes three control planes and five workers of bare hosts with one command, changes them, and resets them.
// Then it does the same by one command after the other, to compare the times.
func TestMultiHost(t *testing.T) {
	m := newMultihost(t, "e2e-multihost", 3, 5)
	worker := m.nodes[3]
	zoned := map[*lab.Host]string{worker: ", labels: {zone: b}"}
	bare := m.bare(t)
	m.describe(t, withBalancer, nil)
	inOrder(t, m.Site, []stage{
		{"preflight and plan change nothing", func(t *testing.T) {
			out := m.cluster(t, 0, "preflight")
			for _, h := range m.nodes {
				contains(t, out, h.Name)
			}
			m.areBare(t, bare)
			m.cluster(t, 5, "plan", "--detailed-exitcode")
			m.areBare(t, bare)
			var plan struct{ Stages []struct{ Name string } }
			if err := json.Unmarshal([]byte(m.json(t, 5, "plan", "--detailed-exitcode", "-o", "json")), &plan); err != nil || len(plan.Stages) == 0 {
				t.Errorf("%+v %v", plan, err)
			}
			m.areBare(t, bare)
		}},
		{"apply", func(t *testing.T) {
			var sum int64
			for _, h := range m.nodes {
				sum -= received(t, h)
			}
			sent := transmitted(t, m.driver)
			if took := m.apply(t); took > 90*time.Second {
				t.Logf("WANTED: 90 s, is %.1f s", took.Seconds())
			}
			for _, h := range m.nodes {
				sum += received(t, h)
			}
			t.Logf("the driver sent %d bytes, the hosts received %d; the file has %d", transmitted(t, m.driver)-sent, sum, fileSize(t, *bundlePath))
			voters(t, m.nodes[0], 3)
		}},
		{"a second run changes nothing", func(t *testing.T) {
			m.registryFollows(t)
			before := m.traces(t)
			sent := transmitted(t, m.driver)
			m.cluster(t, 0, "plan", "--detailed-exitcode")
			m.cluster(t, 0, "apply", "--yes")
			same(t, before, m.traces(t))
			if n := transmitted(t, m.driver) - sent; n > 2<<20 {
				t.Errorf("the driver sent %d bytes", n)
			}
		}},
		{"labels and taints", func(t *testing.T) {
			seen := func() string {
				return kubectl(t, m.Site, "get", "node", worker.Name, "-o", "jsonpath={.metadata.labels} {.spec.taints}")
			}
			kubectl(t, m.Site, "label", "node", worker.Name, "by=hand")
			m.describe(t, withBalancer, map[*lab.Host]string{worker: ", labels: {zone: a, rack: r1}, taints: ['dedicated=gpu:NoSchedule']"})
			contains(t, m.cluster(t, 5, "plan", "--detailed-exitcode"), worker.Name, "zone", "dedicated")
			m.cluster(t, 0, "apply", "--yes")
			contains(t, seen(), `"zone":"a"`, `"rack":"r1"`, `"by":"hand"`, `"key":"dedicated"`)
			m.describe(t, withBalancer, zoned)
			m.cluster(t, 0, "apply", "--yes")
			contains(t, seen(), `"zone":"b"`, `"by":"hand"`)
			if got := seen(); strings.Contains(got, "rack") || strings.Contains(got, "dedicated") {
				t.Errorf("left: %s", got)
			}
		}},
		{"kubeadm's documents change", func(t *testing.T) {
			m.describe(t, withBalancer, zoned)
			before := m.traces(t)
			m.document(t, "networking: {podSubnet: 10.99.0.0/16}\n", "")
			contains(t, m.cluster(t, 3, "plan"), "networking.podSubnet", "each node has a part of this range", "hint: needed: ")
			m.cluster(t, 3, "apply", "--yes")
			same(t, before, m.traces(t))
			m.describe(t, withBalancer, zoned)
			m.document(t, "scheduler: {extraArgs: [{name: v, value: '3'}]}\n", "maxPods: 120\n")
			out := m.cluster(t, 5, "plan", "--detailed-exitcode")
			contains(t, out, "+    - --v=3", "+maxPods: 120")
			contains(t, m.json(t, 5, "plan", "--detailed-exitcode", "-o", "json"), `"restarts kube-scheduler kubelet"`)
			for _, h := range m.nodes {
				contains(t, out, h.Name)
			}
			same(t, before, m.traces(t))
			ids := processes(t, m.nodes[1])
			m.cluster(t, 0, "apply", "--yes")
			systemIsUp(t, m.Site, len(m.nodes))
			m.follow(t, "--v=3", "120")
			if restarted := differ(ids, processes(t, m.nodes[1])); slices.Contains(restarted, "kube-apiserver") || slices.Contains(restarted, "etcd") {
				t.Errorf("%q restarted", restarted)
			}
			before = m.traces(t)
			m.cluster(t, 0, "plan", "--detailed-exitcode")
			m.cluster(t, 0, "apply", "--yes")
			same(t, before, m.traces(t))
		}},
		{"the driver is killed while the configuration changes", func(t *testing.T) {
			for i := range 3 { // early, on the first control plane, and on the others
				flag, pods := fmt.Sprintf("--v=%d", 4+i), strconv.Itoa(130+i)
				m.describe(t, withBalancer, zoned)
				m.document(t, "scheduler: {extraArgs: [{name: v, value: '"+strconv.Itoa(4+i)+"'}]}\n", "maxPods: "+pods+"\n")
				m.killedAfter(t, time.Duration(4+6*i)*time.Second)
				eventually(t, 2*time.Minute, func() string { // a command on a host ends after the connection did
					if out, err := site.Install(t.Context(), m.driver, io.Discard, "cluster", "apply", "--yes"); err != nil {
						return lastLine(out)
					}
					return ""
				})
				systemIsUp(t, m.Site, len(m.nodes))
				m.follow(t, flag, pods)
				m.cluster(t, 0, "plan", "--detailed-exitcode")
			}
			m.describe(t, withBalancer, zoned)
			m.cluster(t, 0, "plan", "--detailed-exitcode") // a document that is removed stays in the cluster
		}},
		{"status without the API", func(t *testing.T) {
			systemIsUp(t, m.Site, len(m.nodes)) // after the last restarts
			m.cluster(t, 0, "status")
			for _, h := range m.nodes[:m.planes] {
				run(t, h, "mv", "/etc/kubernetes/manifests/kube-apiserver.yaml", "/root/")
			}
			eventually(t, time.Minute, func() string {
				for _, h := range m.nodes[:m.planes] {
					if _, err := kubectlTry(t.Context(), h, "version"); err == nil {
						return "the API still answers"
					}
				}
				return ""
			})
			out := m.cluster(t, 1, "status")
			for _, h := range m.nodes {
				contains(t, out, h.Name)
			}
			for _, h := range m.nodes[:m.planes] {
				run(t, h, "mv", "/root/kube-apiserver.yaml", "/etc/kubernetes/manifests/")
			}
			systemIsUp(t, m.Site, len(m.nodes))
		}},
		{"a host that is no longer in the file", func(t *testing.T) {
			all := m.nodes
			gone := all[len(all)-1]
			m.nodes = all[:len(all)-1]
			m.describe(t, withBalancer, zoned)
			contains(t, m.cluster(t, 0, "plan", "--detailed-exitcode"), gone.Name)
			contains(t, m.cluster(t, 5, "plan", "--detailed-exitcode", "--remove"), gone.Name)
			m.cluster(t, 0, "apply", "--remove", "--yes")
			systemIsUp(t, m.Site, len(m.nodes))
			m.nodes = all
			m.describe(t, withBalancer, zoned)
			m.apply(t)
		}},
		{"a control plane that joins later has the files of flags", func(t *testing.T) {
			const policy, text = "/etc/kubernetes/audit/policy.yaml", "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n- level: None\n"
			const audited = "apiServer:\n  extraArgs: [{name: audit-policy-file, value: " + policy + "}, {name: audit-log-path, value: '-'}]\n" +
				"  extraVolumes: [{name: audit, hostPath: /etc/kubernetes/audit, mountPath: /etc/kubernetes/audit, readOnly: true, pathType: DirectoryOrCreate}]\n"
			all, first, gone := m.nodes, m.nodes[0], m.nodes[m.planes-1]
			write(t, first, "/root/policy.yaml", text)
			write(t, first, "/root/kubeadm.yaml", "apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\n"+audited)
			m.describe(t, withBalancer, zoned)
			m.document(t, audited, "")
			contains(t, m.cluster(t, 3, "plan"), policy, "does not exist", "--file") // the file comes first
			run(t, first, "/var/lib/airlift/cluster/install", "reconfigure", "--config", "/root/kubeadm.yaml", "--file", policy+"=/root/policy.yaml", "--yes")
			contains(t, m.cluster(t, 5, "plan", "--detailed-exitcode"), m.nodes[1].Name, gone.Name, "has not followed the last change")
			m.cluster(t, 0, "apply", "--yes")
			for _, h := range m.nodes[:m.planes] {
				same(t, text, run(t, h, "cat", policy))
			}
			m.nodes, m.planes = slices.Delete(slices.Clone(all), m.planes-1, m.planes), m.planes-1
			m.describe(t, withBalancer, zoned)
			m.document(t, audited, "")
			m.cluster(t, 0, "apply", "--remove", "--yes")
			m.nodes, m.planes = all, m.planes+1
			m.describe(t, withBalancer, zoned)
			m.document(t, audited, "")
			m.apply(t)
			same(t, text, run(t, gone, "cat", policy))
			m.cluster(t, 0, "plan", "--detailed-exitcode")
		}},
		{"no packet tried to leave", func(t *testing.T) { noEscapes(t, m.Site) }},
		{"reset", func(t *testing.T) { m.reset(t, bare) }},
		{"another endpoint", func(t *testing.T) {
			const name = "api.e2e.example"
			for _, h := range m.nodes {
				run(t, h, "sh", "-c", "echo "+m.nodes[0].Addr.String()+" "+name+" >>/etc/hosts")
			}
			named := m.bare(t)
			m.describe(t, "endpoint: {address: '"+name+":6443'}\n", nil)
			m.apply(t)
			proxy := func() string {
				return kubectl(t, m.Site, "-n", "kube-system", "get", "configmap/kube-proxy", "-o", `jsonpath={.data.kubeconfig\.conf}`)
			}
			contains(t, proxy(), "server: https://"+name+":6443")
			m.describe(t, withBalancer, nil)
			contains(t, m.cluster(t, 5, "plan", "--detailed-exitcode"), "endpoint of the cluster")
			m.cluster(t, 0, "apply", "--yes")
			systemIsUp(t, m.Site, len(m.nodes))
			// No control plane only serves it.
			followed := kubectl(t, m.Site, "get", "nodes", "-o", `jsonpath={.items[*].metadata.annotations.airlift\.dev/endpoint-change}`)
			same(t, strings.TrimSpace(strings.Repeat("1 ", len(m.nodes))), followed)
			contains(t, proxy(), "server: https://127.0.0.1:")
			for _, h := range m.nodes[:m.planes] { // the name stays the endpoint of administrators
				contains(t, run(t, h, "cat", "/etc/kubernetes/admin.conf"), "server: https://"+name+":6443")
			}
			m.cluster(t, 0, "plan", "--detailed-exitcode")
			m.reset(t, named)
			for _, h := range m.nodes {
				run(t, h, "sed", "-i", "/"+name+"/d", "/etc/hosts")
			}
		}},
		{"the same by commands", func(t *testing.T) { m.byCommands(t) }},
	})
}

// document adds a ClusterConfiguration and a KubeletConfiguration with these fields to cluster.yaml; "": none.
func (m *multihost) document(t *testing.T, cluster, kubelet string) {
	t.Helper()
	const path = "/root/cluster.yaml"
	write(t, m.driver, path, run(t, m.driver, "cat", path)+site.Documents(cluster, kubelet))
}

// follow expects a flag of the scheduler on all control planes, in its file and in its pod, and a maximum of pods on all nodes.
func (m *multihost) follow(t *testing.T, flag, pods string) {
	t.Helper()
	for i, h := range m.nodes {
		if i < m.planes {
			contains(t, run(t, h, "cat", "/etc/kubernetes/manifests/kube-scheduler.yaml"), "- "+flag+"\n")
		}
		contains(t, run(t, h, "cat", "/var/lib/kubelet/config.yaml"), "maxPods: "+pods+"\n")
	}
	eventually(t, time.Minute, func() string {
		flags := kubectl(t, m.Site, "-n", "kube-system", "get", "pods", "-l", "component=kube-scheduler", "-o", "jsonpath={.items[*].spec.containers[0].command}")
		capacity := kubectl(t, m.Site, "get", "nodes", "-o", "jsonpath={.items[*].status.capacity.pods}")
		if strings.Count(flags, `"`+flag+`"`) != m.planes || strings.Count(capacity+" ", pods+" ") != len(m.nodes) {
			return flags + "\n" + capacity
		}
		return ""
	})
}

// json is the standard output of a verb.
func (m *multihost) json(t *testing.T, wantCode int, args ...string) string {
	t.Helper()
	out, err := m.driver.Output(t.Context(), append([]string{site.Installer, "cluster"}, args...)...)
	if code := exitCode(err); code != wantCode {
		t.Fatalf("%s: exit code %d, want %d: %v", strings.Join(args, " "), code, wantCode, err)
	}
	return out
}

// transmitted is how many bytes a host has sent over its first interface.
func transmitted(t *testing.T, h *lab.Host) int64 {
	t.Helper()
	n, err := strconv.ParseInt(strings.TrimSpace(run(t, h, "awk", "/^ *eth0:/ {sub(/.*:/, \"\"); print $9}", "/proc/net/dev")), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func noEscapes(t *testing.T, s *site.Site) {
	t.Helper()
	if counts, err := s.Escapes(t.Context()); err != nil || counts.Escaped != 0 {
		t.Errorf("%d packets tried to leave: %v (%v)", counts.Escaped, counts.Offenders, err)
	}
}

// TestMultiHostKills kills the driver, and cuts the power of hosts, at random moments while apply runs. MULTIHOST_RUNS is how
// often each happens, AIRLIFT_SEED repeats a run. After that, apply ends in the same state as without interruptions.
func TestMultiHostKills(t *testing.T) {
	m := newMultihost(t, "e2e-multikills", 3, 2)
	bare := m.bare(t)
	m.describe(t, withBalancer, nil)
	random := rand.New(rand.NewPCG(seed.Value(t), 0))
	var undisturbed string
	var took time.Duration
	moment := func() time.Duration { return time.Duration(random.Int64N(int64(took))) }
	again := func(t *testing.T) {
		m.cluster(t, 0, "apply", "--yes")
		systemIsUp(t, m.Site, len(m.nodes))
		voters(t, m.nodes[0], m.planes)
		m.registryFollows(t)
		same(t, undisturbed, m.picture(t))
		m.cluster(t, 0, "plan", "--detailed-exitcode")
	}
	inOrder(t, m.Site, []stage{
		{"without an interruption", func(t *testing.T) {
			took = m.apply(t)
			m.registryFollows(t)
			undisturbed = m.picture(t)
			m.reset(t, bare)
		}},
		{"the driver is killed", func(t *testing.T) {
			for range multihostRuns(t) {
				if !m.killedAfter(t, moment()) {
					m.reset(t, bare)
				}
			}
			again(t)
			m.reset(t, bare)
		}},
		{"a host loses its power", func(t *testing.T) {
			for cuts := 0; cuts < multihostRuns(t); {
				h := m.nodes[random.IntN(len(m.nodes))]
				if m.disturbed(t, moment(), h.Name+" had no power", func() error { return powerCycle(t, h) }) {
					cuts++
					again(t)
				}
				m.reset(t, bare)
			}
		}},
		{"the driver's cable is pulled", func(t *testing.T) {
			m.disturbed(t, moment(), "the driver had no network", func() error {
				if err := m.driver.Unplug(t.Context()); err != nil {
					return err
				}
				time.Sleep(20 * time.Second)
				return m.driver.Plug(t.Context())
			})
			again(t)
		}},
		{"the driver's machine loses its power", func(t *testing.T) {
			m.reset(t, bare)
			m.disturbed(t, took/2, "the driver had no power", func() error { return powerCycle(t, m.driver) })
			// The hosts notice it after a while.
			eventually(t, 5*time.Minute, func() string {
				if out, err := site.Install(t.Context(), m.driver, io.Discard, "cluster", "apply", "--yes"); err != nil {
					return lastLine(out)
				}
				return ""
			})
			again(t)
			m.reset(t, bare)
		}},
	})
}

// TestMultiHostErrors: what is wrong with one host, or with cluster.yaml, has its own error, and nothing is changed on any
// host.
func TestMultiHostErrors(t *testing.T) {
	m := newMultihost(t, "e2e-multierrors", 1, 2)
	first, second, third := m.nodes[0], m.nodes[1], m.nodes[2]
	bare := m.bare(t)
	// refused expects an error of apply on the bare hosts.
	refused := func(t *testing.T, code int, want ...string) {
		t.Helper()
		contains(t, m.cluster(t, code, "apply", "--yes"), append(want, "hint: ")...)
		m.areBare(t, bare)
	}
	for _, one := range []stage{
		{"a host is off", func(t *testing.T) {
			m.describe(t, "", nil)
			if err := third.PowerOff(t.Context()); err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			contains(t, m.cluster(t, 3, "apply", "--yes"), third.Name, third.Addr.String(), "hint: ", "--skip")
			t.Logf("after %.1f s", time.Since(began).Seconds())
			for _, h := range m.nodes[:2] {
				same(t, bare[h], untouched(t, h))
			}
			if err := third.Boot(t.Context()); err != nil {
				t.Fatal(err)
			}
			m.areBare(t, bare)
		}},
		{"a wrong sudo password", func(t *testing.T) {
			m.describe(t, "", map[*lab.Host]string{second: ", ssh: {user: " + lab.SSHUser + "}"})
			out, code := m.typed(t, "wrong", site.Installer+" cluster apply --yes")
			t.Logf("exit %d:\n%s", code, out)
			contains(t, out, second.Name, lab.SSHUser, "hint: ")
			if code == 0 || strings.Contains(out, "wrong\r\n") && !strings.Contains(out, "wrong password") {
				t.Errorf("exit code %d, or the terminal shows the password", code)
			}
			m.areBare(t, bare)
		}},
		{"no terminal to ask for the password", func(t *testing.T) {
			m.describe(t, "", map[*lab.Host]string{second: ", ssh: {user: " + lab.SSHUser + "}"})
			refused(t, 3, second.Name, "password")
		}},
		{"a full disk", func(t *testing.T) {
			m.describe(t, "", nil)
			run(t, second, "sh", "-c", `fallocate -l $(($(df --output=avail -B1 / | tail -n 1) - 100000000)) /root/full`)
			refused(t, 3, second.Name, "/var/lib")
			run(t, second, "rm", "/root/full")
		}},
		{"another host key", func(t *testing.T) {
			const saved = "mkdir /root/keys && cp -a /etc/ssh/ssh_host_* /root/keys/ && rm /etc/ssh/ssh_host_* && ssh-keygen -A >/dev/null && systemctl restart ssh"
			run(t, second, "sh", "-c", saved)
			contains(t, m.cluster(t, 3, "apply", "--yes"), second.Name, "host key", "known_hosts", "hint: ")
			run(t, second, "sh", "-c", "rm /etc/ssh/ssh_host_* && mv /root/keys/* /etc/ssh/ && systemctl restart ssh")
			m.areBare(t, bare)
		}},
		{"an unknown host key and nobody to ask", func(t *testing.T) {
			run(t, m.driver, "sh", "-c", "mv /root/.ssh/known_hosts /root/.ssh/known && grep -v "+third.Addr.String()+" /root/.ssh/known >/root/.ssh/known_hosts")
			refused(t, 3, third.Name, "host key")
			run(t, m.driver, "mv", "/root/.ssh/known", "/root/.ssh/known_hosts")
		}},
		{"two hosts with one machine-id", func(t *testing.T) {
			id := run(t, third, "cat", "/etc/machine-id")
			write(t, third, "/etc/machine-id", run(t, second, "cat", "/etc/machine-id"))
			refused(t, 3, second.Name, third.Name, "machine-id")
			write(t, third, "/etc/machine-id", id)
		}},
		{"an address given twice", func(t *testing.T) {
			m.describeHosts(t, "", m.entry(first, "")+m.entry(second, "")+strings.Replace(m.entry(second, ""), second.Name, third.Name, 1))
			refused(t, 2, second.Addr.String(), "cluster.yaml:7")
		}},
		{"a name given twice", func(t *testing.T) {
			m.describeHosts(t, "", m.entry(first, "")+m.entry(second, "")+strings.Replace(m.entry(third, ""), third.Name, second.Name, 1))
			refused(t, 2, second.Name, "cluster.yaml")
		}},
		{"an unknown field", func(t *testing.T) {
			m.describe(t, "", map[*lab.Host]string{second: ", colour: blue"})
			refused(t, 2, "colour", "cluster.yaml:")
		}},
	} {
		t.Run(one.name, one.test)
	}
	inOrder(t, m.Site, []stage{
		{"a host is skipped, then a cluster.yaml of another cluster", func(t *testing.T) {
			m.describe(t, "", nil)
			if err := third.PowerOff(t.Context()); err != nil {
				t.Fatal(err)
			}
			contains(t, m.cluster(t, 6, "apply", "--yes", "--skip", third.Name), third.Name)
			if err := third.Boot(t.Context()); err != nil {
				t.Fatal(err)
			}
			same(t, bare[third], untouched(t, third))
			m.apply(t)
			before := m.traces(t)
			path := "/root/cluster.yaml"
			write(t, m.driver, path, strings.Replace(run(t, m.driver, "cat", path), "name: e2e\n", "name: other\n", 1))
			contains(t, m.cluster(t, 3, "apply", "--yes"), "e2e", "other", "hint: ")
			contains(t, m.cluster(t, 3, "plan"), "e2e", "other")
			same(t, before, m.traces(t))
		}},
		{"two drivers at once", func(t *testing.T) {
			m.describe(t, "", map[*lab.Host]string{second: ", labels: {zone: a}"})
			const both = site.Installer + ` cluster apply --yes >/root/one.log 2>&1 & one=$!
` + site.Installer + ` cluster apply --yes >/root/two.log 2>&1; echo "exit $?"; wait $one; echo "exit $?"; cat /root/one.log /root/two.log`
			out := run(t, m.driver, "sh", "-c", both)
			if strings.Count(out, "exit 0\n") == 0 {
				t.Errorf("both failed:\n%s", out)
			}
			t.Log(out)
		}},
		{"reset of another cluster", func(t *testing.T) {
			before := m.traces(t)
			path := "/root/cluster.yaml"
			write(t, m.driver, path, strings.Replace(run(t, m.driver, "cat", path), "name: e2e\n", "name: other\n", 1))
			m.cluster(t, 3, "reset", "--force", "--yes")
			same(t, before, m.traces(t))
			m.describe(t, "", nil)
			m.reset(t, bare)
		}},
		{"no packet tried to leave", func(t *testing.T) { noEscapes(t, m.Site) }},
	})
}

// TestMultiHostUpgrade upgrades three control planes and five workers with one command while a workload answers: first a
// canary that fails, then one that does not and a pause, then the rest.
func TestMultiHostUpgrade(t *testing.T) {
	m := newMultihost(t, "e2e-multiupgrade", 3, 5)
	canary, others := m.nodes[3], m.nodes[4:]
	to := carryNewer(t, m.driver)
	u := &upgraded{Site: m.Site, control: m.nodes[0], worker: others[0], planes: m.planes, hosts: m.nodes, to: to}
	// upgradedOf are the versions of all nodes when so many have the newer one, in the order of m.nodes.
	upgradedOf := func(n int) []string {
		return append(slices.Repeat([]string{to}, n), slices.Repeat([]string{version}, len(m.nodes)-n)...)
	}
	roll := withBalancer + "groups:\n- {name: canary, roll: {pause: true}}\nroll: {order: [canary], undo: true}\n"
	inOrder(t, m.Site, []stage{
		{"a cluster of the older version", func(t *testing.T) {
			m.describe(t, roll, map[*lab.Host]string{canary: ", group: canary"})
			m.apply(t)
			u.ask(t)
		}},
		{"a canary that fails is undone, and no other worker was touched", func(t *testing.T) {
			contains(t, newer(t, m.driver, 5, "cluster", "plan", "--detailed-exitcode"), version, to, canary.Name)
			// Images and binaries of the newer version are brought everywhere before the first node changes.
			serves := func() string {
				var all string
				for _, h := range others {
					all += run(t, h, "sh", "-c", "systemctl show -p MainPID -p NRestarts kubelet containerd; sha256sum /usr/local/bin/kubelet /etc/kubernetes/*.conf /var/lib/kubelet/config.yaml")
				}
				return all
			}
			before := serves()
			// The kubelet of the newer version does not start there.
			const dropIn = "/etc/systemd/system/kubelet.service.d/99-broken.conf"
			write(t, canary, dropIn, "[Service]\nExecStartPre=/bin/sh -c '! /usr/local/bin/kubelet --version | grep -q "+to+"'\n")
			began := time.Now()
			contains(t, newer(t, m.driver, 1, "cluster", "apply", "--yes"), canary.Name, "hint: ")
			t.Logf("three control planes, the canary and its undo took %.1f s", time.Since(began).Seconds())
			u.have(t, upgradedOf(m.planes)...)
			same(t, before, serves())
			systemIsUp(t, m.Site, len(m.nodes))
			run(t, canary, "sh", "-c", "rm "+dropIn+"; systemctl daemon-reload")
		}},
		{"the canary, and a pause", func(t *testing.T) {
			began := time.Now()
			contains(t, newer(t, m.driver, 7, "cluster", "apply", "--yes"), "--continue")
			t.Logf("the canary took %.1f s", time.Since(began).Seconds())
			u.have(t, upgradedOf(m.planes+1)...)
		}},
		{"the rest", func(t *testing.T) {
			began := time.Now()
			newer(t, m.driver, 0, "cluster", "apply", "--yes", "--continue")
			t.Logf("%d workers took %.1f s", len(others), time.Since(began).Seconds())
			u.have(t, upgradedOf(len(m.nodes))...)
			u.addOnsAreNew(t)
			m.registryFollows(t)
			if cordoned := kubectl(t, m.Site, "get", "nodes", "-o", "jsonpath={.items[*].spec.unschedulable}"); cordoned != "" {
				t.Errorf("a node is still cordoned: %s", cordoned)
			}
		}},
		{"every request was answered", u.answered},
		{"a second run changes nothing", func(t *testing.T) {
			// A timer drops the file of the older version, which no node needs now.
			eventually(t, 3*time.Minute, func() string {
				for _, h := range m.nodes[:m.planes] {
					if files := run(t, h, "sh", "-c", "ls /var/lib/airlift/bundles | grep -E '^[0-9a-f]{64}$'"); strings.Count(files, "\n") != 1 {
						return h.Name + " keeps " + files
					}
				}
				return ""
			})
			before := m.traces(t)
			newer(t, m.driver, 0, "cluster", "plan", "--detailed-exitcode")
			newer(t, m.driver, 0, "cluster", "apply", "--yes")
			same(t, before, m.traces(t))
			noProbes(t, m.Site)
		}},
		{"an older file is refused", func(t *testing.T) {
			before := m.traces(t)
			contains(t, m.cluster(t, 3, "apply", "--yes"), version, to, "hint: ")
			same(t, before, m.traces(t))
		}},
	})
}
