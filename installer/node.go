package installer

import (
	"context"
	"strings"
	"time"

	"airlift/fault"
	"airlift/images/store"
	"airlift/installer/config"
	"airlift/installer/etcd"
	"airlift/installer/host"
	"airlift/installer/preflight"
)

// A node is the host during init or join.
type node struct {
	*machine
	plan *Plan
	// config is the plan's configuration, plus what the run finds out about an
	// existing container runtime and, in join, about the cluster. A run
	// replaces it and never modifies it.
	config *config.Config

	restored   *etcd.Snapshot   // what this run restores; nil unless it is a restore, which may continue an earlier one
	inspected  bool             // inspect has completed
	rerun      bool             // an earlier run wrote at least a kubeconfig file
	runtime    *existingRuntime // init and join: nil if Airlift uses the bundle's containerd
	runtimeErr error            // why the existing container runtime cannot be used
	// keepsRuntime is set if the container runtime of this host existed before Airlift. Its binaries,
	// configuration and directories are not changed. init and join find it, and the ledger has it for
	// everything that follows.
	keepsRuntime bool
	containerd   *store.Store // connected once containerd runs
	crashes      *crashes     // how processes of this node ended
	// checkEarlier returns an error if this run cannot continue an earlier one.
	checkEarlier func(context.Context) error
}

func newNode(p *Plan, m *machine) *node {
	return &node{machine: m, plan: p, config: p.config, crashes: newCrashes(time.Now()), checkEarlier: func(context.Context) error { return nil }}
}

// close closes the connection to containerd.
func (n *node) close() {
	if n.containerd != nil {
		_ = n.containerd.Close()
	}
}

// inspect finds earlier runs and an existing container runtime on this host.
// The first step that needs the result calls it, because the user may skip
// preflight.
func (n *node) inspect(ctx context.Context) error {
	if n.inspected {
		return nil
	}
	if err := n.findEarlierRun(); err != nil {
		return err
	}
	if err := n.checkEarlier(ctx); err != nil {
		return err
	}
	if n.runtime, n.runtimeErr = n.findRuntime(ctx, n.config); n.runtime != nil {
		n.useRuntime(n.runtime)
	}
	n.keepsRuntime = n.runtime != nil || n.runtimeErr != nil
	n.inspected = true
	return nil
}

// useRuntime uses an existing container runtime and its cgroup driver.
func (n *node) useRuntime(r *existingRuntime) {
	learned := *n.config
	learned.Facts.CgroupDriver = r.cgroupDriver()
	n.config, n.containerd = &learned, r.store
	n.console.Note("using this host's existing containerd %s, %s cgroup driver", r.info.Version, learned.Facts.CgroupDriver)
}

// findEarlierRun finds out whether an earlier run made this host a node,
// completely or in part. It refuses to turn a worker into a control plane or a
// control plane into a worker.
func (n *node) findEarlierRun() error {
	if n.restored == nil {
		if err := UnfinishedRestore(n.existing); err != nil {
			return err
		}
	}
	is := ""
	switch {
	case !n.existing.Used():
		return nil
	case fileExists(n.existing, adminConf):
		is = aControlPlane
	case fileExists(n.existing, kubeletConf), fileExists(n.existing, bootstrapConf):
		is = aWorker
	}
	if is != "" && is != n.plan.role.kind {
		return fault.New(fault.Preflight, "remove the node first: ./install reset --force; on a cluster's only control plane, this deletes the cluster",
			"this host is %s already and cannot become %s", is, n.plan.role.kind)
	}
	n.rerun = is != ""
	return rotationInProgress(n.existing, n.config)
}

// ready waits for the check of the bundle file and inspects the host. No step
// changes the host before that.
func (n *node) ready(ctx context.Context) error {
	if err := n.plan.bundle.checked(ctx, n.console); err != nil { // the user may skip preflight
		return err
	}
	if err := n.inspect(ctx); err != nil {
		return err
	}
	return n.runtimeErr
}

// binaries returns the binaries that the bundle installs on this host.
func (n *node) binaries() []host.Binary {
	var list []host.Binary
	for _, e := range n.plan.bundle.manifest.Entries {
		if path := binaryPath(e.Name); path != "" && n.wantsBinary(e.Name) {
			list = append(list, host.Binary{Path: path, SHA256: e.SHA256})
		}
	}
	return list
}

func (n *node) wantsBinary(entry string) bool { return n.plan.wantsBinary(entry, n.keepsRuntime) }

// claim records in the ledger the directories that Kubernetes and containerd
// will fill. It refuses a directory that is not empty, unless the user ignores
// its check. Then the directory is used, and reset does not remove it.
func (n *node) claim(claims ...host.Claim) error {
	for _, c := range claims {
		err := n.host.Claim(c)
		if err != nil && preflight.Ignored(c.Check(), n.config.NodeRegistration.IgnorePreflightErrors) {
			err = n.host.Spare(c)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// claims returns all directories that Kubernetes and containerd fill on this
// node.
func (n *node) claims() []host.Claim {
	return host.Claims(n.config, n.plan.hasEtcd(n.config), !n.keepsRuntime)
}

// claimEtcd claims etcd's data directory. It is for a phase that runs alone.
func (n *node) claimEtcd() error {
	for _, c := range n.claims() {
		if c.Contents == host.EtcdData {
			return n.claim(c)
		}
	}
	return nil
}

// claimKubeletCertDir claims the kubelet's --cert-dir if it is not the default
// and does not exist yet. The kubelet writes rotated certificates there, and
// reset must remove them.
func (n *node) claimKubeletCertDir() error {
	dir := n.config.NodeRegistration.KubeletCertDir()
	if strings.HasPrefix(dir, config.KubeletDir+"/") || n.exists(dir) {
		return nil
	}
	return n.host.Claim(host.Claim{Path: dir, Contents: "the kubelet's certificates"})
}
