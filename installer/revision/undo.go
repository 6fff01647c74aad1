package revision

import (
	"cmp"
	"context"
	"fmt"
	"path"
	"slices"
	"strings"

	"airlift/images/store"
	"airlift/installer/cluster"
	"airlift/installer/cluster/inventory"
	"airlift/installer/cluster/workloads"
	"airlift/installer/config"
	"airlift/installer/endpoint"
	"airlift/installer/host"
	"airlift/installer/node"
	"airlift/installer/payload"
	"airlift/installer/phases"
	"airlift/installer/pki"
	"airlift/installer/pods"
	"airlift/installer/registry"
	"airlift/installer/render"
	"airlift/installer/serving"
	"airlift/installer/workflow"
	"airlift/internal/fault"
)

// An Undo restores the files and objects that the last upgrade or reconfiguration of this node replaced.
type Undo struct {
	*node.Machine
	// Kubeconfig reaches the cluster; "" is admin.conf on a control plane, else kubelet.conf.
	Kubeconfig string
	// IgnorePreflightErrors are the names of checks whose errors become warnings, or all.
	IgnorePreflightErrors []string

	record *Record
	former host.Kept
	paths  []string // of the files to restore
	pods   *pods.StaticPods
}

// Objects are the objects that undo of an upgrade restores.
var Objects = []cluster.ObjectName{
	{APIVersion: "v1", Kind: "ConfigMap", Namespace: "kube-system", Name: "kubeadm-config"},
	{APIVersion: "v1", Kind: "ConfigMap", Namespace: "kube-system", Name: "kubelet-config"},
	{APIVersion: "v1", Kind: "ConfigMap", Namespace: "kube-system", Name: "coredns"},
	{APIVersion: "v1", Kind: "ConfigMap", Namespace: "kube-system", Name: "kube-proxy"},
	{APIVersion: "apps/v1", Kind: "Deployment", Namespace: "kube-system", Name: "coredns"},
	{APIVersion: "apps/v1", Kind: "DaemonSet", Namespace: "kube-system", Name: "kube-proxy"},
	{APIVersion: "apps/v1", Kind: "DaemonSet", Namespace: "kube-flannel", Name: "kube-flannel-ds"},
}

// NewUndo returns the Undo of the last revision of a kind on this host. It refuses one that cannot be undone.
func NewUndo(k Kind, h *host.Host, c *workflow.Console) (*Undo, error) {
	record, err := Read(h, k)
	if err != nil {
		return nil, err
	}
	if record == nil {
		see := "see the version of this node: ./install status"
		if k == Reconfigure {
			see = "see what this node has: ./install reconfigure print"
		}
		return nil, fault.New(fault.Preflight, "there is nothing to undo: this host has no saved files of %s", k.noun()).Hint(see)
	}
	if k == Reconfigure {
		if err := Unfinished(h, k); err != nil {
			return nil, err
		}
		return UndoOf(node.NewMachine(h, c), record, nil)
	}
	later, err := Read(h, Reconfigure)
	if err != nil {
		return nil, err
	}
	// A finished upgrade has removed the record of an earlier reconfiguration with another file.
	if later != nil && later.To == record.To && (record.Finished || later.Bundle == record.Bundle) {
		return nil, fault.New(fault.Preflight, "this node was reconfigured after the upgrade").Hint("undo that first: " + Reconfigure.undo() + "; then: " + k.undo())
	}
	return UndoOf(node.NewMachine(h, c), record, nil)
}

// UndoOf returns the Undo of a recorded revision. turn is the turn of this control plane if the run that is undone has it, else nil.
func UndoOf(m *node.Machine, record *Record, turn *node.Turn) (*Undo, error) {
	u, h, c := &Undo{Machine: m, record: record}, m.Host, m.Console
	var err error
	// The previous controller manager would not start: it signs with ca.crt, which has two certificates.
	if err := cmp.Or(node.Unfinished(h), node.RotationInProgress(h, node.Observe(h).PKI())); err != nil {
		return nil, err
	}
	u.former = record.Kept(h)
	if u.paths, err = u.former.Paths(); err != nil {
		return nil, err
	}
	if err := u.checkEtcd(); err != nil {
		return nil, err
	}
	if u.pods, err = pods.NewStaticPods(&config.Config{}, h, c); err != nil {
		return nil, err
	}
	u.pods.Annotates, u.pods.Turn = true, turn
	return u, nil
}

// checkEtcd refuses to go back to an older minor version of etcd once the newer one has started: it
// may have changed the version of the stored data, which the older one then refuses.
func (u *Undo) checkEtcd() error {
	from, started, err := NewerEtcd(u.Host, u.record)
	if err != nil || started == "" {
		return err
	}
	return fault.New(fault.Preflight, "the upgrade cannot be undone: etcd was started as %s, which may have changed the version of its data, and %s cannot read that", started, from).
		Hint(wayBack(u.Host, u.record))
}

