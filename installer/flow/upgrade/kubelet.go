package upgrade

import (
	"context"
	"fmt"
	"os"

	"airlift/installer/cluster"
	"airlift/installer/config"
	"airlift/installer/desired"
	"airlift/installer/node"
	"airlift/installer/phases"
	"airlift/installer/pki"
	"airlift/installer/render"
	"airlift/installer/revision"
	"airlift/internal/fault"
)

// localServer returns the kubeconfig with which the kubelet of a control plane uses the API server
// of its own host, for Kubernetes versions in which it does so.
func (u *Upgrade) localServer(context.Context) (l desired.List, err error) {
	if u.Pods == nil || u.Config.Endpoint.Balancer || !u.Config.ControlPlaneKubeletLocalMode() {
		return l, nil
	}
	data, err := os.ReadFile(u.Existing.Path(node.KubeletConf))
	if err != nil {
		return l, err
	}
	client, err := cluster.New(data, "")
	if err != nil {
		return l, err
	}
	if client.Server != u.Config.ServerURL() || u.Config.ServerURL() == u.Config.LocalURL() {
		return l, nil
	}
	data, err = cluster.WithServer(data, u.Config.LocalURL())
	return desired.List{Files: []pki.File{{Path: node.KubeletConf, Data: data, Mode: 0o600}}}, err
}

// useLocalServer writes the kubelet's kubeconfig, and restarts the kubelet if that changed.
func (u *Upgrade) useLocalServer(ctx context.Context, l desired.List) error {
	changed, err := u.WriteKept(l.Files...)
	if err != nil || !changed {
		return err
	}
	if err := u.Host.Systemd().Restart(ctx, "kubelet.service"); err != nil {
		return err
	}
	return u.WaitKubelet(ctx)
}

// kubeletFiles returns the kubelet and kubectl, and the kubelet's units.
func (u *Upgrade) kubeletFiles(context.Context) (desired.List, error) {
	binaries, err := u.pending(func(p string) bool { return !ofRuntime(p) })
	return desired.List{Binaries: binaries, Files: revision.KubeletUnits()}, err
}

// upgradeKubelet installs the kubelet and kubectl, restarts the kubelet, and waits until the
// node is Ready with the new version.
func (u *Upgrade) upgradeKubelet(ctx context.Context, l desired.List) error {
	if err := u.Ready(ctx); err != nil {
		return err
	}
	if err := u.carriedOver(); err != nil {
		return err
	}
	if err := u.install(ctx, l.Binaries); err != nil {
		return err
	}
	changed, err := u.WriteKept(l.Files...)
	if err != nil {
		return err
	}
	restarted, err := phases.RestartStale(ctx, u.Node, "kubelet.service", changed, "/usr/local/bin/kubelet", config.KubeletConfigFile, config.KubeletFlagsFile, render.KubeletUnitPath, render.KubeletDropInPath)
	if err != nil {
		return err
	}
	if restarted {
		return u.WaitRestarted(ctx)
	}
	return u.WaitVersion(ctx)
}

// KubeletFlags returns the file with the flags that the kubelet keeps.
func (u *Upgrade) KubeletFlags(now []byte) ([]byte, error) {
	if kept, err := u.Adopted.Flags(now, u.Bundle.KubernetesVersion()); err != nil || kept != nil {
		return kept, err
	}
	return render.KeptKubeletFlags(now, u.Config.Minor()), nil
}

// KubeletInstance returns the instance configuration for the first upgrade of an adopted node whose kubelet has another file than
// KubeletConfigFile; for others, instance itself.
func (u *Upgrade) KubeletInstance(shared, instance []byte) ([]byte, error) {
	if u.Adopted == nil || u.Adopted.Kubelet.Config == "" || u.Adopted.Kubelet.Config == config.KubeletConfigFile {
		return instance, nil
	}
	file := u.Adopted.Kubelet.Config
	own, err := os.ReadFile(u.Existing.Path(file))
	if err == nil {
		instance, err = u.Adopted.Instance(own, shared, instance)
	}
	if err != nil {
		return nil, fault.Wrap(fmt.Errorf("reading %s, the kubelet's configuration when this node was adopted: %w", file, err), fault.Preflight, "restore it; if the kubelet has another file now: ./install disown; ./install adopt")
	}
	return instance, nil
}

// carriedOver refuses to start the new kubelet of an adopted node without what it had.
func (u *Upgrade) carriedOver() error {
	if u.Adopted == nil {
		return nil
	}
	files, err := u.KubeletFiles()
	if err != nil {
		return err
	}
	differ, err := u.Differing(files...)
	if err == nil && len(differ) > 0 {
		err = fault.New(fault.Preflight, "%s does not have what the kubelet of this adopted node has elsewhere", differ[0].Path).
			Hint("run the phase kubelet-config first: ./install " + u.Options.Command + " phase kubelet-config")
	}
	return err
}
