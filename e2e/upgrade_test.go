//go:build e2e

package e2e

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"airlift/installer/config"
	"airlift/installer/flow/upgrade"
	"airlift/scripts/lab"
	"airlift/scripts/lab/kubeadm"
	"airlift/scripts/lab/site"
)

var newerPath = flag.String("newer", "../out/newer", "the bundle file with a newer version, as 'make newer' writes it, for the tests of upgrades")

// newerFile is the path of that bundle on a host.
const newerFile = "/root/newer"

// carryNewer copies the newer bundle to the hosts and returns its version.
func carryNewer(t *testing.T, hosts ...*lab.Host) string {
	t.Helper()
	file, err := filepath.Abs(*newerPath)
	if err != nil {
		t.Fatal(err)
	}
	to, err := site.KubernetesVersion(file)
	if err != nil {
		t.Fatalf("no newer bundle: %v\nmake newer builds it", err)
	}
	for _, h := range hosts {
		if _, err := h.CopyIn(t.Context(), file, newerFile, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return to
}

// newer runs the newer bundle on a host and expects an exit code.
func newer(t *testing.T, h *lab.Host, wantCode int, args ...string) string {
	t.Helper()
	out, code := runNewer(t, h, args...)
	if code != wantCode {
		t.Fatalf("%s: %s: exit code %d, want %d\n%s", h.Name, strings.Join(args, " "), code, wantCode, out)
	}
	return out
}

// runNewer runs the newer bundle on a host, and returns its output and its exit code.
func runNewer(t *testing.T, h *lab.Host, args ...string) (string, int) {
	var out bytes.Buffer
	both := io.MultiWriter(&out, t.Output())
	started := time.Now()
	err := h.Exec(t.Context(), nil, both, both, append([]string{newerFile}, args...)...)
	t.Logf("%s: %s took %s", h.Name, strings.Join(args, " "), time.Since(started).Round(10*time.Millisecond))
	return out.String(), exitCode(err)
}

// steadyWorkload is a Deployment that can lose a node: three replicas, of which two must stay,
// and each still answers while it leaves the Service. It requests a share of the processors: without one it has 2 of the
// about 1,000 shares of a host that imports images, and on a small machine does not answer for seconds. For the same reason
// it answers for 15 seconds after its end began: kube-proxy, which requests nothing, hears of it late. Pod Security restricted accepts it.
const steadyWorkload = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: steady}
spec:
  replicas: 3
  selector: {matchLabels: {app: steady}}
  template:
    metadata: {labels: {app: steady}}
    spec:
      terminationGracePeriodSeconds: 30
      securityContext: {runAsNonRoot: true, runAsUser: 1000, seccompProfile: {type: RuntimeDefault}}
      tolerations: [{key: node-role.kubernetes.io/control-plane, operator: Exists, effect: NoSchedule}]
      affinity: {podAntiAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 100, podAffinityTerm: {topologyKey: kubernetes.io/hostname, labelSelector: {matchLabels: {app: steady}}}}]}}
      containers:
      - name: steady
        image: %s
        imagePullPolicy: Never
        args: [netexec, --http-port=8080, --delay-shutdown=15]
        securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
        resources: {requests: {cpu: 100m}}
        readinessProbe: {httpGet: {path: /healthz, port: 8080}, periodSeconds: 1, timeoutSeconds: 5}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: steady}
spec: {minAvailable: 2, selector: {matchLabels: {app: steady}}}
---
apiVersion: v1
kind: Service
metadata: {name: steady}
spec:
  clusterIP: 10.96.77.77
  selector: {app: steady}
  ports: [{port: 80, targetPort: 8080}]
