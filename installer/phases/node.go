package phases

import (
	"context"
	"slices"
	"strings"

	"airlift/installer/config"
	"airlift/installer/desired"
	"airlift/installer/etcd"
	"airlift/installer/host"
	"airlift/installer/host/ledger"
	"airlift/installer/node"
	"airlift/installer/pods"
	"airlift/installer/preflight"
	"airlift/internal/fault"
)

// A Node is the host during init or join.
type Node struct {
	*node.Machine
	Plan *Plan
	// Config is the plan's configuration, plus what the run finds out about an
	// existing container runtime and, in join, about the cluster. A run
	// replaces it and never modifies it.
	Config *config.Config

	Restored  *etcd.Snapshot   // what this run restores; nil unless it is a restore, which may continue an earlier one
	Observed  node.Observation // what Inspect found
	inspected bool             // Inspect has completed
	Watch     *pods.Watch
	// MayBeAdopted is set for an upgrade: init and join refuse an adopted node.
	MayBeAdopted bool
	// CheckEarlier returns an error if this run cannot continue an earlier one.
	CheckEarlier func(context.Context) error
}

// NewNode returns the Node of a run that has not inspected the host yet.
func NewNode(p *Plan, m *node.Machine) *Node {
	n := &Node{Machine: m, Plan: p, Config: p.Config, CheckEarlier: func(context.Context) error { return nil }}
	n.Watch = pods.NewWatch(m, func() string { return strings.TrimPrefix(n.Config.NodeRegistration.CRISocket, "unix://") })
	return n
}

// WaitKubelet waits until the kubelet is healthy.
func (n *Node) WaitKubelet(ctx context.Context) error {
	return n.Watch.WaitKubelet(ctx, n.Config.Timeouts.KubeletHealthCheck)
}

// Close closes the connection to containerd.
func (n *Node) Close() { n.Watch.Close() }

// LocalAPI returns the components that the API server of this node needs.
func (n *Node) LocalAPI() pods.Dependency {
	if n.Plan.hasEtcd(n.Config) {
		return pods.Dependency{Components: pods.APIComponents}
	}
	return pods.Dependency{Components: pods.APIComponents[1:]}
}

// Inspect finds earlier runs and an existing container runtime on this host.
// The first step that needs the result calls it, because the user may skip
// preflight.
func (n *Node) Inspect(ctx context.Context) error {
	if n.inspected {
		return nil
	}
	if err := n.checkEarlierRun(ctx); err != nil {
		return err
	}
	n.Observed, n.inspected = node.ObserveRuntime(ctx, n.Machine, n.Config, n.Observed.IsNode), true
	if r := n.Observed.Runtime; r != nil { // it and its cgroup driver are used
		learned := *n.Config
		learned.Facts.CgroupDriver = r.CgroupDriver()
		n.Config, n.Watch.Containerd = &learned, r.Store
		n.Console.Note("using this host's existing containerd %s, %s cgroup driver", r.Info.Version, learned.Facts.CgroupDriver)
	}
	return nil
}

// checkEarlierRun finds out whether this run can continue an earlier one.
func (n *Node) checkEarlierRun(ctx context.Context) error {
	is, err := n.findEarlierRun()
	if err != nil {
		return err
	}
	n.Observed = node.Observation{IsNode: is}
	return n.CheckEarlier(ctx)
}

// findEarlierRun finds out whether an earlier run made this host a node,
// completely or in part. It refuses to turn a worker into a control plane or a
// control plane into a worker.
func (n *Node) findEarlierRun() (bool, error) {
	if n.Restored == nil {
		if err := node.UnfinishedRestore(n.Existing); err != nil {
			return false, err
		}
	}
	if err := node.UnfinishedReset(n.Existing); err != nil {
		return false, err
	}
	if a := n.Existing.Records().Adopted(); a != nil && !n.MayBeAdopted {
		return false, fault.New(fault.Preflight, "this host is a node that %s made and that was adopted: init and join do not change it", a.Maker).
			Hint("to upgrade it: ./install upgrade plan; to remove the node: ./install reset --remove-node")
	}
	is := ""
	switch {
	case !n.Existing.Records().Manages():
		return false, nil
	case node.FileExists(n.Existing, node.AdminConf):
		is = controlPlaneKind
	case node.FileExists(n.Existing, node.KubeletConf), node.FileExists(n.Existing, node.BootstrapConf):
		is = WorkerKind
	}
	if is != "" && is != n.Plan.Role.Kind {
		return false, fault.New(fault.Preflight, "this host is %s already and cannot become %s", is, n.Plan.Role.Kind).
			Hint("remove the node first: ./install reset --force; on a cluster's only control plane, this deletes the cluster")
	}
	return is != "", node.RotationInProgress(n.Existing, n.Config)
}

