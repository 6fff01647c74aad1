package upgrade

import (
	"context"
	"strings"

	"airlift/images/store"
	"airlift/installer/desired"
	"airlift/installer/node"
	"airlift/installer/phases"
	"airlift/installer/render"
)

// containerd is the container runtime of this node.
type containerd struct {
	node     *phases.Node
	record   *record
	binaries *binaries
}

// connect connects to the container runtime of this node.
func (c *containerd) connect(ctx context.Context) (err error) {
	if c.node.Watch.Containerd == nil {
		c.node.Watch.Containerd, err = store.Connect(ctx, strings.TrimPrefix(c.node.Config.NodeRegistration.CRISocket, "unix://"))
	}
	if err != nil || !c.node.Observed.KeepsRuntime {
		return err
	}
	info, err := c.node.Watch.Containerd.Inventory().Info(ctx)
	c.node.Observed.Runtime = &node.ExistingRuntime{Info: info, Store: c.node.Watch.Containerd}
	return err
}

// upgrade installs containerd, runc and the CNI plugins, and restarts containerd. The
// containers keep running.
func (c *containerd) upgrade(ctx context.Context, l desired.List) error {
	if err := c.node.Ready(ctx); err != nil {
		return err
	}
	if err := c.binaries.install(ctx, l.Binaries); err != nil {
		return err
	}
	if c.node.Observed.KeepsRuntime {
		c.node.Console.Note("this host's existing containerd is not changed")
		return nil
	}
	changed, err := c.record.writeKept(l.Files...)
	if err != nil {
		return err
	}
	restarted, err := phases.RestartStale(ctx, c.node, "containerd.service", changed || c.record.state.IsPending(runtimePart), "/usr/local/bin/containerd", render.ContainerdConfigPath, render.ContainerdUnitPath)
	if err != nil || !restarted {
		return err
	}
	if err := c.record.restarted(runtimePart); err != nil {
		return err
	}
	if c.node.Watch.Containerd != nil {
		_ = c.node.Watch.Containerd.Close()
		c.node.Watch.Containerd = nil
	}
	ctx, cancel := context.WithTimeout(ctx, node.RuntimeTimeout)
	defer cancel()
	return c.connect(ctx)
}

// desired returns the new binaries, and containerd's configuration and unit, unless the host has its own.
func (c *containerd) desired(context.Context) (l desired.List, err error) {
	if l.Binaries, err = c.binaries.pending(ofRuntime); err != nil || c.node.Observed.KeepsRuntime {
		return l, err
	}
	l.Files, err = phases.ContainerdFiles(c.node.Config)
	return l, err
}