`

// asker requests the Service and the API servers ten times a second each. Of several API
// servers, api asks the next when one does not answer, as a load balancer does, and the others
// ask one each. A request that nobody answers is logged with the time and curl's message. The
// gap is the longest time in milliseconds between two answers with such a request in between.
const asker = `
ask() {
	name=$1; shift
	n=0; failed=0; gap=0; lost=no; good=$(date +%s%N)
	while test ! -e /run/asker-stop; do
		n=$((n+1)); answered=no
		for url; do
			if why=$(curl --silent --show-error --fail --insecure --max-time 3 --output /dev/null $url 2>&1); then answered=yes; break; fi
		done
		now=$(date +%s%N)
		if test $answered = no; then failed=$((failed+1)); lost=yes; echo "$(date +%T.%N) $why" >>/run/asker-$name-failed; fi
		if test $lost = yes && test $(((now-good)/1000000)) -gt $gap; then gap=$(((now-good)/1000000)); fi
		if test $answered = yes; then good=$now; lost=no; fi
		echo $n $failed $gap >/run/asker-$name
		sleep 0.1
	done
}
rm -f /run/asker-*
until curl --silent --fail --max-time 3 --output /dev/null http://10.96.77.77/hostname; do sleep 0.2; done
ask service http://10.96.77.77/hostname &
`

// An upgraded is a cluster of the older version with a workload that answers while the cluster is
// upgraded.
type upgraded struct {
	*site.Site
	control, worker *lab.Host   // the first of each
	hosts           []*lab.Host // the nodes, the control planes first
	planes          int         // the number of control planes
	to              string
	init            []string // further arguments of init
}

func newUpgraded(t *testing.T, name string, planes, workers int) *upgraded {
	u := newSteady(t, name, planes, workers)
	u.to = carryNewer(t, u.hosts...)
	return u
}

// newSteady has the hosts of a cluster with such a workload.
func newSteady(t *testing.T, name string, planes, workers int) *upgraded {
	s := up(t, lab.Options{Name: name, Hosts: planes + workers})
	for _, h := range s.Hosts {
		run(t, h, "sh", "-c", "echo nameserver "+kubeadm.Nameserver(h)+" >/etc/resolv.conf")
	}
	return &upgraded{Site: s, control: s.Hosts[0], worker: s.Hosts[planes], hosts: s.Hosts, planes: planes}
}

// create makes the cluster and the workload, and starts the requests.
func (u *upgraded) create(t *testing.T) {
	args := slices.Concat([]string{"init"}, u.init)
	if u.planes > 1 {
		args = append(args, "--control-plane-endpoint", endpoint+":6443", "--upload-certs")
		for i, h := range u.Hosts { // as a load balancer would spread them
			endpointAt(t, h, u.Hosts[i%u.planes])
		}
		endpointAt(t, u.Hosts[1], u.control)
		endpointAt(t, u.Hosts[2], u.control)
	}
	out := install(t, u.control, 0, args...)
	join, err := site.JoinArgs(out)
	if err != nil {
		t.Fatal(err)
	}
	for i, h := range u.Hosts[1:] {
		if i+1 >= u.planes {
			install(t, h, 0, join...)
			continue
		}
		install(t, h, 0, append(slices.Clone(join), "--control-plane", "--certificate-key", certificateKey(t, out))...)
		endpointAt(t, h, h)
	}
	systemIsUp(t, u.Site, len(u.Hosts))
	u.ask(t)
}

// ask makes the workload, and starts the requests.
func (u *upgraded) ask(t *testing.T) {
	t.Helper()
	image, err := site.WorkloadImage(version)
	if err != nil {
		t.Fatal(err)
	}
	if err := u.Apply(t.Context(), fmt.Sprintf(steadyWorkload, image)); err != nil {
		t.Fatal(err)
	}
	kubectl(t, u.Site, "rollout", "status", "deployment/steady", "--timeout=2m")
	kubectl(t, u.Site, "-n", "kube-system", "scale", "deployment/coredns", "--replicas=3")
	u.start(t)
}

// start starts the requests.
func (u *upgraded) start(t *testing.T) {
	t.Helper()
	var script, all strings.Builder
	script.WriteString(asker)
	for _, h := range u.hosts[:u.planes] {
		url := " https://" + h.Addr.String() + ":6443/livez"
		all.WriteString(url)
		if u.planes > 1 {
			fmt.Fprintf(&script, "ask api-%s%s &\n", h.Name, url)
		}
	}
	fmt.Fprintf(&script, "ask api%s &\nwait\n", all.String())
	for _, h := range []*lab.Host{u.control, u.worker} {
		run(t, h, "systemd-run", "--unit=asker", "sh", "-c", script.String())
	}
}

// An asked counts the requests of a host to the Service or to API servers.
type asked struct {
	from             *lab.Host
	name             string
	requests, failed int
	gap              time.Duration // the longest time between two answers with a failed request in between
}

// stop ends the requests, and returns what was asked and answered.
func (u *upgraded) stop(t *testing.T) (answers []asked) {
	t.Helper()
	names := []string{"service", "api"}
	for _, plane := range u.hosts[:u.planes] {
		if u.planes > 1 {
			names = append(names, "api-"+plane.Name)
		}
	}
	for _, h := range []*lab.Host{u.control, u.worker} {
		// Each of them has asked at least once.
		run(t, h, "sh", "-c", "for i in $(seq 150); do test -e /run/asker-service && test -e /run/asker-api && break; sleep 0.2; done; sleep 1; touch /run/asker-stop; while systemctl --quiet is-active asker; do sleep 0.2; done")
		for _, name := range names {
			a, gap := asked{from: h, name: name}, 0
			if _, err := fmt.Sscan(run(t, h, "cat", "/run/asker-"+name), &a.requests, &a.failed, &gap); err != nil {
				t.Fatal(err)
			}
			a.gap = time.Duration(gap) * time.Millisecond
			answers = append(answers, a)
		}
	}
	return answers
}

// answered logs what was asked and answered. Of the Service's requests, every one must be.
func (u *upgraded) answered(t *testing.T) {
	for _, a := range u.stop(t) {
		t.Logf("%s: %s: %d requests, %d failed, longest gap %s", a.from.Name, a.name, a.requests, a.failed, a.gap)
		if a.name == "service" && (a.failed > 0 || a.requests < 100) {
			t.Errorf("%d of %d requests to the Service failed:\n%s", a.failed, a.requests, run(t, a.from, "sh", "-c", "cat /run/asker-service-failed; true"))
			t.Logf("\n%s", kubectl(t, u.Site, "get", "events", "-n", "default", "--sort-by", ".lastTimestamp", "-o", "wide"))
		}
		if a.name == "api" && u.planes > 1 && a.failed > 0 {
			t.Logf("no API server answered:\n%s", run(t, a.from, "cat", "/run/asker-api-failed"))
		}
	}
}

// have expects these versions of the kubelets, in the order of the hosts.
func (u *upgraded) have(t *testing.T, want ...string) {
	t.Helper()
	if got := kubectl(t, u.Site, "get", "nodes", "-o", "jsonpath={.items[*].status.nodeInfo.kubeletVersion}"); got != strings.Join(want, " ") {
		t.Errorf("kubelets: %s, want %s", got, want)
	}
}

// addOnsAreNew expects the add-ons of the newer version, and as many replicas as before.
func (u *upgraded) addOnsAreNew(t *testing.T) {
	t.Helper()
	systemIsUp(t, u.Site, len(u.hosts))
	if image := kubectl(t, u.Site, "-n", "kube-system", "get", "daemonset/kube-proxy", "-o", "jsonpath={.spec.template.spec.containers[0].image}"); !strings.HasSuffix(image, ":"+u.to) {
		t.Errorf("kube-proxy: %s", image)
	}
	if n := kubectl(t, u.Site, "-n", "kube-system", "get", "deployment/coredns", "-o", "jsonpath={.spec.replicas}"); n != "3" {
		t.Errorf("%s replicas of CoreDNS", n)
	}
}

// A stage is one step of a test; the next ones depend on it.
type stage struct {
	name string
	test func(t *testing.T)
}

func inOrder(t *testing.T, s *site.Site, steps []stage) {
	for _, step := range steps {
		if !t.Run(step.name, step.test) {
			diagnose(t, s)
			t.FailNow()
		}
	}
}

// TestUpgrade upgrades a control plane and a worker while a workload answers.
func TestUpgrade(t *testing.T) {
	u := newUpgraded(t, "e2e-upgrade", 1, 1)
	control, worker, to := u.control, u.worker, u.to
	inOrder(t, u.Site, []stage{
		{"a cluster of the older version", u.create},
		{"bad input changes nothing", func(t *testing.T) {
			before := hostState(t, control) + hostState(t, worker)
			contains(t, newer(t, worker, 3, "upgrade", "apply", "--yes"), "this host is a worker", "upgrade node")
			contains(t, newer(t, worker, 3, "upgrade", "node"), "upgrade apply")
			contains(t, newer(t, control, 2, "upgrade", "apply", "v1.99.0", "--yes"), "v1.99.0", to)
			contains(t, newer(t, control, 2, "upgrade", "apply"), "--yes")
			contains(t, newer(t, control, 3, "upgrade", "undo", "--yes"), "nothing to undo")
			contains(t, newer(t, control, 0, "upgrade", "apply", "--dry-run"), "manifests/kube-apiserver.yaml changes", "Nothing was changed")
			same(t, before, hostState(t, control)+hostState(t, worker))
		}},
		{"upgrade apply", func(t *testing.T) {
			var shown []string
			for _, c := range plan(t, control, 0, newerFile).Changes {
				if strings.HasPrefix(c.Name, "/") {
					shown = append(shown, c.Name)
				}
			}
			slices.Sort(shown)
			before := checksums(t, control, configured+" /usr/local /opt/cni")
			contains(t, newer(t, control, 0, "upgrade", "apply", "--yes"), "is postponed until these nodes have its image: host2", " upgrade apply")
			u.have(t, to, version)
			renewed := regexp.MustCompile(`^/etc/kubernetes/(pki/|(admin|super-admin|controller-manager|scheduler)\.conf)`)
			if is := written(before, checksums(t, control, configured+" /usr/local /opt/cni"), renewed); !slices.Equal(is, shown) {
				t.Errorf("the plan shows\n%s\nthe upgrade wrote\n%s", strings.Join(shown, "\n"), strings.Join(is, "\n"))
			}
		}},
		{"upgrade node", func(t *testing.T) {
			newer(t, worker, 0, "upgrade", "node")
			u.have(t, to, to)
		}},
		{"the add-ons", func(t *testing.T) {
			newer(t, control, 0, "upgrade", "apply", "--yes")
			u.addOnsAreNew(t)
		}},
		{"a second time changes nothing", func(t *testing.T) {
			before := footprint(t, u.Site) + hostState(t, worker)
			contains(t, newer(t, control, 0, "upgrade", "apply", "--yes"), "Nothing was changed")
			contains(t, newer(t, worker, 0, "upgrade", "node"), "Nothing was changed")
			same(t, before, footprint(t, u.Site)+hostState(t, worker))
		}},
		{"every request was answered", u.answered},
		{"kubeadm accepts the cluster", u.kubeadmAccepts},
		{"reset", func(t *testing.T) {
			newer(t, control, 0, "reset", "--force")
			if left := run(t, control, "sh", "-c", "ls -d /var/lib/airlift /usr/local/bin/kubelet /etc/kubernetes/manifests 2>/dev/null; true"); left != "" {
				t.Errorf("left: %s", left)
			}
		}},
	})
}

// TestUpgradeControlPlanes upgrades three control planes and two workers while a workload answers.
// All nodes get the images before, so the last control plane upgrades the add-ons.
func TestUpgradeControlPlanes(t *testing.T) {
	u := newUpgraded(t, "e2e-upgrade3", 3, 2)
	to := u.to
	inOrder(t, u.Site, []stage{
		{"a cluster of the older version", u.create},
		{"the images are on all nodes", func(t *testing.T) {
			for _, h := range u.Hosts[1:] {
				newer(t, h, 0, "upgrade", "node", "phase", "unpack")
			}
			u.have(t, version, version, version, version, version)
		}},
		{"the control planes", func(t *testing.T) {
			contains(t, newer(t, u.control, 0, "upgrade", "apply", "--yes"), "kube-proxy is postponed until these control planes are upgraded: host2, host3", "The last control plane upgrades the add-ons")
			u.have(t, to, version, version, version, version)
			// Both at once: the second one waits for the first one.
			var outs [2]string
			var both sync.WaitGroup
			for i, h := range u.Hosts[1:3] {
				both.Go(func() {
					code := 0
					if outs[i], code = runNewer(t, h, "upgrade", "node"); code != 0 {
						t.Errorf("%s: exit code %d", h.Name, code)
					}
				})
			}
			both.Wait()
			postponed, waited := 0, 0
			for i, out := range outs {
				if strings.Contains(out, "kube-proxy is postponed until these control planes are upgraded: host"+fmt.Sprint(3-i)) {
					postponed++
				}
				if strings.Contains(out, "host"+fmt.Sprint(3-i)+" restarts its control plane") {
					waited++
				}
			}
			if postponed != 1 || waited != 1 {
				t.Errorf("%d control planes postponed an add-on, %d waited for the other one:\n%s\n%s", postponed, waited, outs[0], outs[1])
			}
			u.have(t, to, to, to, version, version)
			u.addOnsAreNew(t)
			voters(t, u.control, 3)
		}},
		{"the workers", func(t *testing.T) {
			for _, h := range u.Hosts[3:] {
				newer(t, h, 0, "upgrade", "node")
			}
			u.have(t, to, to, to, to, to)
			systemIsUp(t, u.Site, len(u.Hosts))
		}},
		{"every request was answered", u.answered},
		{"nothing is left to do", func(t *testing.T) {
			contains(t, newer(t, u.control, 0, "upgrade", "apply", "--yes"), "Nothing was changed")
			contains(t, newer(t, u.Hosts[2], 0, "upgrade", "node"), "Nothing was changed")
			contains(t, newer(t, u.worker, 0, "upgrade", "node"), "Nothing was changed")
			noProbes(t, u.Site)
		}},
	})
}

// noProbes checks that the objects with which an upgrade checks the cluster are gone.
func noProbes(t *testing.T, s *site.Site) {
	t.Helper()
	if left := kubectl(t, s, "get", "services,endpointslices", "-A", "-l", "airlift.dev/controller-probe", "-o", "name"); left != "" {
		t.Errorf("an upgrade left %s", left)
	}
}

// kubeadmAccepts runs commands of real kubeadm, which must agree with the upgraded cluster.
func (u *upgraded) kubeadmAccepts(t *testing.T) {
	control, to := u.control, u.to
	kit, err := kubeadm.Gather(t.Context(), to, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range kit.Programs {
		if base := path.Base(p.Remote); base == "kubeadm" || base == "crictl" {
			if _, err := control.CopyIn(t.Context(), p.Local, p.Remote, 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
	contains(t, run(t, control, "kubeadm", "certs", "check-expiration"), "apiserver-etcd-client", "scheduler.conf")
	contains(t, run(t, control, "kubeadm", "upgrade", "plan", to, "--ignore-preflight-errors="+kit.IgnoredChecks(), "--allow-experimental-upgrades"), to)
	// The kubelet's configuration differs, because this host has cgroup v1.
	for name, content := range filesWritten(run(t, control, "kubeadm", "upgrade", "node", "--dry-run", "--ignore-preflight-errors="+kit.IgnoredChecks())) {
		if path.Dir(name) != config.ManifestsDir {
			continue
		}
		would, is := document(t, content), document(t, run(t, control, "cat", name))
		for _, field := range sortedUnion(would, is) {
			if would[field] != is[field] && !slices.Contains(startupPeriod, field) {
				t.Errorf("kubeadm would change %s in %s: from %q to %q", field, name, is[field], would[field])
			}
		}
	}
}

// TestUpgradeFails breaks, kills and undoes upgrades of one control plane.
func TestUpgradeFails(t *testing.T) {
	s := up(t, lab.Options{Name: "e2e-upgradefails", Hosts: 1})
	h := s.Hosts[0]
	to := carryNewer(t, h)
	install(t, h, 0, "init")
	systemIsUp(t, s, 1)
	images := func(t *testing.T) string {
		return run(t, h, "sh", "-c", "grep -h image: /etc/kubernetes/manifests/*.yaml; /usr/local/bin/kubelet --version")
	}
	before := images(t)
	manifests := func() string { return run(t, h, "sh", "-c", "sha256sum /etc/kubernetes/manifests/*") }
	beforeAll := manifests()
	inOrder(t, s, []stage{
		{"a scheduler that cannot start is restored", func(t *testing.T) {
			run(t, h, "sh", "-c", `mkdir -p /root/patches && printf '%s' '[{"op":"add","path":"/spec/containers/0/command/-","value":"--no-such-flag"}]' >/root/patches/kube-scheduler+json.json`)
			out := newer(t, h, 1, "upgrade", "apply", "--yes", "--patches", "/root/patches")
			contains(t, out, "unknown flag: --no-such-flag", "kube-scheduler", "is restored", "upgrade undo")
			same(t, before, images(t))
			systemIsUp(t, s, 1)
		}},
		{"interrupted between two manifests", func(t *testing.T) {
			// interrupt sends a signal while the previous pod ends, and reports whether its manifest is left.
			interrupt := func(component, signal string) (left bool) {
				script := fmt.Sprintf(`env --default-signal=INT %s upgrade apply --yes >/root/interrupted.log 2>&1 & pid=$!
