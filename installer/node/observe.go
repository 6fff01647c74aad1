package node

import (
	"context"

	"airlift/installer/config"
)

// An Observation is what a run finds on its host before it changes anything.
type Observation struct {
	// IsNode reports that an earlier run wrote at least a kubeconfig file: this one continues or repeats it.
	IsNode bool
	// KeepsRuntime reports that the container runtime of this host existed before Airlift. Its binaries,
	// configuration and directories are not changed.
	KeepsRuntime bool
	// KeepsPlugins reports that another tool installed the CNI plugins of this host: they are not changed.
	KeepsPlugins bool
	Runtime      *ExistingRuntime // that runtime; nil if there is none, or if it cannot be used
	RuntimeErr   error            // why it cannot be used
}

// Observe looks at a host that becomes a node with the configuration c.
func Observe(ctx context.Context, m *Machine, c *config.Config, isNode bool) Observation {
	o := Observation{IsNode: isNode, KeepsPlugins: m.Existing.Records().Adopted() != nil}
	o.Runtime, o.RuntimeErr = m.Containerd().FindRuntime(ctx, c)
	o.KeepsRuntime = o.Runtime != nil || o.RuntimeErr != nil
	return o
}

// ObserveNode looks at a host that is a node: the ledger has whose container runtime it uses.
func ObserveNode(m *Machine) Observation {
	return Observation{IsNode: true, KeepsRuntime: !m.Existing.Records().OwnsRuntime(), KeepsPlugins: m.Existing.Records().Adopted() != nil}
}
