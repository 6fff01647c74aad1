package upgrade

import (
	"bytes"
	"context"
	"os"

	"airlift/installer/adoption"
	"airlift/installer/cluster"
	"airlift/installer/cluster/facts"
	"airlift/installer/config"
	"airlift/installer/desired"
	"airlift/installer/host/filesystem"
	"airlift/installer/node"
	"airlift/installer/patches"
	"airlift/installer/payload"
	"airlift/installer/phases"
	"airlift/installer/pki"
	"airlift/installer/pods"
	"airlift/installer/reconfiguration"
	"airlift/installer/render"
	"airlift/internal/fault"
)

// kubelet is the kubelet of this node.
type kubelet struct {
	node         *phases.Node
	api          *phases.API
	options      Options
	bundle       *payload.Bundle
	facts        *knowledge
	record       *record
	binaries     *binaries
	controlPlane *controlPlane
	adopted      *adoption.CarryOver // nil unless this is the first upgrade of an adopted node
}

// localServer returns the kubeconfig with which the kubelet of a control plane uses the API server
// of its own host, for Kubernetes versions in which it does so.
func (k *kubelet) localServer(context.Context) (l desired.List, err error) {
	if k.controlPlane.pods == nil || k.node.Config.Endpoint.Balancer || !k.node.Config.ControlPlaneKubeletLocalMode() {
		return l, nil
	}
	data, err := os.ReadFile(k.node.Existing.Path(node.KubeletConf))
	if err != nil {
		return l, err
	}
	client, err := cluster.New(data, "")
	if err != nil {
		return l, err
	}
	if client.Server != k.node.Config.ServerURL() || k.node.Config.ServerURL() == k.node.Config.LocalURL() {
		return l, nil
	}
	data, err = cluster.WithServer(data, k.node.Config.LocalURL())
	return desired.List{Files: []pki.File{{Path: node.KubeletConf, Data: data, Mode: 0o600}}}, err
}

// useLocalServer writes the kubelet's kubeconfig, and restarts the kubelet if that changed.
func (k *kubelet) useLocalServer(ctx context.Context, l desired.List) error {
	changed, err := k.record.writeKept(l.Files...)
	if err != nil || !changed {
		return err
	}
	if err := k.node.Host.Systemd().Restart(ctx, "kubelet.service"); err != nil {
		return err
	}
	return k.node.WaitKubelet(ctx)
}

// shared returns the KubeletConfiguration that all nodes share.
func (k *kubelet) shared() ([]byte, error) { return k.sharedOf(k.node.Config) }

// sharedOf is shared for a configuration of this node. Another KubeletConfiguration in it replaces the cluster's.
func (k *kubelet) sharedOf(c *config.Config) ([]byte, error) {
	if c.Kubelet != nil || k.facts.stored.DefaultKubelet && !k.options.Node {
		return render.KubeletConfig(c)
	}
	return k.facts.stored.Kubelet, nil
}

// configuration returns this node's kubelet configuration.
func (k *kubelet) configuration(context.Context) (desired.List, error) {
	files, err := k.files()
	return desired.List{Files: files}, err
}

// writeConfiguration writes this node's kubelet configuration. The running kubelet does not read it
// before it restarts.
func (k *kubelet) writeConfiguration(_ context.Context, l desired.List) error {
	changed, err := k.record.writeKept(l.Files...)
	if changed && k.adopted != nil {
		for _, note := range k.adopted.Notes {
			k.node.Console.Note("%s", note)
		}
	}
	return err
}

// files returns the files with this node's kubelet configuration, KubeletConfigFile first.
func (k *kubelet) files() ([]pki.File, error) {
	s, err := k.settings(k.node.Config)
	if err != nil {
		return nil, err
	}
	k.node.ReportPatched("the kubelet's configuration", s.patches)
	if k.facts.change != nil {
		now, err := k.node.Present(config.KubeletConfigFile)
		if err != nil {
			return nil, err
		}
		if reconfiguration.SameDocument(now, s.data) { // comments and the order of fields stay
			s.data = now
		}
	}
	files := []pki.File{{Path: config.KubeletConfigFile, Data: s.data, Mode: 0o644}}
	if s.instance != nil && !bytes.Equal(s.instance, s.before) {
		files = append(files, pki.File{Path: render.KubeletInstanceConfigPath, Data: s.instance, Mode: 0o644})
	}
	flags, err := k.node.Present(config.KubeletFlagsFile)
	if err != nil {
		return nil, err
	}
	if flags != nil && (!render.IsKubeletFlagsFile(flags)) {
		return nil, fault.New(fault.Preflight, "reading %s: the file is damaged: it does not set KUBELET_KUBEADM_ARGS", config.KubeletFlagsFile).Hint("to start the kubelet without flags: echo 'KUBELET_KUBEADM_ARGS=\"\"' >" + config.KubeletFlagsFile)
	}
	var kept []byte
	if k.facts.change != nil {
		kept = k.facts.change.kubeletFlags(flags)
	} else if kept, err = k.adopted.Flags(flags, k.bundle.KubernetesVersion()); err != nil {
		return nil, err
	} else if kept == nil {
		kept = render.KeptKubeletFlags(flags, k.node.Config.Minor())
	}
	if kept != nil {
		files = append(files, pki.File{Path: config.KubeletFlagsFile, Data: kept, Mode: 0o644})
	}
	return files, nil
}

