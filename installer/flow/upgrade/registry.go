package upgrade

import (
	"context"

	"airlift/installer/payload"
	"airlift/installer/phases"
)

// A keeper keeps the file of the upgrade in the embedded registry of the cluster.
type keeper struct {
	node   *phases.Node
	api    *phases.API
	bundle *payload.Bundle
}

// serves reports whether this node is a control plane that serves the embedded registry.
func (k *keeper) serves() bool {
	return k.node.IsControlPlane() && k.node.Config.Registry.Used && phases.ServesRegistry(k.node.Existing)
}

// keep keeps the file, so that other nodes can read it. The file of the former version stays while a kubelet has that
// version.
func (k *keeper) keep(ctx context.Context) error {
	if !k.serves() {
		k.node.Console.Note("this node serves no embedded registry: nothing to do")
		return nil
	}
	_, err := phases.AddToRegistry(ctx, k.node.Machine, k.api.Client, k.bundle, nil)
	return err
}

// drop removes files of former versions from the list, if no kubelet has such a version any more.
func (k *keeper) drop(ctx context.Context) error {
	if !k.serves() {
		return nil
	}
	return phases.DropSuperseded(ctx, k.node.Machine, k.api.Client)
}