// Ready waits for the check of the bundle file and inspects the host. No step
// changes the host before that.
func (n *Node) Ready(ctx context.Context) error {
	if err := n.Plan.Bundle.Checked(ctx, n.Console); err != nil { // the user may skip preflight
		return err
	}
	if err := n.Inspect(ctx); err != nil {
		return err
	}
	return n.Observed.RuntimeErr
}

// Binaries returns the binaries that the bundle installs on this host.
func (n *Node) Binaries() []host.Binary {
	var list []host.Binary
	for _, e := range n.Plan.Bundle.Manifest.Entries {
		if path := node.BinaryPath(e.Name); path != "" && n.Plan.wantsBinary(e.Name, n.Observed) {
			list = append(list, host.Binary{Path: path, SHA256: e.SHA256, Size: e.Size})
		}
	}
	return list
}

// Command returns the command airlift of this file.
func (n *Node) Command() host.Binary {
	b := host.Binary{Path: host.CommandPath}
	if f := n.Plan.Bundle.File; f != nil {
		b.SHA256, b.Size = f.Installer().SHA256, f.Installer().Size
	}
	return b
}

// needCommand installs the command airlift, unless the phase unpack has done it.
func (n *Node) needCommand(ctx context.Context) error {
	if n.Exists(host.CommandPath) && !n.Existing.Records().Wrote(host.FormerCommand) {
		return nil
	}
	return n.Host.InstallCommand(ctx, n.Command().SHA256)
}

// content returns what this node gets from the bundle.
func (n *Node) content() desired.List {
	return desired.List{Binaries: append(n.Binaries(), n.Command()), SiteFiles: n.hostFiles(), Images: n.Plan.Images()}
}

// claim records in the ledger the directories that Kubernetes and containerd
// will fill. It refuses a directory that is not empty, unless the user ignores
// its check. Then the directory is used, and reset does not remove it.
func (n *Node) claim(claims ...ledger.Claim) error {
	for _, c := range claims {
		err := n.Host.Claim(c)
		if err != nil && preflight.Ignored(c.Check(), n.Config.NodeRegistration.IgnorePreflightErrors) {
			err = n.Host.Records().Spare(c)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Apply applies a step's list to this host: it claims the directories and writes the files.
func (n *Node) Apply(_ context.Context, l desired.List) error {
	if err := n.claim(l.Claims...); err != nil {
		return err
	}
	return n.Write(l.Files...)
}

// claims returns all directories that Kubernetes and containerd fill on this
// node.
func (n *Node) claims() []ledger.Claim {
	return ledger.Claims(n.Config, n.Plan.hasEtcd(n.Config), !n.Observed.KeepsRuntime)
}

// EtcdClaim returns etcd's data directory. The step runtime claims it, and so does a phase that runs alone.
func (n *Node) EtcdClaim() []ledger.Claim {
	return slices.DeleteFunc(n.claims(), func(c ledger.Claim) bool { return c.Contents != ledger.EtcdData })
}

// kubeletCertDir returns the kubelet's --cert-dir if it is not the default and does not exist yet. The
// kubelet writes rotated certificates there, and reset must remove them.
func (n *Node) kubeletCertDir() []ledger.Claim {
	dir := n.Config.NodeRegistration.KubeletCertDir()
	if strings.HasPrefix(dir, config.KubeletDir+"/") || n.Exists(dir) {
		return nil
	}
	return []ledger.Claim{{Path: dir, Contents: "the kubelet's certificates"}}
}
