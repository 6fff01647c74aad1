package installer

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"airlift/documents"
	"airlift/fault"
	"airlift/images/store"
	"airlift/installer/cluster"
	"airlift/installer/config"
	"airlift/installer/host"
	"airlift/installer/patches"
	"airlift/installer/pki"
	"airlift/installer/render"
)

// pending returns the binaries of the bundle that are not installed yet. A binary that Airlift
// did not install is an error.
func (u *Upgrade) pending() (list []host.Binary, err error) {
	for _, b := range u.binaries() {
		has, err := u.existing.HasBinary(b)
		if err != nil {
			return nil, err
		}
		if !has {
			list = append(list, b)
		}
	}
	return list, nil
}

// unpack imports the images, and places the new binaries next to the old ones. Nothing that
// runs is disturbed.
func (u *Upgrade) unpack(ctx context.Context) error {
	if err := u.ready(ctx); err != nil {
		return err
	}
	work, err := u.work()
	if err != nil {
		return err
	}
	if work {
		if err := u.begin(); err != nil {
			return err
		}
	}
	pending, err := u.pending()
	if err != nil {
		return err
	}
	wanted := map[string]bool{}
	var paths []string
	for _, b := range pending {
		wanted[b.Path] = true
		paths = append(paths, b.Path)
	}
	if len(paths) > 0 {
		if err := u.host.PrepareUpgrade(paths...); err != nil {
			return err
		}
	}
	if err := u.connectRuntime(ctx); err != nil {
		return err
	}
	if err := u.keepNames(ctx); err != nil {
		return err
	}
	return u.stage(ctx, func(entry string) bool { return wanted[binaryPath(entry)] })
}

// connectRuntime connects to the container runtime of this node.
func (u *Upgrade) connectRuntime(ctx context.Context) (err error) {
	if u.containerd == nil {
		u.containerd, err = store.Connect(ctx, strings.TrimPrefix(u.config.NodeRegistration.CRISocket, "unix://"))
	}
	if err != nil || !u.keepsRuntime {
		return err
	}
	info, err := u.containerd.Info(ctx)
	u.runtime = &existingRuntime{info: info, store: u.containerd}
	return err
}

// stage reads the bundle: binaries go to their place of waiting, images into containerd.
func (u *Upgrade) stage(ctx context.Context, wants func(entry string) bool) error {
	ctx, cancel := context.WithTimeout(ctx, imageTimeout)
	defer cancel()
	s := newBundleStream(u.bundle.file, u.bundle.manifest, u.host, wants, imageRequest{wanted: u.plan.images(), aliases: u.plan.aliases(u.config)}, siteRequest{})
	for entry, b := range s.binaries {
		s.binaries[entry] = host.Binary{Path: host.StagedPath(b.Path), SHA256: b.SHA256}
	}
	s.start(ctx, u.bundle.manifest)
	s.images.runtime <- u.containerd
	stop := u.console.Bytes("unpacking", &s.moved, &s.total)
	err := s.finish(ctx)
	stop()
	if err != nil {
		cancel()
		<-s.done
		return err
	}
	u.changes += int(s.changed.Swap(0))
	return u.nameSandboxImage(ctx)
}

// writeKept writes files, and keeps the previous ones for undo. It reports whether one changed.
func (u *Upgrade) writeKept(files ...pki.File) (changed bool, err error) {
	for _, f := range files {
		now, err := u.optional(f.Path)
		if err != nil {
			return changed, err
		}
		if bytes.Equal(now, f.Data) && u.exists(f.Path) {
			continue
		}
		if err := u.begin(); err != nil {
			return changed, err
		}
		if err := u.former().Keep(f.Path); err != nil {
			return changed, err
		}
		before := u.changes
		if err := u.write(f); err != nil {
			return changed, err
		}
		changed = changed || u.changes > before
	}
	return changed, nil
}

