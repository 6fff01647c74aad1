package reconfigure

import (
	"bytes"
	"cmp"
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
	"airlift/installer/revision"
	"airlift/installer/runtimecheck"
	"airlift/installer/upgradecheck"
	"airlift/installer/workflow"
	"airlift/internal/fault"
)

// Options are the user's options for reconfigure and reconfigure node.
type Options struct {
	// Node is set for reconfigure node: this node follows the stored configuration.
	Node bool
	// Given are the user's documents, as config.ReadReconfigure reads them, of a node as ReadReconfigureNode does; nil without a file.
	Given *config.Given
	// EditCluster changes the stored ClusterConfiguration, nil for the user's documents or none.
	EditCluster func(*config.Cluster) error
	// Profile is the name of a profile for the configuration, "" to leave it as it is.
	Profile string
	// Files are files for all control planes.
	Files []reconfiguration.File
	// Restore replaces what was edited by hand on this host and in the cluster by what the configuration gives.
	Restore               bool
	Patches               string
	IgnorePreflightErrors []string
	// Kubeconfig reaches the cluster; "" is admin.conf on a control plane, else kubelet.conf.
	Kubeconfig string
}

// A Reconfigure gives this node, and with it the cluster, another configuration.
type Reconfigure struct {
	*revision.Revision
	options Options

	former  *config.Config // this node's with the stored configuration
	refused []reconfiguration.Refusal
	warned  []reconfiguration.Refusal // what is not refused
	kept    []string                  // values of the user that the profile does not change
	profile string                    // that the change gives, takes away or keeps; "" for none
	hardens bool                      // the cluster gets the profile by this change
	// keepsProfile is set if a document leaves out values of the profile, and the cluster keeps them.
	keepsProfile bool
	second       bool     // this change has verificationPart
	waits        []string // why another run has to follow, for that part
	ends         bool     // it ends the signing of the certificates of kubelets

	filesBefore []reconfiguration.File // as the cluster keeps them
	files       []reconfiguration.File // as it will keep them

	parts     []string // the components, kubelet and add-ons of this node that the run changes
	documents bool     // the cluster stores another ClusterConfiguration
	objects   bool     // the cluster stores something else, also only for an add-on
	kubelet   bool     // the nodes get another KubeletConfiguration
	planes    bool     // the other control planes must follow
	workers   bool     // the workers must follow
}

// Names of parts that are add-ons.
const corednsPart, proxyPart, flannelPart = "coredns", "kube-proxy", "flannel"

// New returns a Reconfigure of a host. The bundle has the version of the cluster.
func New(b *payload.Bundle, o Options, h *host.Host, c *workflow.Console) *Reconfigure {
	given := o.Given.Values()
	if o.Patches == "" {
		o.Patches = given.Patches
	}
	command := "reconfigure"
	if o.Node {
		command = "reconfigure node"
	}
	run := revision.Options{Kind: revision.Reconfigure, Command: command, Node: o.Node, Kubeconfig: o.Kubeconfig, UpgradeRun: config.UpgradeRun{
		EtcdUpgrade: true, Patches: o.Patches, Timeouts: given.Timeouts,
		IgnorePreflightErrors: slices.Concat(o.IgnorePreflightErrors, given.NodeRegistration.IgnorePreflightErrors),
	}}
	r := &Reconfigure{options: o, Revision: revision.New(&phases.Plan{Config: &config.Config{}, Bundle: b}, run, node.NewMachine(h, c))}
	r.Change = r
	return r
}

