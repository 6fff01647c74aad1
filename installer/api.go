package installer

import (
	"context"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime"

	"airlift/bundle"
	"airlift/installer/cluster"
	"airlift/installer/config"
	"airlift/installer/pki"
	"airlift/installer/render"
)

// nodeTimeout limits waits for this node. The slowest case is the first start
// of all system pods on a small machine.
const nodeTimeout = 5 * time.Minute

// api is the part of init and join that uses the Kubernetes API.
type api struct {
	*content
	client *cluster.Client // nil until a step needs it
}

// apply returns a step that applies the objects that render builds from the
// configuration.
func (a *api) apply(objects func(*config.Config) ([]runtime.Object, error)) func(context.Context) error {
	return func(ctx context.Context) error {
		list, err := objects(a.config)
		if err != nil {
			return err
		}
		return a.applied(a.client.Apply(ctx, list...))
	}
}

// registered waits until the kubelet has registered the node. It then annotates
// the Node with the container runtime's socket, unless the node stores it itself.
func (a *api) registered(ctx context.Context) error {
	if err := a.waitRegistered(ctx); err != nil {
		return err
	}
	node := a.config.NodeRegistration
	if a.config.NodeLocalCRISocket() {
		return nil
	}
	changed, err := a.client.AnnotateCRISocket(ctx, node.Name, node.CRISocket)
	a.changed(changed)
	return err
}

func (a *api) waitRegistered(ctx context.Context) error {
	return a.watched(ctx, dependency{}, func(ctx context.Context) error {
		return a.client.WaitForNode(ctx, a.config.NodeRegistration.Name, nodeTimeout, a.report)
	})
}

// markControlPlane labels and taints the node. If the phase runs alone, right
// after kubelet-start, the node may not be registered yet.
func (a *api) markControlPlane(ctx context.Context) error {
	if a.plan.onePhase {
		if err := a.waitRegistered(ctx); err != nil {
			return err
		}
	}
	node := a.config.NodeRegistration
	changed, err := a.client.MarkControlPlane(ctx, node.Name, node.Taints)
	a.changed(changed)
	return err
}

// podNetwork writes this node's CNI configuration. It uses the pod CIDR that
// the controller manager has assigned to the node.
func (a *api) podNetwork(ctx context.Context) error {
	if a.config.CNI == "none" {
		a.console.Note("skipped (--cni none): the node becomes Ready after you install a pod network")
		return nil
	}
	cidrs, err := a.client.WaitForPodCIDR(ctx, a.config.NodeRegistration.Name, nodeTimeout, a.report)
	if err != nil {
		return err
	}
	conflist, err := render.CNIConflist(a.config, cidrs)
	if err != nil {
		return err
	}
	for _, e := range a.plan.bundle.manifest.Entries {
		if plugin, ok := strings.CutPrefix(e.Name, bundle.CNIDir); ok && slices.Contains(render.CNIPlugins, plugin) {
			if err := a.waitBinaries(ctx, e.Name); err != nil {
				return err
			}
		}
	}
	return a.write(pki.File{Path: render.CNIConflistPath, Data: conflist, Mode: 0o644})
}

// waitNode waits for the rest of the bundle and for the node.
func (a *api) waitNode(ctx context.Context) error {
	if err := a.finish(ctx); err != nil {
		return err
	}
	wait := a.client.WaitForNodeReady
	if a.config.CNI == "none" {
		wait = a.client.WaitForNode
	}
	return a.watched(ctx, dependency{}, func(ctx context.Context) error {
		return wait(ctx, a.config.NodeRegistration.Name, nodeTimeout, a.report)
	})
}
