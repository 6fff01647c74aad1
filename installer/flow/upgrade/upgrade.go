// Package upgrade upgrades a node, and with it the cluster, to the version of a bundle. It also shows what an
// upgrade would change, and undoes one.
package upgrade

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"airlift/installer/cluster/inventory"
	"airlift/installer/cluster/workloads"
	"airlift/installer/config"
	"airlift/installer/desired"
	"airlift/installer/host"
	"airlift/installer/host/ospackages"
	"airlift/installer/node"
	"airlift/installer/payload"
	"airlift/installer/phases"
	"airlift/installer/revision"
	"airlift/installer/upgradecheck"
	"airlift/installer/workflow"
)

// Options are the user's options for an upgrade.
type Options struct {
	config.UpgradeRun
	// Node is set for upgrade node: everything that is done once for the cluster is done
	// already, by upgrade apply.
	Node bool
	// DrainTimeout limits a drain without progress; 0 is config.DrainTimeout.
	DrainTimeout time.Duration
	// Kubeconfig reaches the cluster; "" is admin.conf on a control plane, else kubelet.conf.
	Kubeconfig string
}

// An Upgrade upgrades this node, and with it the cluster, to the version of the bundle.
type Upgrade struct {
	*revision.Revision
	options  Options
	backedUp bool // this run has saved a backup
}

// New returns an Upgrade of a host to the version of a bundle.
func New(b *payload.Bundle, o Options, onePhase bool, h *host.Host, c *workflow.Console) *Upgrade {
	return newUpgrade(&phases.Plan{Config: &config.Config{}, Bundle: b, OnePhase: onePhase}, o, node.NewMachine(h, c))
}

func newUpgrade(p *phases.Plan, o Options, m *node.Machine) *Upgrade {
	command := "upgrade apply"
	if o.Node {
		command = "upgrade node"
	}
	u := &Upgrade{options: o, Revision: revision.New(p, revision.Options{UpgradeRun: o.UpgradeRun, Kind: revision.Upgrade, Command: command, Node: o.Node, Kubeconfig: o.Kubeconfig}, m)}
	u.Change = u
	return u
}

// ApplyPhases returns the steps of upgrade apply, for the names of its phases.
func ApplyPhases() []workflow.Step { return upgradePhases(false) }

// NodePhases returns the steps of upgrade node, for the names of its phases.
func NodePhases() []workflow.Step { return upgradePhases(true) }

func upgradePhases(node bool) []workflow.Step {
	return newUpgrade(&phases.Plan{Config: new(config.Config)}, Options{Node: node}, nil).Steps()
}

// Steps returns the steps in order. Those with kubeadm's names have kubeadm's order.
func (u *Upgrade) Steps() []workflow.Step {
	return u.ofCommand([]workflow.Step{
		{Name: "preflight", Doc: "check this file, this node and the cluster", Run: u.preflight, Reads: true},
		{Name: "unpack", Doc: "import the images, and place the new binaries next to the old ones", Prepare: u.Prepare, Run: u.unpack, Needed: true},
		{Name: "registry", Doc: "keep this file in the embedded registry, if the cluster has one", Prepare: u.Prepare, Run: u.keepFile},
		{Name: "snapshot", Doc: "save a backup of the cluster", Prepare: u.Prepare, Run: u.saveBackup},
		u.Restarts("control-plane", "replace the static pods, one by one", u.Manifests, u.ReplacePods),
		{Name: "upload-config", Aliases: []string{"uploadconfig"}, Doc: "store the configuration in the cluster", Steps: []workflow.Step{
			u.Writes("kubeadm", "store the ClusterConfiguration", u.ClusterConfiguration, u.Store),
			u.Writes("kubelet", "store the KubeletConfiguration", u.KubeletConfiguration, u.Store),
		}},
		u.Restarts("kubeconfig", "update the kubelet's kubeconfig", u.localServer, u.useLocalServer),
		u.Writes("kubelet-config", "write the kubelet's configuration", u.KubeletConfig, u.WriteKubeletConfig),
		u.Writes("bootstrap-token", "update the permissions of joining nodes", u.JoinRules, u.Store),
		// Before the add-ons: a node whose kube-proxy restarts still sends requests to pods that have ended.
		{Name: "drain", Doc: "move this node's pods to other nodes", Prepare: u.Prepare, Run: u.movePods},
		{Name: "addon", Doc: "upgrade CoreDNS, kube-proxy and the pod network", Steps: []workflow.Step{
			u.Writes("coredns", "upgrade CoreDNS", u.CoreDNS, u.Store),
			u.Writes("kube-proxy", "upgrade kube-proxy", u.KubeProxy, u.Store),
			u.Writes("flannel", "upgrade flannel, if it is the pod network", u.Flannel, u.Store),
		}},
		u.Restarts("runtime", "upgrade containerd, runc and the CNI plugins", u.runtimeFiles, u.upgradeRuntime),
		u.Restarts("kubelet", "upgrade the kubelet", u.kubeletFiles, u.upgradeKubelet),
		{Name: "uncordon", Doc: "allow pods on this node again", Prepare: u.Prepare, Run: u.uncordon},
		u.Writes("post-upgrade", "finish the upgrade of this node", u.Command, u.finish),
	})
}

// ofCommand leaves out the steps that upgrade apply has done for all nodes.
func (u *Upgrade) ofCommand(steps []workflow.Step) []workflow.Step {
	if !u.Options.Node {
		return steps
	}
	return slices.DeleteFunc(steps, func(s workflow.Step) bool { return slices.Contains(onceForTheCluster, s.Name) })
}

