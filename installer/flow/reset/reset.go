// Package reset removes from a host what init or join created there, according to the ledger. First it
// removes this host's member from the etcd cluster.
package reset

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"airlift/images/store"
	"airlift/installer/cluster"
	"airlift/installer/config"
	"airlift/installer/host"
	"airlift/installer/host/detection"
	"airlift/installer/host/kernel"
	"airlift/installer/host/ledger"
	"airlift/installer/host/podnetwork"
	"airlift/installer/host/uninstall"
	"airlift/installer/node"
	"airlift/installer/phases"
	"airlift/installer/pki"
	"airlift/installer/render"
	"airlift/installer/workflow"
	"airlift/internal/fault"
)

// A Reset removes what init or join created on this host.
type Reset struct {
	*node.Machine
	config config.Reset
	plan   uninstall.Plan // what reset removes and keeps; nil if nothing was installed
	etcd   *etcdReset
	images *imageReset
	turn   *node.Turn // of this control plane, until its components have ended
	// endpoint is how an adopted node's cluster reaches its API; nil as long as no API server has answered.
	endpoint *config.Endpoint
}

func newReset(c config.Reset, kubeconfig string, m *node.Machine) *Reset {
	return &Reset{
		Machine: m, config: c,
		etcd:   &etcdReset{Machine: m, force: c.Force, kubeconfig: kubeconfig, timeout: c.Timeouts.KubernetesAPICall},
		images: &imageReset{Machine: m, socket: socketPath(c)},
	}
}

// Phases returns the steps of reset, for the names of its phases.
func Phases() []workflow.Step { return newReset(config.Reset{}, "", new(node.Machine)).steps() }

// steps returns the steps of reset in order. The first two run before anything
// on the host changes, and reset stops if one of them fails. Each later step
// continues if it cannot remove something, and reports it at its end.
func (r *Reset) steps() []workflow.Step {
	if r.isAdopted() {
		return r.adoptedSteps()
	}
	return committed(r, []workflow.Step{
		{Name: "preflight", Aliases: []string{"pre-flight"}, Doc: "check that etcd keeps its quorum", Run: r.preflight},
		{Name: "remove-etcd-member", Doc: "remove this host's member from the etcd cluster", Run: r.removeMember},
		{Name: "stop-kubelet", Doc: "stop the kubelet", Run: r.onHost(uninstall.StopKubelet)},
		{Name: "remove-pods", Doc: "stop and remove all pods", Run: r.removePods},
		{Name: "cleanup-node", Aliases: []string{"cleanupnode"}, Doc: "remove everything Airlift installed", Steps: []workflow.Step{
			{Name: "images", Doc: "restore the image names in an existing containerd", Run: r.images.restore},
			{Name: "runtime", Doc: "stop containerd", Run: r.onHost(uninstall.StopRuntime)},
			{Name: "mounts", Doc: "unmount volumes", Run: r.unmount},
			{Name: "interfaces", Doc: "remove the pod network's interfaces", Run: r.onHost(podnetwork.RemoveInterfaces)},
			{Name: "netfilter", Doc: "remove iptables and nftables rules", Run: r.removeNetfilter},
			{Name: "routes", Doc: "remove routes", Run: r.onHost(kernel.RemoveRoutes)},
			{Name: "state", Doc: "remove the data of etcd, the kubelet and containerd", Run: r.onHost(uninstall.RemoveState)},
			{Name: "packages", Doc: "remove the packages that Airlift installed", Run: r.onHost(uninstall.RemovePackages)},
			{Name: "installed", Doc: "remove units, certificates, configuration and binaries", Run: r.removeInstalled},
		}},
	})
}

// committed lets each step that cannot be refused any more first write what New assumed. An interrupted reset then continues, also
// if the user skipped the steps before it.
func committed(r *Reset, steps []workflow.Step) []workflow.Step {
	for i, s := range steps {
		committed(r, s.Steps)
		if s.Run == nil || slices.Contains(beforeChanges, s.Name) {
			continue
		}
		steps[i].Run = func(ctx context.Context) error {
			if err := r.Host.Records().Commit(); err != nil {
				return err
			}
			return s.Run(ctx)
		}
	}
	return steps
}

