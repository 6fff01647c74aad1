package revision

import (
	"context"
	"strings"

	"airlift/images/store"
	"airlift/installer/desired"
	"airlift/installer/node"
	"airlift/installer/phases"
	"airlift/installer/pki"
	"airlift/installer/render"
)

// ConnectRuntime connects to the container runtime of this node.
func (r *Revision) ConnectRuntime(ctx context.Context) (err error) {
	if r.Watch.Containerd == nil {
		r.Watch.Containerd, err = store.Connect(ctx, strings.TrimPrefix(r.Config.NodeRegistration.CRISocket, "unix://"))
	}
	if err != nil || !r.Observed.KeepsRuntime {
		return err
	}
	info, err := r.Watch.Containerd.Info(ctx)
	r.Observed.Runtime = &node.ExistingRuntime{Info: info, Store: r.Watch.Containerd}
	return err
}

// RestartRuntime writes containerd's configuration and unit, and restarts containerd if it has not read them. The containers keep
// running.
func (r *Revision) RestartRuntime(ctx context.Context, l desired.List) error {
	if err := r.CheckContainerd(ctx, r.Options.IgnorePreflightErrors, l.Files...); err != nil {
		return err
	}
	changed, err := r.WriteKept(l.Files...)
	if err != nil {
		return err
	}
	restarted, err := phases.RestartStale(ctx, r.Node, "containerd.service", changed || r.Record.IsPending(RuntimePart), "/usr/local/bin/containerd", render.ContainerdConfigPath, render.ContainerdUnitPath)
	if err != nil || !restarted {
		return err
	}
	if err := r.Restarted(RuntimePart); err != nil {
		return err
	}
	if r.Watch.Containerd != nil {
		_ = r.Watch.Containerd.Close()
		r.Watch.Containerd = nil
	}
	ctx, cancel := context.WithTimeout(ctx, node.RuntimeTimeout)
	defer cancel()
	return r.ConnectRuntime(ctx)
}

// RuntimeFiles returns containerd's configuration and unit, unless the host has its own.
func (r *Revision) RuntimeFiles() ([]pki.File, error) {
	if r.Observed.KeepsRuntime {
		return nil, nil
	}
	return phases.ContainerdFiles(r.Config)
}
