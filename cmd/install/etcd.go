package main

import (
	"context"

	"github.com/spf13/cobra"

	"airlift/cmd/install/nodecmd"
	"airlift/cmd/output"
	"airlift/installer/flow/members"
	"airlift/installer/host"
	"airlift/installer/snapshot"
	"airlift/installer/workflow"
)

func newEtcdCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "etcd",
		Short: "Back up, restore, repair and show the cluster's etcd",
	}
	cmd.AddCommand(newEtcdSnapshotCmd(), newEtcdRestoreCmd(), newEtcdListCmd(), newEtcdDefragCmd(), newEtcdMemberCmd(), newEtcdStatusCmd())
	return cmd
}

func newEtcdListCmd() *cobra.Command {
	var targetConfig string
	cmd := output.Show(&cobra.Command{
		Use:   "list DIRECTORY|URL",
		Short: "List the backups in a directory or at a target",
		Long: `List the backups that './install etcd snapshot' has sent to a target, s3://BUCKET/PREFIX or
sftp://USER@HOST/DIRECTORY, or that its timer has written to a directory, the newest first. All
that it shows is in the names of the backups, so it needs no key of age. --target-config names
the file with the credentials of a target, as for './install etcd snapshot'. It changes nothing,
and runs on any host that reaches the target.`,
		Example: "  ./install etcd list s3://backups/plant-7 --target-config target.yaml\n  ./install etcd list /mnt/backup -o json",
		Args:    output.OneArg("etcd list requires one directory or URL", ""),
	}, func(cmd *cobra.Command, args []string) (*snapshot.Listing, error) {
		return snapshot.List(cmd.Context(), args[0], targetConfig)
	}, (*snapshot.Listing).Write)
	cmd.Flags().StringVar(&targetConfig, "target-config", "", "the `FILE` with the credentials of the target of a URL; - for standard input")
	return cmd
}

func newEtcdStatusCmd() *cobra.Command {
	return output.Show(&cobra.Command{
		Use:   "status",
		Short: "Show etcd's members and the last backup",
		Long: `Show each member of etcd: its ID, role, version, size of the database and the part of it that
is in use, revision, raft index, alarms and health; and the last backup that this host
wrote. Run it as root on a control plane. It changes nothing. The exit code is 0 even if
a member is not healthy.`,
		Example: "  ./install etcd status\n  ./install etcd status -o json",
	}, func(cmd *cobra.Command, _ []string) (*members.Status, error) {
		h, err := host.Open("/")
		if err != nil {
			return nil, err
		}
		return members.ReadStatus(cmd.Context(), h, console(cmd))
	}, (*members.Status).Write)
}

func newEtcdDefragCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "defrag",
		Short: "Defragment etcd's databases, one member after the other",
		Long: `Defragment the database of each member of etcd, which returns free space to the file
system. A member answers no requests during that time, so the command defragments one
member after the other, the leader last. It stops if a member is not healthy.

If etcd has the alarm NOSPACE, because a database has reached its maximum size, the command
removes the alarm at the end, and etcd accepts writes again.`,
		Example: "  ./install etcd defrag",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return shared.Change(cmd, nodecmd.How{}, func(h *host.Host, c *workflow.Console) (nodecmd.Run, error) {
				return nodecmd.RunFunc(func(ctx context.Context) error { return members.Defrag(ctx, h, c) }), nil
			})
		},
	}
}
