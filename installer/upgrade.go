package installer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"airlift/fault"
	"airlift/installer/cluster"
	"airlift/installer/config"
	"airlift/installer/host"
	"airlift/installer/pki"
	"airlift/installer/preflight"
	"airlift/installer/upgradecheck"
)

// UpgradeOptions are the user's options for an upgrade.
type UpgradeOptions struct {
	config.UpgradeRun
	// Node is set for upgrade node: everything that is done once for the cluster is done
	// already, by upgrade apply.
	Node bool
	// Kubeconfig reaches the cluster; "" is admin.conf on a control plane, else kubelet.conf.
	Kubeconfig string
}

// An Upgrade upgrades this node, and with it the cluster, to the version of the bundle.
type Upgrade struct {
	*api
	options     UpgradeOptions
	bundle      *Bundle
	runtimeStep runtimeStep
	kubeletStep kubelet

	stored *cluster.Stored     // set by learn
	self   cluster.UpgradeNode // this node, when the run began
	state  *upgradeState       // nil if there is nothing to upgrade
	pods   *StaticPods         // nil on a worker
	plans  map[string][]byte   // new manifests of static pods, by component
	saved  bool                // this run has saved a backup
	// addonsLeft is set if an add-on waits until other nodes are upgraded.
	addonsLeft bool
	imagesLeft []string // workers that have no image of such an add-on yet
}

// NewUpgrade returns an Upgrade to the version of a bundle.
func NewUpgrade(b *Bundle, o UpgradeOptions, onePhase bool, h *host.Host, c *Console) *Upgrade {
	return newUpgrade(&Plan{config: &config.Config{}, bundle: b, onePhase: onePhase}, o, newMachine(h, c))
}

func newUpgrade(p *Plan, o UpgradeOptions, m *machine) *Upgrade {
	content := &content{node: newNode(p, m)}
	return &Upgrade{api: &api{content: content}, options: o, bundle: p.bundle, runtimeStep: runtimeStep{content}, kubeletStep: kubelet{content}}
}

// UpgradeApplyPhases returns the steps of upgrade apply, for the names of its phases.
func UpgradeApplyPhases() []Step { return upgradePhases(false) }

// UpgradeNodePhases returns the steps of upgrade node, for the names of its phases.
func UpgradeNodePhases() []Step { return upgradePhases(true) }

func upgradePhases(node bool) []Step {
	return newUpgrade(&Plan{config: new(config.Config)}, UpgradeOptions{Node: node}, nil).Steps()
}

// Steps returns the steps in order. Those with kubeadm's names have kubeadm's order.
func (u *Upgrade) Steps() []Step {
	first := !u.options.Node
	steps := []Step{
		{Name: "preflight", Doc: "check this file, this node and the cluster", Run: u.preflight},
		{Name: "unpack", Doc: "import the images, and place the new binaries next to the old ones", Run: u.with(u.unpack), Needed: true},
		{Name: "snapshot", Doc: "save a backup of the cluster", Run: u.with(u.backup)},
		{Name: "control-plane", Doc: "replace the static pods, one by one", Run: u.inTurn(u.controlPlane)},
	}
	if first {
		steps = append(steps, Step{Name: "upload-config", Aliases: []string{"uploadconfig"}, Doc: "store the configuration in the cluster", Steps: []Step{
			{Name: "kubeadm", Doc: "store the ClusterConfiguration", Run: u.with(u.uploadCluster)},
			{Name: "kubelet", Doc: "store the KubeletConfiguration", Run: u.with(u.uploadKubelet)},
		}})
	}
	steps = append(steps,
		Step{Name: "kubeconfig", Doc: "update the kubelet's kubeconfig", Run: u.inTurn(u.kubeconfig)},
		Step{Name: "kubelet-config", Doc: "write the kubelet's configuration", Run: u.with(u.kubeletConfig)},
	)
	if first {
		steps = append(steps, Step{Name: "bootstrap-token", Doc: "update the permissions of joining nodes", Run: u.with(u.bootstrapToken)})
	}
	return append(steps,
		// Before the add-ons: a node whose kube-proxy restarts still sends requests to pods that have ended.
		Step{Name: "drain", Doc: "move this node's pods to other nodes", Run: u.with(u.drain)},
		Step{Name: "addon", Doc: "upgrade CoreDNS, kube-proxy and the pod network", Steps: []Step{
			{Name: "coredns", Doc: "upgrade CoreDNS", Run: u.with(u.coreDNS)},
			{Name: "kube-proxy", Doc: "upgrade kube-proxy", Run: u.with(u.kubeProxy)},
			{Name: "flannel", Doc: "upgrade flannel, if it is the pod network", Run: u.with(u.flannel)},
		}},
		Step{Name: "runtime", Doc: "upgrade containerd, runc and the CNI plugins", Run: u.inTurn(u.upgradeRuntime)},
		Step{Name: "kubelet", Doc: "upgrade the kubelet", Run: u.inTurn(u.upgradeKubelet)},
		Step{Name: "uncordon", Doc: "allow pods on this node again", Run: u.with(u.uncordon)},
		Step{Name: "post-upgrade", Doc: "finish the upgrade of this node", Run: u.with(u.finished)},
	)
}

