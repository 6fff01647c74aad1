// Package upgrade upgrades a node, and with it the cluster, to the version of a bundle. It also shows what an
// upgrade would change, and undoes one.
package upgrade

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"airlift/installer/adoption"
	"airlift/installer/cluster/facts"
	"airlift/installer/cluster/lease"
	"airlift/installer/cluster/workloads"
	"airlift/installer/config"
	"airlift/installer/desired"
	"airlift/installer/host"
	"airlift/installer/node"
	"airlift/installer/payload"
	"airlift/installer/phases"
	"airlift/installer/undo"
	"airlift/installer/upgradecheck"
	"airlift/installer/workflow"
	"airlift/internal/fault"
)

// Options are the user's options for an upgrade.
type Options struct {
	config.UpgradeRun
	// Node is set for upgrade node: everything that is done once for the cluster is done
	// already, by upgrade apply.
	Node bool
	// DrainTimeout limits a drain without progress; 0 is the constant of this name.
	DrainTimeout time.Duration
	// Kubeconfig reaches the cluster; "" is admin.conf on a control plane, else kubelet.conf.
	Kubeconfig string
	// reconfigures is set for a reconfiguration, which keeps the version.
	reconfigures bool
}

// command is the name of the command, for messages.
func (o Options) command() string {
	switch {
	case o.reconfigures && o.Node:
		return "reconfigure node"
	case o.reconfigures:
		return "reconfigure"
	case o.Node:
		return "upgrade node"
	}
	return "upgrade apply"
}

// An Upgrade upgrades this node, and with it the cluster, to the version of the bundle.
type Upgrade struct {
	facts        *knowledge
	record       *record
	work         *work
	binaries     *binaries
	unpacker     *unpacker
	backups      *backups
	controlPlane *controlPlane
	objects      *objects
	addons       *addons
	kubelet      *kubelet
	containerd   *containerd
	drain        *drain
	checks       *checks
	keeper       *keeper
}

// New returns an Upgrade of a host to the version of a bundle.
func New(b *payload.Bundle, o Options, onePhase bool, h *host.Host, c *workflow.Console) *Upgrade {
	return newUpgrade(&phases.Plan{Config: &config.Config{}, Bundle: b, OnePhase: onePhase}, o, node.NewMachine(h, c))
}

