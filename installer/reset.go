package installer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"airlift/fault"
	"airlift/images/store"
	"airlift/installer/config"
	"airlift/installer/host"
	"airlift/installer/pki"
)

// A Reset removes what init or join created on this host.
type Reset struct {
	*machine
	config config.Reset
	plan   host.Plan // what reset removes and keeps; nil if nothing was installed
	etcd   *etcdReset
	images *imageReset
	turn   *turn // of this control plane, until its components have ended
}

func newReset(c config.Reset, kubeconfig string, m *machine) *Reset {
	return &Reset{
		machine: m, config: c,
		etcd:   &etcdReset{machine: m, force: c.Force, kubeconfig: kubeconfig, timeout: c.Timeouts.KubernetesAPICall},
		images: &imageReset{machine: m, socket: socketPath(c)},
	}
}

// ResetPhases returns the steps of reset, for the names of its phases.
func ResetPhases() []Step { return newReset(config.Reset{}, "", new(machine)).Steps() }

// Steps returns the steps of reset in order. The first two run before anything
// on the host changes, and reset stops if one of them fails. Each later step
// continues if it cannot remove something, and reports it at its end.
func (r *Reset) Steps() []Step {
	return []Step{
		{Name: "preflight", Aliases: []string{"pre-flight"}, Doc: "check that etcd keeps its quorum", Run: r.preflight},
		{Name: "remove-etcd-member", Doc: "remove this host's member from the etcd cluster", Run: r.removeMember},
		{Name: "stop-kubelet", Doc: "stop the kubelet", Run: r.host.StopKubelet},
		{Name: "remove-pods", Doc: "stop and remove all pods", Run: r.removePods},
		{Name: "cleanup-node", Aliases: []string{"cleanupnode"}, Doc: "remove everything Airlift installed", Steps: []Step{
			{Name: "images", Doc: "restore the image names in an existing containerd", Run: r.images.restore},
			{Name: "runtime", Doc: "stop containerd", Run: r.host.StopRuntime},
			{Name: "mounts", Doc: "unmount volumes", Run: r.unmount},
			{Name: "interfaces", Doc: "remove the pod network's interfaces", Run: r.host.RemoveInterfaces},
			{Name: "netfilter", Doc: "remove iptables and nftables rules", Run: r.removeNetfilter},
			{Name: "routes", Doc: "remove routes", Run: r.host.RemoveRoutes},
			{Name: "state", Doc: "remove the data of etcd, the kubelet and containerd", Run: r.host.RemoveState},
			{Name: "installed", Doc: "remove units, certificates, configuration and binaries", Run: r.removeInstalled},
		}},
	}
}

// PlanReset finds out what reset would remove. If nothing was installed, the
// returned Reset is Empty. It refuses a node that has no ledger, unless the
// user gave --without-ledger.
func PlanReset(c config.Reset, kubeconfig string, h *host.Host, console *Console) (*Reset, error) {
	r := newReset(c, kubeconfig, newMachine(h, console))
	recorded := h.Used()
	if !recorded && !h.IsNode() {
		return r, nil
	}
	if !recorded {
		traces := host.Traces{CertificatesDir: cmp.Or(c.CertificatesDir, config.CertificatesDir)}
		_, volumes, err := readStaticPod(h, "etcd")
		if err != nil {
			return nil, err
		}
		traces.EtcdDataDir = volumes["etcd-data"]
		h.AdoptTraces(traces)
	}
	if err := keepBackup(h); err != nil {
		return nil, err
	}
	if c.CleanupTmpDir {
		h.Adopt(config.KubernetesDir + "/tmp")
	}
	var err error
	if r.plan, err = h.Plan(); err != nil {
		return nil, err
	}
	if !recorded && !c.WithoutLedger {
		return nil, fault.New(fault.Preflight,
			"to remove exactly this: ./install reset --without-ledger, which prints the list again and asks for confirmation; or use the tool that created this node, such as kubeadm reset",
			"this host is a node, but has no Airlift ledger: another tool created it, or the ledger is lost; reset would remove:\n%s", listed(r.plan.Of(host.Remove, host.Empty)))
	}
	return r, nil
}

// keepBackup refuses to remove the last backup that this host wrote: older installers wrote one anywhere.
func keepBackup(h *host.Host) error {
	last, err := lastBackup(h)
	if err != nil || last == nil || last.Error != "" || !fileExists(h, last.Path) {
		return nil // a damaged record is removed
	}
	dir, err := h.RemovedByReset(h.Path(last.Path))
	if err == nil && dir != "" {
		err = fault.New(fault.Preflight, "move it, and other backups there: mv "+fault.Word(last.Path)+" /root/", "reset would remove the backup %s, because it is in %s", last.Path, dir)
	}
	return err
}

// Empty reports whether nothing was installed on this host.
func (r *Reset) Empty() bool { return r.plan == nil }

// listed returns a plan's items, one per line.
func listed(plan host.Plan) string {
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
		items   host.Plan
	}{
		{"Removed:", r.plan.Of(host.Remove)}, {"Emptied:", r.plan.Of(host.Empty)},
		{"Edited since the installation, kept under another name:", r.plan.Of(host.Save)}, {"Left:", r.plan.Of(host.Leave)},
	} {
		if len(part.items) > 0 {
			fmt.Fprintf(&b, "\n%s\n\n%s\n", part.heading, listed(part.items))
		}
	}
	return b.String()
}

// nothingInstalled is printed on a host that has no ledger and is not a node.
const nothingInstalled = "Airlift installed nothing on this host: nothing was changed.\n"