// Run runs all steps except the skipped ones.
func (u *Upgrade) Run(ctx context.Context) error {
	return u.explain(Run(ctx, u.console, u.Steps(), u.skips()))
}

// skips returns the phases to skip. upgrade node accepts the names of upgrade apply too.
func (u *Upgrade) skips() (skip []string) {
	all := UpgradeApplyPhases()
	for _, name := range u.options.SkipPhases {
		_, here := find(u.Steps(), name)
		if _, known := find(all, name); here || !known {
			skip = append(skip, name)
		}
	}
	return skip
}

// RunPhase waits for the check of the bundle file and runs one step alone.
func (u *Upgrade) RunPhase(ctx context.Context, name string) error {
	if err := u.bundle.checked(ctx, u.console); err != nil {
		return err
	}
	if err := UnfinishedRestore(u.existing); err != nil {
		return err
	}
	return u.explain(RunPhase(ctx, u.console, u.Steps(), name))
}

// explain adds to an error of an upgrade that has begun how to continue.
func (u *Upgrade) explain(err error) error {
	if err == nil || u.state == nil || u.state.Finished {
		return err
	}
	how := "to continue, run the same command again; to undo it: ./install upgrade undo"
	if _, started, err := newerEtcd(u.existing, u.state); err == nil && started != "" {
		how = "to continue, run the same command again; to go back instead: " + wayBack(u.existing, u.state)
	}
	switch hint := fault.Hint(err); {
	case errors.Is(err, cluster.ErrNoTurn):
		how = hint + strings.TrimPrefix(how, "to continue, run the same command again")
	case hint != "":
		how = hint + "; then, " + how
	}
	return fault.Wrap(err, fault.ExitCode(err), how)
}

// Close stops everything that runs in the background.
func (u *Upgrade) Close() {
	if u.pods != nil {
		u.pods.turn.end()
		u.pods.turn = nil
	}
	u.content.close()
	u.node.close()
}

// command is the name of the command, for messages.
func (u *Upgrade) command() string {
	if u.options.Node {
		return "upgrade node"
	}
	return "upgrade apply"
}

// with returns a step that learns about the cluster first, unless an earlier step has.
func (u *Upgrade) with(run func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		if err := u.learn(ctx); err != nil {
			return err
		}
		if !u.plan.onePhase {
			if err := u.takeTurn(ctx); err != nil {
				return err
			}
		}
		return run(ctx)
	}
}

// inTurn is with for a step that restarts something, also if it runs alone.
func (u *Upgrade) inTurn(run func(context.Context) error) func(context.Context) error {
	return u.with(func(ctx context.Context) error {
		if err := u.takeTurn(ctx); err != nil {
			return err
		}
		if u.pods != nil {
			if err := u.pods.turn.confirm(ctx); err != nil {
				return err
			}
		}
		return run(ctx)
	})
}