// New returns a Reset, which has found out what it would remove. If nothing was
// installed, the Reset is Empty. New refuses a node that has no ledger, unless the
// user gave --without-ledger.
func New(c config.Reset, kubeconfig string, h *host.Host, console *workflow.Console) (*Reset, error) {
	r := newReset(c, kubeconfig, node.NewMachine(h, console))
	recorded, adopted := h.Records().Used(), h.Records().Adopted() != nil
	if !recorded && !uninstall.IsNode(h) {
		return r, nil
	}
	if adopted && c.WithoutLedger {
		return nil, fault.New(fault.Usage, "--without-ledger is for a node without a ledger, and this one was adopted").
			Hint("to take back what Airlift changed: ./install reset; to remove the node, too: ./install reset --remove-node")
	}
	if !recorded || c.WithoutLedger || adopted && c.RemoveNode { // the ledger may not be of the node that another tool made
		dir := cmp.Or(c.CertificatesDir, config.CertificatesDir)
		if adopted {
			dir = node.Observe(h).PKI().CertificatesDir
		}
		found, err := traces(h, dir)
		if err != nil {
			return nil, err
		}
		uninstall.AssumeTraces(h, found)
	}
	if err := keepBackup(h); err != nil {
		return nil, err
	}
	if c.CleanupTmpDir {
		uninstall.Assume(h, config.KubernetesDir+"/tmp")
	}
	var err error
	if r.plan, err = uninstall.PlanFor(h); err != nil {
		return nil, err
	}
	if !recorded && !c.WithoutLedger {
		return nil, fault.New(fault.Preflight,
			"this host is a node, but has no Airlift ledger: another tool created it, or the ledger is lost; reset would remove:\n%s", listed(r.plan.Of(uninstall.Remove, uninstall.Empty))).
			Hint("to remove exactly this: ./install reset --without-ledger, which prints the list again and asks for confirmation; or use the tool that created this node, such as kubeadm reset; to keep the node, and manage it: ./install adopt")
	}
	return r, nil
}

// keepBackup refuses to remove the last backup that this host wrote: older installers wrote one anywhere.
func keepBackup(h *host.Host) error {
	last, err := node.LastBackup(h)
	if err != nil || last == nil || last.Error != "" || !node.FileExists(h, last.Path) {
		return nil // a damaged record is removed
	}
	dir, err := uninstall.RemovedByReset(h, h.Path(last.Path))
	if err == nil && dir != "" {
		err = fault.New(fault.Preflight, "reset would remove the backup %s, because it is in %s", last.Path, dir).Hint("move it, and other backups there: mv " + fault.Word(last.Path) + " /root/")
	}
	return err
}

// Empty reports whether nothing was installed on this host.
func (r *Reset) Empty() bool { return r.plan == nil }

