package upgrade

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"

	"airlift/bundle"
	"airlift/images/store"
	"airlift/installer/cluster"
	"airlift/installer/cluster/lease"
	"airlift/installer/cluster/wait"
	"airlift/installer/cluster/workloads"
	"airlift/installer/config"
	"airlift/installer/desired"
	"airlift/installer/host"
	"airlift/installer/host/filesystem"
	"airlift/installer/host/ledger"
	"airlift/installer/node"
	"airlift/installer/payload"
	"airlift/installer/phases"
	"airlift/installer/pki"
	"airlift/installer/preflight"
	"airlift/installer/reconfiguration"
	"airlift/installer/render"
	"airlift/installer/status"
	"airlift/installer/undo"
	"airlift/installer/upgradecheck"
	"airlift/installer/workflow"
	"airlift/internal/fault"
)

// ReconfigureOptions are the user's options for reconfigure and reconfigure node.
type ReconfigureOptions struct {
	// Node is set for reconfigure node: this node follows the stored configuration.
	Node bool
	// Given are the user's documents, as config.ReadReconfigure reads them, of a node as ReadReconfigureNode does; nil without a file.
	Given *config.Given
	// Files are files for all control planes.
	Files []reconfiguration.File
	// Restore replaces what was edited by hand on this host and in the cluster by what the configuration gives.
	Restore               bool
	Patches               string
	IgnorePreflightErrors []string
	// Kubeconfig reaches the cluster; "" is admin.conf on a control plane, else kubelet.conf.
	Kubeconfig string
}

// A Reconfigure gives this node, and with it the cluster, another configuration: an upgrade to the same version, of what the
// configuration changes.
type Reconfigure struct {
	run    *Upgrade
	change *change
}

// NewReconfigure returns a Reconfigure of a host. The bundle has the version of the cluster.
func NewReconfigure(b *payload.Bundle, o ReconfigureOptions, h *host.Host, c *workflow.Console) *Reconfigure {
	given := o.Given.Values()
	if o.Patches == "" {
		o.Patches = given.Patches
	}
	run := Options{Node: o.Node, Kubeconfig: o.Kubeconfig, reconfigures: true, UpgradeRun: config.UpgradeRun{
		EtcdUpgrade: true, Patches: o.Patches, Timeouts: given.Timeouts,
		IgnorePreflightErrors: slices.Concat(o.IgnorePreflightErrors, given.NodeRegistration.IgnorePreflightErrors),
	}}
	r := &Reconfigure{run: newUpgrade(&phases.Plan{Config: &config.Config{}, Bundle: b}, run, node.NewMachine(h, c))}
	r.change = &change{run: r.run, options: o}
	r.change.carried = &carried{change: r.change}
	r.run.facts.change, r.run.record.readersOf = r.change, r.change.readersOf
	return r
}

// Steps returns the steps in order: files and certificates, the components that read them, what the cluster stores, and what
// follows it.
func (r *Reconfigure) Steps() []workflow.Step {
	u, c := r.run, r.change
	nothing := func(context.Context) (l desired.List, err error) { return l, nil }
	part := func(name string, compute phases.Desired) phases.Desired {
		return func(ctx context.Context) (desired.List, error) {
			if !c.concerns(name) {
				return nothing(ctx)
			}
			return compute(ctx)
		}
	}
	steps := []workflow.Step{
		{Name: "preflight", Doc: "check the new configuration, this node and the cluster", Run: r.preflight, Reads: true},
		{Name: "images", Doc: "give the images of this node their configured names", Prepare: u.begin, Run: r.nameImages},
		u.restarts("files", "write the files that flags of the components name", c.carried.desired, c.carried.write),
		{Name: "certs", Doc: "add names to certificates, or remove them", Prepare: u.beginInTurn, Run: serving{c}.rename},
		u.restarts("control-plane", "replace the static pods, one by one", u.controlPlane.desired, u.controlPlane.upgrade),
		{Name: "upload-config", Doc: "store the configuration in the cluster", Steps: []workflow.Step{
			u.writes("reconfiguration", "store the number of this change, and the files", c.numbered, c.storeNumber),
			u.writes("kubeadm", "store the ClusterConfiguration", c.clusterConfiguration, u.objects.store),
			u.writes("kubelet", "store the KubeletConfiguration", part(kubeletPart, u.objects.kubeletConfiguration), u.objects.store),
		}},
		u.writes("kubelet-config", "write the kubelet's configuration", c.kubeletFiles, u.kubelet.writeConfiguration),
		{Name: "addon", Doc: "change CoreDNS, kube-proxy and the pod network", Steps: []workflow.Step{
			u.writes("coredns", "change CoreDNS", u.addons.coreDNS, u.objects.store),
			u.writes("kube-proxy", "change kube-proxy", u.addons.kubeProxy, c.storeProxy),
			u.writes("flannel", "change flannel, if it is the pod network", u.addons.flannel, u.objects.store),
		}},
		u.restarts("runtime", "let containerd use the configured name of the pause image", c.runtime, c.restartRuntime),
		u.restarts("kubelet", "restart the kubelet", nothing, c.restartKubelet),
		{Name: "node", Doc: "set the labels and taints of this node", Prepare: u.begin, Run: marks{c}.set},
		u.writes("post-reconfigure", "finish the change of this node", nothing, r.finish),
	}
	if c.options.Node { // the cluster stores the configuration, and undo here must not bring back an older one
		steps = slices.DeleteFunc(steps, func(s workflow.Step) bool { return s.Name == "upload-config" || s.Name == "addon" })
	}
	return steps
}

