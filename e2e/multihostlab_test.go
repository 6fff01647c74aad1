//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"airlift/scripts/lab"
	"airlift/scripts/lab/site"
)

// A multihost is a lab of which the last host is no node: it has the bundle and cluster.yaml, and the commands run there
// that reach the other hosts over SSH.
type multihost struct {
	*site.Site
	driver *lab.Host
	nodes  []*lab.Host // the control planes first
	planes int
}

// withBalancer is the endpoint of a cluster of several control planes.
const withBalancer = "endpoint: {vip: " + virtual + ", balancer: true}\n"

func newMultihost(t *testing.T, name string, planes, workers int) *multihost {
	t.Helper()
	n := planes + workers
	s := boot(t, lab.Options{Name: name, Hosts: n + 1, SSH: true, Virtual: []netip.Addr{netip.MustParseAddr(virtual)}})
	s.Nodes = n
	m := &multihost{Site: s, driver: s.Hosts[n], nodes: s.Hosts[:n], planes: planes}
	if _, err := m.driver.CopyIn(t.Context(), *bundlePath, site.Installer, 0o755); err != nil {
		t.Fatal(err)
	}
	m.learnHostKeys(t, m.driver)
	return m
}

// learnHostKeys writes the keys of all hosts to known_hosts on one of them.
func (m *multihost) learnHostKeys(t *testing.T, on *lab.Host) {
	t.Helper()
	var addresses []netip.Addr
	for _, h := range m.nodes {
		addresses = append(addresses, h.Addr)
	}
	if err := site.LearnHostKeys(t.Context(), on, addresses...); err != nil {
		t.Fatal(err)
	}
}

// entry is a host in cluster.yaml. more are further fields, each after a comma.
func (m *multihost) entry(h *lab.Host, more string) string {
	return site.HostEntry(h.Name, slices.Contains(m.nodes[:m.planes], h), h.Addr, more)
}

// describe writes cluster.yaml with all nodes. more are further fields of hosts, and cluster has further fields of the cluster.
func (m *multihost) describe(t *testing.T, cluster string, more map[*lab.Host]string) {
	t.Helper()
	var hosts strings.Builder
	for _, h := range m.nodes {
		hosts.WriteString(m.entry(h, more[h]))
	}
	m.describeHosts(t, cluster, hosts.String())
}

func (m *multihost) describeHosts(t *testing.T, cluster, hosts string) {
	t.Helper()
	write(t, m.driver, "/root/cluster.yaml", site.ClusterFile("e2e", cluster, hosts))
}

// cluster runs "install cluster" on the driver and expects an exit code.
func (m *multihost) cluster(t *testing.T, wantCode int, args ...string) string {
	t.Helper()
	return install(t, m.driver, wantCode, append([]string{"cluster"}, args...)...)
}

// apply makes the hosts a cluster, and returns how long that took.
func (m *multihost) apply(t *testing.T) time.Duration {
	t.Helper()
	began := time.Now()
	m.cluster(t, 0, "apply", "--yes")
	took := time.Since(began)
	systemIsUp(t, m.Site, len(m.nodes))
	t.Logf("cluster apply took %.1f s, all pods were Ready after %.1f s", took.Seconds(), time.Since(began).Seconds())
	return took
}

// registryFollows waits until containerd of each node asks all control planes, of which a node learns a while after they joined.
func (m *multihost) registryFollows(t *testing.T) {
	t.Helper()
	eventually(t, 3*time.Minute, func() string {
		for _, h := range m.nodes {
			for _, plane := range m.nodes[:m.planes] {
				file := "/etc/containerd/certs.d/registry.k8s.io/hosts.toml"
				if !strings.Contains(run(t, h, "cat", file), "//"+plane.Addr.String()+":") {
					return h.Name + " does not ask " + plane.Name
				}
			}
		}
		return ""
	})
}

// reset makes the hosts bare again.
func (m *multihost) reset(t *testing.T, bare map[*lab.Host]string) {
	t.Helper()
	m.cluster(t, 0, "reset", "--force", "--yes")
	m.areBare(t, bare)
}

// bare lists what is on the nodes before the first command.
func (m *multihost) bare(t *testing.T) map[*lab.Host]string {
	t.Helper()
	list := map[*lab.Host]string{}
	for _, h := range m.nodes {
		list[h] = untouched(t, h)
	}
	return list
}

