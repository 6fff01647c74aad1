package phases

import (
	"slices"

	"airlift/images/release"
	"airlift/installer/config"
	"airlift/installer/node"
	"airlift/installer/preflight"
)

// A Role is the role of a host in the cluster, with everything in the plan that depends on the
// role. The steps that depend on it are in the step lists.
type Role struct {
	name preflight.Role
	Kind string // "a control plane"

	Components []string // components that a node of this role runs, where the configuration has them
	running    []string // components that the cluster of a joining node runs already
	kubectl    bool     // kubectl is installed
	manifests  bool     // the site's manifests are applied
	// registersTaints reports whether the kubelet registers the node with its taints. The step
	// mark-control-plane sets a control plane's taints.
	registersTaints bool
}

// Kinds of nodes, for the user.
const (
	WorkerKind       = "a worker"
	controlPlaneKind = "a control plane"
)

// The roles of nodes. The first control plane creates the cluster, further control planes join it.
var (
	Worker = Role{
		name: preflight.Join, Kind: WorkerKind, registersTaints: true,
		Components: []string{"pause", "kube-proxy", "flannel"},
	}
	NextControlPlane = Role{
		name: preflight.JoinControlPlane, Kind: controlPlaneKind, kubectl: true,
		Components: slices.Concat(Worker.Components, []string{"etcd"}, node.ControlPlaneComponents),
		running:    []string{"coredns"},
	}
	FirstControlPlane = Role{
		name: preflight.Init, Kind: controlPlaneKind, kubectl: true, manifests: true,
		Components: slices.Concat(NextControlPlane.Components, []string{"coredns"}),
	}
)

// JoiningRole returns the role of a node that joins with the configuration c.
func JoiningRole(c *config.Config) Role {
	if c.ControlPlane {
		return NextControlPlane
	}
	return Worker
}

// Needs reports whether a node of this role needs a component's image. Workers
// do not need the images of the control plane.
func (r Role) Needs(component string) bool {
	return release.Worker(component) || slices.Contains(r.Components, component)
}