// Steps returns the steps in order: files and certificates, the components that read them, what the cluster stores, and what
// follows it.
func (r *Reconfigure) Steps() []workflow.Step {
	nothing := func(context.Context) (l desired.List, err error) { return l, nil }
	part := func(name string, compute phases.Desired) phases.Desired {
		return func(ctx context.Context) (desired.List, error) {
			if !r.Concerns(name) {
				return nothing(ctx)
			}
			return compute(ctx)
		}
	}
	steps := []workflow.Step{
		{Name: "preflight", Doc: "check the new configuration, this node and the cluster", Run: r.preflight, Reads: true},
		{Name: "images", Doc: "give the images of this node their configured names", Prepare: r.Prepare, Run: r.nameImages},
		r.Restarts("files", "write the files that flags of the components name", r.desiredFiles, r.writeFiles),
		{Name: "certs", Doc: "add names to certificates, or remove them", Prepare: r.PrepareInTurn, Run: r.renameCertificates},
		r.Restarts("control-plane", "replace the static pods, one by one", r.Manifests, r.ReplacePods),
		{Name: "upload-config", Doc: "store the configuration in the cluster", Steps: []workflow.Step{
			r.Writes("reconfiguration", "store the number of this change, and the files", r.numbered, r.storeNumber),
			r.Writes("serving", "let control planes approve the serving certificates of kubelets, if the cluster signs them", r.approval, r.Store),
			r.Writes("kubeadm", "store the ClusterConfiguration", r.clusterConfiguration, r.Store),
			r.Writes("kubelet", "store the KubeletConfiguration", part(revision.KubeletPart, r.KubeletConfiguration), r.Store),
			r.Writes("accounts", "let pods of default ServiceAccounts have a token, or none with a profile", part(accountsPart, r.accounts), r.Store),
		}},
		r.Writes("serving", "start the approval of the serving certificates of kubelets, or stop it", r.approver, r.switchApprover),
		r.Writes("kubelet-config", "write the kubelet's configuration", r.kubeletFiles, r.writeKubeletConfig),
		{Name: "addon", Doc: "change CoreDNS, kube-proxy and the pod network", Steps: []workflow.Step{
			r.Writes("coredns", "change CoreDNS", r.CoreDNS, r.Store),
			r.Writes("kube-proxy", "change kube-proxy", r.KubeProxy, r.storeProxy),
			r.Writes("flannel", "change flannel, if it is the pod network", r.Flannel, r.Store),
		}},
		r.Restarts("runtime", "let containerd use the configured name of the pause image", r.runtime, r.restartRuntime),
		r.Restarts("kubelet", "restart the kubelet", nothing, r.restartKubelet),
		{Name: "node", Doc: "set the labels and taints of this node", Prepare: r.Prepare, Run: r.setMarks},
		r.Writes("post-reconfigure", "finish the change of this node", r.Command, r.finish),
	}
	if r.options.Node { // the cluster stores the configuration, and undo here must not bring back an older one
		steps = slices.DeleteFunc(steps, func(s workflow.Step) bool { return s.Name == "upload-config" || s.Name == "addon" })
	}
	return steps
}

// Run runs all steps. If one fails after the first change, everything that this run changed is undone. A run that repeats a
// change which was finished before undoes nothing: the node, and others, have that change already.
func (r *Reconfigure) Run(ctx context.Context) error {
	err := workflow.Run(ctx, r.Console, r.Steps(), nil)
	switch {
	case err == nil:
		return nil
	case !r.Unfinished():
		return err
	case ctx.Err() != nil, errors.Is(err, lease.ErrNoTurn), !r.Began, r.Record.WasFinished:
		return r.Explain(err)
	}
	return r.undo(ctx, err)
}

// undo undoes what this run changed, and returns why.
func (r *Reconfigure) undo(ctx context.Context, why error) error {
	r.Console.Warn("the change failed and is undone: %v", why)
	var turn *node.Turn
	if p := r.Pods; p != nil {
		turn, p.Turn = p.Turn, nil
	}
	back, err := revision.UndoOf(r.Machine, r.Record, turn)
	if err != nil {
		turn.End()
	} else {
		back.Kubeconfig, back.IgnorePreflightErrors = r.Options.Kubeconfig, r.Options.IgnorePreflightErrors
		err = workflow.Run(ctx, r.Console, back.Steps(), nil)
		back.Close()
	}
	if err != nil {
		return fault.Wrap(fmt.Errorf("%w\nundoing the change: %w", why, err), fault.ExitCode(why), "./install reconfigure undo")
	}
	hint := fault.Hint(why)
	if r.options.Node {
		hint = strings.TrimPrefix(hint+"; other nodes keep the new configuration; to go back there: ./install reconfigure undo", "; ")
	}
	return fault.Wrap(fmt.Errorf("%w\nthe change is undone: this node has its former configuration", why), fault.ExitCode(why), hint)
}

// preflight refuses what could not succeed. It changes nothing.
func (r *Reconfigure) preflight(ctx context.Context) error {
	if err := r.Bundle.Checked(ctx, r.Console); err != nil {
		return err
	}
	if err := r.Learn(ctx); err != nil {
		return err
	}
	if err := r.checkHost(); err != nil {
		return err
	}
	if err := r.TakeTurn(ctx); err != nil {
		return err
	}
	if err := r.CheckGoal(); err != nil {
		return err
	}
	if err := r.refusal(); err != nil {
		return err
	}
	report, err := r.check(ctx)
	r.Warn(report)
	return err
}