// optional reads a file of the host, also in a dry run. A file that does not exist is empty.
func (u *Upgrade) optional(path string) ([]byte, error) {
	return (&machine{host: u.existing}).optional(path)
}

// cgroupDriver returns the cgroup driver in the kubelet's configuration.
func (u *Upgrade) cgroupDriver() (string, error) {
	c, err := kubeletConfiguration(u.existing)
	if err != nil {
		return "", err
	}
	return c.CgroupDriver, nil
}

// kubeconfig makes the kubelet of a control plane use the API server of its own host, in the
// versions in which it does.
func (u *Upgrade) kubeconfig(ctx context.Context) error {
	if u.pods == nil || !u.config.ControlPlaneKubeletLocalMode() {
		return nil
	}
	data, err := os.ReadFile(u.existing.Path(kubeletConf))
	if err != nil {
		return err
	}
	client, err := cluster.New(data, "")
	if err != nil {
		return err
	}
	if client.Server() != u.config.ServerURL() || u.config.ServerURL() == u.config.LocalURL() {
		return nil
	}
	if data, err = cluster.WithServer(data, u.config.LocalURL()); err != nil {
		return err
	}
	changed, err := u.writeKept(pki.File{Path: kubeletConf, Data: data, Mode: 0o600})
	if err != nil || !changed {
		return err
	}
	if err := u.host.Restart(ctx, "kubelet.service"); err != nil {
		return err
	}
	return u.kubeletStep.waitKubelet(ctx)
}

// clusterKubelet returns the KubeletConfiguration that all nodes share.
func (u *Upgrade) clusterKubelet() ([]byte, error) {
	if u.stored.DefaultKubelet && !u.options.Node {
		return render.KubeletConfig(u.config)
	}
	return u.stored.Kubelet, nil
}

// kubeletConfig writes this node's kubelet configuration. The running kubelet does not read it
// before it restarts.
func (u *Upgrade) kubeletConfig(context.Context) error {
	files, err := u.kubeletFiles()
	if err != nil {
		return err
	}
	_, err = u.writeKept(files...)
	return err
}

// kubeletFiles returns the files with this node's kubelet configuration, KubeletConfigFile first.
func (u *Upgrade) kubeletFiles() ([]pki.File, error) {
	shared, err := u.clusterKubelet()
	if err != nil {
		return nil, err
	}
	settings, err := render.NodeKubeletConfig(u.config, shared)
	if err != nil {
		return nil, err
	}
	instance, err := u.optional(render.KubeletInstanceConfigPath)
	if err != nil {
		return nil, err
	}
	if settings, err = overlay(settings, instance); err != nil {
		return nil, fault.New(fault.Preflight, "to let the upgrade write it again: "+host.SetAside(render.KubeletInstanceConfigPath), "reading %s: the file is damaged: %w", render.KubeletInstanceConfigPath, err)
	}
	settings, used, err := u.plan.patches.Apply(patches.KubeletConfiguration, settings)
	if err != nil {
		return nil, err
	}
	u.reportPatched("the kubelet's configuration", used)
	files := []pki.File{{Path: config.KubeletConfigFile, Data: settings, Mode: 0o644}}
	if data := render.KubeletInstanceConfig(u.config); data != nil && instance == nil {
		files = append(files, pki.File{Path: render.KubeletInstanceConfigPath, Data: data, Mode: 0o644})
	}
	flags, err := u.optional(config.KubeletFlagsFile)
	if err != nil {
		return nil, err
	}
	if flags != nil && (!kubeletVariable.Match(flags) || bytes.IndexByte(flags, 0) >= 0) {
		return nil, fault.New(fault.Preflight, "to start the kubelet without flags: echo 'KUBELET_KUBEADM_ARGS=\"\"' >"+config.KubeletFlagsFile, "reading %s: the file is damaged: it does not set KUBELET_KUBEADM_ARGS", config.KubeletFlagsFile)
	}
	if kept := keptFlags(flags, u.config.Minor()); kept != nil {
		files = append(files, pki.File{Path: config.KubeletFlagsFile, Data: kept, Mode: 0o644})
	}
	return files, nil
}

