package main

import (
	"context"

	"github.com/spf13/cobra"

	"airlift/cmd/install/nodecmd"
	"airlift/cmd/output"
	"airlift/installer/flow/members"
	"airlift/installer/host"
	"airlift/installer/workflow"
)

func newEtcdMemberCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "member",
		Short: "Remove the member of a host that is lost",
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
		Args:    output.OneArg("give the name or the ID of one etcd member", "to list the members: ./install etcd status"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return shared.Change(cmd, nodecmd.How{}, func(h *host.Host, c *workflow.Console) (nodecmd.Run, error) {
				return nodecmd.RunFunc(func(ctx context.Context) error { return members.Remove(ctx, h, c, args[0], force) }), nil
			})
		},
	}
	cmd.Flags().BoolVar(&force, "force", false, "also remove a member that is healthy")
	return cmd
}
