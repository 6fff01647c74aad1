package render

import (
	"fmt"
	"path"

	"airlift/installer/config"
)

// Paths of the configuration of containerd and crictl.
const (
	ContainerdConfigPath = "/etc/containerd/config.toml"
	CrictlConfigPath     = "/etc/crictl.yaml"
	// ContainerdImports are the user's files. Airlift does not write any of
	// them. containerd's default configuration imports the same files.
	ContainerdImports = "/etc/containerd/conf.d/*.toml"
	// RegistriesDir has a directory for each registry that is configured.
	RegistriesDir = "/etc/containerd/certs.d"
)

// ContainerdConfig returns the configuration of containerd 2.x: only what differs
// from its defaults, each with its reason. The path of registries is one directory
// and not containerd's default list of two: containerd's transfer service accepts
// only one, and users can switch to it.
func ContainerdConfig(cfg *config.Config) ([]byte, error) {
	pause, err := image(cfg, "pause")
	if err != nil {
		return nil, err
	}
	return fmt.Appendf(nil, `# Airlift writes this file. To add to it or to override it, create files in
# %s, and restart containerd.
version = 3

# No such files are needed.
imports = ['%s']

[plugins.'io.containerd.cri.v1.images']
  snapshotter = 'overlayfs'
  # Images are unpacked on import, so the compressed layers are not kept.
  discard_unpacked_layers = true

[plugins.'io.containerd.cri.v1.images'.registry]
  # A registry's mirrors, CA and credentials are in HOST/hosts.toml.
  config_path = '%s'

[plugins.'io.containerd.cri.v1.images'.pinned_images]
  # The pause image of this Kubernetes version, never collected as garbage.
  sandbox = '%s'

[plugins.'io.containerd.cri.v1.runtime']
  # True if this host cannot lower OOM scores: without it, no container
  # of a system pod would start.
  restrict_oom_score_adj = %t
  # containerd asks every container for its usage in this period, by default every second.
  # The kubelet itself measures every ten seconds.
  stats_collect_period = '10s'

[plugins.'io.containerd.cri.v1.runtime'.cni]
  bin_dirs = ['%s']
  conf_dir = '%s'

[plugins.'io.containerd.cri.v1.runtime'.containerd]
  default_runtime_name = 'runc'

[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
  runtime_type = 'io.containerd.runc.v2'

[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
  # The kubelet's cgroupDriver is set to match.
  SystemdCgroup = %t
`, path.Dir(ContainerdImports), ContainerdImports, RegistriesDir, pause, cfg.Facts.RestrictOOMScoreAdj, config.CNIBinDir, config.CNIConfDir, cgroupDriver(cfg) == "systemd"), nil
}

// CrictlConfig is crictl's configuration with the container runtime's socket.
func CrictlConfig(cfg *config.Config) []byte {
	return fmt.Appendf(nil, "runtime-endpoint: %[1]s\nimage-endpoint: %[1]s\n", cfg.NodeRegistration.CRISocket)
}