func newUpgrade(p *phases.Plan, o Options, m *node.Machine) *Upgrade {
	content := phases.NewContent(phases.NewNode(p, m))
	n, api := content.Node, phases.NewAPI(content)
	n.MayBeAdopted = true
	known := &knowledge{node: n, api: api, options: o, bundle: p.Bundle}
	r := &record{machine: m, bundle: p.Bundle, reconfigures: o.reconfigures}
	u := &Upgrade{facts: known, record: r}
	u.controlPlane = &controlPlane{node: n, api: api, options: o, facts: known, record: r}
	u.binaries = &binaries{node: n, options: o, bundle: p.Bundle, record: r}
	u.work = &work{options: o, bundle: p.Bundle, facts: known, record: r, binaries: u.binaries, controlPlane: u.controlPlane}
	u.containerd = &containerd{node: n, record: r, binaries: u.binaries}
	u.unpacker = &unpacker{node: n, content: content, bundle: p.Bundle, record: r, work: u.work, binaries: u.binaries, containerd: u.containerd}
	u.kubelet = &kubelet{node: n, api: api, options: o, bundle: p.Bundle, facts: known, record: r, binaries: u.binaries, controlPlane: u.controlPlane}
	u.drain = &drain{node: n, api: api, options: o, record: r, binaries: u.binaries}
	u.objects = &objects{node: n, api: api, facts: known, record: r, work: u.work}
	u.addons = &addons{node: n, api: api, bundle: p.Bundle, facts: known, controlPlane: u.controlPlane, objects: u.objects}
	u.backups = &backups{node: n, options: o, bundle: p.Bundle, record: r, controlPlane: u.controlPlane}
	u.keeper = &keeper{node: n, api: api, bundle: p.Bundle}
	u.checks = &checks{node: n, api: api, options: o, bundle: p.Bundle, facts: known, record: r, binaries: u.binaries, kubelet: u.kubelet, backups: u.backups, keeper: u.keeper}
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
		{Name: "unpack", Doc: "import the images, and place the new binaries next to the old ones", Prepare: u.begin, Run: u.unpacker.unpack, Needed: true},
		{Name: "registry", Doc: "keep this file in the embedded registry, if the cluster has one", Prepare: u.begin, Run: u.keeper.keep},
		{Name: "snapshot", Doc: "save a backup of the cluster", Prepare: u.begin, Run: u.backups.save},
		u.restarts("control-plane", "replace the static pods, one by one", u.controlPlane.desired, u.controlPlane.upgrade),
		{Name: "upload-config", Aliases: []string{"uploadconfig"}, Doc: "store the configuration in the cluster", Steps: []workflow.Step{
			u.writes("kubeadm", "store the ClusterConfiguration", u.objects.clusterConfiguration, u.objects.store),
			u.writes("kubelet", "store the KubeletConfiguration", u.objects.kubeletConfiguration, u.objects.store),
		}},
		u.restarts("kubeconfig", "update the kubelet's kubeconfig", u.kubelet.localServer, u.kubelet.useLocalServer),
		u.writes("kubelet-config", "write the kubelet's configuration", u.kubelet.configuration, u.kubelet.writeConfiguration),
		u.writes("bootstrap-token", "update the permissions of joining nodes", u.objects.joinRules, u.objects.store),
		// Before the add-ons: a node whose kube-proxy restarts still sends requests to pods that have ended.
		{Name: "drain", Doc: "move this node's pods to other nodes", Prepare: u.begin, Run: u.drain.movePods},
		{Name: "addon", Doc: "upgrade CoreDNS, kube-proxy and the pod network", Steps: []workflow.Step{
			u.writes("coredns", "upgrade CoreDNS", u.addons.coreDNS, u.objects.store),
			u.writes("kube-proxy", "upgrade kube-proxy", u.addons.kubeProxy, u.objects.store),
			u.writes("flannel", "upgrade flannel, if it is the pod network", u.addons.flannel, u.objects.store),
		}},
		u.restarts("runtime", "upgrade containerd, runc and the CNI plugins", u.containerd.desired, u.containerd.upgrade),
		u.restarts("kubelet", "upgrade the kubelet", u.kubelet.desired, u.kubelet.upgrade),
		{Name: "uncordon", Doc: "allow pods on this node again", Prepare: u.begin, Run: u.drain.uncordon},
		u.writes("post-upgrade", "finish the upgrade of this node", u.binaries.stub, u.finish),
	})
}

// writes returns a step that writes files or objects.
func (u *Upgrade) writes(name, doc string, compute phases.Desired, apply func(context.Context, desired.List) error) workflow.Step {
	return workflow.Step{Name: name, Doc: doc, Prepare: u.begin, Apply: apply, Desired: func(ctx context.Context) (desired.List, error) {
		if err := u.learn(ctx); err != nil {
			return desired.List{}, err
		}
		return compute(ctx)
	}}
}

// restarts returns a step that also restarts something.
func (u *Upgrade) restarts(name, doc string, compute phases.Desired, apply func(context.Context, desired.List) error) workflow.Step {
	s := u.writes(name, doc, compute, apply)
	s.Prepare = u.beginInTurn
	return s
}

// ofCommand leaves out the steps that upgrade apply has done for all nodes.
func (u *Upgrade) ofCommand(steps []workflow.Step) []workflow.Step {
	if !u.facts.options.Node {
		return steps
	}
	return slices.DeleteFunc(steps, func(s workflow.Step) bool { return slices.Contains(onceForTheCluster, s.Name) })
}

// onceForTheCluster are the steps that only upgrade apply has.
var onceForTheCluster = []string{"upload-config", "bootstrap-token"}

// Run runs all steps except the skipped ones.
func (u *Upgrade) Run(ctx context.Context) error {
	return u.explain(workflow.Run(ctx, u.facts.node.Console, u.Steps(), u.skips()))
}

// skips returns the phases to skip. upgrade node accepts the names of upgrade apply too.
func (u *Upgrade) skips() (skip []string) {
	all := ApplyPhases()
	for _, name := range u.facts.options.SkipPhases {
		_, here := workflow.Find(u.Steps(), name)
		if _, known := workflow.Find(all, name); here || !known {
			skip = append(skip, name)
		}
	}
	return skip
}

