package preflight

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"

	"airlift/installer/config"
)

// system is kubeadm's SystemVerification: the kernel and the cgroup controllers.
// It also checks that the controllers are writable.
func (s *subject) system(context.Context) []Problem {
	found := s.kernel()
	var missing, readOnly []string
	var err error
	if s.Config.Facts.CgroupVersion == 2 {
		missing, err = s.missingControllersV2()
	} else {
		missing, readOnly, err = s.controllersV1()
		if s.Config.Minor() >= 35 {
			found = append(found, Warn("boot with systemd.unified_cgroup_hierarchy=1",
				"this host uses cgroup v1, which Kubernetes %s no longer supports by default: Airlift sets failCgroupV1: false, so that the kubelet starts", s.Config.KubernetesVersion)...)
		}
	}
	if err != nil {
		return append(found, Fail("", "reading the cgroup controllers: %v", err)...)
	}
	if len(missing) > 0 {
		found = append(found, Fail("enable them in the kernel (some systems need cgroup_enable=memory on the kernel's command line)",
			"missing cgroup controllers: %s", strings.Join(missing, ", "))...)
	}
	for _, point := range readOnly {
		found = append(found, Fail("mount -o remount,bind,rw "+point,
			"%s is mounted read-only: cgroups for containers cannot be created", point)...)
	}
	return found
}

// missingControllersV2 requires kubeadm's list for cgroup v2. There, freezer and
// devices are part of every cgroup.
func (s *subject) missingControllersV2() ([]string, error) {
	data, err := os.ReadFile(s.host.Path("/sys/fs/cgroup/cgroup.controllers"))
	if err != nil {
		return nil, err
	}
	return without([]string{"cpu", "cpuset", "memory", "pids"}, strings.Fields(string(data))), nil
}

// controllersV1 requires kubeadm's list for cgroup v1, each mounted and writable:
// in a container they may be mounted read-only.
func (s *subject) controllersV1() (missing, readOnly []string, err error) {
	f, err := os.Open(s.host.Path("/proc/self/mountinfo"))
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	mounts, err := mountinfo.GetMountsFromReader(f, mountinfo.FSTypeFilter("cgroup"))
	if err != nil {
		return nil, nil, err
	}
	needed := []string{"cpu", "cpuacct", "cpuset", "devices", "freezer", "memory", "pids"}
	var mounted []string
	for _, m := range mounts {
		controllers := strings.Split(m.VFSOptions, ",")
		if len(without(needed, controllers)) == len(needed) {
			continue // systemd's own hierarchy, or one that is not needed
		}
		mounted = append(mounted, controllers...)
		if slices.Contains(strings.Split(m.Options, ","), "ro") && !slices.Contains(readOnly, m.Mountpoint) {
			readOnly = append(readOnly, m.Mountpoint)
		}
	}
	return without(needed, mounted), readOnly, nil
}

// without returns the wanted names that are not among those present.
func without(wanted, present []string) []string {
	return slices.DeleteFunc(slices.Clone(wanted), func(name string) bool { return slices.Contains(present, name) })
}

// forwarding returns the kernel parameters that must be 1 for the cluster's
// address families.
func (s *subject) forwarding() []string {
	var names []string
	var ipv4, ipv6 bool
	if ip, err := netip.ParseAddr(s.Config.Facts.NodeIP); err == nil {
		ipv4, ipv6 = ip.Is4(), ip.Is6()
	}
	for _, list := range []config.CIDRs{s.Config.Networking.PodSubnet, s.Config.Networking.ServiceSubnet} {
		v4, v6 := list.Families()
		ipv4, ipv6 = ipv4 || v4, ipv6 || v6
	}
	if ipv4 {
		names = append(names, "/proc/sys/net/ipv4/ip_forward")
	}
	if ipv6 {
		// kubeadm checks the second; setting the first sets both.
		names = append(names, "/proc/sys/net/ipv6/conf/all/forwarding", "/proc/sys/net/ipv6/conf/default/forwarding")
	}
	return names
}

// bridgeFilters returns the kernel parameters that send packets between pods on
// one bridge through the iptables rules, which implement Services.
func (s *subject) bridgeFilters() []string {
	var names []string
	for _, name := range s.forwarding() {
		filter := "/proc/sys/net/bridge/bridge-nf-call-iptables"
		if strings.Contains(name, "/ipv6/") {
			filter = "/proc/sys/net/bridge/bridge-nf-call-ip6tables"
		}
		if !slices.Contains(names, filter) {
			names = append(names, filter)
		}
	}
	return names
}

// bridgeFilter is fileContent for a parameter that may not exist yet: a kernel
// module that the installer loads provides it.
func (s *subject) bridgeFilter(path string) check {
	c := s.fileContent(path, "1")
	return check{c.name, func(ctx context.Context) []Problem {
		if _, err := os.Stat(s.host.Path(path)); errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return c.run(ctx)
	}}
}

// fileContent requires a kernel parameter to have a value or to be writable: the
// installer sets it.
func (s *subject) fileContent(path, want string) check {
	return check{"FileContent-" + dashed(path), func(context.Context) []Problem {
		if err := s.settable(path, want); err != nil {
			return Fail("in a container, set it on the machine that runs the container", "%v", err)
		}
		return nil
	}}
}

// settable returns why a kernel parameter neither has a value nor is writable.
func (s *subject) settable(path, want string) error {
	data, err := os.ReadFile(s.host.Path(path))
	if err != nil {
		return err
	}
	now := strings.TrimSpace(string(data))
	if now == want {
		return nil
	}
	f, err := os.OpenFile(s.host.Path(path), os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("%s is %s and cannot be set to %s: %w", path, now, want, errors.Unwrap(err))
	}
	return f.Close()
}

// kernelTunables checks the parameters that the kubelet sets when it starts
// (pkg/kubelet/cm, setupKernelTunables); it exits if it cannot.
func (s *subject) kernelTunables(context.Context) (found []Problem) {
	for _, t := range []struct{ path, value string }{
		{"/proc/sys/vm/overcommit_memory", "1"},
		{"/proc/sys/vm/panic_on_oom", "0"},
		{"/proc/sys/kernel/panic", "10"},
		{"/proc/sys/kernel/panic_on_oops", "1"},
		{"/proc/sys/kernel/keys/root_maxkeys", "1000000"},
		{"/proc/sys/kernel/keys/root_maxbytes", "25000000"},
	} {
		if err := s.settable(t.path, t.value); err != nil {
			found = append(found, Fail("in a container, set it on the machine that runs it, or make /proc/sys writable",
				"the kubelet would not start: %v", err)...)
		}
	}
	return found
}

// kernelLog requires /dev/kmsg, which the kubelet watches for processes that ran
// out of memory; it does not start without it.
func (s *subject) kernelLog(context.Context) []Problem {
	f, err := os.Open(s.host.Path("/dev/kmsg"))
	if err != nil {
		return Fail("in a container, pass /dev/kmsg through from the machine that runs it", "the kubelet would not start: %v", err)
	}
	f.Close()
	return nil
}

func (s *subject) userNamespace(context.Context) []Problem {
	data, err := os.ReadFile(s.host.Path("/proc/self/uid_map"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil // a kernel without user namespaces
	}
	if err != nil {
		return Fail("", "reading the user namespace: %v", err)
	}
	if slices.Equal(strings.Fields(string(data)), []string{"0", "0", "4294967295"}) {
		return nil
	}
	return Fail("run the container privileged (LXC: unprivileged = 0)",
		"this host is a container in a user namespace: the kubelet has too few permissions there")
}
