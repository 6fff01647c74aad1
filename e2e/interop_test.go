//go:build e2e

package e2e

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	kubeletv1 "k8s.io/kubelet/config/v1beta1"
	"sigs.k8s.io/yaml"

	"airlift/installer/config"
	"airlift/scripts/lab"
	"airlift/scripts/lab/kubeadm"
	"airlift/scripts/lab/site"
)

// TestInterop uses Airlift and real kubeadm on the same clusters, in both directions, and
// compares the results. Airlift installs the first of three hosts, kubeadm the second, and
// Airlift adds the third as a control plane to kubeadm's cluster.
func TestInterop(t *testing.T) {
	s := up(t, lab.Options{Name: "e2e-interop", Hosts: 3})
	kit, err := kubeadm.Gather(t.Context(), version, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	own, hand, third := s.Hosts[0], s.Hosts[1], s.Hosts[2]
	for _, h := range s.Hosts {
		// kubeadm's host has a nameserver, because its CoreDNS needs one to start. This
		// host must have the same one.
		run(t, h, "sh", "-c", "echo nameserver "+kubeadm.Nameserver(h)+" >/etc/resolv.conf")
	}
	i := &interop{kit: kit, site: s, own: own, hand: hand, third: third}
	bare := map[*lab.Host]string{own: untouched(t, own), third: untouched(t, third)}

	steps := []struct {
		name string
		test func(t *testing.T)
	}{
		{"Airlift makes a cluster while a second host is prepared by hand", i.initOwn},
		{"kubeadm joins the second host as a worker", i.kubeadmJoinsWorker},
		{"kubeadm joins the second host as a control plane", i.kubeadmJoinsControlPlane},
		{"kubeadm's commands on Airlift's control plane", func(t *testing.T) { i.said = i.ask(t, own) }},
		{"kubeadm resets both hosts", func(t *testing.T) { i.kubeadmResets(t, bare[own]) }},
		{"kubeadm makes a cluster", i.kubeadmInit},
		{"both clusters have the same objects", func(t *testing.T) { compare(t, version, liveDifferences, i.theirs, i.ours) }},
		{"kubeadm's commands say the same of its own control plane", func(t *testing.T) { i.sameAnswers(t) }},
		{"status of kubeadm's cluster", func(t *testing.T) {
			// Its images came by ctr, and no file of Airlift's is on the host.
			out, _ := site.Install(t.Context(), hand, t.Output(), "status") // the exit code is that of the cluster's health
			contains(t, out, "kube-apiserver", hand.Name)
			if strings.Contains(out, "not complete in containerd") {
				t.Errorf("a false alarm:\n%s", out)
			}
		}},
		{"install joins kubeadm's cluster as a worker", i.installJoinsWorker},
		{"install joins kubeadm's cluster as a control plane", i.installJoinsControlPlane},
		{"install resets what it joined", func(t *testing.T) {
			for _, h := range []*lab.Host{third, own} {
				contains(t, typeInstall(t, h, "reset", "--force"), "left: network interface cni0: ", "left: /var/lib/cni/networks/cbr0: ")
				forget(t, hand, h)
			}
			if members := etcdMembers(t, hand); len(members) != 1 {
				t.Errorf("etcd's members: %q", members)
			}
			for _, h := range []*lab.Host{third, own} {
				// The files of the user's pod network, which kubeadm reset does not remove.
				run(t, h, "sh", "-c", "rm -r /etc/cni/net.d/10-flannel.conflist /var/lib/cni; ip link delete cni0; ip link delete flannel.1")
				run(t, h, "sh", "-c", removeCarried)
				same(t, bare[h], untouched(t, h))
			}
		}},
		{"install resets kubeadm's own control plane only when told to", func(t *testing.T) {
			files := hostState(t, hand)
			contains(t, install(t, hand, 3, "reset", "--force"), "has no Airlift ledger", "/etc/kubernetes/pki", "/var/lib/etcd", "--without-ledger")
			contains(t, install(t, hand, 2, "reset", "--force", "--without-ledger"), "yes | /root/install reset --without-ledger")
			same(t, files, hostState(t, hand))
			contains(t, answered(t, hand, 0, "reset", "--without-ledger"), "Removed:", "left: network interface cni0: ", "left: /etc/kubernetes/tmp: ")
			if left := run(t, hand, "sh", "-c", "find /etc/kubernetes /var/lib/etcd /var/lib/kubelet -path /etc/kubernetes/tmp -prune -o -type f -print; iptables-save | grep KUBE-; true"); left != "" {
				t.Errorf("left:\n%s", left)
			}
			contains(t, install(t, hand, 0, "reset", "--force"), "Airlift installed nothing")
		}},
		{"no packet tried to leave", func(t *testing.T) {
			counts, err := s.Escapes(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if counts.Escaped != 0 {
				t.Errorf("%d packets tried to leave: %v", counts.Escaped, counts.Offenders)
			}
		}},
	}
	for _, step := range steps {
		started := time.Now()
		ok := t.Run(step.name, step.test)
		t.Logf("%s: %s", step.name, time.Since(started).Round(100*time.Millisecond))
		if !ok {
			diagnose(t, i.all(hand, own, third))
			t.FailNow()
		}
	}
}

// interop is the state of the test's steps.
type interop struct {
	kit              *kubeadm.Kit
	site             *site.Site
	own, hand, third *lab.Host

	ours, theirs cluster           // every object of the two clusters
	said         map[string]string // kubeadm's output on Airlift's control plane
	join         []string          // arguments to join the current cluster: HOST:PORT and flags
	key          string            // its certificate key
	endpoint     string            // controlPlaneEndpoint of kubeadm's cluster, if it is not the address of its first host
	etcd         string            // the field etcd of its ClusterConfiguration, if any
}

// all returns a site with these hosts; the first one is the control plane.
func (i *interop) all(hosts ...*lab.Host) *site.Site {
	l := *i.site.Lab
	l.Hosts = hosts
	return site.New(&l)
}

func (i *interop) initOwn(t *testing.T) {
	prepared := make(chan error, 1)
	go func() { prepared <- prepareByHand(t.Context(), i.kit, i.hand, t.Logf) }()

	const file = "/root/kubeadm.yaml"
	run(t, i.own, "sh", "-c", "cat >"+file+" <<'END'\n"+i.config(i.own)+"END")
	args := []string{"init", "--config", file, "--upload-certs"}
	out := typeInstall(t, i.own, args...)
	var err error
	if i.join, err = site.JoinArgs(out); err != nil {
		t.Fatal(err)
	}
	i.join = i.join[1:]
	i.key = certificateKey(t, out)
	staticPodsAreKnown(t, i.own)
	allControllersWork(t, i.own)
	i.ours = dump(t, i.own)
	if err := <-prepared; err != nil {
		t.Fatal(err)
	}
}

// config is kubeadm's configuration for the first control plane, the same for both clusters
// except for the host's address.
func (i *interop) config(h *lab.Host) string {
	text := kubeadm.Config(h, kubeadm.ConfigOptions{Version: version, Endpoint: cmp.Or(i.endpoint, h.Addr.String()+":6443")})
	return strings.Replace(text, "networking: ", i.etcd+"networking: ", 1)
}

// prepareByHand prepares a host for kubeadm.
func prepareByHand(ctx context.Context, kit *kubeadm.Kit, h *lab.Host, log func(string, ...any)) error {
	for _, step := range []struct {
		name string
		run  func() (kubeadm.Done, error)
	}{
		{"copy", func() (kubeadm.Done, error) { return kit.Copy(ctx, h) }},
		{"prepare", func() (kubeadm.Done, error) { return kit.Prepare(ctx, h) }},
		{"import images", func() (kubeadm.Done, error) { return kit.ImportImages(ctx, h, true) }},
	} {
		done, err := step.run()
		if err != nil {
			return fmt.Errorf("%s by hand: %s: %w", h.Name, step.name, err)
		}
		log("%s by hand: %s: %s", h.Name, step.name, done.Took.Round(100*time.Millisecond))
	}
	return nil
}

func (i *interop) kubeadmJoinsWorker(t *testing.T) {
	i.kubeadmJoin(t)
	nodeIsReady(t, i.own, i.hand)
	i.workloadRuns(t, i.all(i.own, i.hand))
	done, err := i.kit.Reset(t.Context(), i.hand)
	transcribe(t, i.hand, "kubeadm reset --force", done.Output)
	if err != nil {
		t.Fatal(err)
	}
	forget(t, i.own, i.hand)
}

func (i *interop) kubeadmJoinsControlPlane(t *testing.T) {
	// Without this flag, kubeadm would take the address from the default route.
	i.kubeadmJoin(t, "--control-plane", "--certificate-key", i.key, "--apiserver-advertise-address", i.hand.Addr.String())
	nodeIsReady(t, i.own, i.hand)
	twoVoters(t, i.own)
	// Check each API server separately; kubeadm v1.29 does not wait for it.
	for _, h := range []*lab.Host{i.own, i.hand} {
		eventually(t, time.Minute, func() string {
			out, err := h.Output(t.Context(), "kubectl", "--kubeconfig", "/etc/kubernetes/admin.conf",
				"--server", "https://"+h.Addr.String()+":6443", "get", "nodes", "-o", "name")
			if err != nil {
				return err.Error()
			}
			if want := "node/" + i.own.Name + "\nnode/" + i.hand.Name + "\n"; out != want {
				return fmt.Sprintf("%s knows %q, want %q", h.Name, out, want)
			}
			return ""
		})
	}
}

func (i *interop) kubeadmJoin(t *testing.T, args ...string) {
	t.Helper()
	args = append(slices.Clone(i.join), args...)
	done, err := i.kit.Join(t.Context(), i.hand, args...)
	transcribe(t, i.hand, "kubeadm join "+strings.Join(args, " "), done.Output)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("kubeadm join took %s", done.Took.Round(100*time.Millisecond))
}

// questions are commands whose output must be the same on Airlift's and on kubeadm's
// control planes.
var questions = [][]string{
	{"kubeadm", "certs", "check-expiration"},
	{"kubeadm", "token", "list"},
	{"kubeadm", "config", "images", "list", "--kubernetes-version", "VERSION"},
	{"kubeadm", "upgrade", "plan", "VERSION"}, // with a version, it does not look up the newest one
	{"kubeadm", "upgrade", "node", "--dry-run", "--ignore-preflight-errors", "IGNORED"},
}

// ask runs all questions on a control plane, without changes there.
func (i *interop) ask(t *testing.T, h *lab.Host) map[string]string {
	t.Helper()
	for _, p := range i.kit.Programs {
		if base := path.Base(p.Remote); base == "kubeadm" || base == "crictl" {
			if _, err := h.Output(t.Context(), "test", "-e", p.Remote); err == nil {
				continue
			}
			if _, err := h.CopyIn(t.Context(), p.Local, p.Remote, 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
	answers := map[string]string{}
	for _, q := range questions {
		line := strings.NewReplacer("VERSION", version, "IGNORED", i.kit.IgnoredChecks()).Replace(strings.Join(q, " "))
		var out bytes.Buffer
		started := time.Now()
		err := h.Exec(t.Context(), nil, &out, &out, strings.Fields(line)...)
		said := out.String()
		if q[1] == "upgrade" && q[2] == "node" {
			changesNothing(t, h, said)
			said = summary(said)
		}
		answers[line] = said
		transcribe(t, h, line, said)
		if err != nil {
			t.Errorf("%s: %v", line, err)
		}
		t.Logf("%s took %s", line, time.Since(started).Round(100*time.Millisecond))
	}
	return answers
}

var wouldWrite = regexp.MustCompile(`^\[dryrun\] Would write file "(\S+)" with content:\n$`)

// filesWritten returns the files that a dry run of kubeadm would write. Up to v1.30 it indents
// their contents with a tab.
func filesWritten(dryRun string) map[string]string {
	files := map[string]string{}
	file := ""
	for line := range strings.Lines(dryRun) {
		if m := wouldWrite.FindStringSubmatch(line); m != nil {
			file = m[1]
		} else if isMessage(line) {
			file = ""
		} else if file != "" {
			files[file] += strings.TrimPrefix(line, "\t")
		}
	}
	return files
}

// isMessage reports whether a line of kubeadm's output is not part of a file or an object.
func isMessage(line string) bool {
	return strings.HasPrefix(line, "[") || klogLine.MatchString(line)
}

var klogLine = regexp.MustCompile(`^[WIE]\d{4} `)

// startupPeriod are the fields of an intended difference: the period of a static pod's
// startup probe.
var startupPeriod = []string{
	"spec.containers[0].startupProbe.initialDelaySeconds",
	"spec.containers[0].startupProbe.periodSeconds",
	"spec.containers[0].startupProbe.failureThreshold",
}

// changesNothing checks that an upgrade to the same version would write all files
// unchanged, except for this difference.
func changesNothing(t *testing.T, h *lab.Host, dryRun string) {
	t.Helper()
	files := filesWritten(dryRun)
	for _, name := range []string{config.ManifestsDir + "/kube-apiserver.yaml", config.ManifestsDir + "/kube-controller-manager.yaml",
		config.ManifestsDir + "/kube-scheduler.yaml", "/var/lib/kubelet/config.yaml"} {
		if files[name] == "" {
			t.Errorf("kubeadm would not write %s on %s", name, h.Name)
		}
	}
	for name, content := range files {
		// kubeadm's default goes through /var/run, which is a link to /run.
		socket := strings.NewReplacer("unix:///var/run/", "unix:///run/")
		would, is := document(t, socket.Replace(content)), document(t, socket.Replace(run(t, h, "cat", name)))
		for _, field := range sortedUnion(would, is) {
			if would[field] != is[field] && !slices.Contains(startupPeriod, field) {
				t.Errorf("%s: an upgrade to the same version would change %s in %s: from %q to %q", h.Name, field, name, is[field], would[field])
			}
		}
	}
}

// document flattens a YAML document.
func document(t *testing.T, text string) map[string]string {
	t.Helper()
	var parsed map[string]any
	if err := yaml.Unmarshal([]byte(text), &parsed); err != nil {
		t.Fatal(err)
	}
	if parsed["kind"] == "KubeletConfiguration" {
		data := map[string]any{"kubelet": text}
		meaning[kubeletv1.KubeletConfiguration](data, "kubelet")
		parsed = data
	}
	flat := map[string]string{}
	flatten(flat, "", parsed)
	maps.DeleteFunc(flat, func(_, value string) bool { return value == "null" || value == "{}" }) // the same as a missing field
	return flat
}

// removeCarried removes what the test copied to an Airlift host.
const removeCarried = "rm -f /usr/local/bin/kubeadm /usr/local/bin/crictl /opt/cni/bin/flannel; rmdir /opt/cni/bin /opt/cni /etc/cni/net.d /etc/cni 2>/dev/null; true"

func (i *interop) kubeadmResets(t *testing.T, bare string) {
	done, err := i.kit.Reset(t.Context(), i.hand)
	transcribe(t, i.hand, "kubeadm reset --force", done.Output)
	if err != nil {
		t.Fatal(err)
	}
	// kubeadm v1.29 empties it while etcd still runs, which may write again.
	run(t, i.hand, "sh", "-c", "rm -rf /var/lib/etcd/*")
	forget(t, i.own, i.hand)
	if members := etcdMembers(t, i.own); len(members) != 1 {
		t.Errorf("kubeadm reset left etcd the members %q", members)
	}

	var out bytes.Buffer
	err = i.own.Exec(t.Context(), nil, &out, &out, "kubeadm", "reset", "--force", "--cleanup-tmp-dir")
	transcribe(t, i.own, "kubeadm reset --force --cleanup-tmp-dir", out.String())
	if err != nil {
		t.Fatal(err)
	}
	if pods := run(t, i.own, "crictl", "pods", "-q"); pods != "" {
		t.Errorf("kubeadm reset left the pods %s", pods)
	}
	left := run(t, i.own, "sh", "-c", "find /etc/kubernetes /var/lib/etcd /var/lib/kubelet -type f; systemctl is-active kubelet || true")
	if left != "inactive\n" {
		t.Errorf("kubeadm reset left:\n%s", left)
	}
	typeInstall(t, i.own, "reset", "--force", "--cleanup-tmp-dir")
	run(t, i.own, "sh", "-c", removeCarried)
	same(t, bare, untouched(t, i.own))
}

func (i *interop) kubeadmInit(t *testing.T) {
	done, err := i.kit.Init(t.Context(), i.hand, i.config(i.hand), "--upload-certs")
	transcribe(t, i.hand, "kubeadm init --config kubeadm.yaml --upload-certs", done.Output)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("kubeadm init took %s", done.Took.Round(100*time.Millisecond))
	if i.join, err = kubeadm.JoinArgs(done.Output); err != nil {
		t.Fatal(err)
	}
	i.key = certificateKey(t, done.Output)
	// flanneld uses the API server's Service and fails until it answers.
	kubectlOn(t, i.hand, "-n", "kube-system", "rollout", "status", "daemonset/kube-proxy", "--timeout", "2m")
	if done, err = i.kit.ApplyNetwork(t.Context(), i.hand); err != nil {
		t.Fatal(err)
	}
	systemIsUp(t, i.all(i.hand), 1)
	if i.etcd == "" {
		staticPodsAreKnown(t, i.hand)
	}
	i.theirs = dump(t, i.hand)
}

// sameAnswers runs the same questions on kubeadm's control plane.
func (i *interop) sameAnswers(t *testing.T) {
	theirs := i.ask(t, i.hand)
	for line, ours := range i.said {
		same(t, answer(theirs[line], i.hand), answer(ours, i.own))
	}
}

func (i *interop) installJoinsWorker(t *testing.T) {
	i.installJoin(t, i.own)
	nodeIsReady(t, i.hand, i.own)
}

func (i *interop) installJoinsControlPlane(t *testing.T) {
	i.installJoin(t, i.third, "--control-plane", "--certificate-key", i.key)
	nodeIsReady(t, i.hand, i.third)
	twoVoters(t, i.hand)
	systemIsUp(t, i.all(i.hand, i.own, i.third), 3)
	i.workloadRuns(t, i.all(i.hand, i.own, i.third))
}

// installJoin adds a host to kubeadm's cluster. The pod network is the user's, so the test
// copies its CNI plugin and tells install to skip the pod network.
func (i *interop) installJoin(t *testing.T, h *lab.Host, args ...string) {
	t.Helper()
	run(t, h, "sh", "-c", kubeadm.FlannelPlugin)
	typeInstall(t, h, slices.Concat([]string{"join"}, i.join, []string{"--cni", "none"}, args)...)
}

// workloadRuns starts the test's workload on every host, sends requests between the hosts
// to its Service, and removes it.
func (i *interop) workloadRuns(t *testing.T, s *site.Site) {
	t.Helper()
	pods, err := s.Deploy(t.Context(), version)
	if err != nil {
		t.Fatal(err)
	}
	answersAcrossHosts(t, s, pods)
	kubectlOn(t, s.Hosts[0], "delete", "deployment/hello", "service/hello")
	kubectlOn(t, s.Hosts[0], "wait", "--for", "delete", "pods", "-l", "app=hello", "--timeout", "1m")
}

// staticPodsAreKnown waits until the API has the static pods, which may be seconds after
// they started.
func staticPodsAreKnown(t *testing.T, control *lab.Host) {
	t.Helper()
	eventually(t, time.Minute, func() string {
		pods := kubectlOn(t, control, "-n", "kube-system", "get", "pods", "-l", "tier=control-plane", "-o", "name")
		if strings.Count(pods, "pod/") != 4 {
			return "static pods: " + pods
		}
		return ""
	})
}

// allControllersWork waits until the controller manager has started the last of
// its controllers.
func allControllersWork(t *testing.T, control *lab.Host) {
	t.Helper()
	eventually(t, 30*time.Second, func() string {
		if is := kubectlOn(t, control, "get", "serviceaccounts", "-n", "kube-system", "-o", "name"); !strings.Contains(is, "/token-cleaner") {
			return "service accounts: " + is
		}
		if is := kubectlOn(t, control, "get", "node", control.Name, "-o", "jsonpath={.metadata.annotations}"); !strings.Contains(is, "node.alpha.kubernetes.io/ttl") {
			return "the node's annotations: " + is
		}
		return ""
	})
}

// nodeIsReady waits until a host is a Ready node of control's cluster.
func nodeIsReady(t *testing.T, control, h *lab.Host) {
	t.Helper()
	// kubectl wait fails at once for a node that kubeadm's join did not wait for.
	eventually(t, time.Minute, func() string {
		if kubectlOn(t, control, "get", "node", h.Name, "--ignore-not-found", "-o", "name") == "" {
			return h.Name + " has not registered"
		}
		return ""
	})
	kubectlOn(t, control, "wait", "--for", "condition=Ready", "node/"+h.Name, "--timeout", "2m")
	t.Logf("\n%s", kubectlOn(t, control, "get", "nodes", "-o", "wide"))
}

// twoVoters expects two voting etcd members.
func twoVoters(t *testing.T, control *lab.Host) {
	t.Helper()
	members := etcdMembers(t, control)
	t.Logf("etcd's members:\n%s", strings.Join(members, "\n"))
	if len(members) != 2 {
		t.Fatalf("etcd has %d members, want 2", len(members))
	}
	for _, m := range members {
		if !strings.HasSuffix(m, ", false") || !strings.Contains(m, ", started, ") {
			t.Errorf("not a voter: %s", m)
		}
	}
}

// etcdMembers returns etcdctl's list: ID, status, name, addresses, whether it is a
// learner.
func etcdMembers(t *testing.T, control *lab.Host) []string {
	t.Helper()
	const pki = "/etc/kubernetes/pki/etcd/"
	out := kubectlOn(t, control, "-n", "kube-system", "exec", "etcd-"+control.Name, "--", "etcdctl",
		"--cacert", pki+"ca.crt", "--cert", pki+"healthcheck-client.crt", "--key", pki+"healthcheck-client.key", "member", "list")
	return strings.Split(strings.TrimSpace(out), "\n")
}

// forget removes a reset host and its pods from control's cluster. The cluster removes such
// pods within a minute, and a host that joins again sooner would wait for that.
func forget(t *testing.T, control, h *lab.Host) {
	t.Helper()
	kubectlOn(t, control, "delete", "node", h.Name)
	kubectlOn(t, control, "delete", "pods", "-A", "--field-selector", "spec.nodeName="+h.Name, "--force", "--grace-period", "0")
}

// kubectlOn runs kubectl as the administrator on a control plane.
func kubectlOn(t *testing.T, h *lab.Host, args ...string) string {
	t.Helper()
	return run(t, h, append([]string{"kubectl", "--kubeconfig", "/etc/kubernetes/admin.conf"}, args...)...)
}

var keyPattern = regexp.MustCompile(`(?:^|[^:0-9a-f])([0-9a-f]{64})\b`)

// certificateKey finds the key in the output of init: 64 hexadecimal digits without the
// prefix of a CA's hash.
func certificateKey(t *testing.T, out string) string {
	t.Helper()
	m := keyPattern.FindStringSubmatch(out)
	if m == nil {
		t.Fatalf("there is no certificate key in:\n%s", out)
	}
	return m[1]
}

// transcribe logs a command and its output, as on a terminal.
func transcribe(t *testing.T, h *lab.Host, line, out string) {
	t.Helper()
	t.Logf("\nroot@%s:~# %s\n%s", h.Name, line, strings.TrimRight(out, "\n"))
}

// typeInstall runs the installer and logs its output, as on a terminal.
func typeInstall(t *testing.T, h *lab.Host, args ...string) string {
	t.Helper()
	transcribe(t, h, "./install "+strings.Join(args, " "), "")
	return install(t, h, 0, args...)
}

// summary removes the contents that a dry run prints, which are indented.
func summary(out string) string {
	var b strings.Builder
	for line := range strings.Lines(out) {
		if isMessage(line) {
			b.WriteString(line)
		}
	}
	return b.String()
}

// varying are the parts of kubeadm's output that differ between clusters.
var varying = []struct {
	pattern *regexp.Regexp
	instead string
}{
	{regexp.MustCompile(`[A-Z][a-z]{2} \d\d, \d{4} \d\d:\d\d UTC`), "DATE"},
	{regexp.MustCompile(`W\d{4} [\d:.]+`), "WARNING"},
	{regexp.MustCompile(`\b[a-z0-9]{6}\.[a-z0-9]{16}\b`), "TOKEN"},
	{regexp.MustCompile(`Created by '\S*install init' for joining nodes\.`), "<none>"}, // an intended difference
	{regexp.MustCompile(` {2,}`), "  "},                                                // column widths depend on the contents
	{regexp.MustCompile(`(kubelet-config-?|dryrun|WARNING +)[\d-]+`), "$1*"},
}

// answer returns the part of kubeadm's output that must be the same on two control
// planes.
func answer(out string, h *lab.Host) string {
	out = strings.NewReplacer(h.Name, "HOST", h.Addr.String(), "ADDRESS").Replace(plain(out))
	for _, v := range varying {
		out = v.pattern.ReplaceAllString(out, v.instead)
	}
	return out
}
