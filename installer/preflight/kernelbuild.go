package preflight

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"airlift/installer/host"
	"airlift/installer/host/detection"
)

// kernel checks the running kernel's version and build configuration.
func (s *subject) kernel() []Problem {
	release, err := detection.Kernel()
	if err != nil {
		return Fail("", "%v", err)
	}
	found := kernelVersion(release, s.Config.Minor())
	needs := kernelNeedsV1
	if s.Config.Facts.CgroupVersion == 2 {
		needs = kernelNeedsV2
	}
	return append(found, s.kernelHas(release, slices.Concat(kernelNeeds, needs), []Problem{{Warning: true, Minor: true, Fix: "no action needed",
		Message: "the kernel's build configuration is not available (no /proc/config.gz, no /boot/config-" + release + ")"}},
		"use a kernel with these options", "the kernel was built without %s")...)
}

// kernelVersion has the requirements of each minor version of kubeadm
// (k8s.io/system-validators v1.8.0 in 1.29 to 1.31, v1.9.2 in 1.32 and 1.33,
// and from v1.10.2 in 1.34 on only a warning).
func kernelVersion(release string, kubernetes int) []Problem {
	var major, minor int
	if _, err := fmt.Sscanf(release, "%d.%d", &major, &minor); err != nil {
		return Fail("", "reading the kernel's version %q: %v", release, err)
	}
	at := func(wantMajor, wantMinor int) bool {
		return major > wantMajor || major == wantMajor && minor >= wantMinor
	}
	const fix = "upgrade the system to one with a newer kernel"
	switch {
	case !at(3, 10):
		return Fail(fix, "the kernel is %s, Kubernetes needs 3.10 or newer", release)
	case kubernetes >= 32 && kubernetes <= 33 && !at(4, 19):
		return Fail(fix, "the kernel is %s, Kubernetes 1.%d needs 4.19 or newer", release, kubernetes)
	case kubernetes >= 34 && !at(6, 0) && (major != 5 || minor != 4 && minor != 10 && minor != 15):
		return Warn(fix, "the kernel is %s; Kubernetes 1.%d supports 5.4, 5.10, 5.15 and 6.0 or newer", release, kubernetes)
	}
	return nil
}

// Options that kubeadm requires, built in or as a module: always, with cgroup v1
// only, and with cgroup v2 only. "A|B" means that either is enough.
var (
	kernelNeeds = []string{
		"NAMESPACES", "NET_NS", "PID_NS", "IPC_NS", "UTS_NS", "CGROUPS", "CGROUP_PIDS", "CGROUP_SCHED", "CPUSETS", "MEMCG", "INET", "EXT4_FS",
		"PROC_FS", "NETFILTER_XT_TARGET_REDIRECT|IP_NF_TARGET_REDIRECT", "NETFILTER_XT_MATCH_COMMENT", "FAIR_GROUP_SCHED",
	}
	kernelNeedsV1 = []string{"CGROUP_CPUACCT", "CGROUP_DEVICE", "CGROUP_FREEZER"}
	kernelNeedsV2 = []string{"CGROUP_BPF"}
)

// kernelHas requires options of the kernel. unknown are the problems of a kernel without a build configuration.
func (s *subject) kernelHas(release string, needs []string, unknown []Problem, fix, message string) []Problem {
	text, err := s.kernelConfig(release)
	switch missing := missingOptions(text, needs); {
	case err != nil:
		return Fail("make the file readable, or move it away", "reading the kernel's build configuration: %v", err)
	case text == "":
		return unknown
	case len(missing) > 0:
		return Fail(fix, message, strings.Join(missing, ", "))
	}
	return nil
}

// missingOptions returns the needed options that a kernel's build configuration does not have.
func missingOptions(text string, needs []string) (missing []string) {
	has := map[string]bool{}
	for _, line := range strings.Split(text, "\n") {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok && (value == "y" || value == "m") {
			has[strings.TrimPrefix(name, "CONFIG_")] = true
		}
	}
	for _, option := range needs {
		one, other, _ := strings.Cut(option, "|")
		if !has[one] && !has[other] {
			missing = append(missing, "CONFIG_"+one)
		}
	}
	return missing
}

// policyNeeds are the kernel options of the add-on network-policy: nftables rules that send
// packets to a process, its connection to the kernel, and the list of connections with labels.
var policyNeeds = []string{"NFT_QUEUE", "NETFILTER_NETLINK_QUEUE", "NFT_CT", "NF_CONNTRACK_LABELS", "NF_CT_NETLINK"}

// networkPolicy requires what the add-on needs to enforce policies. Without it, its pods run and
// are Ready, and all traffic passes. A kernel without a readable build configuration passes.
func (s *subject) networkPolicy(context.Context) []Problem {
	if !s.NetworkPolicy {
		return nil
	}
	release, err := detection.Kernel()
	if err != nil {
		return Fail("", "%v", err)
	}
	return s.kernelHas(release, policyNeeds, Warn("no action needed if the kernel has the module nft_queue: modinfo nft_queue",
		"the kernel's build configuration is not available, so the check for the add-on network-policy is skipped"),
		"use a kernel with these options, or a bundle without the add-on", "the add-on network-policy would not enforce policies here: the kernel was built without %s")
}

// PolicyOptionsMissing returns the options of CONFIG_… without which the add-on network-policy runs on a host and enforces
// nothing. None are missing if the kernel's build configuration cannot be read.
func PolicyOptionsMissing(h *host.Host) []string {
	release, err := detection.Kernel()
	if err != nil {
		return nil
	}
	text, err := (&subject{host: h}).kernelConfig(release)
	if err != nil || text == "" {
		return nil
	}
	return missingOptions(text, policyNeeds)
}

// kernelConfig finds the kernel's build configuration; "" if there is none.
// kubeadm also loads the kernel module that provides it; here, a check changes
// nothing.
func (s *subject) kernelConfig(release string) (string, error) {
	for _, path := range []string{
		"/proc/config.gz", "/boot/config-" + release, "/usr/lib/modules/" + release + "/config",
		"/usr/lib/ostree-boot/config-" + release, "/usr/lib/kernel/config-" + release,
		"/usr/src/linux-headers-" + release + "/.config", "/lib/modules/" + release + "/build/.config",
	} {
		f, err := os.Open(s.host.Path(path))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return "", err
		}
		defer f.Close()
		r := io.Reader(f)
		if strings.HasSuffix(path, ".gz") {
			if r, err = gzip.NewReader(f); err != nil {
				return "", fmt.Errorf("unpacking %s: %w", path, err)
			}
		}
		data, err := io.ReadAll(r)
		return string(data), err
	}
	return "", nil
}