func (m *multihost) areBare(t *testing.T, bare map[*lab.Host]string) {
	t.Helper()
	for _, h := range m.nodes {
		same(t, bare[h], untouched(t, h))
		if left := run(t, h, "sh", "-c", "ls -d /var/lib/airlift* /tmp/airlift* /var/tmp/airlift* 2>/dev/null; true"); left != "" {
			t.Errorf("left on %s: %s", h.Name, left)
		}
	}
}

// traces is what a run that has nothing to do must not change: files with their times, processes and versions of objects.
func (m *multihost) traces(t *testing.T) string {
	t.Helper()
	all := footprint(t, m.Site)
	for _, h := range m.nodes {
		all += h.Name + "\n" + hostState(t, h)
	}
	nodes := kubectl(t, m.Site, "get", "nodes", "-o", `jsonpath={range .items[*]}{.metadata.name} {.metadata.labels} {.metadata.annotations} {.spec}{"\n"}{end}`)
	return all + nodes
}

// atOnce does something with several hosts in parallel.
func atOnce(hosts []*lab.Host, do func(h *lab.Host)) {
	var all sync.WaitGroup
	for _, h := range hosts {
		all.Go(func() { do(h) })
	}
	all.Wait()
}

// byCommands makes the same cluster as apply with one command after the other: copies by scp, then init, the control planes in
// turn and the workers at once. It returns how long that took.
func (m *multihost) byCommands(t *testing.T) time.Duration {
	t.Helper()
	const thin = "/root/thin"
	local := filepath.Join(t.TempDir(), "thin")
	if out, err := exec.CommandContext(t.Context(), *bundlePath, "thin", local).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if _, err := m.driver.CopyIn(t.Context(), local, thin, 0o755); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	atOnce(m.nodes, func(h *lab.Host) {
		file := thin
		if h == m.nodes[0] {
			file = site.Installer
		}
		if _, err := m.driver.Output(t.Context(), "scp", "-p", file, h.Addr.String()+":"+site.Installer); err != nil {
			t.Error(err)
		}
	})
	t.Logf("scp took %.1f s", time.Since(began).Seconds())
	out := install(t, m.nodes[0], 0, "init", "--upload-certs", "--embedded-registry", "--control-plane-vip", virtual, "--control-plane-balancer")
	join, err := site.JoinArgs(out)
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range m.nodes[1:m.planes] {
		install(t, h, 0, append(join[:len(join):len(join)], "--control-plane", "--certificate-key", certificateKey(t, out))...)
	}
	atOnce(m.nodes[m.planes:], func(h *lab.Host) {
		if out, err := site.Install(t.Context(), h, io.Discard, join...); err != nil {
			t.Errorf("%s: %v\n%s", h.Name, err, out)
		}
	})
	took := time.Since(began)
	systemIsUp(t, m.Site, len(m.nodes))
	t.Logf("by commands: all joined after %.1f s, all pods were Ready after %.1f s", took.Seconds(), time.Since(began).Seconds())
	return took
}

// picture is what runs leave behind that end in the same way, however often they were interrupted: files with checksums and
// nodes with their pods, without keys, times and what depends on the order of the nodes.
func (m *multihost) picture(t *testing.T) string {
	t.Helper()
	const files = `find /etc /usr/local /opt /var/lib/airlift /var/lib/kubelet/config.yaml /var/lib/kubelet/kubeadm-flags.env -type f | sort | while read -r f; do
	case $f in
	/etc/machine-id | /etc/ssh/*) ;;
	/etc/kubernetes/pki/* | /etc/kubernetes/*.conf | /etc/cni/net.d/10-flannel.conflist | */runs.json | */ledger*.json) echo "$f" ;;
	*/etcd.yaml) echo "$f $(sed 's/--initial-cluster=.*//' "$f" | sha256sum)" ;;
	*) sha256sum "$f" ;;
	esac
done`
	var all strings.Builder
	for _, h := range m.nodes {
		for line := range strings.Lines(run(t, h, "sh", "-c", files)) {
			all.WriteString(h.Name + " " + line)
		}
	}
	all.WriteString(kubectl(t, m.Site, "get", "nodes", "-o", `jsonpath={range .items[*]}{.metadata.name} {.metadata.labels} {.spec.taints} {.spec.unschedulable} {.status.nodeInfo.kubeletVersion}{"\n"}{end}`))
	all.WriteString(kubectl(t, m.Site, "-n", "kube-system", "get", "pods", "-l", "tier=control-plane", "--sort-by=.metadata.name", "-o", `jsonpath={range .items[*]}{.metadata.name} {.spec.containers[0].image}{"\n"}{end}`))
	return all.String()
}

