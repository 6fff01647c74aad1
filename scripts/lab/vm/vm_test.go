//go:build vm

package vm_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"airlift/scripts/lab/site"
	"airlift/scripts/lab/vm"
)

var (
	bundlePath    = flag.String("bundle", "../../../out/install", "the bundle file, as 'make bundle' writes it")
	arch          = flag.String("arch", "amd64", "CPU architecture of the machines and of the bundle: amd64 or arm64")
	extra         = flag.String("packages", "", "additional Debian packages, separated by commas")
	cmdline       = flag.String("cmdline", "", "addition to the kernel's command line")
	controlPlanes = flag.Int("control-planes", 0, "control planes of TestSite, 1 or 3; 0 is what fits on this machine")
	qemuFlags     = flag.String("qemu", "", "additional flags of QEMU, separated by spaces")
)

const (
	// slow multiplies the time limits of tests: machines are emulated.
	slow = 10
	// runLimit limits a command that only looks, installLimit one of the installer.
	runLimit     = 5 * time.Minute
	installLimit = 45 * time.Minute
)

// machines creates a pair of machines that are switched off.
func machines(t *testing.T, change ...func(*vm.Options)) (a, b *vm.Machine) {
	t.Helper()
	pair := create(t, append([]func(*vm.Options){func(o *vm.Options) { o.Machines = 2 }}, change...)...)
	return pair[0], pair[1]
}

