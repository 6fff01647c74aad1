package upgrade

import (
	"context"

	"airlift/installer/phases"
)

// servesRegistry reports whether this node is a control plane that serves the embedded registry.
func (u *Upgrade) servesRegistry() bool {
	return u.IsControlPlane() && u.Config.Registry.Used && phases.ServesRegistry(u.Existing)
}

// keepFile keeps the file, so that other nodes can read it. The file of the former version stays while a kubelet has that
// version.
func (u *Upgrade) keepFile(ctx context.Context) error {
	if !u.servesRegistry() {
		u.Console.Note("this node serves no embedded registry: nothing to do")
		return nil
	}
	_, err := phases.AddToRegistry(ctx, u.Machine, u.API.Client, u.Bundle, nil)
	return err
}

// dropFormer removes files of former versions from the list, if no kubelet has such a version any more.
func (u *Upgrade) dropFormer(ctx context.Context) error {
	if !u.servesRegistry() {
		return nil
	}
	return phases.DropSuperseded(ctx, u.Machine, u.API.Client)
}
