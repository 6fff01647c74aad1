package installer

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"

	"airlift/fault"
	"airlift/installer/cluster"
	"airlift/installer/config"
	"airlift/installer/host"
	"airlift/installer/pki"
	"airlift/installer/render"
	"airlift/installer/status"
)

// An UpgradeUndo restores the files and objects that the last upgrade of this node replaced.
type UpgradeUndo struct {
	*machine
	state  *upgradeState
	former host.Kept
	paths  []string // of the files to restore
	pods   *StaticPods
}

// NewUpgradeUndo returns the UpgradeUndo of this host. It refuses an upgrade that cannot be undone.
func NewUpgradeUndo(h *host.Host, c *Console) (*UpgradeUndo, error) {
	u := &UpgradeUndo{machine: newMachine(h, c)}
	var err error
	if u.state, err = readUpgradeState(h); err != nil {
		return nil, err
	}
	if u.state == nil {
		return nil, fault.New(fault.Preflight, "", "there is nothing to undo: this host has no saved files of an upgrade")
	}
	// The previous controller manager would not start: it signs with ca.crt, which has two certificates.
	if err := unfinishedWork(h, status.PKIConfig(h)); err != nil {
		return nil, err
	}
	u.former = h.Kept(u.state.formerName())
	if u.paths, err = u.former.Paths(); err != nil {
		return nil, err
	}
	if err := u.checkEtcd(); err != nil {
		return nil, err
	}
	if u.pods, err = NewStaticPods(&config.Config{}, h, c); err != nil {
		return nil, err
	}
	u.pods.annotates = true
	return u, nil
}

// checkEtcd refuses to go back to an older minor version of etcd once the newer one has started: it
// may have changed the version of the stored data, which the older one then refuses.
func (u *UpgradeUndo) checkEtcd() error {
	from, started, err := newerEtcd(u.host, u.state)
	if err != nil || started == "" {
		return err
	}
	return fault.New(fault.Preflight, wayBack(u.host, u.state),
		"the upgrade cannot be undone: etcd was started as %s, which may have changed the version of its data, and %s cannot read that", started, from)
}

// newerEtcd returns the image of etcd from before an upgrade, and that of another minor version which
// was started since, or was about to be; "" if there is none.
func newerEtcd(h *host.Host, s *upgradeState) (from, started string, err error) {
	former, err := h.Kept(s.formerName()).Read(etcdManifest)
	if err != nil || former == nil {
		return "", "", err
	}
	if from, err = imageOf(former); err != nil {
		return "", "", fmt.Errorf("reading the previous manifest of etcd: %w", err)
	}
	images := []string{s.EtcdStarted}
	now, err := (&machine{existing: h}).readManifest(etcdPod)
	if err != nil {
		return "", "", err
	}
	if now != nil {
		is, err := imageOf(now)
		if err != nil {
			return "", "", fmt.Errorf("reading %s: %w", etcdManifest, err)
		}
		images = append(images, is)
	}
	for _, image := range images {
		if image != "" && !sameEtcdMinor(from, image) {
			return from, image, nil
		}
	}
	return from, "", nil
}

// Close gives up the turn of the control planes, and closes the connection to the container runtime.
func (u *UpgradeUndo) Close() { u.pods.Close() }

// Describe returns what is undone, for people.
func (u *UpgradeUndo) Describe() string {
	return fmt.Sprintf("the upgrade of this node from %s to %s", u.state.From, u.state.To)
}

// Steps returns the steps of undo in order: the reverse of an upgrade.
func (u *UpgradeUndo) Steps() []Step {
	return []Step{
		{Name: "preflight", Doc: "check the versions of the other nodes", Run: u.preflight},
		{Name: "control-plane", Doc: "restore the previous static pods, one by one", Run: u.controlPlane},
		{Name: "objects", Doc: "restore the previous configuration and add-ons", Run: u.objects},
		{Name: "node", Doc: "restore the previous binaries and configuration", Run: u.node},
		{Name: "images", Doc: "restore the image names that changed", Run: u.undoNames},
		{Name: "uncordon", Doc: "allow pods on this node again", Run: u.uncordon},
		{Name: "finish", Doc: "remove the saved files of the upgrade", Run: func(context.Context) error { return u.host.RemoveUpgrade() }},
	}
}

// Run runs all steps.
func (u *UpgradeUndo) Run(ctx context.Context) error {
	u.console.Summary(fmt.Sprintf("This node has Kubernetes %s again.\n", u.state.From))
	return Run(ctx, u.console, u.Steps(), nil)
}

// preflight refuses to make the API server older than the kubelet of another node, and waits for the
// turn of this control plane. Without an API server, it does neither.
func (u *UpgradeUndo) preflight(ctx context.Context) error {
	if !u.isControlPlane() {
		return nil
	}
	var err error
	if u.pods.turn, err = tryTurn(ctx, u.machine, adminConf, 0); err != nil {
		return err
	}
	client, err := u.client()
	if err != nil {
		return err
	}
	probe, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	if !client.Answers(probe) {
		u.console.Warn("the API server does not answer, so the versions of the other nodes are not checked")
		return nil
	}
	nodes, err := client.UpgradeNodes(ctx)
	if err != nil {
		return err
	}
	if newer := newerMinors(nodes, pki.NodeName(u.files()), u.state.From); len(newer) > 0 {
		return fault.New(fault.Preflight, "first run on these nodes: ./install upgrade undo", "the kubelets of these nodes would be newer than the API server, %s: %s", u.state.From, strings.Join(newer, ", "))
	}
	return nil
}