// RunPhase waits for the check of the bundle file and runs one step alone.
func (u *Upgrade) RunPhase(ctx context.Context, name string) error {
	if err := u.facts.bundle.Checked(ctx, u.facts.node.Console); err != nil {
		return err
	}
	if err := node.UnfinishedRestore(u.facts.node.Existing); err != nil {
		return err
	}
	return u.explain(workflow.RunPhase(ctx, u.facts.node.Console, u.Steps(), name))
}

// explain adds to an error of an upgrade that has begun how to continue.
func (u *Upgrade) explain(err error) error {
	if err == nil || !u.record.unfinished() {
		return err
	}
	how := "to continue, run the same command again; to undo it: ./install upgrade undo"
	if _, started, err := undo.NewerEtcd(u.facts.node.Existing, u.record.state); err == nil && started != "" {
		how = "to continue, run the same command again; to go back instead: " + undo.WayBack(u.facts.node.Existing, u.record.state)
	}
	switch hint := fault.Hint(err); {
	case errors.Is(err, lease.ErrNoTurn):
		how = hint + strings.TrimPrefix(how, "to continue, run the same command again")
	case hint != "":
		how = hint + "; then, " + how
	}
	return fault.Wrap(err, fault.ExitCode(err), how)
}

// Close stops everything that runs in the background.
func (u *Upgrade) Close() {
	if u.controlPlane.pods != nil {
		u.controlPlane.pods.Turn.End()
		u.controlPlane.pods.Turn = nil
	}
	u.unpacker.content.Close()
	u.facts.node.Close()
}

// begin prepares a step: it learns about the cluster, and takes the turn unless the phase runs alone.
func (u *Upgrade) begin(ctx context.Context) error {
	if err := u.learn(ctx); err != nil {
		return err
	}
	if u.facts.node.Plan.OnePhase {
		return nil
	}
	return u.takeTurn(ctx)
}

// beginInTurn prepares a step that restarts something, also if the phase runs alone.
func (u *Upgrade) beginInTurn(ctx context.Context) error {
	if err := u.learn(ctx); err != nil {
		return err
	}
	if err := u.takeTurn(ctx); err != nil {
		return err
	}
	if u.controlPlane.pods == nil {
		return nil
	}
	return u.controlPlane.pods.Turn.Confirm(ctx)
}

// takeTurn takes the turn of this control plane until the end of the run. It does nothing where no
// static pod will be replaced.
func (u *Upgrade) takeTurn(ctx context.Context) error {
	if u.controlPlane.pods == nil || u.controlPlane.pods.Turn != nil || u.facts.options.DryRun {
		return nil
	}
	if work, err := u.work.remains(); err != nil || !work {
		return err
	}
	began := time.Now()
	if err := u.controlPlane.pods.TakeTurn(ctx, cmp.Or(u.facts.options.Kubeconfig, node.AdminConf)); err != nil || time.Since(began) < relearnAfter {
		return err
	}
	// Meanwhile, another control plane may have changed the cluster.
	turn := u.controlPlane.pods.Turn
	u.facts.stored = nil
	err := u.learn(ctx)
	u.controlPlane.pods.Turn = turn
	return err
}

// relearnAfter is the time after which what a run knows of the cluster may be old.
const relearnAfter = time.Second

// learn reads the configuration of this node and of the cluster, once. It changes nothing.
func (u *Upgrade) learn(ctx context.Context) error {
	if u.facts.stored != nil {
		return nil
	}
	if err := u.facts.checkNode(); err != nil {
		return err
	}
	c, err := u.facts.localConfig()
	if err != nil {
		return err
	}
	if err := u.record.read(); err != nil {
		return err
	}
	if err := u.facts.connect(c); err != nil {
		return err
	}
	// An interrupted run may have just replaced the API server: it refuses requests until it has
	// read the permissions.
	if err := u.facts.api.Client.Waits().WaitForAPI(ctx, cmp.Or(c.Timeouts.UpgradeManifests, config.DefaultUpgradeManifestsTimeout), u.facts.node.Report); err != nil {
		return err
	}
	stored, err := u.facts.api.Client.FetchStored(ctx)
	if err != nil {
		return err
	}
	for _, w := range stored.Warnings {
		u.facts.node.Console.Warn("%s", w)
	}
	if u.facts.self, err = facts.ReadUpgradeNode(ctx, u.facts.api.Client.API, c.NodeRegistration.Name); err != nil {
		return err
	}
	u.record.from = u.facts.self.KubeletVersion
	if err := u.facts.useCluster(ctx, c, stored); err != nil {
		return err
	}
	u.facts.stored = stored
	if err := u.prepare(ctx); err != nil {
		u.facts.stored = nil
		return err
	}
	return nil
}