// Run runs all steps. If one fails after the first change, everything that this run changed is undone. A run that repeats a
// change which was finished before undoes nothing: the node, and others, have that change already.
func (r *Reconfigure) Run(ctx context.Context) error {
	u := r.run
	err := workflow.Run(ctx, u.facts.node.Console, r.Steps(), nil)
	switch {
	case err == nil:
		return nil
	case !u.record.unfinished():
		return err
	case ctx.Err() != nil, errors.Is(err, lease.ErrNoTurn), !u.record.begun, u.record.state.WasFinished:
		how := "to continue, run the same command again; to undo it: ./install reconfigure undo"
		if hint := fault.Hint(err); hint != "" {
			how = hint + "; then, " + how
		}
		return fault.Wrap(err, fault.ExitCode(err), how)
	}
	return r.undo(ctx, err)
}

// undo undoes what this run changed, and returns why.
func (r *Reconfigure) undo(ctx context.Context, why error) error {
	u := r.run
	u.facts.node.Console.Warn("the change failed and is undone: %v", why)
	var turn *node.Turn
	if p := u.controlPlane.pods; p != nil {
		turn, p.Turn = p.Turn, nil
	}
	back, err := undo.Of(u.facts.node.Machine, u.record.state, turn)
	if err != nil {
		turn.End()
	} else {
		back.Kubeconfig = u.facts.options.Kubeconfig
		err = workflow.Run(ctx, u.facts.node.Console, back.Steps(), nil)
		back.Close()
	}
	if err != nil {
		return fault.Wrap(fmt.Errorf("%w\nundoing the change: %w", why, err), fault.ExitCode(why), "./install reconfigure undo")
	}
	hint := fault.Hint(why)
	if r.change.options.Node {
		hint = strings.TrimPrefix(hint+"; other nodes keep the new configuration; to go back there: ./install reconfigure undo", "; ")
	}
	return fault.Wrap(fmt.Errorf("%w\nthe change is undone: this node has its former configuration", why), fault.ExitCode(why), hint)
}

// Close stops everything that runs in the background.
func (r *Reconfigure) Close() { r.run.Close() }

// preflight refuses what could not succeed. It changes nothing.
func (r *Reconfigure) preflight(ctx context.Context) error {
	u := r.run
	if err := u.facts.bundle.Checked(ctx, u.facts.node.Console); err != nil {
		return err
	}
	if err := u.learn(ctx); err != nil {
		return err
	}
	if err := r.checkHost(); err != nil {
		return err
	}
	if err := u.takeTurn(ctx); err != nil {
		return err
	}
	if err := u.record.checkGoal(); err != nil {
		return err
	}
	if err := r.change.refusal(); err != nil {
		return err
	}
	report, err := r.check(ctx)
	u.facts.node.Warn(report)
	return err
}

// checkHost refuses a host on which another change is not finished.
func (r *Reconfigure) checkHost() error {
	n := r.run.facts.node
	if err := node.UnfinishedWork(n.Existing, n.Config); err != nil {
		return err
	}
	return node.UnfinishedUpgrade(n.Existing)
}