// kubeletSettings are what a configuration gives to the kubelet of this node.
type kubeletSettings struct {
	data     []byte   // KubeletConfigFile
	patches  []string // that were used
	before   []byte   // KubeletInstanceConfigPath as it is, nil without one
	instance []byte   // and as it is to be
}

// settings returns the kubelet's configuration of this node for a configuration.
func (k *kubelet) settings(c *config.Config) (s kubeletSettings, err error) {
	shared, err := k.sharedOf(c)
	if err != nil {
		return s, err
	}
	if s.data, err = render.NodeKubeletConfig(c, shared); err != nil {
		return s, err
	}
	if s.before, err = k.node.Present(render.KubeletInstanceConfigPath); err != nil {
		return s, err
	}
	s.instance = s.before
	if s.instance == nil {
		s.instance = render.KubeletInstanceConfig(c)
	}
	if s.instance, err = k.adoptedInstance(shared, s.instance); err != nil {
		return s, err
	}
	if s.data, err = render.OverlayKubeletConfig(s.data, s.instance); err != nil {
		return s, fault.New(fault.Preflight, "reading %s: the file is damaged: %w", render.KubeletInstanceConfigPath, err).Hint("to let the upgrade write it again: " + filesystem.SetAside(render.KubeletInstanceConfigPath))
	}
	s.data, s.patches, err = k.node.Plan.Patches.Apply(patches.KubeletConfiguration, s.data)
	return s, err
}

// kubeletUnits returns the kubelet's unit and its drop-in.
func kubeletUnits() []pki.File {
	return []pki.File{
		{Path: render.KubeletUnitPath, Data: []byte(render.KubeletUnit), Mode: 0o644},
		{Path: render.KubeletDropInPath, Data: []byte(render.KubeletDropIn), Mode: 0o644},
	}
}

// desired returns the kubelet and kubectl, and the kubelet's units.
func (k *kubelet) desired(context.Context) (desired.List, error) {
	binaries, err := k.binaries.pending(func(p string) bool { return !ofRuntime(p) })
	return desired.List{Binaries: binaries, Files: kubeletUnits()}, err
}

// upgrade installs the kubelet and kubectl, restarts the kubelet, and waits until the
// node is Ready with the new version.
func (k *kubelet) upgrade(ctx context.Context, l desired.List) error {
	if err := k.node.Ready(ctx); err != nil {
		return err
	}
	if err := k.carriedOver(); err != nil {
		return err
	}
	if err := k.binaries.install(ctx, l.Binaries); err != nil {
		return err
	}
	changed, err := k.record.writeKept(l.Files...)
	if err != nil {
		return err
	}
	restarted, err := phases.RestartStale(ctx, k.node, "kubelet.service", changed, "/usr/local/bin/kubelet", config.KubeletConfigFile, config.KubeletFlagsFile, render.KubeletUnitPath, render.KubeletDropInPath)
	if err != nil {
		return err
	}
	if restarted {
		return k.waitRestarted(ctx)
	}
	return k.waitVersion(ctx)
}

// waitRestarted waits until the node is Ready after a restart of the kubelet.
func (k *kubelet) waitRestarted(ctx context.Context) error {
	if err := k.node.WaitKubelet(ctx); err != nil {
		return err
	}
	if err := k.waitSettled(ctx); err != nil {
		return err
	}
	return k.waitVersion(ctx)
}

func (k *kubelet) waitVersion(ctx context.Context) error {
	return k.node.Watch.Watched(ctx, pods.Dependency{}, func(ctx context.Context) error {
		return k.api.Client.Waits().WaitForNodeVersion(ctx, k.node.Config.NodeRegistration.Name, k.bundle.KubernetesVersion(), k.node.Config.CNI != "none", phases.NodeTimeout, k.node.Report)
	})
}

// waitSettled waits for the static pods of a control plane after the start of another kubelet.
func (k *kubelet) waitSettled(ctx context.Context) error {
	if k.controlPlane.pods == nil {
		return nil
	}
	if err := k.controlPlane.pods.WaitSettled(ctx, k.api.Client, k.node.Config.NodeRegistration.Name); err != nil {
		return err
	}
	if err := k.controlPlane.waitAPI(ctx); err != nil {
		return err
	}
	nodes, err := facts.UpgradeNodes(ctx, k.api.Client.API)
	drains := err != nil || facts.WorkersAreNext(nodes, k.node.Config.NodeRegistration.Name, k.bundle.KubernetesVersion())
	return waitServices(ctx, k.api, drains)
}
