package phases

import (
	"context"

	"airlift/installer/config"
	"airlift/installer/desired"
	"airlift/installer/node"
	"airlift/installer/patches"
	"airlift/installer/pki"
	"airlift/installer/render"
)

// Kubelet installs and starts this node's kubelet.
type Kubelet struct {
	*node.Machine
	node    *Node
	content *Content
}

// NewKubelet returns the Kubelet of a run.
func NewKubelet(c *Content) Kubelet { return Kubelet{c.Machine, c.Node, c} }

// Desired returns the kubelet's unit and configuration. cluster is the cluster's KubeletConfiguration.
func (k Kubelet) Desired(cluster []byte) (l desired.List, err error) {
	settings, err := render.NodeKubeletConfig(k.node.Config, cluster)
	if err != nil {
		return l, err
	}
	settings, used, err := k.node.Plan.Patches.Apply(patches.KubeletConfiguration, settings)
	if err != nil {
		return l, err
	}
	k.ReportPatched("the kubelet's configuration", used)
	flags, err := render.KubeletFlags(k.node.Config, k.node.Plan.Role.registersTaints)
	if err != nil {
		return l, err
	}
	files := []pki.File{
		{Path: config.KubeletConfigFile, Data: settings, Mode: 0o600},
		{Path: config.KubeletFlagsFile, Data: flags, Mode: 0o644},
		{Path: render.KubeletUnitPath, Data: []byte(render.KubeletUnit), Mode: 0o600},
		{Path: render.KubeletDropInPath, Data: []byte(render.KubeletDropIn), Mode: 0o600},
	}
	if instance := render.KubeletInstanceConfig(k.node.Config); instance != nil {
		files = append(files, pki.File{Path: render.KubeletInstanceConfigPath, Data: instance, Mode: 0o644})
	}
	return desired.List{Files: files, Claims: k.node.kubeletCertDir()}, nil
}

// Start writes the kubelet's unit and configuration and starts it. It restarts
// a running kubelet if a file changed.
func (k Kubelet) Start(ctx context.Context, l desired.List) error {
	before := k.Changes
	if err := k.node.Apply(ctx, l); err != nil {
		return err
	}
	if err := k.Host.MkdirAll(config.ManifestsDir, 0o700); err != nil {
		return err
	}
	if err := k.content.waitBinaries(ctx, "bin/kubelet"); err != nil {
		return err
	}
	// etcd starts with the kubelet: the next reset must ask it again.
	if err := k.Host.Records().ForgetReset(); err != nil {
		return err
	}
	if k.Changes == before {
		return k.Host.Systemd().EnableNow(ctx, "kubelet.service")
	}
	if err := k.Host.Systemd().Enable(ctx, "kubelet.service"); err != nil {
		return err
	}
	return k.Host.Systemd().Restart(ctx, "kubelet.service")
}