// refusal returns an error that lists what a running cluster cannot change.
func (c *change) refusal() error {
	if len(c.refused) == 0 {
		return nil
	}
	var b strings.Builder
	for _, one := range c.refused {
		fmt.Fprintf(&b, "\n  - %s\n    needed: %s", one, one.Needed)
	}
	return fault.New(fault.Preflight, "a running cluster cannot change %s:%s", workflow.Count(len(c.refused), "value"), b.String()).
		Hint("remove them from the file, or write the values of the cluster: ./install reconfigure print")
}

// check runs the checks. It changes nothing.
func (r *Reconfigure) check(ctx context.Context) (preflight.Report, error) {
	u, c := r.run, r.change
	t, err := u.checks.target(ctx, upgradecheck.Reconfigure)
	if err != nil {
		return preflight.NewReport(), err
	}
	report, err := u.checks.run(ctx, t)
	if err != nil && len(report.Errors) == 0 {
		return report, err
	}
	ignore := u.facts.options.IgnorePreflightErrors
	add := func(list []preflight.Problem, err error) error {
		for _, p := range list {
			report.Add(p, false, ignore)
		}
		return err
	}
	c.checkAdopted(&report)
	if c.isBehind(c.run.record.followed) {
		report.Add(preflight.Problem{Name: "Reconfiguration", Message: "this control plane has not followed the last reconfiguration of the cluster", Fix: "./install reconfigure node"}, false, ignore)
	}
	for _, more := range []func(context.Context, *upgradecheck.Target) ([]preflight.Problem, error){c.checkFiles, c.checkKeys, encryption{c}.check, marks{c}.check, c.checkEdits, c.checkImages} {
		if err := add(more(ctx, t)); err != nil {
			return report, err
		}
	}
	for _, p := range c.warnings() {
		report.Add(p, true, nil)
	}
	return report, report.Err("checking the change")
}

// isBehind reports whether this control plane would change the cluster without having its configuration: afterwards, it would
// count as one that has. The number is the one that it follows.
func (c *change) isBehind(number int) bool {
	return !c.options.Node && !c.run.record.resumes && c.isControlPlane() && !c.run.facts.stored.Cluster.Reconfiguration.Follows(number, true)
}

func (c *change) checkFiles(context.Context, *upgradecheck.Target) ([]preflight.Problem, error) {
	if !c.isControlPlane() {
		return nil, nil
	}
	return c.carried.check(), nil
}

// warnings are what becomes of tokens, data and nodes, of a change that is not refused.
func (c *change) warnings() (list []preflight.Problem) {
	if c.options.Node {
		return nil
	}
	for _, w := range c.warned {
		list = append(list, preflight.Problem{Name: "Arguments", Message: w.String(), Fix: w.Needed})
	}
	return append(list, upgradecheck.ProxyMode(c.former, c.config())...)
}

// checkKeys refuses keys with which API servers would refuse tokens that were issued.
func (c *change) checkKeys(context.Context, *upgradecheck.Target) (list []preflight.Problem, err error) {
	if !c.isControlPlane() || c.options.Node {
		return nil, nil
	}
	read := func(file string) ([]byte, error) { return os.ReadFile(c.run.facts.node.Existing.Path(file)) }
	refused, warned, err := reconfiguration.CheckKeys(&c.former.Cluster, &c.config().Cluster, c.options.Files, read, c.carried.content)
	if err != nil {
		return []preflight.Problem{{Name: "Keys", Message: err.Error(), Fix: "bring a new file to all control planes: --file PATH=FILE; restore a former one; or let tokens become invalid: --ignore-preflight-errors=Keys"}}, nil
	}
	c.warned = append(c.warned, warned...)
	for _, r := range refused {
		list = append(list, preflight.Problem{Name: "Keys", Message: r.String(), Fix: r.Needed})
	}
	return list, nil
}

