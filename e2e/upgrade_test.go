//go:build e2e

package e2e

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"airlift/installer/config"
	"airlift/scripts/kubeadm"
	"airlift/scripts/lab"
	"airlift/scripts/site"
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
	var out bytes.Buffer
	both := io.MultiWriter(&out, t.Output())
	started := time.Now()
	err := h.Exec(t.Context(), nil, both, both, append([]string{newerFile}, args...)...)
	t.Logf("%s: %s took %s", h.Name, strings.Join(args, " "), time.Since(started).Round(10*time.Millisecond))
	if code := exitCode(err); code != wantCode {
		t.Fatalf("%s: %s: exit code %d, want %d\n%s", h.Name, strings.Join(args, " "), code, wantCode, out.String())
	}
	return out.String()
}

// steadyWorkload is a Deployment that can lose a node: three replicas, of which two must stay,
// and each still answers while it leaves the Service.
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
      terminationGracePeriodSeconds: 20
      tolerations: [{key: node-role.kubernetes.io/control-plane, operator: Exists, effect: NoSchedule}]
      affinity: {podAntiAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 100, podAffinityTerm: {topologyKey: kubernetes.io/hostname, labelSelector: {matchLabels: {app: steady}}}}]}}
      containers:
      - name: steady
        image: %s
        imagePullPolicy: Never
        args: [netexec, --http-port=8080]
        readinessProbe: {httpGet: {path: /healthz, port: 8080}, periodSeconds: 1}
        lifecycle: {preStop: {sleep: {seconds: 5}}}
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

// asker requests the Service and the API server ten times a second. It logs each answer that
// does not come, with the time and curl's exit code and message.
const asker = `
count() {
	n=0; failed=0
	while test ! -e /run/asker-stop; do
		n=$((n+1))
		why=$(curl --silent --show-error --fail --insecure --max-time 3 --output /dev/null "$2" 2>&1) || { failed=$((failed+1)); echo "$(date +%s.%N) $? $why" >>/run/asker-$1-failed; }
		echo $n $failed >/run/asker-$1
		sleep 0.1
	done
}
rm -f /run/asker-*
count service http://10.96.77.77/hostname &
count api https://ADDRESS:6443/livez &
wait
`

func ask(t *testing.T, h *lab.Host, api string) {
	t.Helper()
	run(t, h, "systemd-run", "--unit=asker", "sh", "-c", strings.ReplaceAll(asker, "ADDRESS", api))
}

// asked returns how many requests were made, how many failed, and the longest time in which none
// succeeded.
func asked(t *testing.T, h *lab.Host, what string) (requests, failed int, gap time.Duration) {
	t.Helper()
	if _, err := fmt.Sscan(run(t, h, "cat", "/run/asker-"+what), &requests, &failed); err != nil {
		t.Fatal(err)
	}
	var first, last float64
	for line := range strings.Lines(run(t, h, "sh", "-c", "cat /run/asker-"+what+"-failed 2>/dev/null; true")) {
		var at float64
		if _, err := fmt.Sscan(line, &at); err != nil {
			t.Fatal(err)
		}
		if at-last > 3.5 { // longer than a request may take: one succeeded in between
			first = at
		}
		last = at
		gap = max(gap, time.Duration((last-first)*float64(time.Second)))
	}
	return requests, failed, gap
}

