//go:build vm

package vm_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"airlift/scripts/lab/site"
	"airlift/scripts/lab/vm"
)

// kinds are kinds of hosts that a container of the lab cannot be. Each runs on one machine.
var kinds = []struct {
	name, about string
	packages    []string
	cmdline     string
	memory      int    // MiB
	prepare     string // a script on the machine; it may also reboot it
	refused     string // what init without args must say; "" if it must succeed
	args        []string
	check       string // a script that must succeed while the node runs
}{
	{
		name: "swap", about: "swap on: refused, unless the kubelet accepts it",
		prepare: `
			dd if=/dev/zero of=/swapfile bs=1M count=256 status=none
			chmod 600 /swapfile && mkswap /swapfile >/dev/null && swapon /swapfile
			` + acceptSwap,
		refused: "swap is on", args: []string{"--config", "/root/swap.yaml"},
		check: `swapon --show | grep -q swapfile && grep -q 'failSwapOn: false' /var/lib/kubelet/config.yaml`,
	},
	{
		name: "zram", about: "swap on zram: refused, unless the kubelet accepts it",
		prepare: `
			modprobe zram && echo 256M >/sys/block/zram0/disksize && mkswap /dev/zram0 >/dev/null && swapon /dev/zram0
			` + acceptSwap,
		refused: "swap is on", args: []string{"--config", "/root/swap.yaml"},
		check: `swapon --show | grep -q zram`,
	},
	{
		name: "1-gb", about: "1 GB of memory: refused, unless the check Mem is ignored",
		memory: 1024, refused: "memory", args: []string{"--ignore-preflight-errors", "Mem"},
	},
	{
		name: "selinux", about: "SELinux enforcing, with Debian's policy",
		packages: []string{"selinux-basics", "selinux-policy-default", "policycoreutils"},
		cmdline:  "security=selinux selinux=1",
		prepare: `
			sed -i s/^SELINUX=.*/SELINUX=enforcing/ /etc/selinux/config
			fixfiles -f relabel >/dev/null 2>&1
			systemd-run --quiet --on-active=10 systemctl reboot`,
		check: `test "$(getenforce)" = Enforcing`,
	},
}

// acceptSwap writes a configuration file with which the kubelet starts although swap is on.
const acceptSwap = `
	printf '%s\n' 'apiVersion: kubeadm.k8s.io/v1beta4' 'kind: ClusterConfiguration' --- \
		'apiVersion: kubelet.config.k8s.io/v1beta1' 'kind: KubeletConfiguration' 'failSwapOn: false' >/root/swap.yaml`

// TestKinds installs a node on each kind of machine, with a workload, and resets it.
func TestKinds(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			t.Log(k.about)
			m, _ := machines(t, func(o *vm.Options) { o.ExtraPackages = append(o.ExtraPackages, k.packages...) })
			m.Append = strings.TrimSpace(m.Append + " " + k.cmdline)
			if k.memory > 0 {
				m.Memory = k.memory
			}
			timed(t, "power on", func() error { return m.PowerOn(t.Context()) })
			if k.prepare != "" {
				before := run(t, m, "cat", "/proc/sys/kernel/random/boot_id")
				run(t, m, "sh", "-ec", k.prepare)
				if strings.Contains(k.prepare, "reboot") {
					timed(t, "reboot", func() error { return m.WaitBooted(t.Context(), before) })
				}
			}
			before := files(t, m)
			if k.refused != "" {
				out, err := site.Install(t.Context(), m, t.Output(), "init")
				if err == nil || !strings.Contains(out, k.refused) {
					t.Fatalf("init: %v, want a refusal with %q", err, k.refused)
				}
				same(t, before, files(t, m))
			}
			install(t, m, append([]string{"init"}, k.args...)...)
			systemIsUp(t, m, 1)
			answers(t, m, 1)
			if k.check != "" {
				run(t, m, "sh", "-ec", k.check)
			}
			install(t, m, "reset", "--force")
			same(t, before, files(t, m))
		})
	}
}

// TestClocks joins a machine whose clock is two hours behind, then two hours ahead. The first
// cannot work: certificates of the cluster are not valid yet. After the second, the test of the cluster
// finds the difference, which lab hosts cannot have: they share a kernel.
func TestClocks(t *testing.T) {
	a, b := machines(t)
	behind := time.Now().UTC().Add(-2 * time.Hour).Format("2006-01-02T15:04:05")
	b.Flags = append(b.Flags, "-rtc", "base="+behind+",clock=vm")
	timed(t, "power on", func() error { return vm.PowerOnAll(t.Context(), a, b) })
	join := joinArgs(t, install(t, a, "init"))
	systemIsUp(t, a, 1)

	before := files(t, b)
	out, err := site.Install(t.Context(), b, t.Output(), join...)
	if err == nil || !strings.Contains(out, "behind the control plane's clock") || !strings.Contains(out, "timedatectl set-time") {
		t.Errorf("a clock two hours behind: %v, want an error with the difference and a hint", err)
	}
	same(t, before, files(t, b))

	run(t, b, "date", "-s", fmt.Sprintf("@%d", time.Now().Add(2*time.Hour).Unix()))
	install(t, b, join...)
	systemIsUp(t, a, 2)
	answers(t, a, 2)
	out, err = site.Install(t.Context(), a, t.Output(), "test")
	for _, want := range []string{"its clock differs from the clocks of other nodes: the clock of ", "the clock of " + b.Name, "timedatectl"} {
		if err == nil || !strings.Contains(out, want) {
			t.Errorf("the test of the cluster: %v, want %q in:\n%s", err, want, out)
		}
	}
	for _, m := range []*vm.Machine{b, a} {
		install(t, m, "reset", "--force")
	}
	same(t, before, files(t, b))
}
