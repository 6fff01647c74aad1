package phases

import (
	"context"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime"

	"airlift/bundle"
	"airlift/installer/cluster"
	"airlift/installer/config"
	"airlift/installer/desired"
	"airlift/installer/node"
	"airlift/installer/pki"
	"airlift/installer/pods"
	"airlift/installer/render"
)

// NodeTimeout limits waits for this node. The slowest case is the first start
// of all system pods on a small machine.
const NodeTimeout = 5 * time.Minute

// API is the part of init and join that uses the Kubernetes API.
type API struct {
	*node.Machine
	Node    *Node
	content *Content

	Client *cluster.Client // nil until a step needs it
}

// NewAPI returns the API of a run that has no client yet.
func NewAPI(c *Content) *API { return &API{Machine: c.Machine, Node: c.Node, content: c} }

// Objects returns the objects that build makes from the configuration.
func (a *API) Objects(build func(*config.Config) ([]runtime.Object, error)) Desired {
	return func(context.Context) (desired.List, error) {
		objects, err := build(a.Node.Config)
		return desired.List{Objects: objects}, err
	}
}

// Apply applies the objects of a list.
func (a *API) Apply(ctx context.Context, l desired.List) error {
	return a.Applied(a.Client.Apply(ctx, l.Objects...))
}

// Registered waits until the kubelet has registered the node. It then annotates
// the Node with the container runtime's socket, unless the node stores it itself.
func (a *API) Registered(ctx context.Context) error {
	if err := a.waitRegistered(ctx); err != nil {
		return err
	}
	if err := a.recordEndpoint(ctx); err != nil {
		return err
	}
	if err := a.recordReconfiguration(ctx); err != nil {
		return err
	}
	node := a.Node.Config.NodeRegistration
	if a.Node.Config.NodeLocalCRISocket() {
		return nil
	}
	changed, err := a.Client.NodeObjects().AnnotateCRISocket(ctx, node.Name, node.CRISocket)
	a.Changed(changed)
	return err
}

// recordEndpoint records that this node follows the last change of the endpoint. A node that joins does from the beginning,
// unless the change was not complete; one that a repeated run found may still use the former endpoint.
func (a *API) recordEndpoint(ctx context.Context) error {
	c := a.Node.Config
	change := c.Endpoint.Change
	if change == nil || change.Pending != nil {
		return nil
	}
	own, err := node.LoadClient(a.Host, node.KubeletConf, "", 0)
	if err != nil {
		return err
	}
	if want := c.KubeletURL(a.Node.Plan.Role.Kind == controlPlaneKind); own.Server != want {
		a.Console.Note("the kubelet uses %s, and not %s: for the change, run here: ./install endpoint node", own.Server, want)
		return nil
	}
	changed, err := a.Client.NodeObjects().Follow(ctx, c.NodeRegistration.Name, func(f *cluster.Follows) { f.Endpoint, f.OnlyServes = change.Number, false })
	a.Changed(changed)
	return err
}

// recordReconfiguration records that this node follows the last reconfiguration: it was created with the stored configuration. A
// control plane that a repeated run found may still have other certificates and files: there, reconfigure node records it.
func (a *API) recordReconfiguration(ctx context.Context) error {
	c := a.Node.Config
	if c.Reconfiguration.Number == 0 || a.Node.Observed.IsNode && a.Node.Plan.Role.Kind == controlPlaneKind {
		return nil
	}
	changed, err := a.Client.NodeObjects().Follow(ctx, c.NodeRegistration.Name, func(f *cluster.Follows) { f.Reconfiguration = c.Reconfiguration.Number })
	a.Changed(changed)
	return err
}

func (a *API) waitRegistered(ctx context.Context) error {
	return a.Node.Watch.Watched(ctx, pods.Dependency{}, func(ctx context.Context) error {
		return a.Client.WaitForNode(ctx, a.Node.Config.NodeRegistration.Name, NodeTimeout, a.Report)
	})
}

// MarkControlPlane labels and taints the node. If the phase runs alone, right
// after kubelet-start, the node may not be registered yet.
func (a *API) MarkControlPlane(ctx context.Context) error {
	if a.Node.Plan.OnePhase {
		if err := a.waitRegistered(ctx); err != nil {
			return err
		}
	}
	node := a.Node.Config.NodeRegistration
	changed, err := a.Client.NodeObjects().MarkControlPlane(ctx, node.Name, node.Taints)
	a.Changed(changed)
	return err
}

// PodNetwork writes this node's CNI configuration. It uses the pod CIDR that
// the controller manager has assigned to the node.
func (a *API) PodNetwork(ctx context.Context) error {
	if a.Node.Config.CNI == "none" {
		a.Console.Note("skipped (--cni none): the node becomes Ready after you install a pod network")
		return nil
	}
	cidrs, err := a.Client.WaitForPodCIDR(ctx, a.Node.Config.NodeRegistration.Name, NodeTimeout, a.Report)
	if err != nil {
		return err
	}
	conflist, err := render.CNIConflist(a.Node.Config, cidrs)
	if err != nil {
		return err
	}
	for _, e := range a.Node.Plan.Bundle.Manifest.Entries {
		if plugin, ok := strings.CutPrefix(e.Name, bundle.CNIDir); ok && slices.Contains(render.CNIPlugins, plugin) {
			if err := a.content.waitBinaries(ctx, e.Name); err != nil {
				return err
			}
		}
	}
	return a.Write(pki.File{Path: render.CNIConflistPath, Data: conflist, Mode: 0o600})
}

// WaitNode waits for the rest of the bundle and for the node.
func (a *API) WaitNode(ctx context.Context) error {
	if err := a.content.finish(ctx); err != nil {
		return err
	}
	wait := a.Client.WaitForNodeReady
	if a.Node.Config.CNI == "none" {
		wait = a.Client.WaitForNode
	}
	err := a.Node.Watch.Watched(ctx, pods.Dependency{}, func(ctx context.Context) error {
		return wait(ctx, a.Node.Config.NodeRegistration.Name, NodeTimeout, a.Report)
	})
	if err != nil {
		return err
	}
	return a.Node.WaitServing(ctx)
}