// TestUpgrade upgrades a control plane and a worker while a workload answers.
func TestUpgrade(t *testing.T) {
	s := up(t, lab.Options{Name: "e2e-upgrade", Hosts: 2})
	control, worker := s.Hosts[0], s.Hosts[1]
	for _, h := range s.Hosts {
		run(t, h, "sh", "-c", "echo nameserver "+kubeadm.Nameserver(h)+" >/etc/resolv.conf")
	}
	to := carryNewer(t, control, worker)
	versions := func(t *testing.T) string {
		return kubectl(t, s, "get", "nodes", "-o", "jsonpath={.items[*].status.nodeInfo.kubeletVersion}")
	}
	steps := []struct {
		name string
		test func(t *testing.T)
	}{
		{"a cluster of the older version", func(t *testing.T) {
			join, err := site.JoinArgs(install(t, control, 0, "init"))
			if err != nil {
				t.Fatal(err)
			}
			install(t, worker, 0, join...)
			systemIsUp(t, s, 2)
			image, err := site.WorkloadImage(version)
			if err != nil {
				t.Fatal(err)
			}
			workload := fmt.Sprintf(steadyWorkload, image)
			if strings.HasPrefix(version, "v1.29.") { // it has no preStop.sleep
				workload = strings.Replace(workload, "        lifecycle: {preStop: {sleep: {seconds: 5}}}\n", "", 1)
			}
			if err := s.Apply(t.Context(), workload); err != nil {
				t.Fatal(err)
			}
			kubectl(t, s, "rollout", "status", "deployment/steady", "--timeout=2m")
			kubectl(t, s, "-n", "kube-system", "scale", "deployment/coredns", "--replicas=3")
			ask(t, control, control.Addr.String())
			ask(t, worker, control.Addr.String())
		}},
		{"bad input changes nothing", func(t *testing.T) {
			before := hostState(t, control) + hostState(t, worker)
			contains(t, newer(t, worker, 3, "upgrade", "apply", "--yes"), "this host is a worker", "upgrade node")
			contains(t, newer(t, worker, 3, "upgrade", "node"), "upgrade apply")
			contains(t, newer(t, control, 2, "upgrade", "apply", "v1.99.0", "--yes"), "v1.99.0", to)
			contains(t, newer(t, control, 2, "upgrade", "apply"), "--yes")
			contains(t, newer(t, control, 3, "upgrade", "undo", "--yes"), "nothing to undo")
			contains(t, newer(t, control, 0, "upgrade", "apply", "--dry-run"), "kube-apiserver is replaced", "Nothing was changed")
			same(t, before, hostState(t, control)+hostState(t, worker))
		}},
		{"upgrade apply", func(t *testing.T) {
			newer(t, control, 0, "upgrade", "apply", "--yes")
			if got := versions(t); got != to+" "+version {
				t.Errorf("kubelets: %s", got)
			}
		}},
		{"upgrade node", func(t *testing.T) {
			newer(t, worker, 0, "upgrade", "node")
			if got := versions(t); got != to+" "+to {
				t.Errorf("kubelets: %s", got)
			}
		}},
		{"the add-ons", func(t *testing.T) {
			newer(t, control, 0, "upgrade", "apply", "--yes")
			systemIsUp(t, s, 2)
			if image := kubectl(t, s, "-n", "kube-system", "get", "daemonset/kube-proxy", "-o", "jsonpath={.spec.template.spec.containers[0].image}"); !strings.HasSuffix(image, ":"+to) {
				t.Errorf("kube-proxy: %s", image)
			}
			if n := kubectl(t, s, "-n", "kube-system", "get", "deployment/coredns", "-o", "jsonpath={.spec.replicas}"); n != "3" {
				t.Errorf("%s replicas of CoreDNS", n)
			}
		}},
		{"a second time changes nothing", func(t *testing.T) {
			before := footprint(t, s) + hostState(t, worker)
			contains(t, newer(t, control, 0, "upgrade", "apply", "--yes"), "Nothing was changed")
			contains(t, newer(t, worker, 0, "upgrade", "node"), "Nothing was changed")
			same(t, before, footprint(t, s)+hostState(t, worker))
		}},
		{"every request was answered", func(t *testing.T) {
			for _, h := range s.Hosts {
				run(t, h, "touch", "/run/asker-stop")
				requests, failed, gap := asked(t, h, "service")
				t.Logf("%s: Service: %d requests, %d failed, longest gap %s", h.Name, requests, failed, gap.Round(10*time.Millisecond))
				if failed > 0 || requests < 100 {
					t.Errorf("%d of %d requests failed", failed, requests)
				}
				requests, failed, gap = asked(t, h, "api")
				t.Logf("%s: API: %d requests, %d failed, longest gap %s", h.Name, requests, failed, gap.Round(10*time.Millisecond))
			}
		}},
		{"kubeadm accepts the cluster", func(t *testing.T) {
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
		}},
		{"reset", func(t *testing.T) {
			newer(t, control, 0, "reset", "--force")
			if left := run(t, control, "sh", "-c", "ls -d /var/lib/airlift /usr/local/bin/kubelet /etc/kubernetes/manifests 2>/dev/null; true"); left != "" {
				t.Errorf("left: %s", left)
			}
		}},
	}
	for _, step := range steps {
		if !t.Run(step.name, step.test) {
			diagnose(t, s)
			t.FailNow()
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
	steps := []struct {
		name string
		test func(t *testing.T)
	}{
		{"a scheduler that cannot start is put back", func(t *testing.T) {
			run(t, h, "sh", "-c", `mkdir -p /root/patches && printf '%s' '[{"op":"add","path":"/spec/containers/0/command/-","value":"--no-such-flag"}]' >/root/patches/kube-scheduler+json.json`)
			out := newer(t, h, 1, "upgrade", "apply", "--yes", "--patches", "/root/patches")
			contains(t, out, "unknown flag: --no-such-flag", "kube-scheduler", "is in place again", "upgrade undo")
			same(t, before, images(t))
			systemIsUp(t, s, 1)
		}},
		{"killed at any moment, the same command finishes", func(t *testing.T) {
			contains(t, newer(t, h, 0, "upgrade", "apply", "--dry-run"), "kube-scheduler is replaced", "Nothing was changed")
			runs := 0
			for seconds := 6; ; seconds += 9 {
				runs++
				_, err := h.Output(t.Context(), "timeout", "-s", "KILL", fmt.Sprint(seconds), newerFile, "upgrade", "apply", "--yes", "--skip-file-check")
				if err == nil {
					break
				}
				if code := exitCode(err); code != 137 && code != -1 {
					t.Fatalf("run %d: %v", runs, err)
				}
			}
			t.Logf("%d runs", runs)
			if got := kubectl(t, s, "get", "nodes", "-o", "jsonpath={.items[*].status.nodeInfo.kubeletVersion}"); got != to {
				t.Errorf("kubelet: %s", got)
			}
			systemIsUp(t, s, 1)
			contains(t, newer(t, h, 0, "upgrade", "apply", "--yes"), "Nothing was changed")
		}},
		{"undo", func(t *testing.T) {
			newer(t, h, 0, "upgrade", "apply", "--yes") // if this step runs alone
			contains(t, newer(t, h, 0, "upgrade", "undo", "--yes"), version+" again")
			same(t, before, images(t))
			systemIsUp(t, s, 1)
			if got := kubectl(t, s, "get", "nodes", "-o", "jsonpath={.items[*].status.nodeInfo.kubeletVersion}"); got != version {
				t.Errorf("kubelet: %s", got)
			}
			contains(t, install(t, h, 0, "init", "-v", "1"), "Nothing was changed")
		}},
	}
	for _, step := range steps {
		if !t.Run(step.name, step.test) {
			diagnose(t, s)
			t.FailNow()
		}
	}
}