// checkHost refuses a host on which another change is not finished.
func (r *Reconfigure) checkHost() error {
	return cmp.Or(revision.Unfinished(r.Existing, revision.Reconfigure), node.RotationInProgress(r.Existing, r.Config))
}

// refusal returns an error that lists what a running cluster cannot change.
func (r *Reconfigure) refusal() error {
	if len(r.refused) == 0 {
		return nil
	}
	var b strings.Builder
	for _, one := range r.refused {
		fmt.Fprintf(&b, "\n  - %s\n    needed: %s", one, one.Needed)
	}
	return fault.New(fault.Preflight, "a running cluster cannot change %s:%s", workflow.Count(len(r.refused), "value"), b.String()).
		Hint("remove them from the file, or write the values of the cluster: ./install reconfigure print")
}

// check runs the checks. It changes nothing.
func (r *Reconfigure) check(ctx context.Context) (preflight.Report, error) {
	t, err := r.Target(ctx, upgradecheck.Reconfigure)
	if err != nil {
		return preflight.NewReport(), err
	}
	if t.ContainerdFiles, err = r.containerdProblems(ctx); err != nil {
		return preflight.NewReport(), err
	}
	report, err := upgradecheck.Run(ctx, t, r.Options.IgnorePreflightErrors)
	if err != nil && len(report.Errors) == 0 {
		return report, err
	}
	ignore := r.Options.IgnorePreflightErrors
	add := func(list []preflight.Problem, err error) error {
		for _, p := range list {
			report.Add(p, false, ignore)
		}
		return err
	}
	r.checkAdopted(&report)
	if r.isBehind(r.Goal.Followed) {
		report.Add(preflight.Problem{Name: "Reconfiguration", Message: "this control plane has not followed the last reconfiguration of the cluster", Fix: "./install reconfigure node"}, false, ignore)
	}
	for _, more := range []func(context.Context, *upgradecheck.Target) ([]preflight.Problem, error){r.checkFiles, r.checkKeys, r.checkEncryption, r.checkTaints, r.checkEdits, r.checkImages, r.checkEtcdUser} {
		if err := add(more(ctx, t)); err != nil {
			return report, err
		}
	}
	for _, p := range r.warnings(ctx) {
		report.Add(p, true, nil)
	}
	return report, report.Err("checking the change")
}

// containerdProblems are the problems with files that containerd reads at its next start. If this change does not restart it, they
// are warnings.
func (r *Reconfigure) containerdProblems(ctx context.Context) ([]runtimecheck.Problem, error) {
	l, err := r.runtime(ctx)
	if err != nil {
		return nil, err
	}
	list, err := r.ContainerdProblems(ctx, l.Files...)
	if len(l.Files) == 0 && !r.Record.IsPending(revision.RuntimePart) {
		for i := range list {
			list[i].Warning = true
		}
	}
	return list, err
}

// isBehind reports whether this control plane would change the cluster without having its configuration: afterwards, it would
// count as one that has. The number is the one that it follows.
func (r *Reconfigure) isBehind(number int) bool {
	return !r.options.Node && !r.Resumes && r.IsControlPlane() && !r.Stored.Cluster.Reconfiguration.Follows(number, true)
}

func (r *Reconfigure) checkFiles(context.Context, *upgradecheck.Target) ([]preflight.Problem, error) {
	if !r.IsControlPlane() {
		return nil, nil
	}
	return r.fileProblems(), nil
}

// warnings are what becomes of tokens, data and nodes, of a change that is not refused.
func (r *Reconfigure) warnings(ctx context.Context) (list []preflight.Problem) {
	if r.options.Node {
		return nil
	}
	for _, w := range r.warned {
		list = append(list, preflight.Problem{Name: "Arguments", Message: w.String(), Fix: w.Needed})
	}
	list = append(list, r.profileWarnings(ctx)...)
	return append(list, upgradecheck.ProxyMode(r.former, r.Config)...)
}

