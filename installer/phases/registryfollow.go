package phases

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"airlift/installer/cluster"
	"airlift/installer/cluster/wait"
	"airlift/installer/config"
	"airlift/installer/host"
	"airlift/installer/node"
	"airlift/installer/payload"
	"airlift/installer/pki"
	"airlift/installer/registry"
	"airlift/installer/registry/hosts"
)

// AddToRegistry keeps a file on this control plane of a running cluster, and lists it: one with Kubernetes as the first, also if
// an upgrade to it was undone. The other control planes copy it.
// images are what every node is to have of it. It returns the generation that nodes then follow.
func AddToRegistry(ctx context.Context, m *node.Machine, client *cluster.Client, b *payload.Bundle, images []string) (generation int, err error) {
	settings, err := registry.Read(m.Host)
	if err != nil {
		return 0, err
	}
	if err := KeepFile(ctx, m, settings, b.File); err != nil {
		return 0, err
	}
	changed, err := client.EditRegistry(ctx, func(r *config.EmbeddedRegistry) {
		kept := registry.Describe(b.File, b.Manifest)
		r.Keep(kept)
		if len(kept.Only) == 0 {
			r.Prefer(kept.KubernetesVersion)
		}
		r.Bring(images)
		generation = r.Generation
	})
	m.Changed(changed)
	return generation, err
}

// ServesRegistry reports whether a host is a control plane that keeps files and serves them.
func ServesRegistry(h *host.Host) bool { return node.FileExists(h, registry.SettingsPath) }

// DropSuperseded removes files of former versions from the list, if no kubelet has such a version any more. Then the control
// planes remove them.
func DropSuperseded(ctx context.Context, m *node.Machine, client *cluster.Client) error {
	return PreferVersion(ctx, m, client, "", "")
}

// PreferVersion lets the file of a version decide, "" leaves the order, and then does what DropSuperseded does. The node named
// self has that version, also if its kubelet has not reported it yet.
func PreferVersion(ctx context.Context, m *node.Machine, client *cluster.Client, version, self string) error {
	nodes, err := client.Nodes(ctx)
	if err != nil {
		return err
	}
	versions := []string{version}
	for _, n := range nodes {
		if n.Name != self {
			versions = append(versions, n.Version)
		}
	}
	changed, err := client.EditRegistry(ctx, func(r *config.EmbeddedRegistry) {
		if version != "" {
			r.Prefer(version)
		}
		for _, id := range r.Superseded(versions) {
			m.Console.Note("no node needs the file %.12s any more", id)
			r.Drop(id)
		}
	})
	m.Changed(changed)
	return err
}

// RestartRegistry makes the service of this host, if it has one, run a new copy of the installer.
func RestartRegistry(ctx context.Context, m *node.Machine) error {
	if !m.Exists(registry.UnitPath) {
		return nil
	}
	return m.Host.Systemd().Restart(ctx, registry.Unit)
}

// followTimeout limits the wait for nodes that pull images: 30 GB take as long over a link of 150 Mbit/s.
const followTimeout = 30 * time.Minute

// WaitFollowed waits until all other nodes that use the embedded registry and are Ready follow a generation, and prints each
// that does. It returns the nodes that are not Ready, which follow later. This node follows when its host is not locked any
// more.
func WaitFollowed(ctx context.Context, m *node.Machine, client *cluster.Client, generation int) (off []string, err error) {
	uses, done, self := map[string]bool{}, map[string]bool{}, pki.NodeName(m.Files())
	w := wait.For{
		What: "the nodes to follow the embedded registry", Timeout: followTimeout, Attempt: 10 * time.Second, Report: m.Report,
		Hint: "run on each of these nodes: ./install " + hosts.Timer.Command + "; then run the same command again",
	}
	err = w.Until(ctx, nil, func(ctx context.Context) (bool, string, error) {
		nodes, err := client.Nodes(ctx)
		if err != nil {
			return false, err.Error(), nil
		}
		var left []string
		off = nil
		for _, n := range nodes {
			uses[n.Name] = uses[n.Name] || n.Follows.UsesRegistry
			switch {
			case !uses[n.Name] || n.Name == self:
			case n.Follows.Registry >= generation || !n.Follows.UsesRegistry: // it uses the registry no more
				if !done[n.Name] {
					m.Console.Note("%s", n.Name)
				}
				done[n.Name] = true
			case !n.Ready:
				off = append(off, n.Name)
			default:
				left = append(left, n.Name)
			}
		}
		return len(left) == 0, fmt.Sprintf("%d nodes follow, not yet: %s", len(done), strings.Join(left, ", ")), nil
	})
	slices.Sort(off)
	return off, err
}