// kubeletVariable is the line of KubeletFlagsFile.
var kubeletVariable = regexp.MustCompile(`(?m)^[ \t]*KUBELET_KUBEADM_ARGS=`)

// overlay sets the fields of the instance configuration in a kubelet's configuration. nil means that
// the node has none.
func overlay(settings, instance []byte) ([]byte, error) {
	if instance == nil {
		return settings, nil
	}
	var doc, over map[string]any
	if err := documents.Unmarshal(settings, &doc); err != nil {
		return nil, err
	}
	if err := documents.Unmarshal(instance, &over); err != nil {
		return nil, err
	}
	if len(over) == 0 {
		return nil, errors.New("it is empty")
	}
	for key, value := range over {
		if key != "apiVersion" && key != "kind" {
			doc[key] = value
		}
	}
	return yaml.Marshal(doc)
}

// pauseFlag is the flag that kubelets from v1.35 on do not know.
var pauseFlag = regexp.MustCompile(` ?--pod-infra-container-image=[^ "]*`)

// keptFlags returns the kubelet's flags without those that this version does not know, or nil
// if none must go.
func keptFlags(flags []byte, minor int) []byte {
	if minor < render.PauseFlagGoneFrom || !pauseFlag.Match(flags) {
		return nil
	}
	return bytes.ReplaceAll(pauseFlag.ReplaceAll(flags, nil), []byte(`=" `), []byte(`="`))
}

// installs installs the staged binaries that chosen accepts, by their path.
func (u *Upgrade) installs(ctx context.Context, chosen func(path string) bool) error {
	for _, b := range u.binaries() {
		if !chosen(b.Path) {
			continue
		}
		has, err := u.host.HasBinary(b)
		if err != nil {
			return err
		}
		if has {
			continue
		}
		if err := u.begin(); err != nil {
			return err
		}
		changed, err := u.host.InstallStaged(ctx, b, u.former())
		if errors.Is(err, fs.ErrNotExist) {
			return fault.Wrap(err, fault.Preflight, "run the phase unpack first: ./install "+u.command()+" phase unpack")
		}
		if err != nil {
			return err
		}
		u.console.Debug(1, "installed %s", b.Path)
		u.changed(changed)
	}
	return nil
}

// ofRuntime reports whether a binary belongs to the container runtime.
func ofRuntime(p string) bool {
	name := path.Base(p)
	return path.Dir(p) == config.CNIBinDir || name == "runc" || name == "ctr" || strings.HasPrefix(name, "containerd")
}

// upgradeRuntime installs containerd, runc and the CNI plugins, and restarts containerd. The
// containers keep running.
func (u *Upgrade) upgradeRuntime(ctx context.Context) error {
	if err := u.ready(ctx); err != nil {
		return err
	}
	if err := u.installs(ctx, ofRuntime); err != nil {
		return err
	}
	if u.keepsRuntime {
		u.console.Note("this host's existing containerd is not changed")
		return nil
	}
	files, err := u.runtimeFiles()
	if err != nil {
		return err
	}
	changed, err := u.writeKept(files...)
	if err != nil {
		return err
	}
	restarted, err := u.restartStale(ctx, "containerd.service", changed, "/usr/local/bin/containerd", render.ContainerdConfigPath, render.ContainerdUnitPath)
	if err != nil || !restarted {
		return err
	}
	if u.containerd != nil {
		_ = u.containerd.Close()
		u.containerd = nil
	}
	ctx, cancel := context.WithTimeout(ctx, runtimeTimeout)
	defer cancel()
	return u.connectRuntime(ctx)
}

