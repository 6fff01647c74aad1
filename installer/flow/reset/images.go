package reset

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"airlift/images/store"
	"airlift/installer/host/ledger"
	"airlift/installer/node"
	"airlift/internal/fault"
)

// imageReset restores the image names in an existing containerd.
type imageReset struct {
	*node.Machine
	socket string   // of the container runtime
	left   []string // image names that are not restored, with the reasons
}

// restore restores the image names in an existing containerd. containerd
// then removes the images that no name refers to.
func (r *imageReset) restore(ctx context.Context) error {
	if r.Host.Records().OwnsRuntime() {
		return nil // reset removes all images
	}
	names := map[string][]ledger.ImageName{} // by socket
	for _, name := range r.Host.Records().ImageNames() {
		names[name.Socket] = append(names[name.Socket], name)
	}
	if r.Host.Records().Used() && r.Exists(r.socket) && len(names) == 0 {
		names[r.socket] = nil // an interrupted import may have left content
	}
	for _, socket := range slices.Sorted(maps.Keys(names)) {
		if err := r.restoreNames(ctx, socket, names[socket]); err != nil {
			return err
		}
	}
	return nil
}

func (r *imageReset) restoreNames(ctx context.Context, socket string, names []ledger.ImageName) error {
	if !r.Exists(socket) && !r.Exists("/var/lib/containerd") {
		r.Console.Note("containerd was removed, and its images with it")
		return r.Host.Records().ForgetImageNames(names...)
	}
	s, err := store.Connect(ctx, socket)
	if err != nil {
		return fault.Wrap(fmt.Errorf("restoring image names: %w", err), fault.Failure,
			"start containerd (systemctl start containerd) and run reset again")
	}
	defer s.Close()
	var changes []store.NameChange
	for _, name := range names {
		changes = append(changes, store.NameChange{Name: name.Name, Before: (*store.Target)(name.Before), Set: name.Set})
	}
	left, err := s.RestoreNames(ctx, changes)
	if err != nil {
		return err
	}
	for _, note := range left {
		r.Console.Note("left in place: %s", note)
	}
	r.left = append(r.left, left...)
	return r.Host.Records().ForgetImageNames(names...)
}