// newerMinors returns the nodes other than self whose kubelet has a newer minor version.
func newerMinors(nodes []cluster.UpgradeNode, self, version string) (newer []string) {
	limit := (&config.Cluster{KubernetesVersion: version}).Minor()
	for _, n := range nodes {
		if n.Name != self && (&config.Cluster{KubernetesVersion: n.KubeletVersion}).Minor() > limit {
			newer = append(newer, n.Name)
		}
	}
	return newer
}

// begin records that undo has begun: the state is no longer that of a finished upgrade. An upgrade
// that continues afterwards saves another backup.
func (u *UpgradeUndo) begin() error {
	if !u.state.Finished && u.state.Backup == "" {
		return nil
	}
	u.state.Finished, u.state.Backup = false, ""
	return u.state.write(u.host)
}

func (u *UpgradeUndo) controlPlane(ctx context.Context) error {
	if err := u.begin(); err != nil {
		return err
	}
	for _, name := range slices.Backward(staticPodOrder) {
		if !slices.Contains(u.paths, manifestPath(name)) {
			continue
		}
		former, err := u.former.Read(manifestPath(name))
		if err != nil {
			return err
		}
		u.console.Note("%s", name)
		if _, err := u.pods.Replace(ctx, name, former, nil); err != nil {
			return fmt.Errorf("restoring the previous manifest of %s: %w", name, err)
		}
	}
	return nil
}

// client connects to the API server of this node, or to that of the cluster on a worker.
func (u *UpgradeUndo) client() (*cluster.Client, error) {
	if !u.isControlPlane() {
		return loadClient(u.host, kubeletConf, "", 0)
	}
	return loadClient(u.host, adminConf, "", 0)
}

func (u *UpgradeUndo) objects(ctx context.Context) error {
	if len(u.state.Objects) == 0 {
		return nil
	}
	client, err := u.client()
	if err != nil {
		return err
	}
	if err := client.WaitForAPI(ctx, config.DefaultUpgradeManifestsTimeout, u.report); err != nil {
		return err
	}
	for _, data := range u.state.Objects {
		changed, err := client.ReplaceObject(ctx, data)
		if err != nil {
			return err
		}
		u.changed(changed)
	}
	return nil
}

// node restores the previous binaries and files, and restarts containerd and the kubelet if they
// changed.
func (u *UpgradeUndo) node(ctx context.Context) error {
	for _, p := range u.paths {
		if path.Dir(p) == config.ManifestsDir {
			continue
		}
		changed, err := u.restore(ctx, p)
		if err != nil {
			return err
		}
		if changed {
			u.console.Debug(1, "restored %s", p)
		}
		u.changed(changed)
	}
	// Also after an interruption between a file and its restart.
	for _, unit := range []struct {
		name  string
		files []string
	}{
		{"containerd.service", []string{"/usr/local/bin/containerd", render.ContainerdConfigPath, render.ContainerdUnitPath}},
		{"kubelet.service", []string{"/usr/local/bin/kubelet", config.KubeletConfigFile, config.KubeletFlagsFile, kubeletConf, render.KubeletUnitPath, render.KubeletDropInPath}},
	} {
		var files []string
		for _, f := range unit.files {
			if slices.Contains(u.paths, f) && u.exists(f) { // one that was missing before the upgrade is removed
				files = append(files, f)
			}
		}
		if len(files) == 0 {
			continue
		}
		stale, err := u.host.StartedBefore(ctx, unit.name, files...)
		if err != nil {
			return err
		}
		if !stale {
			continue
		}
		if err := u.pods.turn.confirm(ctx); err != nil {
			return err
		}
		if err := u.host.DaemonReload(ctx); err != nil {
			return err
		}
		if err := u.host.Restart(ctx, unit.name); err != nil {
			return err
		}
		if unit.name == "kubelet.service" {
			if err := u.settled(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// restore restores the previous file at a path. Of kubelet.conf it restores only the API server's URL, which is
// what the upgrade changed: the CAs may have been rotated since, and the certificate renewed.
func (u *UpgradeUndo) restore(ctx context.Context, path string) (changed bool, err error) {
	if path != kubeletConf || !u.exists(path) {
		return u.former.Restore(ctx, path)
	}
	former, err := u.former.Read(path)
	if err != nil || former == nil {
		return false, err
	}
	now, err := u.optional(path)
	if err != nil {
		return false, err
	}
	data, err := cluster.WithServersOf(now, former)
	if err != nil {
		return false, fmt.Errorf("restoring %s: %w", path, err)
	}
	return u.host.WriteFile(path, data, 0o600)
}

// settled waits for the previous kubelet, and for the static pods of a control plane.
func (u *UpgradeUndo) settled(ctx context.Context) error {
	if err := u.pods.waitKubelet(ctx); err != nil || !u.isControlPlane() {
		return err
	}
	client, err := u.client()
	if err != nil {
		return err
	}
	return u.pods.WaitSettled(ctx, client, pki.NodeName(u.files()))
}

func (u *UpgradeUndo) uncordon(ctx context.Context) error {
	client, err := u.client()
	if err != nil {
		return err
	}
	if u.isControlPlane() {
		client.RemoveProbes(ctx) // of an upgrade that was killed
	}
	if !u.state.Cordoned {
		return nil
	}
	return client.SetUnschedulable(ctx, pki.NodeName(u.files()), false)
}
