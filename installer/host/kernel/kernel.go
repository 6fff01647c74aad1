// Package kernel prepares the kernel for a node, now and at every boot: modules, sysctls, shared mounts
// and the route to the Service addresses.
package kernel

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"airlift/installer/host"
	"airlift/installer/host/detection"
	"airlift/installer/host/filesystem"
	"airlift/installer/host/ledger"
	"airlift/internal/childprocess"
	"airlift/internal/fault"
)

// Files that apply modules and kernel parameters at boot.
const (
	modulesFile = "/etc/modules-load.d/airlift.conf"
	sysctlsFile = "/etc/sysctl.d/99-airlift.conf"
)

// NodeModules are the kernel modules that a node needs before the kernel loads
// them by itself: overlay for images, br_netfilter so that pods on one bridge
// reach Services, nf_conntrack for its parameters, vxlan for flannel.
func NodeModules() []string {
	return []string{"overlay", "br_netfilter", "nf_conntrack", "vxlan"}
}

// KubeProxyModules are the kernel modules that kube-proxy needs in a mode, with
// an IPVS scheduler. They are loaded here because kube-proxy's image may have no
// modprobe. For ipvs, they come from Kubernetes' pkg/proxy/ipvs/README.md and
// supported.go; its rules match sets of addresses with ip_set and xt_set.
func KubeProxyModules(mode, scheduler string) []string {
	switch mode {
	case "ipvs":
		list := []string{"ip_vs", "ip_vs_rr", "ip_vs_wrr", "ip_vs_sh", "ip_set", "xt_set"}
		if module := "ip_vs_" + scheduler; schedulerName.MatchString(scheduler) && !slices.Contains(list, module) {
			list = append(list, module)
		}
		return list
	case "nftables":
		return []string{"nf_tables"}
	}
	return nil // iptables loads the modules that its rules need
}

var schedulerName = regexp.MustCompile(`^[a-z0-9]+$`)

// A Sysctl is one kernel parameter, named with dots.
type Sysctl struct {
	Name, Value string
	// Optional parameters may be missing, because the kernel does not have
	// the feature or its module is not loaded.
	Optional bool
}

func (s Sysctl) path() string { return "/proc/sys/" + strings.ReplaceAll(s.Name, ".", "/") }

// NodeSysctls are the kernel parameters for forwarding pods' packets in the
// address families of the cluster.
func NodeSysctls(ipv6, ipv4 bool) []Sysctl {
	var list []Sysctl
	if ipv4 {
		list = append(list,
			Sysctl{Name: "net.ipv4.ip_forward", Value: "1"},
			Sysctl{Name: "net.bridge.bridge-nf-call-iptables", Value: "1", Optional: true})
	}
	if ipv6 {
		list = append(list,
			Sysctl{Name: "net.ipv6.conf.all.forwarding", Value: "1"},
			Sysctl{Name: "net.bridge.bridge-nf-call-ip6tables", Value: "1", Optional: true})
	}
	return list
}

// KubeletSysctls are the kernel parameters without which a kubelet with protectKernelDefaults does not start
// (pkg/kubelet/cm/container_manager_linux.go).
func KubeletSysctls() []Sysctl {
	return []Sysctl{
		{Name: "kernel.keys.root_maxbytes", Value: "25000000"},
		{Name: "kernel.keys.root_maxkeys", Value: "1000000"},
		{Name: "kernel.panic", Value: "10"},
		{Name: "kernel.panic_on_oops", Value: "1"},
		{Name: "vm.overcommit_memory", Value: "1"},
		{Name: "vm.panic_on_oom", Value: "0"},
	}
}

// LoadModules loads kernel modules now and at every boot. It does nothing for a
// kernel without a modules directory. A module that cannot be loaded is only a
// warning, because preflight checks the kernel's features themselves.
func LoadModules(ctx context.Context, h *host.Host, names ...string) (warnings []string, err error) {
	release, err := detection.Kernel()
	if err != nil {
		return nil, err
	}
	modules := filepath.Join("/lib/modules", release)
	if !filesystem.Exists(h.Path(modules)) {
		return nil, nil
	}
	if _, err := h.WriteFile(modulesFile, []byte(strings.Join(names, "\n")+"\n"), 0o644); err != nil {
		return nil, err
	}
	for _, name := range names {
		if filesystem.Exists(h.Path("/sys/module/" + name)) {
			continue
		}
		if err := h.Records().Record(ledger.Entry{Kind: ledger.Module, Name: name}); err != nil {
			return warnings, err
		}
		// modprobe succeeds for built-in modules.
		out, err := childprocess.Command(ctx, "modprobe", name).CombinedOutput()
		if ctx.Err() != nil {
			return warnings, ctx.Err()
		}
		if errors.Is(err, exec.ErrNotFound) {
			warnings = append(warnings, fmt.Sprintf("kernel module %s could not be loaded: this host has no modprobe", name))
		} else if err != nil {
			warnings = append(warnings, fmt.Sprintf("kernel module %s could not be loaded: %s", name, reason(out, err)))
		}
	}
	return warnings, nil
}

func reason(output []byte, err error) string {
	if text := strings.TrimSpace(string(output)); text != "" {
		return text
	}
	return err.Error()
}

// SetSysctls sets kernel parameters now and at every boot. A parameter that
// cannot be written is an error only if it does not have the wanted value: in a
// container, much of /proc/sys is read-only. Reset removes the file but keeps
// the running values, because other software may rely on them.
func SetSysctls(ctx context.Context, h *host.Host, want []Sysctl) (warnings []string, err error) {
	var failures []error
	for _, s := range want {
		if err := ctx.Err(); err != nil {
			return warnings, err
		}
		now, err := filesystem.FirstLine(h.Path(s.path()))
		switch {
		case errors.Is(err, fs.ErrNotExist) && s.Optional:
			warnings = append(warnings, fmt.Sprintf("this kernel has no sysctl %s", s.Name))
			continue
		case err != nil:
			failures = append(failures, fmt.Errorf("reading sysctl %s: %w", s.Name, err))
			continue
		}
		if now == s.Value {
			continue
		}
		if err := h.Records().Record(ledger.Entry{Kind: ledger.Sysctl, Name: s.Name}); err != nil {
			return warnings, err
		}
		if err := os.WriteFile(h.Path(s.path()), []byte(s.Value), 0o644); err != nil {
			if s.Optional {
				warnings = append(warnings, fmt.Sprintf("sysctl %s is %s and cannot be set to %s: %v", s.Name, now, s.Value, err))
				continue
			}
			failures = append(failures, fmt.Errorf("setting sysctl %s to %s (it is %s): %w", s.Name, s.Value, now, err))
		}
	}
	if err := errors.Join(failures...); err != nil {
		return warnings, fault.Wrap(err, fault.Preflight,
			"in a container, set them on the machine that runs the container")
	}
	path, data := SysctlFile(h.Root, want)
	_, err = h.WriteFile(path, data, 0o644)
	return warnings, err
}

// SysctlFile returns the file that SetSysctls writes for every boot.
func SysctlFile(root filesystem.Root, want []Sysctl) (path string, data []byte) {
	var file strings.Builder
	file.WriteString("# Kubernetes node, written by the Airlift installer.\n")
	for _, s := range want {
		if s.Optional && !filesystem.Exists(root.Path(s.path())) {
			file.WriteString("-") // a module may provide it after the next boot; if not, systemd-sysctl ignores it
		}
		fmt.Fprintf(&file, "%s = %s\n", s.Name, s.Value)
	}
	return sysctlsFile, []byte(file.String())
}
