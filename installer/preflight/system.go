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
	"airlift/installer/cluster/inventory"
	"airlift/installer/config"
	"airlift/internal/fault"
)

func (s *subject) kubernetesVersion(context.Context) []Problem {
	if _, err := version.ParseSemantic(s.Config.KubernetesVersion); err != nil {
		return Fail("use a version like v1.29.15", "%q is not a Kubernetes version: %v", s.Config.KubernetesVersion, err)
	}
	if s.Config.NearestKnown != "" {
		return Warn("test this cluster before you rely on it; a newer release of Airlift may support this version",
			"%s", release.Newer(s.Config.KubernetesVersion, s.Config.NearestKnown))
	}
	return nil
}

// swap is an error here and a warning in kubeadm: with swap on, the kubelet
// starts only if its configuration allows it. Join may not know the cluster's
// configuration yet: then it is a warning, and Discovered checks it.
func (s *subject) swap(context.Context) []Problem {
	const off = "swapoff -a, and remove swap from /etc/fstab; or set failSwapOn: false in "
	switch {
	case !s.Config.Facts.SwapOn:
		return nil
	case s.acceptsSwap():
		return Warn("", "swap is on, and the kubelet is configured to accept that")
	case s.Role == Init:
		return Fail(off+"a KubeletConfiguration", "swap is on: the kubelet would not start")
	case s.Kubelet == nil:
		return Warn(off+"the cluster's ConfigMap kube-system/kubelet-config",
			"swap is on: the kubelet starts only if the cluster's KubeletConfiguration has failSwapOn: false; join checks that when it has found the cluster")
	}
	return Fail(off+"the cluster's ConfigMap kube-system/kubelet-config, or in a patch of kubeletconfiguration with --patches",
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
func (s *subject) acceptsSwap() bool {
	fails := s.FailSwapOn == nil || *s.FailSwapOn
	flags, err := s.kubeletFlags()
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

func (s *subject) runtimeVersion(context.Context) []Problem {
	if !s.RuntimeInUse {
		return nil
	}
	old, works := OldRuntime(s.RuntimeVersion, s.Config.Minor())
	if !old {
		return nil
	}
	const message = "this host's containerd %s does not report its cgroup driver to the kubelet"
	if works {
		return Warn("upgrade it to 2.0 or newer before Kubernetes 1.38, or remove it to use the bundle's", message, s.RuntimeVersion)
	}
	return Fail("upgrade it to 2.0 or newer, or remove it to use the bundle's", message+", which Kubernetes requires since v1.38", s.RuntimeVersion)
}

// apiServerFlags reports admission plugins and APIs with which kube-apiserver does not start, and a
// plugin with which nodes do not use imported images.
func (s *subject) apiServerFlags(context.Context) []Problem { return APIServerFlags(&s.Config.Cluster) }

// APIServerFlags is the check of that name.
func APIServerFlags(c *config.Cluster) (found []Problem) {
	const in = " in apiServer.extraArgs of ClusterConfiguration"
	for _, name := range c.RemovedPlugins() {
		found = append(found, Fail("remove it from enable-admission-plugins and disable-admission-plugins"+in,
			"kube-apiserver %s has no admission plugin %s, and does not start with it", c.KubernetesVersion, name)...)
	}
	for _, name := range inventory.UnknownAPIs(c) {
		found = append(found, Fail("remove it from runtime-config"+in,
			"kube-apiserver %s does not know the API %s, and does not start with it", c.KubernetesVersion, name)...)
	}
	if c.EnablesPlugin(config.AlwaysPullImages) {
		found = append(found, Warn("remove it from enable-admission-plugins"+in+", unless every node can pull its images from a registry",
			"the admission plugin %s makes each pod pull its images, also imported ones: without a registry no pod starts", config.AlwaysPullImages)...)
	}
	return found
}

func (s *subject) systemd(ctx context.Context) []Problem {
	if info, err := os.Stat(s.host.Path("/run/systemd/system")); err != nil || !info.IsDir() {
		return Fail("boot the host with systemd", "this host was not booted with systemd")
	}
	if _, err := s.host.Systemd().Unit(ctx, "basic.target"); err != nil {
		return Fail(fault.Hint(err), "%v", err)
	}
	return nil
}

func (s *subject) clock(context.Context) []Problem {
	if t := s.now().UTC(); t.Before(config.OldestRelease) {
		return Fail("set the clock: timedatectl set-time 'YYYY-MM-DD HH:MM:SS'",
			"this host's date is %s, before the release of any Kubernetes in a bundle: certificates would not be valid", t.Format(time.DateOnly))
	}
	return nil
}
