package installer

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"airlift/fault"
	"airlift/images/store"
)

// keepNames makes the import record for undo which image names had another image before: two
// files may have different images of the same name. A new name does no harm after undo.
func (u *Upgrade) keepNames(ctx context.Context) error {
	if u.state == nil || u.state.Finished {
		return nil
	}
	if len(u.state.ImageNames) == 0 && !u.keepsRuntime {
		// Nothing but an earlier upgrade has kept images, and that one can no longer be undone.
		if err := u.containerd.DropKept(ctx); err != nil {
			return err
		}
	}
	record := func(context.Context, []store.NameChange) error { return nil }
	if u.keepsRuntime {
		record = u.recordNames(strings.TrimPrefix(u.config.NodeRegistration.CRISocket, "unix://"))
	}
	u.containerd.BeforeNaming(func(ctx context.Context, changes []store.NameChange) error {
		if err := record(ctx, changes); err != nil {
			return err
		}
		return u.state.keepNames(changes, u.host)
	})
	return nil
}

// undoNames gives image names the images that they had before the upgrade.
func (u *UpgradeUndo) undoNames(ctx context.Context) error {
	if len(u.state.ImageNames) == 0 {
		return nil
	}
	socket, err := u.kubeletSocket()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, imageTimeout)
	defer cancel()
	s, err := store.Connect(ctx, socket)
	if err != nil {
		return fault.Wrap(fmt.Errorf("restoring image names: %w", err), fault.Failure,
			"start containerd (systemctl start containerd) and run upgrade undo again")
	}
	defer s.Close()
	left, err := s.UndoNames(ctx, u.state.ImageNames)
	for _, note := range left {
		u.console.Note("left in place: %s", note)
	}
	return err
}

// moved returns the names whose image an import replaces, without those of old.
func moved(old, changes []store.NameChange) (list []store.NameChange) {
	for _, c := range changes {
		known := slices.ContainsFunc(old, func(o store.NameChange) bool { return o.Name == c.Name })
		if !known && c.Before != nil && !slices.Contains(c.Set, c.Before.Digest) {
			list = append(list, c)
		}
	}
	return list
}