// runtimeFiles returns containerd's configuration and unit, none if the host has its own.
func (u *Upgrade) runtimeFiles() ([]pki.File, error) {
	if u.keepsRuntime {
		return nil, nil
	}
	settings, err := render.ContainerdConfig(u.config)
	if err != nil {
		return nil, err
	}
	return []pki.File{
		{Path: render.ContainerdConfigPath, Data: settings, Mode: 0o644},
		{Path: render.ContainerdUnitPath, Data: []byte(render.ContainerdUnit), Mode: 0o644},
		{Path: render.CrictlConfigPath, Data: render.CrictlConfig(u.config), Mode: 0o644},
	}, nil
}

// kubeletUnits returns the kubelet's unit and its drop-in.
func kubeletUnits() []pki.File {
	return []pki.File{
		{Path: render.KubeletUnitPath, Data: []byte(render.KubeletUnit), Mode: 0o644},
		{Path: render.KubeletDropInPath, Data: []byte(render.KubeletDropIn), Mode: 0o644},
	}
}

// restartStale restarts a unit that runs since a time before one of its files. written reports
// that this run has written one of them.
func (u *Upgrade) restartStale(ctx context.Context, unit string, written bool, files ...string) (restarted bool, err error) {
	stale, err := u.host.StartedBefore(ctx, unit, files...)
	if err != nil {
		return false, err
	}
	state, err := u.host.Unit(ctx, unit)
	if err != nil {
		return false, err
	}
	if !stale && !written && state.Running() {
		return false, nil
	}
	if err := u.host.Enable(ctx, unit, true); err != nil {
		return false, err
	}
	u.changed(true)
	return true, u.host.Restart(ctx, unit)
}

// upgradeKubelet installs the kubelet and kubectl, restarts the kubelet, and waits until the
// node is Ready with the new version.
func (u *Upgrade) upgradeKubelet(ctx context.Context) error {
	if err := u.ready(ctx); err != nil {
		return err
	}
	if err := u.installs(ctx, func(p string) bool { return !ofRuntime(p) }); err != nil {
		return err
	}
	changed, err := u.writeKept(kubeletUnits()...)
	if err != nil {
		return err
	}
	restarted, err := u.restartStale(ctx, "kubelet.service", changed, "/usr/local/bin/kubelet", config.KubeletConfigFile, config.KubeletFlagsFile, render.KubeletUnitPath, render.KubeletDropInPath)
	if err != nil {
		return err
	}
	if restarted {
		if err := u.kubeletStep.waitKubelet(ctx); err != nil {
			return err
		}
		if err := u.settled(ctx); err != nil {
			return err
		}
	}
	return u.watched(ctx, dependency{}, func(ctx context.Context) error {
		return u.client.WaitForNodeVersion(ctx, u.config.NodeRegistration.Name, u.bundle.KubernetesVersion(), u.config.CNI != "none", nodeTimeout, u.report)
	})
}

// settled waits for the static pods of a control plane after the start of another kubelet.
func (u *Upgrade) settled(ctx context.Context) error {
	if u.pods == nil {
		return nil
	}
	if err := u.pods.WaitSettled(ctx, u.client, u.config.NodeRegistration.Name); err != nil {
		return err
	}
	if err := u.waitAPI(ctx); err != nil {
		return err
	}
	nodes, err := u.client.UpgradeNodes(ctx)
	drains := err != nil || workersAreNext(nodes, u.config.NodeRegistration.Name, u.bundle.KubernetesVersion())
	return u.waitServices(ctx, drains)
}

// workersAreNext reports whether all control planes have a version, and a worker does not. A worker may
// not check the kube-proxies before its drain. A control plane does.
func workersAreNext(nodes []cluster.UpgradeNode, self, version string) bool {
	workers := false
	for _, n := range nodes {
		if n.Name == self || n.KubeletVersion == version {
			continue
		}
		if n.ControlPlane {
			return false
		}
		workers = true
	}
	return workers
}

