package installer

import (
	"slices"

	"airlift/images"
	"airlift/installer/config"
	"airlift/installer/preflight"
)

// A role is what a host becomes, with everything in the plan that depends on
// that. The steps that depend on it are in the step lists.
type role struct {
	name preflight.Role
	kind string // "a control plane"

	components []string // components that a node of this role runs, where the configuration has them
	running    []string // components that the cluster of a joining node runs already
	kubectl    bool     // kubectl is installed
	manifests  bool     // the site's manifests are applied
	// registersTaints reports whether the kubelet registers the node with its
	// taints. The step mark-control-plane sets those of a control plane.
	registersTaints bool
}

// Kinds of nodes, for the user.
const (
	aWorker       = "a worker"
	aControlPlane = "a control plane"
)

// controlPlaneComponents are the static pods of a control plane, without etcd.
var controlPlaneComponents = []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler"}

var (
	worker = role{
		name: preflight.Join, kind: aWorker, registersTaints: true,
		components: []string{"pause", "kube-proxy", "flannel"},
	}
	nextControlPlane = role{
		name: preflight.JoinControlPlane, kind: aControlPlane, kubectl: true,
		components: slices.Concat(worker.components, []string{"etcd"}, controlPlaneComponents),
		running:    []string{"coredns"},
	}
	firstControlPlane = role{
		name: preflight.Init, kind: aControlPlane, kubectl: true, manifests: true,
		components: slices.Concat(nextControlPlane.components, []string{"coredns"}),
	}
)

// joiningRole returns the role of a node that joins with the configuration c.
func joiningRole(c *config.Config) role {
	if c.ControlPlane {
		return nextControlPlane
	}
	return worker
}

// needs reports whether a node of this role needs a component's image. Workers
// do not need the images of the control plane.
func (r role) needs(component string) bool {
	return images.Worker(component) || slices.Contains(r.components, component)
}