// listed returns a plan's items, one per line.
func listed(plan uninstall.Plan) string {
	var b strings.Builder
	for _, i := range plan {
		b.WriteString("    " + i.String() + "\n")
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// Describe returns the text that lists what reset removes and keeps.
func (r *Reset) Describe() string {
	var b strings.Builder
	for _, part := range []struct {
		heading string
		items   uninstall.Plan
	}{
		{"Removed:", r.plan.Of(uninstall.Remove)}, {"Emptied:", r.plan.Of(uninstall.Empty)},
		{"Edited since the installation, kept under another name:", r.plan.Of(uninstall.Save)}, {"Left:", r.plan.Of(uninstall.Leave)},
	} {
		if len(part.items) > 0 {
			fmt.Fprintf(&b, "\n%s\n\n%s\n", part.heading, listed(part.items))
		}
	}
	return b.String()
}

// nothingInstalled is printed on a host that has no ledger and is not a node.
const nothingInstalled = "Airlift installed nothing on this host: nothing was changed.\n"

// Question is asked before the first change.
func (r *Reset) Question() string {
	if r.isAdopted() {
		return "This takes back what Airlift changed on this adopted node. The node and its pods stay. Continue?"
	}
	if !r.removesNode() {
		return "This removes what Airlift installed on this host. Another tool's node on it stays. Continue?"
	}
	return "This removes the Kubernetes node on this host and, on the last control plane, the cluster's data. Continue?"
}

// removesNode reports whether the node on this host is what this reset removes, or an interrupted one began to remove. A ledger
// without a kubelet is of a host that another tool may have made a node: its member stays in etcd.
func (r *Reset) removesNode() bool {
	records := r.Host.Records()
	return records.RanNode() || records.ResetBegan() || records.AssumedTraces()
}

// preflight refuses a reset that would break the etcd of other control planes.
func (r *Reset) preflight(ctx context.Context) error {
	if !r.removesNode() || r.config.Force || slices.Contains(r.config.SkipPhases, "remove-etcd-member") {
		return nil
	}
	if err := r.etcd.check(ctx); err != nil || !r.IsControlPlane() {
		return err
	}
	return r.checkEndpoint(ctx)
}

// checkEndpoint refuses to reset the control plane to which the endpoint of the cluster leads, as long as there are others: no other
// node would reach the API. Without an API server on this host, the endpoint leads to none already.
func (r *Reset) checkEndpoint(ctx context.Context) error {
	probe, cancel := context.WithTimeout(ctx, node.ProbeTimeout)
	defer cancel()
	client, err := node.LoadClient(r.Host, r.etcd.adminKubeconfig(), node.OwnAPIServer(r.Host), 0)
	if err != nil {
		return ctx.Err()
	}
	if ready, _ := client.Ready(probe); !ready {
		return ctx.Err()
	}
	fetched, err := client.FetchConfig(probe)
	if err != nil {
		return ctx.Err()
	}
	nodes, err := client.Nodes(probe)
	others := func(n cluster.NodeState) bool { return n.Role == cluster.ControlPlaneRole && n.Name != r.nodeName() }
	if err != nil || !slices.ContainsFunc(nodes, others) {
		return ctx.Err()
	}
	is := fetched.Cluster.ControlPlaneEndpoint
	addresses, err := cluster.EndpointAddresses(probe, is)
	own, ownErr := detection.Addresses()
	if err = errors.Join(err, ownErr); err != nil {
		r.Console.Warn("it is not known whether the endpoint of the cluster leads to this host: %v", err)
		return ctx.Err()
	}
	for _, a := range own {
		if slices.Contains(addresses, a.IP.Unmap()) && !slices.Contains(fetched.Cluster.Endpoint.VIPs, a.IP.Unmap().String()) {
			return fault.New(fault.Preflight, "the endpoint of the cluster, %s, leads to this host: without it, no other node would reach the API", is).
				Hint("give the cluster another endpoint first: ./install endpoint apply --control-plane-endpoint HOST:PORT; or with --control-plane-vip ADDRESS; then on each node: ./install endpoint node; or skip this check with --force")
		}
	}
	return nil
}

// onHost is a step with this host.
func (r *Reset) onHost(do func(context.Context, *host.Host) error) func(context.Context) error {
	return func(ctx context.Context) error { return do(ctx, r.Host) }
}

// removeMember removes this host's member from etcd, in the turn of this control plane.
func (r *Reset) removeMember(ctx context.Context) (err error) {
	if !r.removesNode() {
		return nil
	}
	if r.IsControlPlane() {
		if r.turn, err = node.TryTurn(ctx, r.Machine, r.etcd.adminKubeconfig(), node.ShortPatience); err != nil {
			return err
		}
	}
	if err := r.Host.Records().Commit(); err != nil {
		return err
	}
	phases.GiveAddressAway(ctx, r.Console)
	r.leaveRegistry(ctx)
	if err := r.etcd.remove(ctx); err != nil {
		return err
	}
	is, err := node.Observe(r.Host).Identity()
	if err != nil {
		r.Console.Debug(1, "the CA of this node is not known: %v", err)
	}
	return r.Host.Records().BeginReset(is)
}

// leaveRegistry takes the permissions of a server of the embedded registry from this control plane. Without an API server, they
// stay for a node of this name until it is removed from the cluster.
func (r *Reset) leaveRegistry(ctx context.Context) {
	if !phases.ServesRegistry(r.Existing) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, node.ProbeTimeout)
	defer cancel()
	client, err := node.LoadClient(r.Existing, r.etcd.adminKubeconfig(), "", 0)
	if err == nil {
		_, err = client.Delete(ctx, render.RegistryServer(r.nodeName()))
	}
	if err != nil && ctx.Err() == nil {
		r.Console.Warn("the permissions of this server of the embedded registry stay in the cluster: %v", err)
	}
}

// endTurn gives up the turn of this control plane.
func (r *Reset) endTurn() {
	r.turn.End()
	r.turn = nil
}

// removePods asks the runtime to stop all pods, then kills the remaining ones.
func (r *Reset) removePods(ctx context.Context) error {
	defer r.endTurn() // while the credentials exist
	if r.Host.Records().RanNode() && r.Exists(r.images.socket) {
		if err := r.removePodsThroughCRI(ctx); err != nil {
			r.Console.Warn("%s; killing the remaining processes", err)
		}
	}
	return uninstall.KillPods(ctx, r.Host)
}

// socketPath returns the path of the container runtime's socket.
func socketPath(c config.Reset) string {
	return strings.TrimPrefix(cmp.Or(c.CRISocket, config.ContainerdSocket), "unix://")
}

func (r *Reset) removePodsThroughCRI(ctx context.Context) error {
	s, err := store.Connect(ctx, r.images.socket)
	if err != nil {
		return err
	}
	defer s.Close()
	return s.RemovePods(ctx)
}

func (r *Reset) unmount(ctx context.Context) error {
	return uninstall.Unmount(ctx, r.Host, r.config.UnmountFlags...)
}

func (r *Reset) removeNetfilter(ctx context.Context) error {
	warnings, err := podnetwork.RemoveRules(ctx, r.Host)
	for _, w := range warnings {
		r.Console.Warn("%s", w)
	}
	return err
}

// removeInstalled removes the installed files. The summary lists what it keeps.
func (r *Reset) removeInstalled(ctx context.Context) error {
	_, err := uninstall.RemoveInstalled(ctx, r.Host)
	return err
}

// Run resets the host as planned.
func (r *Reset) Run(ctx context.Context) error {
	if r.plan == nil {
		r.Console.Summary(nothingInstalled)
		r.Console.Close()
		return nil
	}
	defer r.endTurn()
	name := ""
	if r.removesNode() {
		name = r.nodeName()
	}
	failed, err := runReset(ctx, r.Console, r.steps(), r.config.SkipPhases)
	if err != nil {
		return err
	}
	if len(failed) > 0 {
		left, err := r.remaining()
		if err != nil {
			failed = append(failed, err.Error())
		}
		r.Console.Summary(left)
		r.Console.Close()
		return fault.New(fault.Failure, "not everything could be removed:\n  - %s", strings.Join(failed, "\n  - ")).
			Hint("run reset again; if it fails the same way, reboot the host and run it once more")
	}
	r.Console.Summary(r.closingWords(name))
	r.Console.Close()
	return nil
}

// RunPhase runs one step alone.
func (r *Reset) RunPhase(ctx context.Context, name string) error {
	if err := r.refusePhase(); err != nil {
		return err
	}
	defer r.endTurn()
	return workflow.RunPhase(ctx, r.Console, r.steps(), name)
}

// remaining lists what is still on the host after a step failed: the remaining
// items of the ledger, and what reset keeps on purpose.
func (r *Reset) remaining() (string, error) {
	now, err := uninstall.PlanFor(r.Host)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	for _, part := range []struct {
		heading string
		items   uninstall.Plan
	}{
		{"Not removed yet:", now.Of(uninstall.Remove, uninstall.Empty)}, {"Left on purpose:", uninstall.Left(r.Host, r.plan)},
	} {
		if len(part.items) > 0 {
			fmt.Fprintf(&b, "%s\n\n%s\n\n", part.heading, listed(part.items))
		}
	}
	for _, image := range r.images.left {
		fmt.Fprintf(&b, "    left: %s\n", image)
	}
	return b.String(), nil
}

// nodeName returns this host's node name in its cluster, or "" if it is not a
// node.
func (r *Reset) nodeName() string { return pki.NodeName(r.Files()) }

// closingWords returns the summary. It lists what reset has kept.
func (r *Reset) closingWords(name string) string {
	if r.isAdopted() {
		return r.adoptedWords()
	}
	var b strings.Builder
	left := uninstall.Left(r.Host, r.plan)
	switch {
	case r.Host.Records().Used():
		b.WriteString("Phases were skipped: the files and objects that they remove are still listed in " + ledger.Path + ". Run reset again to remove it.\n")
	case len(left) == 0 && len(r.images.left) == 0:
		b.WriteString("Everything that Airlift created on this host is removed. Nothing is left.\n")
	case r.config.WithoutLedger:
		b.WriteString("Everything listed above is removed. These are left:\n\n")
	default:
		b.WriteString("Everything that Airlift created on this host is removed. These are left:\n\n")
	}
	for _, i := range left {
		fmt.Fprintf(&b, "    left: %s\n", i)
	}
	for _, image := range r.images.left {
		fmt.Fprintf(&b, "    left: %s\n", image)
	}
	if name != "" && !r.etcd.last {
		fmt.Fprintf(&b, "\nThe cluster may still have the node. Remove it, on a control plane: ./install node remove %s\n", name)
	}
	return b.String()
}

// beforeChanges are the steps that run before anything on the host changes. If
// one of them fails, reset stops.
var beforeChanges = []string{"preflight", "remove-etcd-member"}

// runReset runs reset's steps and returns the failures. Unlike init and join it
// continues after a failed step, because the later steps are still useful.
func runReset(ctx context.Context, c *workflow.Console, steps []workflow.Step, skip []string) (failed []string, err error) {
	if skip, err = workflow.Skipped(steps, skip); err != nil {
		return nil, err
	}
	for i, s := range steps {
		workflow.Begin(c, i, steps)
		for _, sub := range append([]workflow.Step{s}, s.Steps...) {
			if slices.Contains(skip, s.Name) || slices.Contains(skip, s.Name+"/"+sub.Name) {
				c.Note("%s skipped", sub.Name)
				continue
			}
			if sub.Run == nil {
				continue
			}
			err := sub.Run(ctx)
			if errors.Is(err, context.Canceled) || err != nil && slices.Contains(beforeChanges, s.Name) {
				return nil, err
			}
			if err != nil {
				c.Warn("%s", err)
				failed = append(failed, fmt.Sprintf("%s: %s", sub.Name, err))
			}
		}
	}
	return failed, nil
}

// DryRun prints what Run would do and changes nothing.
func (r *Reset) DryRun(ctx context.Context) error {
	defer r.Console.Close()
	if r.plan == nil {
		r.Console.Summary(nothingInstalled)
		return nil
	}
	var b strings.Builder
	b.WriteString("Nothing was changed. Reset would run these phases:\n\n")
	for _, step := range r.steps() {
		if !slices.Contains(r.config.SkipPhases, step.Name) && (step.Name != "remove-etcd-member" || r.removesNode()) {
			fmt.Fprintf(&b, "  - %s: %s\n", step.Name, step.Doc)
		}
	}
	b.WriteString(r.Describe())
	check, without := r.preflight, "Without --force, reset"
	if r.isAdopted() {
		check, without = r.checkAdopted, "Reset"
	}
	if err := check(ctx); err != nil {
		if ctx.Err() != nil {
			return err
		}
		fmt.Fprintf(&b, "\n%s would fail: %s\n", without, err)
	}
	r.Console.Summary(b.String())
	return nil
}

// refusePhase refuses a phase alone on an adopted node: the phases remove a node.
func (r *Reset) refusePhase() error {
	if !r.isAdopted() {
		return nil
	}
	return fault.New(fault.Preflight, "this node was adopted, and the phases of reset remove a node").Hint("take back what Airlift changed: ./install reset; or remove the node: add --remove-node")
}

// DryRunPhase prints what one phase would do and changes nothing.
func (r *Reset) DryRunPhase(name string) error {
	if err := r.refusePhase(); err != nil {
		return err
	}
	s, ok := workflow.Find(r.steps(), strings.TrimSuffix(name, "/all"))
	if !ok {
		return fault.New(fault.Usage, "there is no phase %q", name).Hint(fault.Choose(name, "the phases are", workflow.Names(r.steps())))
	}
	r.Console.Summary(fmt.Sprintf("Nothing was changed. The phase %s would %s.\n", name, s.Doc))
	r.Console.Close()
	return nil
}