// checkEdits refuses to replace what was edited by hand.
func (c *change) checkEdits(context.Context, *upgradecheck.Target) ([]preflight.Problem, error) {
	if c.options.Restore {
		return nil, nil
	}
	differ, err := c.differing()
	if err != nil {
		return nil, err
	}
	var edited []string
	fix := "to see the edits: ./install " + c.run.facts.options.command() + " --restore --plan; to drop them, run this command with --restore"
	for _, f := range differ {
		if f.Now == nil || !c.isEdit(f) {
			continue
		}
		edited = append(edited, f.Path)
		if keep := c.keep(f); keep != "" {
			fix += "; to keep that of " + f.Path + ", use " + keep
		}
	}
	if len(edited) == 0 {
		return nil, nil
	}
	return []preflight.Problem{{Name: "EditedFiles", Message: "these files were edited since Airlift wrote them, and the edits would be lost: " + strings.Join(edited, ", "), Fix: fix}}, nil
}

// editedByHand reports whether a file has other contents than Airlift wrote. A file that Airlift did not write is none.
func (f *knowledge) editedByHand(path string, now []byte) bool {
	e, recorded := f.node.Existing.Records().Find(ledger.File, path)
	return recorded && !e.Wrote(filesystem.Digest(now))
}

// checkAdopted reports a kubelet that does not read the files that the change writes, until the first upgrade of an adopted node.
func (c *change) checkAdopted(report *preflight.Report) {
	file := status.KubeletConfigFile(c.run.facts.node.Existing)
	if file == config.KubeletConfigFile || !c.concerns(kubeletPart) {
		return
	}
	flags := c.options.Given.Has("InitConfiguration.nodeRegistration.kubeletExtraArgs")
	report.Add(preflight.Problem{Name: "AdoptedKubelet", Message: fmt.Sprintf("the kubelet of this adopted node reads %s until its first upgrade: the change does not reach it", file),
		Fix: "its first upgrade gives it the configuration of the cluster, except for the fields that this file sets: edit them there, and run: systemctl restart kubelet"}, !flags, nil)
}

// checkImages refuses a file with other images than the cluster runs: with those, the change would also be an upgrade.
func (c *change) checkImages(_ context.Context, t *upgradecheck.Target) (list []preflight.Problem, err error) {
	if t.Cluster == nil {
		return nil, nil
	}
	for _, one := range t.Cluster.Components {
		has := c.config().Images[one.Name]
		if has == "" || !c.concerns(one.Name) || upgradecheck.Tag(one.Image) == upgradecheck.Tag(has) || one.Node != "" && one.Node != t.NodeName {
			continue
		}
		list = append(list, preflight.Problem{Name: "OtherImages", Message: fmt.Sprintf("%s runs as %s, and this file has %s: a reconfiguration keeps the images", one.Name, one.Image, has),
			Fix: "use the file with which this cluster was installed or upgraded; or take the images of this one over first: ./install upgrade apply"})
	}
	return list, nil
}

// localFiles returns the files of this host that the run writes, without certificates.
func (c *change) localFiles() (files []pki.File, err error) {
	u, ctx := c.run, context.Background()
	for _, compute := range []func(context.Context) (desired.List, error){c.carried.desired, u.controlPlane.desired, c.kubeletFiles, c.runtime} {
		l, err := compute(ctx)
		if err != nil {
			return nil, err
		}
		files = append(files, l.Files...)
	}
	return files, nil
}

func (c *change) kubeletFiles(ctx context.Context) (l desired.List, err error) {
	if !c.concerns(kubeletPart) || status.KubeletConfigFile(c.run.facts.node.Existing) != config.KubeletConfigFile {
		return l, nil
	}
	if l, err = c.run.kubelet.configuration(ctx); err == nil && c.options.Restore && c.run.kubelet.adopted == nil {
		l.Files = append(l.Files, kubeletUnits()...)
	}
	return l, err
}

// nameImages gives images the names of the configuration, if they change.
func (r *Reconfigure) nameImages(ctx context.Context) error {
	u, c := r.run, r.change
	if !c.renamesImages(ctx) {
		u.facts.node.Console.Note("the names stay")
		return nil
	}
	if err := u.facts.node.Ready(ctx); err != nil {
		return err
	}
	if err := u.record.begin(); err != nil {
		return err
	}
	if err := u.containerd.connect(ctx); err != nil {
		return err
	}
	missing, err := u.facts.node.Watch.Containerd.Inventory().Missing(ctx, u.facts.node.Plan.Images())
	if err != nil {
		return err
	}
	if len(missing) > 0 {
		if err := u.facts.bundle.AttachNode(ctx, u.facts.node.Existing, u.facts.node.Console); err != nil {
			return err
		}
	}
	if err := u.unpacker.keepNames(ctx); err != nil {
		return err
	}
	return u.unpacker.stage(ctx, func(string) bool { return false })
}