// takeTurn takes the turn of this control plane until the end of the run. It does nothing where no
// static pod will be replaced.
func (u *Upgrade) takeTurn(ctx context.Context) error {
	if u.pods == nil || u.pods.turn != nil || u.options.DryRun {
		return nil
	}
	if work, err := u.work(); err != nil || !work {
		return err
	}
	began := time.Now()
	if err := u.pods.TakeTurn(ctx, cmp.Or(u.options.Kubeconfig, adminConf)); err != nil || time.Since(began) < relearnAfter {
		return err
	}
	// Meanwhile, another control plane may have changed the cluster.
	turn := u.pods.turn
	u.stored = nil
	err := u.learn(ctx)
	u.pods.turn = turn
	return err
}

// relearnAfter is the time after which what a run knows of the cluster may be old.
const relearnAfter = time.Second

// isControlPlane reports whether this host runs an API server.
func (m *machine) isControlPlane() bool { return fileExists(m.existing, apiServerManifest) }

// learn reads the configuration of this node and of the cluster, once. It changes nothing.
func (u *Upgrade) learn(ctx context.Context) error {
	if u.stored != nil {
		return nil
	}
	if err := u.checkNode(); err != nil {
		return err
	}
	c, err := u.localConfig()
	if err != nil {
		return err
	}
	if u.state, err = readUpgradeState(u.existing); err != nil {
		return err
	}
	if err := u.connect(c); err != nil {
		return err
	}
	// An interrupted run may have just replaced the API server: it refuses requests until it has
	// read the permissions.
	if err := u.client.WaitForAPI(ctx, cmp.Or(c.Timeouts.UpgradeManifests, config.DefaultUpgradeManifestsTimeout), u.report); err != nil {
		return err
	}
	stored, err := u.client.FetchStored(ctx)
	if err != nil {
		return err
	}
	for _, w := range stored.Warnings {
		u.console.Warn("%s", w)
	}
	if u.self, err = u.client.UpgradeNode(ctx, c.NodeRegistration.Name); err != nil {
		return err
	}
	if err := u.useCluster(ctx, c, stored); err != nil {
		return err
	}
	u.keepsRuntime = !u.existing.OwnsRuntime()
	if u.isControlPlane() {
		u.pods = newStaticPods(u.node)
		u.pods.annotates, u.pods.ended, u.pods.starts = true, u.releaseLeadership, u.recordEtcd
		u.pods.ignoresEtcd = preflight.Ignored(upgradecheck.EtcdHealth, u.options.IgnorePreflightErrors)
		if u.plans, err = u.manifests(); err != nil {
			return err
		}
	}
	u.stored = stored
	return nil
}

// checkNode refuses a host that is not a node of Airlift's, or not the right one.
func (u *Upgrade) checkNode() error {
	switch {
	case !fileExists(u.existing, kubeletConf):
		return fault.New(fault.Preflight, "run it on a node; to make this host one: ./install init, or ./install join", "this host is not a node of a cluster: %s does not exist", kubeletConf)
	case !u.existing.Used():
		return fault.New(fault.Preflight, "upgrade it with the tool that installed it", "Airlift did not install this node: it has no ledger, in which changes are recorded")
	case !u.options.Node && !u.isControlPlane():
		return fault.New(fault.Preflight, "run it on a control plane first; then, on this host: ./install upgrade node", "this host is a worker, and upgrade apply must run on a control plane")
	}
	return nil
}

// localConfig returns what is in the files of this host about the node.
func (u *Upgrade) localConfig() (*config.Config, error) {
	c := &config.Config{Timeouts: u.options.Timeouts, Patches: u.options.Patches, SkipPhases: u.options.SkipPhases, DryRun: u.options.DryRun}
	if err := u.bundle.Configure(c); err != nil {
		return nil, err
	}
	if u.existing.Claimed(flannelState) == "" {
		c.CNI = "none"
	}
	socket, err := (&machine{host: u.existing}).kubeletSocket()
	if err != nil {
		return nil, err
	}
	c.NodeRegistration = config.NodeRegistration{
		Name: pki.NodeName(u.files()), CRISocket: "unix://" + socket,
		IgnorePreflightErrors: u.options.IgnorePreflightErrors, ImagePullPolicy: u.options.ImagePullPolicy,
	}
	if c.NodeRegistration.Name == "" {
		return nil, fault.New(fault.Preflight, "see ./install docs certificates: a kubelet whose certificate has expired", "%s does not have this node's name", kubeletConf)
	}
	if !u.isControlPlane() {
		return c, nil
	}
	flags, err := apiServerFlags(u.existing)
	if err != nil {
		return nil, err
	}
	c.LocalAPIEndpoint.AdvertiseAddress = flags["advertise-address"]
	c.LocalAPIEndpoint.BindPort = config.DefaultBindPort
	if port := flags["secure-port"]; port != "" {
		if _, err := fmt.Sscan(port, &c.LocalAPIEndpoint.BindPort); err != nil {
			return nil, fmt.Errorf("reading %s: --secure-port=%q: %w", apiServerManifest, port, err)
		}
	}
	return c, nil
}

