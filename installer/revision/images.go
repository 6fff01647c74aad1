package revision

import (
	"context"
	"strings"

	"airlift/images/store"
	"airlift/installer/host"
	"airlift/installer/payload"
)

// Stage reads the bundle: binaries go to their place of waiting, images into containerd.
func (r *Revision) Stage(ctx context.Context, wants func(entry string) bool) error {
	ctx, cancel := context.WithTimeout(ctx, payload.ImageTimeout)
	defer cancel()
	s := payload.NewBundleStream(r.Bundle.File, r.Bundle.Manifest, r.Host, wants, payload.ImageRequest{Wanted: r.Plan.Images(), Aliases: r.Plan.Aliases(r.Config)}, payload.SiteRequest{})
	for entry, b := range s.Binaries {
		s.Binaries[entry] = host.Binary{Path: host.StagedPath(b.Path), SHA256: b.SHA256}
	}
	s.Start(ctx, r.Bundle.Manifest)
	s.Images.Runtime <- r.Watch.Containerd
	stop := r.Console.Bytes("unpacking", &s.Moved, &s.Total)
	err := s.Finish(ctx)
	stop()
	if err != nil {
		cancel()
		<-s.Done
		return err
	}
	r.Changes += int(s.Changed.Swap(0))
	return r.Content.NameSandboxImage(ctx)
}

// KeepNames makes the import record for undo which image names had another image before: two
// files may have different images of the same name. A new name does no harm after undo.
func (r *Revision) KeepNames(ctx context.Context) error {
	if !r.Unfinished() {
		return nil
	}
	if len(r.Record.ImageNames) == 0 && r.Options.Kind == Upgrade && !r.Observed.KeepsRuntime {
		// Nothing but an earlier upgrade has kept images, and that one can no longer be undone. After a reconfiguration, it still can.
		if err := r.Watch.Containerd.DropKept(ctx); err != nil {
			return err
		}
	}
	record := func(context.Context, []store.NameChange) error { return nil }
	if r.Observed.KeepsRuntime {
		record = r.RecordNames(strings.TrimPrefix(r.Config.NodeRegistration.CRISocket, "unix://"))
	}
	r.Watch.Containerd.BeforeNaming(func(ctx context.Context, changes []store.NameChange) error {
		if err := record(ctx, changes); err != nil {
			return err
		}
		return r.Record.KeepNames(changes, r.Host)
	})
	return nil
}