// renamesImages reports whether images get other names by the change. A node that follows has to give each image of a component that
// name which the configuration has, unless containerd has it already.
func (c *change) renamesImages(ctx context.Context) bool {
	if !c.options.Node {
		return c.run.record.unfinished() || !sameImages(c.former, c.config())
	}
	if c.run.containerd.connect(ctx) != nil {
		return true // nameImages returns the error
	}
	list, err := c.run.facts.node.Watch.Containerd.Inventory().Images(ctx)
	return err != nil || slices.ContainsFunc(c.run.facts.node.Plan.Images(), func(i bundle.Image) bool {
		name, is := c.config().Images[i.Name]
		return is && !slices.ContainsFunc(list, func(has store.Image) bool { return slices.Contains(has.Names, name) })
	})
}

func sameImages(a, b *config.Config) bool {
	for name, image := range b.Images {
		if a.Images[name] != image {
			return false
		}
	}
	return true
}

// runtime returns containerd's configuration if it does not have the configured name of the pause image. An edit stays if Airlift wrote
// the same before: then this change does not concern it.
func (c *change) runtime(ctx context.Context) (l desired.List, err error) {
	const file = render.ContainerdConfigPath
	now, err := c.run.facts.node.Present(file)
	if err != nil || now == nil || bytes.Contains(now, []byte(c.config().Images["pause"])) {
		return l, err
	}
	all, err := c.run.containerd.desired(ctx)
	if err != nil {
		return l, err
	}
	edited := c.run.facts.editedByHand(file, now)
	if !c.options.Node && !c.options.Restore && sameImages(c.former, c.config()) && (edited || !c.run.record.resumes) {
		return l, nil // a run that continues another one does not know which names that changed
	}
	e, _ := c.run.facts.node.Existing.Records().Find(ledger.File, file)
	for _, f := range all.Files {
		if f.Path == file && (!edited || c.options.Restore || !e.Wrote(filesystem.Digest(f.Data))) {
			l.Files = append(l.Files, f)
		}
	}
	return l, nil
}

// restartRuntime writes containerd's configuration, and restarts containerd if it has not read that. The containers keep running.
func (c *change) restartRuntime(ctx context.Context, l desired.List) error {
	if len(l.Files) == 0 && !c.run.record.state.IsPending(runtimePart) {
		return nil
	}
	return c.run.containerd.upgrade(ctx, l)
}

// numbered returns the number of the change, and the Secret with the files.
func (c *change) numbered(context.Context) (l desired.List, err error) {
	if l, err = c.carried.secret(); err != nil || !c.objects {
		return l, err
	}
	objects, err := render.UploadReconfiguration(c.config())
	l.Objects = append(objects, l.Objects...) // an interrupted run stores another number as long as the Secret is not stored
	return l, err
}

// storeNumber stores what numbered returns. The record has the number first: undo refuses to undo another change.
func (c *change) storeNumber(ctx context.Context, l desired.List) error {
	u := c.run
	if c.objects {
		if err := u.objects.keep(ctx); err != nil {
			return err
		}
		u.record.state.Number, u.record.state.Stored = c.config().Reconfiguration.Number, c.config().Reconfiguration.Stored
		if err := u.record.write(); err != nil {
			return err
		}
	}
	return u.objects.store(ctx, l)
}

func (c *change) clusterConfiguration(ctx context.Context) (l desired.List, err error) {
	if !c.documents {
		return l, nil
	}
	return c.run.objects.clusterConfiguration(ctx)
}

// storeProxy changes kube-proxy. Its pods are replaced one after the other: without that, all of them restart as soon as they see
// another configuration.
func (c *change) storeProxy(ctx context.Context, l desired.List) error {
	u := c.run
	before := u.facts.node.Changes
	if err := u.objects.store(ctx, l); err != nil || len(l.Objects) == 0 {
		return err
	}
	if u.facts.node.Changes == before && !u.record.resumes {
		return nil
	}
	restarted, err := workloads.RestartDaemonSet(ctx, u.facts.api.Client.API, "reconfiguration "+u.record.change[:12], "kube-system", "kube-proxy")
	u.facts.node.Changed(restarted)
	if err != nil {
		return err
	}
	return workloads.WaitForProxies(ctx, u.facts.api.Client.API, wait.Limit{Timeout: controllersTimeout, Report: u.facts.node.Report})
}

