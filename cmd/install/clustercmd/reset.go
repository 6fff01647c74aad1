package clustercmd

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"airlift/internal/fault"
)

func newReset(in *site) *cobra.Command {
	force, yes := false, false
	cmd := &cobra.Command{
		Use:   "reset",
		Short: "Remove the cluster from all hosts",
		Long: `Remove the cluster from all hosts: everything that Airlift installed there, and the cluster's
data. The answer to its question is the name of the cluster.

Before anything is removed, each host must be the node that cluster.yaml describes: by its
name, its role and the CA and the name of its cluster, also while no API answers. If one is
not, nothing is removed anywhere.

Each host removes only what its ledger lists, and lists what remains. Workers are reset
first, then the control planes, the first one last. A host that fails does not stop the
others of its kind. It is safe to run it again.`,
		Example: "  ./install cluster reset\n  ./install cluster reset --force --yes",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if force != yes {
				return fault.New(fault.Usage, "--force and --yes must be given together, for scripts").Hint("to be asked, give none of them")
			}
			return in.record().with(cmd, cmd.OutOrStdout(), func(ctx context.Context, s *opened) error {
				if !force {
					question := fmt.Sprintf("This removes the cluster %s, with all its data, from %s. To confirm, type the name of the cluster:",
						s.Site.Cluster.Name, counted(len(s.Site.Cluster.Hosts)-len(s.Site.Skip), "host"))
					if err := confirm(cmd, question, s.Site.Cluster.Name, "type "+s.Site.Cluster.Name+", or run it with --force --yes"); err != nil {
						return err
					}
				}
				s.Site.Display.Start()
				defer s.Site.Display.Stop()
				return s.Site.Reset(ctx)
			})
		},
	}
	cmd.Flags().BoolVarP(&force, "force", "", false, "with --yes: do not ask for confirmation")
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "with --force: do not ask for confirmation")
	return cmd
}
