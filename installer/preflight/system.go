package preflight

import (
	"context"
	"os"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/version"
	kubeletv1 "k8s.io/kubelet/config/v1beta1"
	"sigs.k8s.io/yaml"

	"airlift/images/release"
	"airlift/installer/cluster/facts"
	"airlift/installer/config"
	"airlift/internal/fault"
)

func (s systemChecks) privileged(context.Context) []finding {
	if os.Geteuid() == 0 {
		return nil
	}
	return problem("run it with sudo or as root", "the user is not root")
}

func (s systemChecks) cpus(context.Context) []finding {
	if n := s.subject.Config.Facts.NumCPU; n < controlPlaneCPUs {
		return problem("give the host more CPUs", "the host has %d CPU(s), a control plane needs %d", n, controlPlaneCPUs)
	}
	return nil
}

func (s systemChecks) memory(context.Context) []finding {
	if mb := s.subject.Config.Facts.MemoryBytes / 1024 / 1024; mb < controlPlaneMemoryMB {
		return problem("give the host more memory", "the host has %d MB of memory, a control plane needs %d", mb, controlPlaneMemoryMB)
	}
	return nil
}

func (s systemChecks) kubernetesVersion(context.Context) []finding {
	if _, err := version.ParseSemantic(s.subject.Config.KubernetesVersion); err != nil {
		return problem("use a version like v1.29.15", "%q is not a Kubernetes version: %v", s.subject.Config.KubernetesVersion, err)
	}
	if s.subject.Config.NearestKnown != "" {
		return warning("test this cluster before you rely on it; a newer release of Airlift may support this version",
			"%s", release.Newer(s.subject.Config.KubernetesVersion, s.subject.Config.NearestKnown))
	}
	return nil
}

// swap is an error here and a warning in kubeadm: with swap on, the kubelet
// starts only if its configuration allows it. Join may not know the cluster's
// configuration yet: then it is a warning, and Discovered checks it.
func (s systemChecks) swap(context.Context) []finding {
	const off = "swapoff -a, and remove swap from /etc/fstab; or set failSwapOn: false in "
	switch {
	case !s.subject.Config.Facts.SwapOn:
		return nil
	case s.acceptsSwap():
		return warning("", "swap is on, and the kubelet is configured to accept that")
	case s.subject.Role == Init:
		return problem(off+"a KubeletConfiguration", "swap is on: the kubelet would not start")
	case s.subject.Kubelet == nil:
		return warning(off+"the cluster's ConfigMap kube-system/kubelet-config",
			"swap is on: the kubelet starts only if the cluster's KubeletConfiguration has failSwapOn: false; join checks that when it has found the cluster")
	}
	return problem(off+"the cluster's ConfigMap kube-system/kubelet-config, or in a patch of kubeletconfiguration with --patches",
		"swap is on, and the cluster's KubeletConfiguration does not accept that: the kubelet would not start")
}

// FailSwapOn returns that field of a KubeletConfiguration, YAML; nil if it is not set or cannot be
// read, which the kubelet's rules report.
func FailSwapOn(configuration []byte) *bool {
	var k kubeletv1.KubeletConfiguration
	if yaml.Unmarshal(configuration, &k) != nil {
		return nil
	}
	return k.FailSwapOn
}

// acceptsSwap reports whether the kubelet's flags or, without the flag, its
// configuration accept swap.
func (s systemChecks) acceptsSwap() bool {
	fails := s.subject.FailSwapOn == nil || *s.subject.FailSwapOn
	flags, err := s.subject.kubeletChecks().kubeletFlags()
	if err != nil {
		return !fails // the kubelet's rules report it
	}
	for _, f := range flags {
		if value, err := strconv.ParseBool(f.Value); err == nil && strings.ReplaceAll(f.Name, "_", "-") == "fail-swap-on" {
			fails = value
		}
	}
	return !fails
}

func (s systemChecks) runtime(context.Context) []finding {
	if s.subject.Runtime == nil {
		return nil
	}
	return problem(fault.Hint(s.subject.Runtime), "%v", s.subject.Runtime)
}

// A kubelet asks its container runtime for the cgroup driver: the CRI's RuntimeConfig, which
// containerd has since 2.0. kubeadm warns of a runtime without it since 1.37, and the kubelet of 1.38
// requires it.
const warnsOfRuntimeFrom, requiresRuntimeFrom = 37, 38

// OldRuntime reports whether a containerd is too old for the kubelet of a minor version, and whether
// that kubelet still works with it. The version is "1.7.29"; another text is not a version.
func OldRuntime(containerd string, minor int) (old, works bool) {
	is, err := version.ParseGeneric(containerd)
	old = err == nil && is.Major() < 2 && minor >= warnsOfRuntimeFrom
	return old, minor < requiresRuntimeFrom
}

func (s systemChecks) runtimeVersion(context.Context) []finding {
	if !s.subject.RuntimeInUse {
		return nil
	}
	old, works := OldRuntime(s.subject.RuntimeVersion, s.subject.Config.Minor())
	if !old {
		return nil
	}
	const message = "this host's containerd %s does not report its cgroup driver to the kubelet"
	if works {
		return warning("upgrade it to 2.0 or newer before Kubernetes 1.38, or remove it to use the bundle's", message, s.subject.RuntimeVersion)
	}
	return problem("upgrade it to 2.0 or newer, or remove it to use the bundle's", message+", which Kubernetes requires since v1.38", s.subject.RuntimeVersion)
}

// apiServerFlags reports admission plugins and APIs with which kube-apiserver does not start, and a
// plugin with which nodes do not use imported images.
func (s systemChecks) apiServerFlags(context.Context) (found []finding) {
	const in = " in apiServer.extraArgs of ClusterConfiguration"
	for _, name := range s.subject.Config.RemovedPlugins() {
		found = append(found, problem("remove it from enable-admission-plugins and disable-admission-plugins"+in,
			"kube-apiserver %s has no admission plugin %s, and does not start with it", s.subject.Config.KubernetesVersion, name)...)
	}
	for _, name := range facts.UnknownAPIs(&s.subject.Config.Cluster) {
		found = append(found, problem("remove it from runtime-config"+in,
			"kube-apiserver %s does not know the API %s, and does not start with it", s.subject.Config.KubernetesVersion, name)...)
	}
	if s.subject.Config.EnablesPlugin(config.AlwaysPullImages) {
		found = append(found, warning("remove it from enable-admission-plugins"+in+", unless every node can pull its images from a registry",
			"the admission plugin %s makes each pod pull its images, also imported ones: without a registry no pod starts", config.AlwaysPullImages)...)
	}
	return found
}

func (s systemChecks) systemd(ctx context.Context) []finding {
	if info, err := os.Stat(s.subject.host.Path("/run/systemd/system")); err != nil || !info.IsDir() {
		return problem("boot the host with systemd", "this host was not booted with systemd")
	}
	if _, err := s.subject.host.Systemd().Unit(ctx, "basic.target"); err != nil {
		return problem(fault.Hint(err), "%v", err)
	}
	return nil
}

func (s systemChecks) clock(context.Context) []finding {
	if t := s.subject.now().UTC(); t.Before(config.OldestRelease) {
		return problem("set the clock: timedatectl set-time 'YYYY-MM-DD HH:MM:SS'",
			"this host's date is %s, before the release of any Kubernetes in a bundle: certificates would not be valid", t.Format(time.DateOnly))
	}
	return nil
}
