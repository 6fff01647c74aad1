package installer

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"airlift/fault"
	"airlift/images/store"
	"airlift/installer/config"
)

// A host may have a containerd of its own. It is used when Kubernetes can run
// on it, and left as it is.

const runtimeHint = "mend it, or remove it (apt-get purge containerd) and let the bundle bring its own"

// detectRuntime finds out whether the host has a containerd of its own, and
// whether Kubernetes can use it.
func (n *Node) detectRuntime(ctx context.Context) error {
	socket := strings.TrimPrefix(n.Config.NodeRegistration.CRISocket, "unix://")
	if n.Host.OwnsRuntime() {
		return nil
	}
	if !n.exists(socket) {
		if strings.TrimPrefix(socket, "/var") != config.ContainerdSocket { // /var/run is /run
			return fault.New(fault.Preflight, "start the container runtime it belongs to, or leave it out: the bundle brings a containerd",
				"no container runtime listens at the CRI socket %s", socket)
		}
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, runtimeTimeout)
	defer cancel()
	s, err := store.Connect(ctx, socket)
	if err != nil {
		return fault.Wrap(fmt.Errorf("using this host's container runtime: %w", err), fault.Preflight, runtimeHint)
	}
	info, err := s.Info(ctx)
	if err == nil {
		err = n.fits(info)
	}
	if err != nil {
		_ = s.Close()
		hint := fault.Hint(err)
		if hint == "" {
			hint = runtimeHint
		}
		return fault.Wrap(fmt.Errorf("using this host's containerd %s: %w", info.Version, err), fault.Preflight, hint)
	}
	n.store, n.foreign, n.sandboxImage, n.runtimeVersion = s, true, info.SandboxImage, info.Version
	n.imageDir = info.ImageDir
	n.Config.Facts.CgroupDriver = "cgroupfs"
	if info.SystemdCgroup {
		n.Config.Facts.CgroupDriver = "systemd"
	}
	n.Console.Note("using this host's own containerd %s, %s cgroup driver", info.Version, n.Config.Facts.CgroupDriver)
	return nil
}

// fits says why Kubernetes cannot run on a containerd.
func (n *Node) fits(info store.Info) error {
	switch {
	case !info.CRI:
		return fault.New(fault.Preflight, "take \"cri\" out of disabled_plugins in /etc/containerd/config.toml and restart containerd",
			"its CRI plugin is disabled")
	case !info.Runtime.Ready:
		return fmt.Errorf("it is not ready to run containers: %s", info.Runtime.Message)
	case n.Config.Facts.RestrictOOMScoreAdj && !info.RestrictOOMScoreAdj:
		return fault.New(fault.Preflight, "set restrict_oom_score_adj = true in the CRI section of /etc/containerd/config.toml and restart containerd",
			"this host may not lower an OOM score (no CAP_SYS_RESOURCE), and its configuration does not allow for that")
	}
	return nil
}

// defaultSandboxImages are the pause images that containerd releases start
// pods with unless configured otherwise: 1.6, 1.7, 2.0 and 2.1 onwards
// (pkg/cri/config and internal/cri/config of each).
var defaultSandboxImages = []string{
	"registry.k8s.io/pause:3.6", "registry.k8s.io/pause:3.8", "registry.k8s.io/pause:3.9",
	"registry.k8s.io/pause:3.10", "registry.k8s.io/pause:3.10.1", "registry.k8s.io/pause:3.10.2",
}

// nameSandboxImage makes the bundle's pause image answer to the name under
// which a foreign containerd looks for its own, which it could not pull here.
// A containerd that does not tell the name gets all the defaults.
func (n *Node) nameSandboxImage(ctx context.Context) error {
	if !n.foreign {
		return nil
	}
	names := []string{n.sandboxImage}
	if n.sandboxImage == "" {
		names = defaultSandboxImages
	}
	pause := n.Config.Images["pause"]
	for _, name := range slices.DeleteFunc(slices.Clone(names), func(s string) bool { return s == pause }) {
		if err := n.store.Tag(ctx, pause, name); err != nil {
			return err
		}
	}
	return nil
}