// Close gives up the turn of the control planes, and closes the connection to the container runtime.
func (u *Undo) Close() { u.pods.Close() }

// Question asks whether to undo the revision.
func (u *Undo) Question() string {
	what := "the last reconfiguration of this node"
	if u.record.Kind == Upgrade {
		what = fmt.Sprintf("the upgrade of this node from %s to %s", u.record.From, u.record.To)
	}
	return "This undoes " + what + ". Continue?"
}

// Steps returns the steps of undo in order: the reverse of the revision. Files that flags name go first in a reconfiguration, so that
// the previous static pods find them.
func (u *Undo) Steps() []workflow.Step {
	reconfigured := u.record.Kind == Reconfigure
	return []workflow.Step{
		{Name: "preflight", Doc: "wait for the turn of this control plane, and check the other nodes and the cluster", Run: u.preflight},
		{Name: "files", Doc: "restore the previous files and certificates", Run: u.restoreBefore, Empty: !reconfigured},
		{Name: "control-plane", Doc: "restore the previous static pods, one by one", Run: u.restoreControlPlane},
		{Name: "objects", Doc: "restore the previous configuration and add-ons", Run: u.restoreCluster},
		{Name: "node", Doc: "restore the previous binaries and configuration of this node", Run: u.restoreNode},
		{Name: "images", Doc: "restore the image names that changed", Run: u.restoreNames},
		{Name: "marks", Doc: "restore the labels and taints of this node", Run: u.restoreMarks, Empty: !reconfigured},
		{Name: "uncordon", Doc: "allow pods on this node again", Run: u.uncordon, Empty: reconfigured},
		{Name: "registry", Doc: "let the embedded registry prefer the previous file, if the cluster has one", Run: u.preferFormer, Empty: reconfigured},
		{Name: "finish", Doc: "remove the saved files", Run: u.finish},
	}
}

// Run runs all steps.
func (u *Undo) Run(ctx context.Context) error {
	text := fmt.Sprintf("This node has Kubernetes %s again.\n", u.record.From)
	if u.record.Kind == Reconfigure {
		text = u.next()
	}
	u.Console.Summary(text)
	return workflow.Run(ctx, u.Console, u.Steps(), nil)
}

// preflight waits for the turn of this control plane. It refuses to make the API server older than the kubelet of a worker. Without
// an API server, it does neither.
func (u *Undo) preflight(ctx context.Context) error {
	if err := u.checkContainerd(ctx); err != nil {
		return err
	}
	if u.record.Kind == Reconfigure && u.wasFinished() {
		if err := u.checkServing(ctx); err != nil {
			return err
		}
	}
	if !u.IsControlPlane() {
		return nil
	}
	if err := u.takeTurn(ctx); err != nil {
		return err
	}
	if u.record.Kind == Reconfigure {
		return u.checkOvertaken(ctx)
	}
	client, err := u.client()
	if err != nil {
		return err
	}
	probe, cancel := context.WithTimeout(ctx, node.ProbeTimeout)
	defer cancel()
	if !client.Answers(probe) {
		u.Console.Warn("the API server does not answer, so the versions of the other nodes are not checked")
		return nil
	}
	nodes, err := inventory.Nodes(ctx, client.API)
	if err != nil {
		return err
	}
	if newer := newerWorkers(nodes, u.record.From); len(newer) > 0 {
		return fault.New(fault.Preflight, "the kubelets of these workers would be newer than the API server, %s: %s", u.record.From, strings.Join(newer, ", ")).Hint("first run on these nodes: ./install upgrade undo")
	}
	return nil
}

// takeTurn takes the turn of this control plane, unless the run that is undone has passed it on.
func (u *Undo) takeTurn(ctx context.Context) (err error) {
	if u.pods.Turn == nil {
		u.pods.Turn, err = node.TryTurn(ctx, u.Machine, node.AdminConf, 0)
	}
	return err
}

// newerWorkers returns the workers whose kubelet has a newer minor version. The control planes are upgraded one by one, each with
// its kubelet, so while they go back one by one, the others may be newer as they were in the upgrade.
func newerWorkers(nodes []inventory.Node, version string) (newer []string) {
	limit := (&config.Cluster{KubernetesVersion: version}).Minor()
	for _, n := range nodes {
		if !n.ControlPlane && (&config.Cluster{KubernetesVersion: n.KubeletVersion}).Minor() > limit {
			newer = append(newer, n.Name)
		}
	}
	return newer
}

// Begin records that undo has begun, so the upgrade no longer counts as finished. An upgrade that
// continues afterwards saves another backup.
func (u *Undo) Begin() error {
	if !u.record.Finished && u.record.Backup == "" {
		return nil
	}
	u.record.Finished, u.record.Backup = false, ""
	return u.record.Write(u.Host)
}