// typed runs a command on the driver in a terminal, and types a password when it is asked for one. It returns the output and
// the exit code.
func (m *multihost) typed(t *testing.T, password, command string) (string, int) {
	t.Helper()
	in, keyboard, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	defer keyboard.Close()
	screen := &terminal{keyboard: keyboard, password: password}
	err = m.driver.Exec(t.Context(), in, screen, screen, "script", "--quiet", "--return", "--command", command, "/dev/null")
	return screen.text(), exitCode(err)
}

// A terminal collects what a command prints.
type terminal struct {
	keyboard io.Writer
	password string

	mu   sync.Mutex
	all  strings.Builder
	seen int // the output up to here had its answer
}

// passwordPrompt is the end of a question for a password.
var passwordPrompt = regexp.MustCompile(`(?i)password[^\n]*: $`)

func (s *terminal) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all.Write(p)
	if passwordPrompt.MatchString(s.all.String()[s.seen:]) {
		s.seen = s.all.Len()
		go fmt.Fprintln(s.keyboard, s.password)
	}
	return len(p), nil
}

func (s *terminal) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all.String()
}

// multihostRuns is how often TestMultiHostKills interrupts.
func multihostRuns(t *testing.T) (n int) {
	t.Helper()
	text := os.Getenv("MULTIHOST_RUNS")
	if text == "" {
		return 5
	}
	if _, err := fmt.Sscan(text, &n); err != nil || n < 1 {
		t.Fatalf("MULTIHOST_RUNS is %q, and not how often apply is interrupted", text)
	}
	return n
}

// killedAfter starts apply on the driver and kills it after a time, if it has not ended by then. It reports whether it was
// killed.
func (m *multihost) killedAfter(t *testing.T, after time.Duration) bool {
	t.Helper()
	script := fmt.Sprintf(`%s cluster apply --yes >/root/killed.log 2>&1 & pid=$!
for _ in $(seq %d); do kill -0 $pid 2>/dev/null || break; sleep 0.1; done
kill -9 $pid 2>/dev/null; wait $pid; echo "exit $?"`, site.Installer, after.Milliseconds()/100)
	out := run(t, m.driver, "sh", "-c", script)
	log := run(t, m.driver, "cat", "/root/killed.log")
	t.Logf("after %.1f s: %s%s", after.Seconds(), out, lastLine(log))
	if !strings.Contains(out, "exit 137") && !strings.Contains(out, "exit 0") {
		t.Errorf("a run after a kill failed: %s\n%s", out, log)
	}
	return strings.Contains(out, "exit 137")
}

func lastLine(text string) string {
	text = strings.TrimSpace(text)
	return text[strings.LastIndex(text, "\n")+1:]
}

// disturbed starts apply on the driver, disturbs it after a time, and waits for its end. It returns whether apply still ran
// then.
func (m *multihost) disturbed(t *testing.T, after time.Duration, what string, disturb func() error) (ran bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	ended := make(chan struct{})
	began := time.Now()
	var out string
	var err error
	go func() {
		defer close(ended)
		out, err = site.Install(ctx, m.driver, io.Discard, "cluster", "apply", "--yes")
	}()
	select {
	case <-ended:
	case <-time.After(after):
		ran = true
	}
	if err := disturb(); err != nil {
		t.Fatal(err)
	}
	<-ended
	t.Logf("%s after %.1f s, while apply ran: %t; apply ended after %.1f s: exit %d: %s", what, after.Seconds(), ran, time.Since(began).Seconds(), exitCode(err), lastLine(out))
	return ran
}

// powerCycle cuts the power of a host and boots it.
func powerCycle(t *testing.T, h *lab.Host) error {
	t.Helper()
	if err := h.PowerCut(t.Context()); err != nil {
		return err
	}
	time.Sleep(3 * time.Second)
	return h.Boot(t.Context())
}
