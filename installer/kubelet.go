package installer

import (
	"context"

	"airlift/installer/config"
	"airlift/installer/patches"
	"airlift/installer/pki"
	"airlift/installer/render"
)

// kubelet installs and starts this node's kubelet.
type kubelet struct {
	*content
}

// writeFiles writes the kubelet's unit and configuration. cluster is the
// cluster's KubeletConfiguration.
func (k kubelet) writeFiles(cluster []byte) error {
	settings, err := render.NodeKubeletConfig(k.config, cluster)
	if err != nil {
		return err
	}
	settings, used, err := k.plan.patches.Apply(patches.KubeletConfiguration, settings)
	if err != nil {
		return err
	}
	k.reportPatched("the kubelet's configuration", used)
	flags, err := render.KubeletFlags(k.config, k.plan.role.registersTaints)
	if err != nil {
		return err
	}
	files := []pki.File{
		{Path: config.KubeletConfigFile, Data: settings, Mode: 0o644},
		{Path: config.KubeletFlagsFile, Data: flags, Mode: 0o644},
		{Path: render.KubeletUnitPath, Data: []byte(render.KubeletUnit), Mode: 0o644},
		{Path: render.KubeletDropInPath, Data: []byte(render.KubeletDropIn), Mode: 0o644},
	}
	if instance := render.KubeletInstanceConfig(k.config); instance != nil {
		files = append(files, pki.File{Path: render.KubeletInstanceConfigPath, Data: instance, Mode: 0o644})
	}
	return k.write(files...)
}

// start writes the kubelet's unit and configuration and starts it. It restarts
// a running kubelet if a file changed.
func (k kubelet) start(ctx context.Context, cluster []byte) error {
	before := k.changes
	if err := k.writeFiles(cluster); err != nil {
		return err
	}
	if err := k.claimKubeletCertDir(); err != nil {
		return err
	}
	if err := k.host.MkdirAll(config.ManifestsDir, 0o700); err != nil {
		return err
	}
	if err := k.waitBinaries(ctx, "bin/kubelet"); err != nil {
		return err
	}
	if k.changes == before {
		return k.host.EnableNow(ctx, "kubelet.service")
	}
	if err := k.host.Enable(ctx, "kubelet.service", true); err != nil {
		return err
	}
	return k.host.Restart(ctx, "kubelet.service")
}