func (u *Undo) restoreControlPlane(ctx context.Context) error {
	if err := u.Begin(); err != nil {
		return err
	}
	for _, name := range slices.Backward(pods.StaticPodOrder) {
		if !slices.Contains(u.paths, node.ManifestPath(name)) {
			if err := u.restartReader(ctx, name, false); err != nil {
				return err
			}
			continue
		}
		former, err := u.former.Read(node.ManifestPath(name))
		if err != nil {
			return err
		}
		u.Console.Note("%s", name)
		u.pods.APIServerFollows = name == node.EtcdPod
		replaced, err := u.pods.Replace(ctx, name, former, nil)
		if err == nil && replaced && u.pods.APIServerFollows { // it would wait up to two minutes before it connects again
			err = u.pods.Restart(ctx, "kube-apiserver")
		}
		if err != nil {
			return fmt.Errorf("restoring the previous manifest of %s: %w", name, err)
		}
		if err := u.restartReader(ctx, name, replaced); err != nil {
			return err
		}
	}
	return nil
}

// client connects to the API server of this node; on a worker, to the API server of the cluster.
func (u *Undo) client() (*cluster.Client, error) {
	if u.Kubeconfig != "" {
		return cluster.Load(u.Kubeconfig, "")
	}
	if !u.IsControlPlane() {
		return node.LoadClient(u.Host, node.KubeletConf, "", 0)
	}
	return node.LoadClient(u.Host, node.AdminConf, "", 0)
}

// restoreCluster restores what the cluster stored.
func (u *Undo) restoreCluster(ctx context.Context) error {
	if u.record.Kind == Reconfigure {
		return u.restoreStored(ctx)
	}
	return u.restoreObjects(ctx)
}

func (u *Undo) restoreObjects(ctx context.Context) error {
	if len(u.record.Objects) == 0 {
		return nil
	}
	client, err := u.client()
	if err != nil {
		return err
	}
	if err := client.WaitForAPI(ctx, config.DefaultUpgradeManifestsTimeout, u.Report); err != nil {
		return err
	}
	kept, err := readEndpoint(ctx, client, u.record.Kind == Reconfigure)
	if err != nil {
		return err
	}
	for _, data := range u.record.Objects {
		if data, err = kept.in(data); err != nil {
			return err
		}
		changed, err := client.ReplaceObject(ctx, data)
		if err != nil {
			return err
		}
		u.Changed(changed)
	}
	return nil
}

// RestoreFiles restores the previous binaries and files, except static pods, and restarts nothing.
func (u *Undo) RestoreFiles(ctx context.Context) error {
	for _, p := range u.paths {
		if path.Dir(p) == config.ManifestsDir {
			continue
		}
		changed, err := u.restore(ctx, p)
		if err != nil {
			return err
		}
		if changed {
			u.Console.Debug(1, "restored %s", p)
		}
		u.Changed(changed)
	}
	return nil
}

// KubeletIsStale reports whether the kubelet has not read all that RestoreFiles restored.
func (u *Undo) KubeletIsStale(ctx context.Context) (bool, error) {
	return u.stale(ctx, "kubelet.service", kubeletFiles)
}

// restoreNode restores the previous binaries and files, and restarts containerd and the kubelet if they
// changed.
func (u *Undo) restoreNode(ctx context.Context) error {
	resumes, err := u.stopServing(ctx)
	if err != nil {
		return err
	}
	if err := u.RestoreFiles(ctx); err != nil {
		return err
	}
	if resumes {
		if err := phases.ResumeServing(ctx, u.Machine); err != nil {
			return err
		}
	}
	for _, p := range u.paths { // also units that only a timer starts
		if path.Dir(p) != path.Dir(endpoint.UnitPath) {
			continue
		}
		if err := u.Host.Systemd().Reread(ctx, path.Base(p)); err != nil {
			return err
		}
	}
	// Also after an interruption between a file and its restart.
	for _, unit := range []struct {
		name  string
		files []string
	}{
		{"containerd.service", []string{"/usr/local/bin/containerd", render.ContainerdConfigPath, render.ContainerdUnitPath}},
		{endpoint.Unit, []string{host.CommandPath, endpoint.UnitPath}},
		{registry.Unit, []string{host.CommandPath, registry.UnitPath}},
		{serving.Unit, []string{host.CommandPath}},
		{"kubelet.service", kubeletFiles},
	} {
		stale, err := u.stale(ctx, unit.name, unit.files)
		if err != nil {
			return err
		}
		part := strings.TrimSuffix(unit.name, ".service")
		if !stale && !u.record.IsPending(part) {
			continue
		}
		if err := u.pods.Turn.Confirm(ctx); err != nil {
			return err
		}
		if err := u.Host.Systemd().Reread(ctx, unit.name); err != nil {
			return err
		}
		if err := u.Host.Systemd().Restart(ctx, unit.name); err != nil {
			return err
		}
		if unit.name == "kubelet.service" {
			if err := u.waitSettled(ctx); err != nil {
				return err
			}
			if err := phases.DropServing(u.Machine); err != nil {
				return err
			}
		}
		if err := u.record.SetRestarted(u.Host, part); err != nil {
			return err
		}
	}
	return nil
}

