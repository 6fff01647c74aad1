package upgrade

import (
	"context"
	"strings"

	"airlift/images/store"
	"airlift/installer/host"
	"airlift/installer/node"
	"airlift/installer/payload"
	"airlift/installer/phases"
)

// unpacker imports the images of the bundle, and places its binaries next to the old ones.
type unpacker struct {
	node       *phases.Node
	content    *phases.Content
	bundle     *payload.Bundle
	record     *record
	work       *work
	binaries   *binaries
	containerd *containerd
}

// unpack imports the images, and places the new binaries next to the old ones. Nothing that
// runs is disturbed.
func (c *unpacker) unpack(ctx context.Context) error {
	if err := c.node.Ready(ctx); err != nil {
		return err
	}
	if err := c.bundle.AttachNode(ctx, c.node.Existing, c.node.Console); err != nil {
		return err
	}
	remains, err := c.work.remains()
	if err != nil {
		return err
	}
	if remains {
		if err := c.record.begin(); err != nil {
			return err
		}
	}
	pending, err := c.binaries.pending(all)
	if err != nil {
		return err
	}
	wanted := map[string]bool{}
	var paths []string
	for _, b := range pending {
		wanted[b.Path] = true
		paths = append(paths, b.Path)
	}
	if len(paths) > 0 {
		if err := c.node.Host.Upgrades().PrepareUpgrade(paths...); err != nil {
			return err
		}
	}
	if err := c.containerd.connect(ctx); err != nil {
		return err
	}
	if err := c.keepNames(ctx); err != nil {
		return err
	}
	return c.stage(ctx, func(entry string) bool { return wanted[node.BinaryPath(entry)] })
}

// stage reads the bundle: binaries go to their place of waiting, images into containerd.
func (c *unpacker) stage(ctx context.Context, wants func(entry string) bool) error {
	ctx, cancel := context.WithTimeout(ctx, payload.ImageTimeout)
	defer cancel()
	s := payload.NewBundleStream(c.bundle.File, c.bundle.Manifest, c.node.Host, wants, payload.ImageRequest{Wanted: c.node.Plan.Images(), Aliases: c.node.Plan.Aliases(c.node.Config)}, payload.SiteRequest{})
	for entry, b := range s.Binaries {
		s.Binaries[entry] = host.Binary{Path: host.StagedPath(b.Path), SHA256: b.SHA256}
	}
	s.Start(ctx, c.bundle.Manifest)
	s.Images.Runtime <- c.node.Watch.Containerd
	stop := c.node.Console.Bytes("unpacking", &s.Moved, &s.Total)
	err := s.Finish(ctx)
	stop()
	if err != nil {
		cancel()
		<-s.Done
		return err
	}
	c.node.Changes += int(s.Changed.Swap(0))
	return c.content.NameSandboxImage(ctx)
}

// keepNames makes the import record for undo which image names had another image before: two
// files may have different images of the same name. A new name does no harm after undo.
func (c *unpacker) keepNames(ctx context.Context) error {
	if !c.record.unfinished() {
		return nil
	}
	if len(c.record.state.ImageNames) == 0 && !c.record.reconfigures && !c.node.Observed.KeepsRuntime {
		// Nothing but an earlier upgrade has kept images, and that one can no longer be undone. After a reconfiguration, it still can.
		if err := c.node.Watch.Containerd.Names().DropKept(ctx); err != nil {
			return err
		}
	}
	record := func(context.Context, []store.NameChange) error { return nil }
	if c.node.Observed.KeepsRuntime {
		record = c.node.Containerd().RecordNames(strings.TrimPrefix(c.node.Config.NodeRegistration.CRISocket, "unix://"))
	}
	c.node.Watch.Containerd.Names().BeforeNaming(func(ctx context.Context, changes []store.NameChange) error {
		if err := record(ctx, changes); err != nil {
			return err
		}
		return c.record.state.KeepNames(changes, c.node.Host)
	})
	return nil
}
