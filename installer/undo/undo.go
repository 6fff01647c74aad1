// Package undo restores the files and objects that the last upgrade, or the last reconfiguration, of a node replaced.
package undo

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"

	"airlift/images/store"
	"airlift/installer/cluster"
	"airlift/installer/cluster/facts"
	"airlift/installer/cluster/workloads"
	"airlift/installer/config"
	"airlift/installer/endpoint"
	"airlift/installer/host"
	"airlift/installer/host/filesystem"
	"airlift/installer/node"
	"airlift/installer/payload"
	"airlift/installer/phases"
	"airlift/installer/pki"
	"airlift/installer/pods"
	"airlift/installer/registry"
	"airlift/installer/render"
	"airlift/installer/status"
	"airlift/installer/workflow"
	"airlift/internal/fault"
)

// An Undo restores the files and objects that the last upgrade or reconfiguration of this node replaced.
type Undo struct {
	*node.Machine
	// Kubeconfig reaches the cluster; "" is admin.conf on a control plane, else kubelet.conf.
	Kubeconfig string

	state  *node.UpgradeState
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

// New returns the Undo of the last upgrade of this host. It refuses an upgrade that cannot be undone.
func New(h *host.Host, c *workflow.Console) (*Undo, error) {
	state, err := node.ReadUpgradeState(h)
	if err != nil {
		return nil, err
	}
	if state == nil {
		return nil, fault.New(fault.Preflight, "there is nothing to undo: this host has no saved files of an upgrade").Hint("see the version of this node: ./install status")
	}
	later, err := node.ReadReconfigureState(h)
	if err != nil {
		return nil, fault.Wrap(err, fault.ExitCode(err), "undo the reconfiguration first, with the file that made it: ./install reconfigure undo; or, if that fails, too, undo the upgrade without it: "+filesystem.SetAside(host.ReconfigureState)+"; then: ./install upgrade undo")
	}
	// A finished upgrade has removed the record of an earlier reconfiguration with another file.
	if later != nil && later.To == state.To && (state.Finished || later.Bundle == state.Bundle) {
		return nil, fault.New(fault.Preflight, "this node was reconfigured after the upgrade").Hint("undo that first: ./install reconfigure undo; then: ./install upgrade undo")
	}
	return Of(node.NewMachine(h, c), state, nil)
}

// Of returns the Undo of an upgrade or of a reconfiguration. turn is the turn of this control plane if the run that is undone
// has it, else nil.
func Of(m *node.Machine, state *node.UpgradeState, turn *node.Turn) (*Undo, error) {
	u, h, c := &Undo{Machine: m, state: state}, m.Host, m.Console
	var err error
	// The previous controller manager would not start: it signs with ca.crt, which has two certificates.
	if err := node.UnfinishedWork(h, status.PKIConfig(h)); err != nil {
		return nil, err
	}
	u.former = u.state.Kept(h)
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
	from, started, err := NewerEtcd(u.Host, u.state)
	if err != nil || started == "" {
		return err
	}
	return fault.New(fault.Preflight, "the upgrade cannot be undone: etcd was started as %s, which may have changed the version of its data, and %s cannot read that", started, from).
		Hint(WayBack(u.Host, u.state))
}

// Close gives up the turn of the control planes, and closes the connection to the container runtime.
func (u *Undo) Close() { u.pods.Close() }

// Describe returns what is undone, for people.
func (u *Undo) Describe() string {
	if u.state.Change != "" {
		return "the last reconfiguration of this node"
	}
	return fmt.Sprintf("the upgrade of this node from %s to %s", u.state.From, u.state.To)
}

// Steps returns the steps of undo in order: the reverse of an upgrade.
func (u *Undo) Steps() []workflow.Step {
	if u.state.Change != "" {
		return reconfiguredNode{u}.steps()
	}
	return []workflow.Step{
		{Name: "preflight", Doc: "check the versions of the other nodes", Run: u.preflight},
		{Name: "control-plane", Doc: "restore the previous static pods, one by one", Run: u.restoreControlPlane},
		{Name: "objects", Doc: "restore the previous configuration and add-ons", Run: u.restoreObjects},
		{Name: "node", Doc: "restore the previous binaries and configuration", Run: u.restoreNode},
		{Name: "images", Doc: "restore the image names that changed", Run: u.restoreNames},
		{Name: "uncordon", Doc: "allow pods on this node again", Run: u.uncordon},
		{Name: "registry", Doc: "let the embedded registry prefer the previous file, if the cluster has one", Run: u.preferFormer},
		{Name: "finish", Doc: "remove the saved files of the upgrade", Run: func(context.Context) error { return u.Host.Upgrades().RemoveUpgrade() }},
	}
}

// Run runs all steps.
func (u *Undo) Run(ctx context.Context) error {
	u.Console.Summary(fmt.Sprintf("This node has Kubernetes %s again.\n", u.state.From))
	if u.state.Change != "" {
		reconfiguredNode{u}.summarize()
	}
	return workflow.Run(ctx, u.Console, u.Steps(), nil)
}

// preflight refuses to make the API server older than the kubelet of a worker, and waits for the
// turn of this control plane. Without an API server, it does neither.
func (u *Undo) preflight(ctx context.Context) error {
	if !u.IsControlPlane() {
		return nil
	}
	if err := u.takeTurn(ctx); err != nil {
		return err
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
	nodes, err := facts.UpgradeNodes(ctx, client.API)
	if err != nil {
		return err
	}
	if newer := newerWorkers(nodes, u.state.From); len(newer) > 0 {
		return fault.New(fault.Preflight, "the kubelets of these workers would be newer than the API server, %s: %s", u.state.From, strings.Join(newer, ", ")).Hint("first run on these nodes: ./install upgrade undo")
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
func newerWorkers(nodes []facts.UpgradeNode, version string) (newer []string) {
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
	if !u.state.Finished && u.state.Backup == "" {
		return nil
	}
	u.state.Finished, u.state.Backup = false, ""
	return u.state.Write(u.Host)
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
		u.pods.APIServerFollows = name == node.EtcdPod && u.state.Change != ""
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

func (u *Undo) restoreObjects(ctx context.Context) error {
	if len(u.state.Objects) == 0 {
		return nil
	}
	client, err := u.client()
	if err != nil {
		return err
	}
	if err := client.Waits().WaitForAPI(ctx, config.DefaultUpgradeManifestsTimeout, u.Report); err != nil {
		return err
	}
	kept, err := readEndpoint(ctx, client, u.state.Change != "")
	if err != nil {
		return err
	}
	for _, data := range u.state.Objects {
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
	if err := u.RestoreFiles(ctx); err != nil {
		return err
	}
	// Also after an interruption between a file and its restart.
	for _, unit := range []struct {
		name  string
		files []string
	}{
		{"containerd.service", []string{"/usr/local/bin/containerd", render.ContainerdConfigPath, render.ContainerdUnitPath}},
		{endpoint.Unit, []string{host.StubPath}},
		{registry.Unit, []string{host.StubPath}},
		{"kubelet.service", kubeletFiles},
	} {
		stale, err := u.stale(ctx, unit.name, unit.files)
		if err != nil {
			return err
		}
		part := strings.TrimSuffix(unit.name, ".service")
		if !stale && !u.state.IsPending(part) {
			continue
		}
		if err := u.pods.Turn.Confirm(ctx); err != nil {
			return err
		}
		if err := u.Host.Systemd().DaemonReload(ctx); err != nil {
			return err
		}
		if err := u.Host.Systemd().Restart(ctx, unit.name); err != nil {
			return err
		}
		if unit.name == "kubelet.service" {
			if err := u.waitSettled(ctx); err != nil {
				return err
			}
		}
		if err := u.state.SetRestarted(u.Host, part); err != nil {
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
	if written, ok := u.state.Certificates[path]; ok {
		return u.restoreCertificate(path, written)
	}
	if err := (reconfiguredNode{u}).pend(path); err != nil {
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
	if !u.state.Cordoned {
		return nil
	}
	return client.NodeObjects().SetUnschedulable(ctx, pki.NodeName(u.Files()), false)
}

// restoreNames gives image names the images that they had before the upgrade.
func (u *Undo) restoreNames(ctx context.Context) error {
	if len(u.state.ImageNames) == 0 {
		return nil
	}
	socket, err := u.Containerd().KubeletSocket()
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
	left, err := s.Names().UndoNames(ctx, u.state.ImageNames)
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
	return phases.PreferVersion(ctx, u.Machine, client, u.state.From, pki.NodeName(u.Files()))
}