// kubeletFiles are the files with which the kubelet starts.
var kubeletFiles = []string{"/usr/local/bin/kubelet", config.KubeletConfigFile, config.KubeletFlagsFile, node.KubeletConf, render.KubeletUnitPath, render.KubeletDropInPath}

// stale reports whether a unit was started before one of its files was restored, or has one that systemd has not read.
func (u *Undo) stale(ctx context.Context, unit string, files []string) (bool, error) {
	var changed []string
	for _, f := range files {
		dir := path.Dir(f)
		switch {
		case !slices.Contains(u.paths, f):
		case u.Exists(f):
			changed = append(changed, f)
		case u.Exists(dir): // the file was missing before the upgrade, and is removed: its directory has changed
			changed = append(changed, dir)
		}
	}
	if len(changed) == 0 {
		return false, nil
	}
	stale, err := u.Host.Systemd().StartedBefore(ctx, unit, changed...)
	if err != nil || stale {
		return stale, err
	}
	// systemd tries to start a unit that fails, with the files that it has read.
	state, err := u.Host.Systemd().Unit(ctx, unit)
	return state.Stale, err
}

// restore restores the previous file at a path. In kubelet.conf it restores only the API server's
// URL. The upgrade changed nothing else, from that to the own API server's, and the CAs or the certificate may be new since then.
func (u *Undo) restore(ctx context.Context, path string) (changed bool, err error) {
	if written, ok := u.record.Certificates[path]; ok {
		return u.restoreCertificate(path, written)
	}
	if err := u.pend(path); err != nil {
		return false, err
	}
	if path != node.KubeletConf || !u.Exists(path) {
		return u.former.Restore(ctx, path)
	}
	former, err := u.former.Read(path)
	if err != nil || former == nil {
		return false, err
	}
	now, err := u.Optional(path)
	if err != nil {
		return false, err
	}
	server, err := cluster.ServerOf(now)
	if err != nil {
		return false, fmt.Errorf("reading %s: %w", path, err)
	}
	if own := node.OwnAPIServer(u.Existing); own != "" && server != own {
		return false, nil // it is not what the upgrade set: the endpoint was changed since
	}
	data, err := cluster.WithServersOf(now, former)
	if err != nil {
		return false, fmt.Errorf("restoring %s: %w", path, err)
	}
	return u.Host.WriteFile(path, data, 0o600)
}

// waitSettled waits for the previous kubelet, and for the static pods of a control plane.
func (u *Undo) waitSettled(ctx context.Context) error {
	if err := u.pods.WaitKubelet(ctx); err != nil || !u.IsControlPlane() {
		return err
	}
	client, err := u.client()
	if err != nil {
		return err
	}
	return u.pods.WaitSettled(ctx, client, pki.NodeName(u.Files()))
}

func (u *Undo) uncordon(ctx context.Context) error {
	client, err := u.client()
	if err != nil {
		return err
	}
	if u.IsControlPlane() {
		workloads.RemoveProbes(ctx, client.API) // of an upgrade that was killed
	}
	if !u.record.Cordoned {
		return nil
	}
	return client.NodeObjects().SetUnschedulable(ctx, pki.NodeName(u.Files()), false)
}

// restoreNames gives image names the images that they had before the upgrade.
func (u *Undo) restoreNames(ctx context.Context) error {
	if len(u.record.ImageNames) == 0 {
		return nil
	}
	socket, err := node.RuntimeSocket(u.Host)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, payload.ImageTimeout)
	defer cancel()
	s, err := store.Connect(ctx, socket)
	if err != nil {
		return fault.Wrap(fmt.Errorf("restoring image names: %w", err), fault.Failure,
			"start containerd (systemctl start containerd) and run upgrade undo again")
	}
	defer s.Close()
	left, err := s.UndoNames(ctx, u.record.ImageNames)
	for _, note := range left {
		u.Console.Note("left in place: %s", note)
	}
	return err
}

// preferFormer lets the file of the former version decide again. The newer one is dropped when no kubelet has its version.
func (u *Undo) preferFormer(ctx context.Context) error {
	if !u.IsControlPlane() || !phases.ServesRegistry(u.Existing) {
		return nil
	}
	client, err := node.LoadClient(u.Host, node.AdminConf, "", 0)
	if err != nil {
		return err
	}
	return phases.PreferVersion(ctx, u.Machine, client, u.record.From, pki.NodeName(u.Files()))
}