// checkKeys refuses keys with which API servers would refuse tokens that were issued.
func (r *Reconfigure) checkKeys(context.Context, *upgradecheck.Target) (list []preflight.Problem, err error) {
	if !r.IsControlPlane() || r.options.Node {
		return nil, nil
	}
	read := func(file string) ([]byte, error) { return os.ReadFile(r.Existing.Path(file)) }
	refused, warned, err := reconfiguration.CheckKeys(&r.former.Cluster, &r.Config.Cluster, r.options.Files, read, r.content)
	if err != nil {
		return []preflight.Problem{{Name: "Keys", Message: err.Error(), Fix: "bring a new file to all control planes: --file PATH=FILE; restore a former one; or let tokens become invalid: --ignore-preflight-errors=Keys"}}, nil
	}
	r.warned = append(r.warned, warned...)
	for _, r := range refused {
		list = append(list, preflight.Problem{Name: "Keys", Message: r.String(), Fix: r.Needed})
	}
	return list, nil
}

// checkEdits refuses to replace what was edited by hand.
func (r *Reconfigure) checkEdits(context.Context, *upgradecheck.Target) ([]preflight.Problem, error) {
	if r.options.Restore {
		return nil, nil
	}
	differ, err := r.differing()
	if err != nil {
		return nil, err
	}
	var edited []string
	fix := "to see the edits: ./install " + r.Options.Command + " --restore --plan; to drop them, run this command with --restore"
	for _, f := range differ {
		if f.Now == nil || !r.isEdit(f) {
			continue
		}
		edited = append(edited, f.Path)
		if keep := r.keep(f); keep != "" {
			fix += "; to keep the key of " + f.Path + ", use " + keep
		}
	}
	if len(edited) == 0 {
		return nil, nil
	}
	return []preflight.Problem{{Name: "EditedFiles", Message: "these files were edited since Airlift wrote them, and the edits would be lost: " + strings.Join(edited, ", "), Fix: fix}}, nil
}

// checkAdopted reports a kubelet that does not read the files that the change writes, until the first upgrade of an adopted node.
func (r *Reconfigure) checkAdopted(report *preflight.Report) {
	file := node.KubeletConfigFile(r.Existing)
	if file == config.KubeletConfigFile || !r.Concerns(revision.KubeletPart) {
		return
	}
	flags := r.options.Given.Has("InitConfiguration.nodeRegistration.kubeletExtraArgs")
	report.Add(preflight.Problem{Name: "AdoptedKubelet", Message: fmt.Sprintf("the kubelet of this adopted node reads %s until its first upgrade: the change does not reach it", file),
		Fix: "its first upgrade gives it the configuration of the cluster, except for the fields that this file sets: edit them there, and run: systemctl restart kubelet"}, !flags, nil)
}

// checkImages refuses a file with other images than the cluster runs: with those, the change would also be an upgrade. A newer etcd of
// this host stays.
func (r *Reconfigure) checkImages(_ context.Context, t *upgradecheck.Target) (list []preflight.Problem, err error) {
	if t.Cluster == nil {
		return nil, nil
	}
	newer, err := r.NewerEtcd(r.Config.Images[node.EtcdPod])
	if err != nil {
		return nil, err
	}
	for _, one := range t.Cluster.Components {
		has := r.Config.Images[one.Name]
		if one.Name == node.EtcdPod {
			has = cmp.Or(newer, has)
		}
		if has == "" || !r.Concerns(one.Name) || upgradecheck.Tag(one.Image) == upgradecheck.Tag(has) || one.Node != "" && one.Node != t.NodeName {
			continue
		}
		list = append(list, preflight.Problem{Name: "OtherImages", Message: fmt.Sprintf("%s runs as %s, and this file has %s: a reconfiguration keeps the images", one.Name, one.Image, has),
			Fix: "use the file with which this cluster was installed or upgraded; or take the images of this one over first: ./install upgrade apply"})
	}
	return list, nil
}

// localFiles returns the files of this host that the run writes, without certificates.
func (r *Reconfigure) localFiles() (files []pki.File, err error) {
	ctx := context.Background()
	for _, compute := range []func(context.Context) (desired.List, error){r.desiredFiles, r.Manifests, r.kubeletFiles, r.runtime} {
		l, err := compute(ctx)
		if err != nil {
			return nil, err
		}
		files = append(files, l.Files...)
	}
	return files, nil
}

func (r *Reconfigure) kubeletFiles(ctx context.Context) (l desired.List, err error) {
	if !r.Concerns(revision.KubeletPart) || node.KubeletConfigFile(r.Existing) != config.KubeletConfigFile {
		return l, nil
	}
	if l, err = r.KubeletConfig(ctx); err == nil && r.options.Restore && r.Adopted == nil {
		l.Files = append(l.Files, revision.KubeletUnits()...)
	}
	return l, err
}

