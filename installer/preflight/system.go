package preflight

import (
	"context"
	"os"
	"time"

	"k8s.io/apimachinery/pkg/util/version"

	"airlift/fault"
)

func (s *subject) privileged(context.Context) []finding {
	if os.Geteuid() == 0 {
		return nil
	}
	return problem("run it with sudo or as root", "the user is not root")
}

func (s *subject) cpus(context.Context) []finding {
	if n := s.Config.Facts.NumCPU; n < controlPlaneCPUs {
		return problem("give the host more", "the host has %d CPU(s), a control plane needs %d", n, controlPlaneCPUs)
	}
	return nil
}

func (s *subject) memory(context.Context) []finding {
	if mb := s.Config.Facts.MemoryBytes / 1024 / 1024; mb < controlPlaneMemoryMB {
		return problem("give the host more", "the host has %d MB of memory, a control plane needs %d", mb, controlPlaneMemoryMB)
	}
	return nil
}

func (s *subject) kubernetesVersion(context.Context) []finding {
	if _, err := version.ParseSemantic(s.Config.KubernetesVersion); err != nil {
		return problem("use a version like v1.29.15", "%q is no Kubernetes version: %v", s.Config.KubernetesVersion, err)
	}
	return nil
}

// swap is an error where kubeadm has only a warning: the kubelet does not
// start with swap on unless its configuration says otherwise.
func (s *subject) swap(context.Context) []finding {
	if !s.Config.Facts.SwapOn {
		return nil
	}
	if k := s.Config.Kubelet; k != nil && k.FailSwapOn != nil && !*k.FailSwapOn {
		return warning("", "swap is on, and the kubelet is configured to accept that")
	}
	return problem("swapoff -a, and remove swap from /etc/fstab", "swap is on: the kubelet would not start")
}

func (s *subject) runtime(context.Context) []finding {
	if s.Runtime == nil {
		return nil
	}
	return problem(fault.Hint(s.Runtime), "%v", s.Runtime)
}

// runtimeVersion warns of a runtime that does not tell the kubelet which cgroup
// driver it uses (the CRI's RuntimeConfig, which containerd has since 2.0), as
// kubeadm does from 1.37 on: the kubelet of 1.38 will insist on it.
func (s *subject) runtimeVersion(context.Context) []finding {
	if !s.RuntimeInUse || minor(s.Config.KubernetesVersion) < 37 {
		return nil
	}
	is, err := version.ParseGeneric(s.RuntimeVersion)
	if err != nil || is.Major() >= 2 {
		return nil
	}
	return warning("upgrade it to 2.0 or newer before Kubernetes 1.38, or remove it and let the bundle bring one",
		"this host's containerd %s does not tell the kubelet its cgroup driver", s.RuntimeVersion)
}

func (s *subject) systemd(ctx context.Context) []finding {
	if info, err := os.Stat(s.host.Path("/run/systemd/system")); err != nil || !info.IsDir() {
		return problem("boot the host with systemd", "systemd does not run this host")
	}
	if _, err := s.host.Unit(ctx, "basic.target"); err != nil {
		return problem(fault.Hint(err), "%v", err)
	}
	return nil
}

// oldestRelease is the day of Kubernetes v1.29.0, the oldest release that this
// installer handles: no correct clock is before it.
var oldestRelease = time.Date(2023, time.December, 13, 0, 0, 0, 0, time.UTC)

func (s *subject) clock(context.Context) []finding {
	if t := s.now().UTC(); t.Before(oldestRelease) {
		return problem("set it (timedatectl set-time, or date -s)",
			"the clock says %s, which is before the release of any Kubernetes in a bundle: certificates would not be valid", t.Format(time.DateOnly))
	}
	return nil
}
