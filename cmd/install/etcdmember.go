package main

import (
	"github.com/spf13/cobra"

	"airlift/installer/flow/members"
	"airlift/internal/fault"
)

func newEtcdMemberCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "member",
		Short: "Remove the member of a host that is lost",
		Args:  noArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newEtcdMemberRemoveCmd())
	return cmd
}

func newEtcdMemberRemoveCmd() *cobra.Command {
	force := false
	cmd := &cobra.Command{
		Use:   "remove NAME|ID",
		Short: "Remove the member of a host that is lost",
		Long: `Remove the member of another control plane from the cluster's etcd, because its host is
lost permanently. As long as etcd counts a lost member, it tolerates one failure less. Give
the member's name, or its ID as './install etcd status' shows it. Run it as root on a
control plane.

It waits while a control plane joins or restarts its components.

To remove the whole node, with its member: './install node remove NAME'.

If the host still runs, run './install reset' there instead, which also removes its
member. So a healthy member is only removed with --force. A member is not removed if the
other members would have no quorum.`,
		Example: "  ./install etcd member remove host2\n  ./install etcd member remove 8e9e05c52164694d",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return fault.New(fault.Usage, "give the name or the ID of one etcd member").Hint("to list the members: ./install etcd status")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			h, unlock, err := openHost()
			if err != nil {
				return err
			}
			defer unlock()
			return recorded(cmd, h, "", func() error {
				return members.Remove(cmd.Context(), h, console(cmd), args[0], force)
			})
		},
	}
	cmd.Flags().BoolVar(&force, "force", false, "also remove a member that is healthy")
	return cmd
}