// create creates machines that are switched off.
func create(t *testing.T, change ...func(*vm.Options)) []*vm.Machine {
	t.Helper()
	o := vm.Options{Dir: t.TempDir(), Bundle: *bundlePath, Arch: *arch, Log: t.Logf}
	if *extra != "" {
		o.ExtraPackages = strings.Split(*extra, ",")
	}
	for _, c := range change {
		c(&o)
	}
	all, err := vm.Create(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range all {
		m.Append, m.Flags = *cmdline, strings.Fields(*qemuFlags)
		t.Cleanup(func() {
			if t.Failed() {
				diagnose(t, m)
			}
			m.PowerCut()
		})
	}
	return all
}

// TestPowerCuts cuts the power while images are imported and at the first start of etcd. Each
// time the same command is run again, and the last one finishes.
func TestPowerCuts(t *testing.T) {
	m, _ := machines(t)
	timed(t, "power on", func() error { return m.PowerOn(t.Context()) })
	before := files(t, m)
	for _, at := range []struct{ name, script string }{
		{"during the import", `test $(ls /var/lib/containerd/io.containerd.snapshotter.v1.overlayfs/snapshots 2>/dev/null | wc -l) -ge 8`},
		{"at etcd's first start", `test -d /var/lib/etcd/member/wal`},
	} {
		cutDuring(t, m, at.name, at.script)
		timed(t, "power on", func() error { return m.PowerOn(t.Context()) })
	}
	install(t, m, "init")
	systemIsUp(t, m, 1)
	if out := install(t, m, "init"); !strings.Contains(out, "Nothing was changed") {
		t.Errorf("a second init changed something:\n%s", out)
	}
	install(t, m, "reset", "--force")
	same(t, before, files(t, m))
}

// TestMachines runs a cluster on two machines, through reboots and a reset.
func TestMachines(t *testing.T) {
	a, b := machines(t)
	timed(t, "power on", func() error { return vm.PowerOnAll(t.Context(), a, b) })
	before := map[*vm.Machine]string{a: files(t, a), b: files(t, b)}
	t.Logf("machines:\n%s", run(t, a, "sh", "-c", "uname -rv; systemctl --version | head -1; stat -fc %T /sys/fs/cgroup; nproc; free -m | grep Mem; swapon --show; ip -brief address; ip route"))

	join := joinArgs(t, install(t, a, "init"))
	systemIsUp(t, a, 1)
	systemdDriver(t, a)
	install(t, b, join...)
	systemIsUp(t, a, 2)
	systemdDriver(t, b)
	answers(t, a, 2)

	timed(t, "reboot of both", func() error { return vm.RebootAll(t.Context(), a, b) })
	timed(t, "everything is back", func() error {
		systemIsUp(t, a, 2)
		return nil
	})
	answers(t, a, 2)

	for _, m := range []*vm.Machine{b, a} {
		install(t, m, "reset", "--force")
		same(t, before[m], files(t, m))
	}
	install(t, b, joinArgs(t, install(t, a, "init"))...)
	systemIsUp(t, a, 2)
	answers(t, a, 2)
}

// cutDuring starts init and cuts the power as soon as a command on the machine succeeds.
func cutDuring(t *testing.T, m *vm.Machine, when, script string) {
	t.Helper()
	started := time.Now()
	result := make(chan error, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	go func() {
		out, err := m.Output(ctx, site.Installer, "init")
		result <- fmt.Errorf("init ended: %w\n%s", err, out)
	}()
	for {
		if _, err := m.Output(ctx, "sh", "-c", script); err == nil {
			break
		}
		select {
		case err := <-result:
			t.Fatal(err)
		case <-time.After(200 * time.Millisecond):
		}
	}
	if err := m.PowerCut(); err != nil {
		t.Fatal(err)
	}
	<-result
	t.Logf("%s: power cut %s, after %s", m.Name, when, time.Since(started).Round(time.Second))
}

// timed logs how long something takes, and fails if it does.
func timed(t *testing.T, what string, do func() error) {
	t.Helper()
	started := time.Now()
	if err := do(); err != nil {
		t.Fatal(err)
	}
	t.Logf("%s took %s", what, time.Since(started).Round(time.Second))
}

// install runs the installer from the read-only disk and expects success.
func install(t *testing.T, m *vm.Machine, args ...string) (out string) {
	t.Helper()
	timed(t, m.Name+": install "+args[0], func() (err error) {
		ctx, cancel := context.WithTimeout(t.Context(), installLimit)
		defer cancel()
		out, err = site.Install(ctx, m, t.Output(), args...)
		return err
	})
	return out
}

func joinArgs(t *testing.T, out string) []string {
	t.Helper()
	args, err := site.JoinArgs(out)
	if err != nil {
		t.Fatal(err)
	}
	return args
}

func run(t *testing.T, m *vm.Machine, argv ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), runLimit)
	defer cancel()
	out, err := m.Output(ctx, argv...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// systemIsUp waits until all nodes and all pods are Ready.
func systemIsUp(t *testing.T, m *vm.Machine, nodes int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	if err := waitUp(ctx, m, nodes); err != nil {
		t.Fatalf("%s: %v", m.Name, err)
	}
}

// waitUp waits until all nodes and all pods are Ready, as a control plane sees them.
func waitUp(ctx context.Context, m *vm.Machine, nodes int) error {
	c := site.Cluster{Control: m}
	for {
		ready, err := c.Kubectl(ctx, "get", "nodes", "-o", `jsonpath={range .items[*]}{.status.conditions[?(@.type=="Ready")].status}{"\n"}{end}`)
		var pods string
		if err == nil {
			pods, err = c.Kubectl(ctx, "get", "pods", "-A", "--no-headers")
		}
		state := notUp(ready, pods, nodes)
		if err != nil {
			state = err.Error()
		}
		if state == "" {
			return nil
		}
		select {
		case <-time.After(3 * time.Second):
		case <-ctx.Done():
			return fmt.Errorf("%w; last seen: %s", context.Cause(ctx), state)
		}
	}
}

// notUp returns what is not Ready, or "".
func notUp(ready, pods string, nodes int) string {
	if strings.Count(ready, "True\n") != nodes {
		return "Ready nodes: " + strings.Join(strings.Fields(ready), " ")
	}
	for line := range strings.Lines(pods) {
		f := strings.Fields(line)
		if have, want, _ := strings.Cut(f[2], "/"); have != want || f[3] != "Running" {
			return strings.TrimSpace(line)
		}
	}
	if strings.TrimSpace(pods) == "" {
		return "no pods"
	}
	return ""
}

// systemdDriver checks that kubelet, containerd and systemd agree on who manages cgroups.
func systemdDriver(t *testing.T, m *vm.Machine) {
	t.Helper()
	for _, want := range [][2]string{
		{"cgroup2fs", "stat -fc %T /sys/fs/cgroup"},
		{"cgroupDriver: systemd", "grep ^cgroupDriver /var/lib/kubelet/config.yaml"},
		{"SystemdCgroup = true", "grep -o 'SystemdCgroup = .*' /etc/containerd/config.toml"},
		{"active", "systemctl is-active kubepods.slice"},
		{".scope", "systemctl list-units --plain --no-legend 'cri-containerd-*.scope'"},
	} {
		if out := run(t, m, "sh", "-c", want[1]); !strings.Contains(out, want[0]) {
			t.Errorf("%s: %s: %q, want %q", m.Name, want[1], out, want[0])
		}
	}
}

// answers runs a workload with a pod on each node and requests its Service by its DNS name from
// each.
func answers(t *testing.T, control *vm.Machine, nodes int) {
	t.Helper()
	version, err := site.KubernetesVersion(*bundlePath)
	if err != nil {
		t.Fatal(err)
	}
	c := site.Cluster{Control: control, Nodes: nodes, Slow: slow}
	timed(t, fmt.Sprintf("workload on %d nodes", nodes), func() error {
		pods, err := c.Deploy(t.Context(), version)
		if err != nil {
			return err
		}
		if len(pods) != nodes || pods[0].Node == pods[nodes-1].Node && nodes > 1 {
			return fmt.Errorf("the pods are not on %d nodes: %v", nodes, pods)
		}
		answered, err := c.AskEach(t.Context(), pods, c.ServiceURL())
		for _, p := range pods {
			if err == nil && len(answered[p.Name]) != len(pods) {
				err = fmt.Errorf("%s on %s got answers only from %v", p.Name, p.Node, answered[p.Name])
			}
		}
		return err
	})
}

// files lists what reset must restore: files, interfaces, routes, rules, enabled units, mounts.
func files(t *testing.T, m *vm.Machine) string {
	t.Helper()
	return run(t, m, "sh", "-c", `
		find / -xdev \( -path /proc -o -path /sys -o -path /run -o -path /tmp -o -path /var/tmp -o -path /var/log -o -path /root \
			-o -path /var/lib/systemd \) -prune -o -printf '%p %y %m %U:%G %s\n' | grep -v -e '^/etc d' -e ' d 755 0:0 [0-9]*$' | sort
		find / -xdev \( -path /proc -o -path /sys -o -path /run -o -path /tmp -o -path /var/tmp -o -path /var/log -o -path /root \) -prune -o -type d -print | sort
		ip -o link | sed -e 's/^[0-9]*: //' ; ip -4 route
		for save in iptables-save ip6tables-save; do $save | grep -v -e '^[#*]' -e COMMIT -e '^:[A-Z]* ACCEPT' | sed 's/\[[0-9:]*\]//'; done
		systemctl list-unit-files --no-legend --state enabled
		awk '{print $2, $3}' /proc/mounts | grep -v -e binfmt_misc | sort`)
}

// same fails with the differing lines of two listings.
func same(t *testing.T, before, after string) {
	t.Helper()
	have := map[string]int{}
	for line := range strings.Lines(before) {
		have[line]++
	}
	for line := range strings.Lines(after) {
		if have[line]--; have[line] < 0 {
			t.Errorf("new: %s", strings.TrimSpace(line))
		}
	}
	for line, n := range have {
		if n > 0 {
			t.Errorf("gone: %s", strings.TrimSpace(line))
		}
	}
}

// diagnose logs what helps to find the cause of a failure.
func diagnose(t *testing.T, m *vm.Machine) {
	for _, script := range []string{
		"kubectl --kubeconfig /etc/kubernetes/admin.conf get nodes,pods -A -o wide",
		"kubectl --kubeconfig /etc/kubernetes/admin.conf get csr",
		"uptime; free -m; ps -eo times,rss,args --sort=-times | head -n 12 | cut -c1-100",
		"journalctl -u kubelet --no-pager -n 30 -o cat | cut -c1-300",
		"tail -n 20 /var/log/pods/kube-system_kube-controller-manager*/*/*.log | cut -c1-300",
		"tail -n 20 /var/log/pods/kube-system_kube-apiserver*/*/*.log | cut -c1-300; journalctl -u kubelet --no-pager -o cat --grep 'liveness|startup' | tail -n 5 | cut -c1-300",
		"journalctl -u containerd --no-pager -n 15 -o cat | cut -c1-300",
	} {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		out, err := m.Output(ctx, "sh", "-c", script)
		cancel()
		t.Logf("%s: %s (%v)\n%s", m.Name, script, err, out)
	}
}

func TestMain(m *testing.M) {
	flag.Parse()
	if _, err := os.Stat(*bundlePath); err != nil {
		fmt.Fprintf(os.Stderr, "no bundle to test: %v\nmake vm builds it\n", err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}