until grep -q airlift.dev/replaced %[2]s || ! kill -0 $pid; do sleep 0.02; done
kill -%[3]s $pid; wait $pid; echo "exit $?"; ! grep -q airlift.dev/replaced %[2]s || echo left`, newerFile, path.Join(config.ManifestsDir, component+".yaml"), signal)
				out := run(t, h, "sh", "-c", script)
				if want := map[string]string{"INT": "exit 130", "KILL": "exit 137"}[signal]; !strings.Contains(out, want) {
					t.Fatalf("%s at %s: %s\n%s", signal, component, out, run(t, h, "cat", "/root/interrupted.log"))
				}
				return strings.Contains(out, "left")
			}
			if !interrupt("kube-apiserver", "KILL") {
				t.Fatal("the API server does not have its previous manifest")
			}
			systemIsUp(t, s, 1) // the kubelet starts the previous version
			contains(t, newer(t, h, 0, "upgrade", "plan"), "kube-apiserver")
			if interrupt("kube-controller-manager", "INT") {
				t.Error("after Ctrl-C, the controller manager has no new manifest")
			}
			newer(t, h, 0, "upgrade", "undo", "--yes")
			same(t, before, images(t))
			systemIsUp(t, s, 1)
			if !interrupt("kube-controller-manager", "KILL") { // the next stage continues
				t.Fatal("the controller manager does not have its previous manifest")
			}
		}},
		{"killed at every step, the same command finishes", func(t *testing.T) {
			contains(t, newer(t, h, 0, "upgrade", "apply", "--dry-run"), "manifests/kube-scheduler.yaml changes", "Nothing was changed")
			steps := len(upgrade.ApplyPhases())
			for step := 1; step <= steps; step++ {
				for _, after := range []string{"0", "1.5"} {
					// The process is killed when it has printed the step's line, or a moment later.
					script := fmt.Sprintf(`%s upgrade apply --yes --skip-file-check >/root/killed.log 2>&1 & pid=$!