// apiServerFlags returns the flags of a control plane's API server.
func apiServerFlags(h *host.Host) (map[string]string, error) {
	flags, _, err := readStaticPod(h, "kube-apiserver")
	if err == nil && len(flags) == 0 {
		err = fault.New(fault.Preflight, "restore it from a copy; after an upgrade, there is one below "+host.UpgradeDir, "reading %s: the file is damaged: it has no container with flags", apiServerManifest)
	}
	return flags, err
}

// flannelState is what the ledger calls the state of Airlift's pod network.
const flannelState = "flannel's subnet file"

// connect loads the API client: on a control plane that of its own API server.
func (u *Upgrade) connect(c *config.Config) (err error) {
	switch {
	case u.options.Kubeconfig != "" && u.options.Kubeconfig != adminConf:
		u.client, err = cluster.Load(u.options.Kubeconfig, "")
	case u.isControlPlane():
		u.client, err = loadClient(u.existing, adminConf, c.LocalURL(), c.Timeouts.KubernetesAPICall)
	default:
		u.client, err = loadClient(u.existing, kubeletConf, "", c.Timeouts.KubernetesAPICall)
	}
	return err
}

// useCluster completes the configuration of this node with the cluster's.
func (u *Upgrade) useCluster(ctx context.Context, c *config.Config, stored *cluster.Stored) (err error) {
	c.Facts, err = u.existing.Detect(ctx, host.Options{
		NodeIP: strings.Join(u.self.InternalIPs, ","), AddressFlag: "--node-ip", Networking: stored.Cluster.Networking, CNI: c.CNI,
	})
	if err != nil {
		return err
	}
	if driver, err := u.cgroupDriver(); err != nil {
		return err
	} else if driver != "" {
		c.Facts.CgroupDriver = driver
	}
	version := c.KubernetesVersion
	c.Cluster = stored.Cluster
	c.KubernetesVersion = version
	if !stored.DefaultProxy {
		c.KubeProxy = stored.KubeProxy
	}
	c.ProxyServer = stored.ProxyServer
	c.CompleteUpgrade(u.isControlPlane())

	plan := *u.plan
	plan.config, plan.role = c, worker
	if u.isControlPlane() {
		plan.role = nextControlPlane
		if !u.options.Node {
			plan.role = firstControlPlane
		}
	}
	if err := plan.loadPatches(u.console.Warn); err != nil {
		return err
	}
	if plan.config, err = plan.nameImages(c); err != nil {
		return err
	}
	*u.plan = plan
	u.config = plan.config
	return nil
}

// preflight refuses what could not succeed. It changes nothing.
func (u *Upgrade) preflight(ctx context.Context) error {
	if err := u.bundle.checked(ctx, u.console); err != nil {
		return err
	}
	if err := u.learn(ctx); err != nil {
		return err
	}
	if err := unfinishedWork(u.existing, u.config); err != nil {
		return err
	}
	if !u.plan.onePhase {
		if err := u.takeTurn(ctx); err != nil {
			return err
		}
	}
	from, to := u.stored.Cluster.KubernetesVersion, u.bundle.KubernetesVersion()
	if err := u.checkUnfinished(); err != nil {
		return err
	}
	command := upgradecheck.Apply
	if u.options.Node {
		command = upgradecheck.Node
	}
	t, err := u.checkTarget(ctx, command) // finds binaries that Airlift did not install, too
	if err != nil {
		return err
	}
	report, err := u.runChecks(ctx, t)
	u.warn(report)
	if err != nil {
		return err
	}
	u.console.Note("the cluster has %s, this node's kubelet %s, this file %s", from, u.self.KubeletVersion, to)
	return nil
}