// readersOf returns what must restart to read a file.
func (c *change) readersOf(file string) []string {
	switch {
	case path.Dir(file) == config.ManifestsDir:
		return nil
	case strings.HasPrefix(file, config.KubeletDir+"/") || file == render.KubeletUnitPath || file == render.KubeletDropInPath:
		return []string{kubeletPart}
	case file == render.ContainerdConfigPath:
		return []string{runtimePart}
	}
	return reconfiguration.UsersOf(&c.config().Cluster, file)
}

// restartKubelet restarts the kubelet if its configuration was written since it started, and waits until the node is Ready.
func (c *change) restartKubelet(ctx context.Context, _ desired.List) error {
	if !c.concerns(kubeletPart) || !c.run.record.unfinished() {
		return nil
	}
	u := c.run
	restarted, err := phases.RestartStale(ctx, u.facts.node, "kubelet.service", u.record.state.IsPending(kubeletPart),
		config.KubeletConfigFile, config.KubeletFlagsFile, render.KubeletUnitPath, render.KubeletDropInPath)
	if err == nil && restarted {
		err = u.kubelet.waitRestarted(ctx)
	}
	if err != nil {
		return err
	}
	return u.record.restarted(kubeletPart)
}

// finish ends the change of this node. What undo needs stays until the next change or upgrade.
func (r *Reconfigure) finish(ctx context.Context, _ desired.List) error {
	u, c := r.run, r.change
	if u.record.unfinished() && !u.record.state.WasFinished {
		u.record.state.WasFinished = true
		if err := u.record.write(); err != nil {
			return err
		}
	}
	if number := c.config().Reconfiguration.Number; number > 0 {
		changed, err := u.facts.api.Client.NodeObjects().SetReconfiguration(ctx, c.config().NodeRegistration.Name, number)
		u.facts.node.Changed(changed)
		if err != nil {
			return err
		}
	}
	if err := c.takeOver(); err != nil {
		return err
	}
	if u.facts.self.Ready && u.facts.node.Changes > 0 { // its API server may have been away for so long that the node is not Ready
		if err := u.facts.api.Client.Waits().WaitForNodeReady(ctx, c.config().NodeRegistration.Name, phases.NodeTimeout, u.facts.node.Report); err != nil && ctx.Err() == nil {
			u.facts.node.Console.Warn("%v", err)
		}
	}
	if err := u.record.finish(); err != nil {
		return err
	}
	r.summary(ctx)
	return nil
}

// summary prints the next steps.
func (r *Reconfigure) summary(ctx context.Context) {
	u := r.run
	text := "This node has the new configuration.\n"
	if u.facts.node.Changes == 0 {
		text = "This node has this configuration already. Nothing was changed.\n"
	}
	if file := status.KubeletConfigFile(u.facts.node.Existing); file != config.KubeletConfigFile {
		text += "Its kubelet does not: it reads " + file + " until the first upgrade of this adopted node.\n"
	}
	last := r.change.config().Reconfiguration
	nodes, err := u.facts.api.Client.Nodes(ctx)
	if err != nil || last.Number == 0 { // a worker may not list the nodes
		u.facts.node.Console.Summary(text)
		return
	}
	var planes, workers []string
	for _, n := range nodes {
		plane := n.Role == cluster.ControlPlaneRole
		switch {
		case last.Follows(n.Reconfiguration, plane):
		case plane:
			planes = append(planes, n.Name)
		default:
			workers = append(workers, n.Name)
		}
	}
	if left := append(planes, workers...); len(left) > 0 {
		text += "\nThese nodes follow it with './install reconfigure node', one after the other, in this order:\n\n    " + strings.Join(left, "\n    ") + "\n"
	}
	if u.addons.left {
		text += "\nAdd-ons wait until all nodes have their images. After the last node, run the same command here once more, with the same file:\n\n    ./install reconfigure --config FILE --yes\n"
	}
	u.facts.node.Console.Summary(text)
}
