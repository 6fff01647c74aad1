package preflight

import (
	"context"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"airlift/installer/config"
	"airlift/installer/kubelet"
	"airlift/installer/render"
)

// defaultKubelet is where the machine's owner keeps flags for the kubelet, as
// the packages of Kubernetes do.
const defaultKubelet = "/etc/default/kubelet"

// kubeletRules are the rules by which a kubelet would not start, a check each.
func (s *subject) kubeletRules() []check {
	var list []check
	for _, name := range kubelet.Names() {
		list = append(list, check{name, func(context.Context) (found []finding) {
			problems, err := s.kubeletProblems()
			if err != nil {
				return problem("make it a file that root can read", "%v", err)
			}
			for _, p := range problems {
				if p.Name == name {
					found = append(found, finding{message: p.Message, fix: p.Fix, warning: p.Warning})
				}
			}
			return found
		}})
	}
	return list
}

// kubeletProblems applies the kubelet's rules to what it will be started with:
// its configuration, the flags in kubeadm-flags.env, and after those the ones
// of the machine's owner.
func (s *subject) kubeletProblems() ([]kubelet.Problem, error) {
	own, err := os.ReadFile(s.host.Path(defaultKubelet))
	if err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	flags := s.Config.NodeRegistration.KubeletExtraArgs
	// Without a pause image there are no more to be known; ImagePull says so.
	if file, err := render.KubeletFlags(s.Config, s.Role == Join); err == nil {
		_, value, _ := strings.Cut(strings.TrimSpace(string(file)), "=")
		if value, err = strconv.Unquote(value); err != nil {
			return nil, err
		}
		flags = slices.DeleteFunc(kubelet.ParseFlags(value), s.ours)
	}
	return kubelet.Check(kubelet.Input{
		Kubernetes: s.Config.KubernetesVersion,
		Config:     s.Kubelet,
		Flags:      append(flags[:len(flags):len(flags)], kubelet.ParseFlags(string(own))...),
		Root:       os.DirFS(s.host.Path("/")),
		WillExist: []string{
			path.Join(config.CertificatesDir, "ca.crt"), path.Join(s.Config.CertificatesDir, "ca.crt"),
			config.KubeletConfigFile, config.KubernetesDir + "/kubelet.conf", config.KubernetesDir + "/bootstrap-kubelet.conf",
		},
		CPUs:        s.Config.Facts.NumCPU,
		MemoryBytes: s.Config.Facts.MemoryBytes,
		PIDs:        s.pids(),
	}), nil
}

// ours says that a flag is one that kubeadm sets, too, although the kubelet
// calls it deprecated: nobody could do anything about a warning.
func (s *subject) ours(flag config.Arg) bool {
	const pause = "pod-infra-container-image"
	return flag.Name == pause && !slices.ContainsFunc(s.Config.NodeRegistration.KubeletExtraArgs,
		func(users config.Arg) bool { return users.Name == pause })
}

// pids is how many processes the kernel allows, 0 if it does not tell.
func (s *subject) pids() int64 {
	var least int64
	for _, name := range []string{"/proc/sys/kernel/pid_max", "/proc/sys/kernel/threads-max"} {
		data, err := os.ReadFile(s.host.Path(name))
		if err != nil {
			continue
		}
		if n, err := strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64); err == nil && (least == 0 || n < least) {
			least = n
		}
	}
	return least
}

// Kubelet makes only the checks of the kubelet's settings. A joining node
// learns the cluster's KubeletConfiguration after the other checks.
func Kubelet(ctx context.Context, t Target, ignore []string) (Report, error) {
	return run(ctx, t, ignore, (*subject).kubeletRules)
}