// finished ends the upgrade of this node. What undo needs stays until the next upgrade.
func (u *Upgrade) finished(ctx context.Context) error {
	if err := u.upgradeStub(ctx); err != nil {
		return err
	}
	if u.state != nil && !u.state.Finished {
		u.client.RemoveProbes(ctx) // of a run that was killed
	}
	if err := u.finish(); err != nil {
		return err
	}
	u.summary(ctx)
	return nil
}

// finish records that all steps have run, and removes what only they needed.
func (u *Upgrade) finish() error {
	if u.state != nil && !u.state.Finished {
		if err := u.host.RemoveKept(u.state.formerName()); err != nil {
			return err
		}
		u.state.Finished = true
		if err := u.state.write(u.host); err != nil {
			return err
		}
		u.changed(true)
	}
	return u.host.RemoveStaged()
}

// summary prints the next steps.
func (u *Upgrade) summary(ctx context.Context) {
	to := u.bundle.KubernetesVersion()
	text := fmt.Sprintf("This node has Kubernetes %s.\n", to)
	if u.changes == 0 {
		text = fmt.Sprintf("This node has Kubernetes %s already. Nothing was changed.\n", to)
	}
	nodes, err := u.client.UpgradeNodes(ctx)
	if err != nil { // a worker may not list the nodes
		u.console.Summary(text)
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
	case u.changes > 0:
		text += "All nodes have it.\n"
	}
	switch {
	case len(left) == 0 || !u.addonsLeft:
	case len(u.imagesLeft) == 0:
		text += "\nThe last control plane upgrades the add-ons.\n"
	default:
		text += "\nThese nodes do not have the images of the add-ons: " + strings.Join(u.imagesLeft, ", ") +
			".\nAfter the last node, upgrade the add-ons on a control plane:\n\n    ./install upgrade apply\n"
	}
	u.console.Summary(text)
}

// work reports whether this node has something to upgrade, or to finish.
func (u *Upgrade) work() (bool, error) {
	if u.state != nil && !u.state.Finished {
		return true, nil
	}
	if !u.options.Node && u.stored.Cluster.KubernetesVersion != u.bundle.KubernetesVersion() {
		return true, nil
	}
	pending, err := u.pending()
	if err != nil || len(pending) > 0 {
		return true, err
	}
	if stale, err := u.staleStub(); err != nil || stale {
		return true, err
	}
	for name := range u.plans {
		changed, err := u.replaces(name)
		if err != nil || changed {
			return changed, err
		}
	}
	return false, nil
}

// checkUnfinished refuses to continue the upgrade to another version.
func (u *Upgrade) checkUnfinished() error {
	if u.state == nil || u.state.Finished || u.state.To == u.bundle.KubernetesVersion() {
		return nil
	}
	return fault.New(fault.Preflight, "finish it with that file, or undo it: ./install upgrade undo", "an upgrade of this node to %s was not finished", u.state.To)
}

// former returns the files from before the upgrade of this node.
func (u *Upgrade) former() host.Kept { return u.host.Kept(u.state.formerName()) }

// begin records the upgrade of this node, or another attempt, before its first change. Each effect
// may be the last one of this run: until the state is written, the previous upgrade can be undone.
func (u *Upgrade) begin() error {
	if u.state != nil && !u.state.Finished {
		return u.checkUnfinished()
	}
	if err := u.host.Kept(attemptName).Remove(); err != nil {
		return err
	}
	if u.state != nil && u.state.To == u.bundle.KubernetesVersion() {
		// Undo still returns to the version before this one, and to its data.
		u.state.Finished = false
		return u.state.write(u.host)
	}
	s := &upgradeState{From: u.self.KubeletVersion, To: u.bundle.KubernetesVersion(), Bundle: u.bundle.id()}
	if err := s.write(u.host); err != nil {
		return err
	}
	u.state = s
	return u.host.RemoveKept(s.formerName())
}
