package upgrade

import (
	"context"

	"airlift/installer/cluster"
	"airlift/installer/cluster/inventory"
	"airlift/installer/config"
	"airlift/installer/revision"
)

// An upgrade changes the version of what runs; the configuration stays.

// Edit changes nothing.
func (u *Upgrade) Edit(context.Context, *config.Config, *cluster.Stored) error { return nil }

// Compute has nothing to compare.
func (u *Upgrade) Compute(context.Context) error { return nil }

// Remains reports whether the cluster or this node has another version.
func (u *Upgrade) Remains() (bool, error) {
	if !u.Options.Node && u.Stored.Cluster.KubernetesVersion != u.Bundle.KubernetesVersion() {
		return true, nil
	}
	pending, err := u.pending(all)
	if err != nil || len(pending) > 0 {
		return true, err
	}
	if command, err := u.Command(context.Background()); err != nil || len(command.Binaries) > 0 {
		return true, err
	}
	for name := range u.Plans {
		changed, err := u.Replaces(name)
		if err != nil || changed {
			return changed, err
		}
	}
	return false, nil
}

// Concerns reports true: an upgrade may change each component.
func (u *Upgrade) Concerns(string) bool { return true }

// Objects are the configuration and the add-ons.
func (u *Upgrade) Objects() []cluster.ObjectName { return revision.Objects }

// ReadersOf returns none: an upgrade writes no files that static pods read.
func (u *Upgrade) ReadersOf(string) []string { return nil }

// Readers returns none.
func (u *Upgrade) Readers() []string { return nil }

// RestartReader restarts nothing.
func (u *Upgrade) RestartReader(context.Context, string) (bool, error) { return false, nil }

// HasImages reports whether a node has the version: it lists only some of its images.
func (u *Upgrade) HasImages(n inventory.Node, _ bool) bool {
	return n.KubeletVersion == u.Bundle.KubernetesVersion()
}

// IsSecret reports false: an upgrade writes no secrets but the kubeconfig.
func (u *Upgrade) IsSecret(string) bool { return false }