// waitServices waits until Services follow their pods: a controller manager acts, and before a drain the
// new kube-proxies are Ready, and each has rules that are up to date. Otherwise requests go to pods that
// the drain has ended. It ends with an error only if ctx ends.
func (u *Upgrade) waitServices(ctx context.Context, drainIsNext bool) error {
	tell := func(err error) error {
		if err != nil && ctx.Err() == nil {
			u.console.Warn("%v", err)
			if hint := fault.Hint(err); hint != "" {
				u.console.Note("%s", hint)
			}
		}
		return ctx.Err()
	}
	err := tell(u.client.WaitForControllerManager(ctx, controllersTimeout, u.report))
	if err != nil || !drainIsNext {
		return err
	}
	if err := tell(u.client.WaitForProxies(ctx, cluster.Waiting{Timeout: controllersTimeout, Report: u.report})); err != nil {
		return err
	}
	long := time.AfterFunc(longWait, func() {
		u.console.Note("waiting for the kube-proxy of all nodes, which need up to two minutes after an API server was away")
	})
	defer long.Stop()
	return tell(u.client.WaitForProxyRules(ctx, cluster.Waiting{Timeout: proxyRulesTimeout, Report: u.report}))
}

// longWait is the time after which a wait is worth a line.
const longWait = 5 * time.Second

// drain moves the pods of this node to other nodes, if its kubelet or its runtime is to be
// replaced.
func (u *Upgrade) drain(ctx context.Context) error {
	pending, err := u.pending()
	if err != nil {
		return err
	}
	disturbs := slices.ContainsFunc(pending, func(b host.Binary) bool { return ofRuntime(b.Path) || path.Base(b.Path) == "kubelet" })
	switch {
	case !disturbs:
		return nil
	case !u.options.Drain:
		u.console.Note("not drained (--drain=false): the pods keep running")
		return nil
	}
	node := u.config.NodeRegistration.Name
	if nodes, err := u.client.UpgradeNodes(ctx); err == nil && !slices.ContainsFunc(nodes, func(n cluster.UpgradeNode) bool { return n.Open && n.Name != node }) {
		u.console.Note("not drained: no other node could run this node's pods, which keep running")
		return nil
	}
	self, err := u.client.UpgradeNode(ctx, node)
	if err != nil {
		return err
	}
	if err := u.begin(); err != nil {
		return err
	}
	if err := u.waitServices(ctx, true); err != nil {
		return err
	}
	if !self.Unschedulable {
		u.state.Cordoned = true
		if err := u.state.write(u.host); err != nil {
			return err
		}
		if err := u.client.SetUnschedulable(ctx, node, true); err != nil {
			return err
		}
		u.changed(true)
	}
	d := u.client.NewDrain(node, drainTimeout)
	d.Report = u.report
	d.Waiting = func(pod, reason string) { u.console.Note("waiting for %s: %s", pod, reason) }
	evict, bare, err := d.Pods(ctx)
	if err != nil {
		return err
	}
	if len(bare) > 0 {
		return fault.New(fault.Failure, "delete them, or leave all pods running: --drain=false",
			"these pods have no controller that would create them again on another node:\n  - %s", strings.Join(bare, "\n  - "))
	}
	for _, pod := range evict {
		u.console.Note("moving %s", pod)
	}
	return d.Run(ctx)
}

// controllersTimeout is longer than a lease lasts, 15 s, and a slow host needs to start the
// controllers.
const controllersTimeout = 90 * time.Second

// proxyRulesTimeout is a little longer than the two pauses of a kube-proxy after an API server was away,
// of up to 60 s each.
const proxyRulesTimeout = 130 * time.Second

// drainTimeout limits a drain without progress. Pods may need their whole grace period.
const drainTimeout = 10 * time.Minute

// uncordon allows pods on this node again, if this upgrade has forbidden them.
func (u *Upgrade) uncordon(ctx context.Context) error {
	if u.state == nil || !u.state.Cordoned {
		return nil
	}
	if err := u.client.SetUnschedulable(ctx, u.config.NodeRegistration.Name, false); err != nil {
		return err
	}
	u.state.Cordoned = false
	u.changed(true)
	return u.state.write(u.host)
}