// onceForTheCluster are the steps that only upgrade apply has.
var onceForTheCluster = []string{"upload-config", "bootstrap-token"}

// Run runs all steps except the skipped ones.
func (u *Upgrade) Run(ctx context.Context) error {
	return u.Explain(workflow.Run(ctx, u.Console, u.Steps(), u.skips()))
}

// skips returns the phases to skip. upgrade node accepts the names of upgrade apply too.
func (u *Upgrade) skips() (skip []string) {
	all := ApplyPhases()
	for _, name := range u.Options.SkipPhases {
		_, here := workflow.Find(u.Steps(), name)
		if _, known := workflow.Find(all, name); here || !known {
			skip = append(skip, name)
		}
	}
	return skip
}

// RunPhase waits for the check of the bundle file and runs one step alone.
func (u *Upgrade) RunPhase(ctx context.Context, name string) error {
	if err := u.Bundle.Checked(ctx, u.Console); err != nil {
		return err
	}
	if err := node.UnfinishedRestore(u.Existing); err != nil {
		return err
	}
	return u.Explain(workflow.RunPhase(ctx, u.Console, u.Steps(), name))
}

// preflight refuses what could not succeed. It changes nothing.
func (u *Upgrade) preflight(ctx context.Context) error {
	if err := u.Bundle.Checked(ctx, u.Console); err != nil {
		return err
	}
	if err := u.Learn(ctx); err != nil {
		return err
	}
	if err := u.Bundle.AttachNode(ctx, u.Existing, u.Console); err != nil {
		return err
	}
	if err := cmp.Or(revision.Unfinished(u.Existing, revision.Upgrade), node.RotationInProgress(u.Existing, u.Config)); err != nil {
		return err
	}
	if !u.Plan.OnePhase {
		if err := u.TakeTurn(ctx); err != nil {
			return err
		}
	}
	from, to := u.Stored.Cluster.KubernetesVersion, u.Bundle.KubernetesVersion()
	if err := u.CheckGoal(); err != nil {
		return err
	}
	command := upgradecheck.Apply
	if u.Options.Node {
		command = upgradecheck.Node
	}
	t, err := u.target(ctx, command) // finds binaries that Airlift did not install, too
	if err != nil {
		return err
	}
	report, err := u.check(ctx, t)
	u.Warn(report)
	if err != nil {
		return err
	}
	u.warnPackages(ctx)
	u.Console.Note("the cluster has %s, this node's kubelet %s, this file %s", from, u.Self.KubeletVersion, to)
	return nil
}

// warnPackages warns of packages of this file that this node does not have: an upgrade does not install them.
func (u *Upgrade) warnPackages(ctx context.Context) {
	items, err := phases.PackagesOf(u.Bundle, node.Observe(u.Existing).Role, u.Machine).Items(ctx)
	if err != nil {
		u.Console.Warn("%v", err)
	} else if n := len(ospackages.Changes(items)); n > 0 {
		u.Console.Warn("an upgrade installs no packages: %s of this file are not on this node. When its pods may be interrupted: ./install packages", workflow.Count(n, "package"))
	}
}

// finish ends the upgrade of this node. What undo needs stays until the next upgrade.
func (u *Upgrade) finish(ctx context.Context, l desired.List) error {
	if err := u.InstallCommand(ctx, l); err != nil {
		return err
	}
	if u.Unfinished() {
		workloads.RemoveProbes(ctx, u.API.Client.API) // of a run that was killed
	}
	if err := u.dropFormer(ctx); err != nil {
		return err
	}
	if err := u.Finish(); err != nil {
		return err
	}
	if err := u.endReconfiguration(); err != nil {
		return err
	}
	if err := u.Host.Upgrades().RemoveStaged(); err != nil {
		return err
	}
	u.summary(ctx)
	return nil
}

// endReconfiguration removes what undo of a reconfiguration with another file would restore: its manifests have the images of that
// file.
func (u *Upgrade) endReconfiguration() error {
	r, err := revision.Read(u.Existing, revision.Reconfigure)
	if err != nil || r == nil || r.To == u.Bundle.KubernetesVersion() && r.Bundle == u.Bundle.ID() {
		return err
	}
	return revision.Remove(u.Host, revision.Reconfigure)
}

// summary prints the next steps.
func (u *Upgrade) summary(ctx context.Context) {
	to := u.Bundle.KubernetesVersion()
	text := fmt.Sprintf("This node has Kubernetes %s.\n", to)
	if u.Changes == 0 {
		text = fmt.Sprintf("This node has Kubernetes %s already. Nothing was changed.\n", to)
	}
	nodes, err := inventory.Nodes(ctx, u.API.Client.API)
	if err != nil { // a worker may not list the nodes
		u.Console.Summary(text)
		return
	}
	var left []string
	for _, n := range nodes {
		if n.KubeletVersion != to {
			left = append(left, n.Name+" ("+n.KubeletVersion+")")
		}
	}
	switch {
	case len(left) > 0:
		text += "\nThese nodes have another version:\n\n    " + strings.Join(left, "\n    ") +
			"\n\nCopy this file to each, control planes first, and run there as root:\n\n    ./install upgrade node\n"
	case u.Changes > 0:
		text += "All nodes have it.\n"
	}
	switch {
	case len(left) == 0 || !u.AddOnsLeft:
	case len(u.ImagesLeft) == 0:
		text += "\nThe last control plane upgrades the add-ons.\n"
	default:
		text += "\nThese nodes do not have the images of the add-ons: " + strings.Join(u.ImagesLeft, ", ") +
			".\nAfter the last node, upgrade the add-ons on a control plane:\n\n    ./install upgrade apply\n"
	}
	u.Console.Summary(text)
}
