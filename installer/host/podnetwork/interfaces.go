package podnetwork

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"airlift/installer/host"
	"airlift/installer/host/ledger"
)

// RemoveInterfaces removes the network interfaces in the ledger, and the veth
// interfaces that are attached to a bridge among them.
func RemoveInterfaces(ctx context.Context, h *host.Host) error {
	entries := h.Records().Entries(ledger.Interface)
	if len(entries) == 0 {
		return nil
	}
	links, err := netlink.LinkList()
	if err != nil {
		return fmt.Errorf("listing network interfaces: %w", err)
	}
	var failures []error
	for _, e := range entries {
		if err := ctx.Err(); err != nil {
			return errors.Join(append(failures, err)...)
		}
		err := removeInterface(links, e.Name)
		if err == nil {
			err = h.Records().Forget(e.Kind, e.Name)
		}
		failures = append(failures, err)
	}
	return errors.Join(failures...)
}

func removeInterface(links []netlink.Link, name string) error {
	i := slices.IndexFunc(links, func(l netlink.Link) bool { return l.Attrs().Name == name })
	if i < 0 {
		return nil
	}
	remove := []netlink.Link{}
	for _, l := range links {
		if l.Type() == "veth" && l.Attrs().MasterIndex == links[i].Attrs().Index {
			remove = append(remove, l)
		}
	}
	for _, l := range append(remove, links[i]) {
		if err := netlink.LinkDel(l); err != nil && !errors.Is(err, unix.ENODEV) {
			return fmt.Errorf("removing network interface %s: %w", l.Attrs().Name, err)
		}
	}
	return nil
}
