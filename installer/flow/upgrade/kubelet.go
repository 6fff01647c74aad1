package upgrade

import (
	"bytes"
	"context"
	"errors"
	"os"
	"regexp"

	"sigs.k8s.io/yaml"

	"airlift/documents"
	"airlift/fault"
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
	"airlift/installer/render"
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
	adopted      *adopted // nil unless this is the first upgrade of an adopted node
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
		for _, note := range k.adopted.notes {
			k.node.Console.Note("%s", note)
		}
	}
	return err
}

// files returns the files with this node's kubelet configuration, KubeletConfigFile first.
func (k *kubelet) files() ([]pki.File, error) {
	shared, err := k.shared()
	if err != nil {
		return nil, err
	}
	settings, err := render.NodeKubeletConfig(k.node.Config, shared)
	if err != nil {
		return nil, err
	}
	instance, err := k.node.Present(render.KubeletInstanceConfigPath)
	if err != nil {
		return nil, err
	}
	own := instance
	if own == nil {
		own = render.KubeletInstanceConfig(k.node.Config)
	}
	if own, err = k.adoptedInstance(shared, own); err != nil {
		return nil, err
	}
	if settings, err = overlay(settings, own); err != nil {
		return nil, fault.New(fault.Preflight, "reading %s: the file is damaged: %w", render.KubeletInstanceConfigPath, err).Hint("to let the upgrade write it again: " + filesystem.SetAside(render.KubeletInstanceConfigPath))
	}
	settings, used, err := k.node.Plan.Patches.Apply(patches.KubeletConfiguration, settings)
	if err != nil {
		return nil, err
	}
	k.node.ReportPatched("the kubelet's configuration", used)
	files := []pki.File{{Path: config.KubeletConfigFile, Data: settings, Mode: 0o644}}
	if own != nil && !bytes.Equal(own, instance) {
		files = append(files, pki.File{Path: render.KubeletInstanceConfigPath, Data: own, Mode: 0o644})
	}
	flags, err := k.node.Present(config.KubeletFlagsFile)
	if err != nil {
		return nil, err
	}
	if flags != nil && (!kubeletVariable.Match(flags) || bytes.IndexByte(flags, 0) >= 0) {
		return nil, fault.New(fault.Preflight, "reading %s: the file is damaged: it does not set KUBELET_KUBEADM_ARGS", config.KubeletFlagsFile).Hint("to start the kubelet without flags: echo 'KUBELET_KUBEADM_ARGS=\"\"' >" + config.KubeletFlagsFile)
	}
	kept, err := k.adopted.flags(flags, k.bundle.KubernetesVersion())
	if err != nil {
		return nil, err
	}
	if kept == nil {
		kept = keptFlags(flags, k.node.Config.Minor())
	}
	if k.facts.change != nil {
		kept = k.facts.change.kubeletFlags(flags)
	}
	if kept != nil {
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

// keptFlags returns the kubelet's flags without flags that this version does not know, or nil if it
// knows all.
func keptFlags(flags []byte, minor int) []byte {
	if minor < render.PauseFlagGoneFrom || !pauseFlag.Match(flags) {
		return nil
	}
	return bytes.ReplaceAll(pauseFlag.ReplaceAll(flags, nil), []byte(`=" `), []byte(`="`))
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
	restarted, err := restartStale(ctx, k.node, "kubelet.service", changed, "/usr/local/bin/kubelet", config.KubeletConfigFile, config.KubeletFlagsFile, render.KubeletUnitPath, render.KubeletDropInPath)
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
	drains := err != nil || workersAreNext(nodes, k.node.Config.NodeRegistration.Name, k.bundle.KubernetesVersion())
	return waitServices(ctx, k.api, drains)
}

// workersAreNext reports whether all control planes have a version, and a worker does not. A worker may
// not check the kube-proxies before its drain. A control plane does.
func workersAreNext(nodes []facts.UpgradeNode, self, version string) bool {
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