until grep -q '^\[ *%d/' /root/killed.log; do kill -0 $pid 2>/dev/null || break; sleep 0.02; done
sleep %s; kill -9 $pid 2>/dev/null; wait $pid; echo "exit $?"`, newerFile, step, after)
					out := run(t, h, "sh", "-c", script)
					if !strings.Contains(out, "exit 137") && !strings.Contains(out, "exit 0") {
						t.Fatalf("step %d, %s s later: %s\n%s", step, after, out, run(t, h, "cat", "/root/killed.log"))
					}
				}
			}
			newer(t, h, 0, "upgrade", "apply", "--yes")
			if got := kubectl(t, s, "get", "nodes", "-o", "jsonpath={.items[*].status.nodeInfo.kubeletVersion}"); got != to {
				t.Errorf("kubelet: %s", got)
			}
			systemIsUp(t, s, 1)
			contains(t, newer(t, h, 0, "upgrade", "apply", "--yes"), "Nothing was changed")
			noProbes(t, s)
		}},
		{"undo", func(t *testing.T) {
			newer(t, h, 0, "upgrade", "apply", "--yes") // if this step runs alone
			// Another apply of the same version does not change what undo returns to.
			run(t, h, "sh", "-c", `mkdir -p /root/verbose && printf '%s' '[{"op":"add","path":"/spec/containers/0/command/-","value":"--v=3"}]' >/root/verbose/kube-scheduler+json.json`)
			newer(t, h, 0, "upgrade", "apply", "--yes", "--patches", "/root/verbose")
			contains(t, run(t, h, "cat", "/etc/kubernetes/manifests/kube-scheduler.yaml"), "--v=3")
			// Another control plane has the turn for the next ten seconds. Its clock is wrong.
			const turn = "airlift-control-plane"
			kubectl(t, s, "delete", "lease", "-n", "kube-system", turn, "--ignore-not-found")
			run(t, h, "sh", "-c", fmt.Sprintf(`kubectl --kubeconfig /etc/kubernetes/admin.conf create -f - <<EOF
{"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "%s", "namespace": "kube-system"},
 "spec": {"holderIdentity": "other", "leaseDurationSeconds": 10, "renewTime": "2024-01-01T00:00:00.000000Z"}}
EOF`, turn))
			upgraded := images(t)
			contains(t, run(t, h, "sh", "-c", fmt.Sprintf(`env --default-signal=INT %s upgrade undo --yes >/root/waiting.log 2>&1 & pid=$!
until grep -q 'waiting: other' /root/waiting.log; do kill -0 $pid || break; sleep 0.1; done
kill -INT $pid; wait $pid; echo "exit $?"`, newerFile)), "exit 130")
			same(t, upgraded, images(t))
			contains(t, newer(t, h, 0, "upgrade", "undo", "--yes"), "waiting: other restarts its control plane", version+" again")
			if left := kubectl(t, s, "get", "lease", "-n", "kube-system", turn, "--ignore-not-found"); left != "" {
				t.Errorf("the turn was not given up: %s", left)
			}
			same(t, before, images(t))
			same(t, beforeAll, manifests())
			systemIsUp(t, s, 1)
			if got := kubectl(t, s, "get", "nodes", "-o", "jsonpath={.items[*].status.nodeInfo.kubeletVersion}"); got != version {
				t.Errorf("kubelet: %s", got)
			}
			contains(t, install(t, h, 0, "init", "-v", "1"), "Nothing was changed")
		}},
	})
}