// prepare computes what this node is to run.
func (u *Upgrade) prepare(ctx context.Context) error {
	u.facts.node.Observed = node.ObserveNode(u.facts.node.Machine)
	var err error
	if u.kubelet.adopted, err = adoption.ReadCarryOver(ctx, u.facts.node.Existing); err != nil {
		return err
	}
	if u.facts.change != nil {
		if err := u.facts.change.compute(ctx); err != nil {
			return err
		}
	}
	if !u.facts.node.IsControlPlane() {
		return nil
	}
	return u.controlPlane.prepare()
}

// preflight refuses what could not succeed. It changes nothing.
func (u *Upgrade) preflight(ctx context.Context) error {
	if err := u.facts.bundle.Checked(ctx, u.facts.node.Console); err != nil {
		return err
	}
	if err := u.learn(ctx); err != nil {
		return err
	}
	if err := u.facts.bundle.AttachNode(ctx, u.facts.node.Existing, u.facts.node.Console); err != nil {
		return err
	}
	if err := node.UnfinishedWork(u.facts.node.Existing, u.facts.node.Config); err != nil {
		return err
	}
	if err := node.UnfinishedReconfigure(u.facts.node.Existing); err != nil {
		return err
	}
	if !u.facts.node.Plan.OnePhase {
		if err := u.takeTurn(ctx); err != nil {
			return err
		}
	}
	from, to := u.facts.stored.Cluster.KubernetesVersion, u.facts.bundle.KubernetesVersion()
	if err := u.record.checkGoal(); err != nil {
		return err
	}
	command := upgradecheck.Apply
	if u.facts.options.Node {
		command = upgradecheck.Node
	}
	t, err := u.checks.target(ctx, command) // finds binaries that Airlift did not install, too
	if err != nil {
		return err
	}
	report, err := u.checks.run(ctx, t)
	u.facts.node.Warn(report)
	if err != nil {
		return err
	}
	u.facts.node.Console.Note("the cluster has %s, this node's kubelet %s, this file %s", from, u.facts.self.KubeletVersion, to)
	return nil
}

// finish ends the upgrade of this node. What undo needs stays until the next upgrade.
func (u *Upgrade) finish(ctx context.Context, l desired.List) error {
	if err := u.binaries.upgradeStub(ctx, l); err != nil {
		return err
	}
	if u.record.unfinished() {
		workloads.RemoveProbes(ctx, u.facts.api.Client.API) // of a run that was killed
	}
	if err := u.keeper.drop(ctx); err != nil {
		return err
	}
	if err := u.record.finish(); err != nil {
		return err
	}
	u.summary(ctx)
	return nil
}

// summary prints the next steps.
func (u *Upgrade) summary(ctx context.Context) {
	to := u.facts.bundle.KubernetesVersion()
	text := fmt.Sprintf("This node has Kubernetes %s.\n", to)
	if u.facts.node.Changes == 0 {
		text = fmt.Sprintf("This node has Kubernetes %s already. Nothing was changed.\n", to)
	}
	nodes, err := facts.UpgradeNodes(ctx, u.facts.api.Client.API)
	if err != nil { // a worker may not list the nodes
		u.facts.node.Console.Summary(text)
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
	case u.facts.node.Changes > 0:
		text += "All nodes have it.\n"
	}
	switch {
	case len(left) == 0 || !u.addons.left:
	case len(u.addons.imagesLeft) == 0:
		text += "\nThe last control plane upgrades the add-ons.\n"
	default:
		text += "\nThese nodes do not have the images of the add-ons: " + strings.Join(u.addons.imagesLeft, ", ") +
			".\nAfter the last node, upgrade the add-ons on a control plane:\n\n    ./install upgrade apply\n"
	}
	u.facts.node.Console.Summary(text)
}
