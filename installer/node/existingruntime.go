package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"airlift/images/store"
	"airlift/installer/config"
	"airlift/installer/host/ledger"
	"airlift/internal/fault"
)

// An ExistingRuntime is a containerd that was on this host before Airlift.
// Airlift uses it if Kubernetes can run on it, and does not change its
// configuration.
type ExistingRuntime struct {
	Info  store.Info
	Pods  []string
	Store *store.Store
}

const runtimeHint = "repair it, or remove it (apt-get purge containerd) so that Airlift installs the bundle's containerd"

// RuntimeTimeout limits the wait for a containerd that has just started. On a
// slow disk it needs some seconds to open its database.
const RuntimeTimeout = 60 * time.Second

// FindRuntime finds an existing containerd on this host, and checks whether
// Kubernetes can use it. It returns nil if there is none.
func (m *Machine) FindRuntime(ctx context.Context, c *config.Config) (*ExistingRuntime, error) {
	socket := strings.TrimPrefix(c.NodeRegistration.CRISocket, "unix://")
	if m.Existing.Records().OwnsRuntime() {
		return nil, nil
	}
	if !FileExists(m.Existing, socket) {
		if strings.TrimPrefix(socket, "/var") != config.ContainerdSocket { // /var/run is a symlink to /run
			return nil, fault.New(fault.Preflight, "no container runtime listens at the CRI socket %s", socket).
				Hint("start that container runtime, or remove --cri-socket so that Airlift installs the bundle's containerd")
		}
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, RuntimeTimeout)
	defer cancel()
	s, err := store.Connect(ctx, socket)
	if other := (*store.NotContainerdError)(nil); errors.As(err, &other) {
		return nil, fault.Wrap(err, fault.Preflight, "remove --cri-socket: Airlift then installs the bundle's containerd, which can run in parallel with "+other.Name)
	}
	if err != nil {
		return nil, fault.Wrap(fmt.Errorf("using this host's container runtime: %w", err), fault.Preflight, runtimeHint)
	}
	info, err := s.Info(ctx)
	if err == nil {
		err = fits(info, c)
	}
	if err == nil && len(c.Registries) > 0 {
		err = fault.New(fault.Preflight, "Airlift does not change its configuration, so --registry-mirror, --registry-ca and --registry-auth have no effect").
			Hint("remove these flags, and configure the registries yourself, in the directory of containerd's config_path")
	}
	var pods []string
	if err == nil {
		pods, err = s.Pods(ctx)
	}
	if err != nil {
		_ = s.Close()
		return nil, fault.Wrap(fmt.Errorf("using this host's containerd %s: %w", info.Version, err), fault.Preflight, cmp.Or(fault.Hint(err), runtimeHint))
	}
	s.BeforeNaming(m.RecordNames(socket))
	return &ExistingRuntime{info, pods, s}, nil
}

// CgroupDriver returns the cgroup driver that the kubelet must use too.
func (r *ExistingRuntime) CgroupDriver() string {
	if r.Info.SystemdCgroup {
		return "systemd"
	}
	return "cgroupfs"
}

// fits returns an error if Kubernetes cannot run on this containerd.
func fits(info store.Info, c *config.Config) error {
	switch {
	case !info.CRI:
		return fault.New(fault.Preflight, "its CRI plugin is disabled").
			Hint("remove \"cri\" from disabled_plugins in /etc/containerd/config.toml and restart containerd")
	case !info.Runtime.Ready:
		return fmt.Errorf("it is not ready to run containers: %s", info.Runtime.Message)
	case c.Facts.RestrictOOMScoreAdj && !info.RestrictOOMScoreAdj:
		return fault.New(fault.Preflight, "this host cannot lower OOM scores (no CAP_SYS_RESOURCE), and its configuration has no restrict_oom_score_adj = true").
			Hint("set restrict_oom_score_adj = true in the CRI section of /etc/containerd/config.toml and restart containerd")
	case c.CNI == "flannel" && info.CNIConfDir != "" && filepath.Clean(info.CNIConfDir) != config.CNIConfDir:
		return fault.New(fault.Preflight, "it reads the pod network's configuration from %s, and Airlift writes it to %s", info.CNIConfDir, config.CNIConfDir).
			Hint("set conf_dir = \"" + config.CNIConfDir + "\" in the cni section of the CRI plugin in /etc/containerd/config.toml and restart containerd")
	case c.CNI == "flannel" && len(info.CNIBinDirs) > 0 && !slices.Contains(info.CNIBinDirs, config.CNIBinDir):
		return fault.New(fault.Preflight, "it starts CNI plugins from %s, and Airlift installs them in %s", strings.Join(info.CNIBinDirs, ", "), config.CNIBinDir).
			Hint("set bin_dir = \"" + config.CNIBinDir + "\" in the cni section of the CRI plugin in /etc/containerd/config.toml and restart containerd")
	}
	return nil
}

// defaultSandboxImages are the default pause images of containerd releases 1.6,
// 1.7, 2.0, and 2.1 and later (pkg/cri/config and internal/cri/config of each).
var defaultSandboxImages = []string{
	"registry.k8s.io/pause:3.6", "registry.k8s.io/pause:3.8", "registry.k8s.io/pause:3.9",
	"registry.k8s.io/pause:3.10", "registry.k8s.io/pause:3.10.1", "registry.k8s.io/pause:3.10.2",
}

// SandboxImages returns the pause images that the runtime may use. If the
// runtime does not report its configuration, these are all defaults.
func (r *ExistingRuntime) SandboxImages() []string {
	if r.Info.SandboxImage == "" {
		return defaultSandboxImages
	}
	return []string{r.Info.SandboxImage}
}

// RecordNames returns a function that records image names in the ledger before
// an existing containerd creates or changes them.
func (m *Machine) RecordNames(socket string) func(context.Context, []store.NameChange) error {
	return func(_ context.Context, changes []store.NameChange) error {
		var names []ledger.ImageName
		for _, c := range changes {
			names = append(names, ledger.ImageName{Socket: socket, Name: c.Name, Before: (*ledger.ImageTarget)(c.Before), Set: c.Set})
		}
		return m.Host.Records().RecordImageNames(names...)
	}
}

// ContainerdDir is the root directory of Airlift's containerd.
const ContainerdDir = "/var/lib/containerd"
