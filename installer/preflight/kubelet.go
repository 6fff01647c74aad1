package preflight

import (
	"context"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"airlift/installer/config"
	"airlift/installer/kubeletcheck"
	"airlift/installer/render"
)

// DefaultKubelet is the administrator's file with flags for the kubelet, as in
// the Kubernetes packages.
const DefaultKubelet = "/etc/default/kubelet"

// kubeletRules are the checks of the kubelet's start-up rules.
func (s *subject) kubeletRules() []check {
	var list []check
	for _, name := range kubeletcheck.Names() {
		list = append(list, check{name, func(context.Context) []Problem {
			problems, err := s.kubeletProblems()
			if err != nil {
				return Fail("make it a file that root can read", "%v", err)
			}
			return OfKubelet(problems, name)
		}})
	}
	return list
}

// OfKubelet returns the problems of one of the kubelet's rules.
func OfKubelet(list []kubeletcheck.Problem, name string) (found []Problem) {
	for _, p := range list {
		if p.Name == name {
			found = append(found, Problem{Message: p.Message, Fix: p.Fix, Warning: p.Warning})
		}
	}
	return found
}

// kubeletFlags returns the kubelet's flags: the flags in kubeadm-flags.env, then the
// administrator's flags.
func (s *subject) kubeletFlags() ([]config.Arg, error) {
	own, err := os.ReadFile(s.host.Path(DefaultKubelet))
	if err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	flags := s.Config.NodeRegistration.KubeletExtraArgs
	// Without a pause image the file cannot be rendered; ImagePull reports that.
	if file, err := render.KubeletFlags(s.Config, !s.runsAPIServer()); err == nil {
		flags = slices.DeleteFunc(KubeletFlags("KUBELET_KUBEADM_ARGS", file), s.setByKubeadm)
	}
	return append(flags[:len(flags):len(flags)], KubeletFlags("KUBELET_EXTRA_ARGS", own)...), nil
}

// kubeletProblems applies the kubelet's rules to its configuration and flags.
func (s *subject) kubeletProblems() ([]kubeletcheck.Problem, error) {
	flags, err := s.kubeletFlags()
	if err != nil {
		return nil, err
	}
	return kubeletcheck.Check(kubeletcheck.Input{
		Kubernetes: s.Config.KubernetesVersion,
		Config:     s.Kubelet,
		Flags:      flags,
		Root:       os.DirFS(s.host.Path("/")),
		WillExist: []string{
			path.Join(config.CertificatesDir, "ca.crt"), path.Join(s.Config.CertificatesDir, "ca.crt"),
			config.KubeletConfigFile, config.KubernetesDir + "/kubelet.conf", config.KubernetesDir + "/bootstrap-kubelet.conf",
		},
		Fixed:       FixedFields(s.Config, s.runsAPIServer()),
		CPUs:        s.Config.Facts.NumCPU,
		MemoryBytes: s.Config.Facts.MemoryBytes,
		PIDs:        s.pids(),
	}), nil
}

// FixedFields are the options that the installer relies on. kubeadm leaves all
// of them to the user, and only follows --cert-dir for the client certificate.
func FixedFields(c *config.Config, runsAPIServer bool) []kubeletcheck.Fixed {
	node := c.NodeRegistration
	certs := node.KubeletCertDir()
	list := []kubeletcheck.Fixed{
		{Flag: "config", Value: config.KubeletConfigFile, Why: "Airlift writes the kubelet's configuration there",
			Fix: "remove it, and configure the kubelet with a KubeletConfiguration document in --config, or with --patches"},
		{Flag: "kubeconfig", Value: config.KubernetesDir + "/kubelet.conf", Why: "Airlift writes the kubelet's credentials there", Fix: "remove it"},
		{Flag: "bootstrap-kubeconfig", Value: config.KubernetesDir + "/bootstrap-kubelet.conf", Why: "Airlift writes the kubelet's bootstrap credentials there", Fix: "remove it"},
		{Flag: "root-dir", Value: config.KubeletDir, Why: "reset unmounts and removes pods' volumes only there",
			Fix: "remove it; to use another disk, mount it at " + config.KubeletDir},
		{Flag: "cert-dir", Value: certs, Why: "kubelet.conf refers to the certificate there",
			Fix: "set cert-dir in nodeRegistration.kubeletExtraArgs, which Airlift also writes to kubelet.conf, and not in " + DefaultKubelet},
		{Flag: "hostname-override", Value: node.Name, Why: "that is the node's name in its certificate",
			Fix: "remove it, and set the node's name with --node-name or nodeRegistration.name"},
	}
	if !path.IsAbs(certs) {
		list = append(list, kubeletcheck.Fixed{Flag: "cert-dir", Value: config.KubeletPKIDir, Why: "it must be an absolute path", Fix: "set cert-dir to an absolute path, or remove it"})
	}
	if node.CRISocket != "" {
		const fix = "remove it, and set the socket with --cri-socket or nodeRegistration.criSocket"
		list = append(list,
			kubeletcheck.Fixed{Flag: "container-runtime-endpoint", Value: node.CRISocket, Why: "Airlift imports images into the container runtime there", Fix: fix},
			kubeletcheck.Fixed{Flag: "image-service-endpoint", Value: node.CRISocket, Why: "Airlift imports images into the container runtime there", Fix: fix})
	}
	if runsAPIServer {
		list = append(list, kubeletcheck.Fixed{Flag: "pod-manifest-path", Value: config.ManifestsDir, Why: "Airlift writes the control plane's static pods there", Fix: "remove it"})
	}
	return list
}

// setByKubeadm reports a deprecated flag that kubeadm also sets: a user could do
// nothing about a warning.
func (s *subject) setByKubeadm(flag config.Arg) bool {
	const pause = "pod-infra-container-image"
	return flag.Name == pause && !slices.ContainsFunc(s.Config.NodeRegistration.KubeletExtraArgs,
		func(users config.Arg) bool { return users.Name == pause })
}

// pids is how many processes the kernel allows; 0 if unknown.
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

// Discovered runs only the checks that depend on the cluster's configuration. A
// joining node gets it after the other checks.
func Discovered(ctx context.Context, t Target, ignore []string) (Report, error) {
	return run(ctx, t, ignore, func(s *subject) []check {
		list := append(s.kubeletRules(), check{"Swap", s.swap}, check{"NodeAddress", s.nodeAddress}, check{"APIServerFlags", s.apiServerFlags})
		return append(list, s.balancerChecks()...)
	})
}
