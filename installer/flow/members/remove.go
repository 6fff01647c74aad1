// Package members shows, defragments and removes the members of the cluster's etcd.
package members

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"airlift/installer/etcd"
	"airlift/installer/host"
	"airlift/installer/node"
	"airlift/installer/workflow"
	"airlift/internal/fault"
)

// Remove removes another host's member from the cluster's etcd. The member has this name
// or this ID in hexadecimal. force removes a healthy member, too.
func Remove(ctx context.Context, h *host.Host, console *workflow.Console, nameOrID string, force bool) error {
	machine := node.NewMachine(h, console)
	c, own, err := node.LocalEtcdClient(ctx, machine)
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err := otherMember(ctx, c, own, nameOrID); err != nil {
		return err
	}
	// Not while a control plane joins, or restarts its member: the others are counted now.
	turn, err := node.TryTurn(ctx, machine, node.AdminConf, node.ShortPatience)
	if err != nil {
		return err
	}
	defer turn.End()
	m, err := otherMember(ctx, c, own, nameOrID) // while this command waited, it may have been replaced
	if err != nil {
		return err
	}
	if err := c.CheckRemove(ctx, m); err != nil {
		return fault.Wrap(err, fault.Failure, "start the other members; if they are lost permanently and there is a backup: ./install reset --force on this host, then ./install etcd restore FILE")
	}
	if healthy := c.Health(ctx, []etcd.Member{m})[0].Err == nil; healthy && !force {
		return fault.New(fault.Failure, "etcd's member %s is healthy", m).
			Hint("on its host: ./install reset, which also removes the member; or use --force")
	}
	if _, err := c.Remove(ctx, m); err != nil {
		return err
	}
	fmt.Fprintf(console.Out, "removed member %s from the etcd cluster\n", m)
	if m.Name != "" {
		fmt.Fprintf(console.Out, "Remove its node: ./install node remove %s. If the host comes back, run ./install reset --force there.\n", m.Name)
	}
	return nil
}

// otherMember returns the member of another host with a name or an ID, as etcd has it now.
func otherMember(ctx context.Context, c *etcd.Client, own *node.LocalEtcd, nameOrID string) (etcd.Member, error) {
	members, err := c.Members(ctx)
	if err != nil {
		return etcd.Member{}, err
	}
	m, err := selectMember(members, nameOrID)
	if err == nil && (m.HasPeer(own.PeerURL) || slices.Contains(m.ClientURLs, own.ClientURL)) {
		err = fault.New(fault.Usage, "%s is the etcd member of this host", m).
			Hint("to remove this host from the cluster, and its member from etcd: ./install reset")
	}
	return m, err
}

// selectMember returns the member with a name, or with an ID in hexadecimal.
func selectMember(members []etcd.Member, nameOrID string) (etcd.Member, error) {
	id, err := strconv.ParseUint(strings.TrimPrefix(strings.ToLower(nameOrID), "0x"), 16, 64)
	isID := err == nil
	var found []etcd.Member
	var known []string
	for _, m := range members {
		known = append(known, fmt.Sprintf("%016x %s", m.ID, m))
		if nameOrID != "" && m.Name == nameOrID || isID && m.ID == id {
			found = append(found, m)
		}
	}
	switch len(found) {
	case 0:
		return etcd.Member{}, fault.New(fault.Usage, "etcd has no member with the name or ID %q", nameOrID).Hint("its members are:\n  " + strings.Join(known, "\n  "))
	case 1:
		return found[0], nil
	}
	var commands []string
	for _, m := range found {
		commands = append(commands, fmt.Sprintf("./install etcd member remove 0x%016x", m.ID))
	}
	return etcd.Member{}, fault.New(fault.Usage, "%d members of etcd have the name or the ID %q", len(found), nameOrID).Hint("give the ID with 0x before it: " + strings.Join(commands, ", or "))
}