// preflight refuses a reset that would break the etcd of other control planes.
func (r *Reset) preflight(ctx context.Context) error {
	if r.config.Force || slices.Contains(r.config.SkipPhases, "remove-etcd-member") {
		return nil
	}
	return r.etcd.check(ctx)
}

// removeMember removes this host's member from etcd, in the turn of this control plane.
func (r *Reset) removeMember(ctx context.Context) (err error) {
	if r.isControlPlane() {
		if r.turn, err = tryTurn(ctx, r.machine, r.etcd.adminKubeconfig(), shortPatience); err != nil {
			return err
		}
	}
	return r.etcd.remove(ctx)
}

// endTurn gives up the turn of this control plane.
func (r *Reset) endTurn() {
	r.turn.end()
	r.turn = nil
}

// removePods asks the runtime to stop all pods, then kills the remaining ones.
func (r *Reset) removePods(ctx context.Context) error {
	defer r.endTurn() // while the credentials exist
	if r.host.RanNode() && r.exists(r.images.socket) {
		if err := r.removePodsThroughCRI(ctx); err != nil {
			r.console.Warn("%s; killing the remaining processes", err)
		}
	}
	return r.host.KillPods(ctx)
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
	return r.host.Unmount(ctx, r.config.UnmountFlags...)
}

func (r *Reset) removeNetfilter(ctx context.Context) error {
	warnings, err := r.host.RemoveNetfilter(ctx)
	for _, w := range warnings {
		r.console.Warn("%s", w)
	}
	return err
}

// removeInstalled removes the installed files. The summary lists what it keeps.
func (r *Reset) removeInstalled(ctx context.Context) error {
	_, err := r.host.RemoveInstalled(ctx)
	return err
}

// Run resets the host as planned.
func (r *Reset) Run(ctx context.Context) error {
	if r.plan == nil {
		r.console.Summary(nothingInstalled)
		r.console.close()
		return nil
	}
	defer r.endTurn()
	name := r.nodeName()
	if err := r.host.Commit(); err != nil {
		return err
	}
	failed, err := runReset(ctx, r.console, r.Steps(), r.config.SkipPhases)
	if err != nil {
		return err
	}
	if len(failed) > 0 {
		left, err := r.remaining()
		if err != nil {
			failed = append(failed, err.Error())
		}
		r.console.Summary(left)
		r.console.close()
		return fault.New(fault.Failure, "run reset again; if it fails the same way, reboot the host and run it once more",
			"not everything could be removed:\n  - %s", strings.Join(failed, "\n  - "))
	}
	r.console.Summary(r.closingWords(name))
	r.console.close()
	return nil
}

// RunPhase runs one step alone.
func (r *Reset) RunPhase(ctx context.Context, name string) error {
	defer r.endTurn()
	return RunPhase(ctx, r.console, r.Steps(), name)
}

// remaining lists what is still on the host after a step failed: the remaining
// items of the ledger, and what reset keeps on purpose.
func (r *Reset) remaining() (string, error) {
	now, err := r.host.Plan()
	if err != nil {
		return "", err
	}
	var b strings.Builder
	for _, part := range []struct {
		heading string
		items   host.Plan
	}{
		{"Not removed yet:", now.Of(host.Remove, host.Empty)}, {"Left on purpose:", r.host.Left(r.plan)},
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
func (r *Reset) nodeName() string { return pki.NodeName(r.files()) }

// closingWords returns the summary. It lists what reset has kept.
func (r *Reset) closingWords(name string) string {
	var b strings.Builder
	left := r.host.Left(r.plan)
	switch {
	case r.host.Used():
		b.WriteString("Phases were skipped: the files and objects that they remove are still listed in " + host.LedgerPath + ". Run reset again to remove it.\n")
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
		fmt.Fprintf(&b, "\nThe cluster still has the Node object. Remove it there: kubectl delete node %s\n", name)
	}
	return b.String()
}

// beforeChanges are the steps that run before anything on the host changes. If
// one of them fails, reset stops.
var beforeChanges = []string{"preflight", "remove-etcd-member"}

// runReset runs reset's steps and returns the failures. Unlike init and join it
// continues after a failed step, because the later steps are still useful.
func runReset(ctx context.Context, c *Console, steps []Step, skip []string) (failed []string, err error) {
	if skip, err = skipped(steps, skip); err != nil {
		return nil, err
	}
	for i, s := range steps {
		begin(c, i, steps)
		for _, sub := range append([]Step{s}, s.Steps...) {
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
	defer r.console.close()
	if r.plan == nil {
		r.console.Summary(nothingInstalled)
		return nil
	}
	var b strings.Builder
	b.WriteString("Nothing was changed. Reset would run these phases:\n\n")
	for _, step := range r.Steps() {
		if !slices.Contains(r.config.SkipPhases, step.Name) {
			fmt.Fprintf(&b, "  - %s: %s\n", step.Name, step.Doc)
		}
	}
	b.WriteString(r.Describe())
	if err := r.preflight(ctx); err != nil {
		if ctx.Err() != nil {
			return err
		}
		fmt.Fprintf(&b, "\nWithout --force, reset would fail: %s\n", err)
	}
	r.console.Summary(b.String())
	return nil
}

// DryRunPhase prints what one phase would do and changes nothing.
func (r *Reset) DryRunPhase(name string) error {
	s, ok := find(r.Steps(), strings.TrimSuffix(name, "/all"))
	if !ok {
		return fault.New(fault.Usage, "the phases are: "+strings.Join(Names(r.Steps()), ", "), "there is no phase %q", name)
	}
	r.console.Summary(fmt.Sprintf("Nothing was changed. The phase %s would %s.\n", name, s.Doc))
	r.console.close()
	return nil
}