// nameImages gives images the names of the configuration, if they change.
func (r *Reconfigure) nameImages(ctx context.Context) error {
	if !r.renamesImages(ctx) {
		r.Console.Note("the names stay")
		return nil
	}
	if err := r.Ready(ctx); err != nil {
		return err
	}
	if err := r.Begin(); err != nil {
		return err
	}
	if err := r.ConnectRuntime(ctx); err != nil {
		return err
	}
	missing, err := r.Watch.Containerd.Missing(ctx, r.Plan.Images())
	if err != nil {
		return err
	}
	if len(missing) > 0 {
		if err := r.Bundle.AttachNode(ctx, r.Existing, r.Console); err != nil {
			return err
		}
	}
	if err := r.KeepNames(ctx); err != nil {
		return err
	}
	return r.Stage(ctx, func(string) bool { return false })
}

// renamesImages reports whether images get other names by the change. A node that follows has to give each image of a component that
// name which the configuration has, unless containerd has it already.
func (r *Reconfigure) renamesImages(ctx context.Context) bool {
	if !r.options.Node {
		return r.Unfinished() || !sameImages(r.former, r.Config)
	}
	if r.ConnectRuntime(ctx) != nil {
		return true // nameImages returns the error
	}
	list, err := r.Watch.Containerd.Images(ctx)
	return err != nil || slices.ContainsFunc(r.Plan.Images(), func(i bundle.Image) bool {
		name, is := r.Config.Images[i.Name]
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
func (r *Reconfigure) runtime(context.Context) (l desired.List, err error) {
	const file = render.ContainerdConfigPath
	now, err := r.Present(file)
	if err != nil || now == nil || bytes.Contains(now, []byte(r.Config.Images["pause"])) {
		return l, err
	}
	all, err := r.RuntimeFiles()
	if err != nil {
		return l, err
	}
	edited := revision.EditedByHand(r.Existing, file, now)
	if !r.options.Node && !r.options.Restore && sameImages(r.former, r.Config) && (edited || !r.Resumes) {
		return l, nil // a run that continues another one does not know which names that changed
	}
	e, _ := r.Existing.Records().Find(ledger.File, file)
	for _, f := range all {
		if f.Path == file && (!edited || r.options.Restore || !e.Wrote(filesystem.Digest(f.Data))) {
			l.Files = append(l.Files, f)
		}
	}
	return l, nil
}

// restartRuntime writes containerd's configuration, and restarts containerd if it has not read that. The containers keep running.
func (r *Reconfigure) restartRuntime(ctx context.Context, l desired.List) error {
	if len(l.Files) == 0 && !r.Record.IsPending(revision.RuntimePart) {
		return nil
	}
	if err := r.Ready(ctx); err != nil {
		return err
	}
	return r.RestartRuntime(ctx, l)
}

// numbered returns the number of the change, and the Secret with the files.
func (r *Reconfigure) numbered(context.Context) (l desired.List, err error) {
	if l, err = r.filesSecret(); err != nil || !r.objects {
		return l, err
	}
	objects, err := render.UploadReconfiguration(r.Config)
	l.Objects = append(objects, l.Objects...) // an interrupted run stores another number as long as the Secret is not stored
	return l, err
}

// storeNumber stores what numbered returns. The record has the number first: undo refuses to undo another change.
func (r *Reconfigure) storeNumber(ctx context.Context, l desired.List) error {
	if r.objects {
		if err := r.KeepObjects(ctx); err != nil {
			return err
		}
		r.Record.Number, r.Record.Stored = r.Config.Reconfiguration.Number, r.Config.Reconfiguration.Stored
		if err := r.WriteRecord(); err != nil {
			return err
		}
	}
	return r.Store(ctx, l)
}

func (r *Reconfigure) clusterConfiguration(ctx context.Context) (l desired.List, err error) {
	if !r.documents {
		return l, nil
	}
	return r.ClusterConfiguration(ctx)
}

// storeProxy changes kube-proxy. Its pods are replaced one after the other: without that, all of them restart as soon as they see
// another configuration.
func (r *Reconfigure) storeProxy(ctx context.Context, l desired.List) error {
	before := r.Changes
	if err := r.Store(ctx, l); err != nil || len(l.Objects) == 0 {
		return err
	}
	if r.Changes == before && !r.Resumes {
		return nil
	}
	restarted, err := workloads.RestartDaemonSet(ctx, r.API.Client.API, "reconfiguration "+r.Goal.Change[:12], "kube-system", "kube-proxy")
	r.Changed(restarted)
	if err != nil {
		return err
	}
	return workloads.WaitForProxies(ctx, r.API.Client.API, wait.Limit{Timeout: revision.ControllersTimeout, Report: r.Report})
}

// ReadersOf returns what must restart to read a file.
func (r *Reconfigure) ReadersOf(file string) []string {
	switch {
	case path.Dir(file) == config.ManifestsDir:
		return nil
	case strings.HasPrefix(file, config.KubeletDir+"/") || file == render.KubeletUnitPath || file == render.KubeletDropInPath:
		return []string{revision.KubeletPart}
	case file == render.ContainerdConfigPath:
		return []string{revision.RuntimePart}
	}
	return reconfiguration.UsersOf(&r.Config.Cluster, file)
}

// restartKubelet restarts the kubelet if its configuration was written since it started, and waits until the node is Ready.
func (r *Reconfigure) restartKubelet(ctx context.Context, _ desired.List) error {
	if !r.Concerns(revision.KubeletPart) || !r.Unfinished() {
		return nil
	}
	restarted, err := phases.RestartStale(ctx, r.Node, "kubelet.service", r.Record.IsPending(revision.KubeletPart),
		config.KubeletConfigFile, config.KubeletFlagsFile, render.KubeletUnitPath, render.KubeletDropInPath)
	if err == nil && restarted {
		err = r.WaitRestarted(ctx)
	}
	if err == nil {
		err = r.settleServing(ctx)
	}
	if err != nil {
		return err
	}
	return r.Restarted(revision.KubeletPart)
}

// finish ends the change of this node. What undo needs stays until the next change or upgrade.
func (r *Reconfigure) finish(ctx context.Context, l desired.List) error {
	if err := r.InstallCommand(ctx, l); err != nil {
		return err
	}
	if r.Unfinished() && !r.Record.WasFinished {
		r.Record.WasFinished = true
		if err := r.WriteRecord(); err != nil {
			return err
		}
	}
	if number := r.Config.Reconfiguration.Number; number > 0 {
		changed, err := r.API.Client.NodeObjects().Follow(ctx, r.Config.NodeRegistration.Name, func(f *cluster.Follows) { f.Reconfiguration = number })
		r.Changed(changed)
		if err != nil {
			return err
		}
	}
	if err := r.takeOver(); err != nil {
		return err
	}
	if r.Self.Ready && r.Changes > 0 { // its API server may have been away for so long that the node is not Ready
		if err := r.API.Client.WaitForNodeReady(ctx, r.Config.NodeRegistration.Name, phases.NodeTimeout, r.Report); err != nil && ctx.Err() == nil {
			r.Console.Warn("%v", err)
		}
	}
	if err := r.Finish(); err != nil {
		return err
	}
	r.summary(ctx)
	return nil
}

// summary prints the next steps.
func (r *Reconfigure) summary(ctx context.Context) {
	text := "This node has the new configuration.\n"
	if r.Changes == 0 {
		text = "This node has this configuration already. Nothing was changed.\n"
	}
	if file := node.KubeletConfigFile(r.Existing); file != config.KubeletConfigFile {
		text += "Its kubelet does not: it reads " + file + " until the first upgrade of this adopted node.\n"
	}
	last := r.Config.Reconfiguration
	nodes, err := r.API.Client.Nodes(ctx)
	again := ""
	if len(r.waits) > 0 {
		again = "\nAfter the last node, run the same command here once more: " + strings.Join(r.waits, "; ") + ".\n"
	}
	if err != nil || last.Number == 0 { // a worker may not list the nodes
		r.Console.Summary(text + again)
		return
	}
	var planes, workers []string
	for _, n := range nodes {
		plane := n.Role == cluster.ControlPlaneRole
		switch {
		case last.Follows(n.Follows.Reconfiguration, plane):
		case plane:
			planes = append(planes, n.Name)
		default:
			workers = append(workers, n.Name)
		}
	}
	if left := append(planes, workers...); len(left) > 0 {
		text += "\nThese nodes follow it with './install reconfigure node', one after the other, in this order:\n\n    " + strings.Join(left, "\n    ") + "\n"
	}
	if r.AddOnsLeft {
		text += "\nAdd-ons wait until all nodes have their images. After the last node, run the same command here once more, with the same file:\n\n    ./install reconfigure --config FILE --yes\n"
	}
	r.Console.Summary(text + again)
}
