package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"airlift/cmd/output"
	"airlift/installer/config"
	"airlift/installer/flow/noderemove"
)

func newNodeCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "node",
		Short: "Remove a node from the cluster, and record the addresses of nodes",
	}
	cmd.AddCommand(newNodeRemoveCmd(), newNodeAddressesCmd())
	return cmd
}

func newNodeRemoveCmd() *cobra.Command {
	var options noderemove.Options
	yes, dryRun := false, false
	cmd := &cobra.Command{
		Use:   "remove NAME",
		Short: "Remove a control plane or worker from the cluster, also if its host is lost",
		Long: `Remove another host from the cluster. Run it as root on a control plane that stays:

  1. No new pods are scheduled on the node. If its host answers, its pods move to other nodes.
  2. The member of a control plane leaves etcd. It waits while another control plane
     restarts its components.
  3. The Node is deleted. The cluster deletes the pods that it still had within about a
     minute, and detaches their volumes.
  4. The other API servers remove its address from the Service kubernetes, after 25
     seconds at most.

First, it shows what is removed and what remains, and asks for confirmation. It refuses if
etcd would have no quorum without the member, and to remove the last control plane, or the
one to which the endpoint of the cluster leads. It is safe to run it again: it finishes what
an interrupted run left.

If the host does not answer, make sure that it is off. Otherwise its containers run on,
while other nodes start the same pods.

The removed host keeps valid certificates. Before its kubelet starts again, run there:
./install reset --force. Otherwise, the kubelet registers the node again if it reaches an
API server, and pods are scheduled on it. The etcd and the API server of a removed control
plane no longer start; with an external etcd, the API server does.`,
		Example: "  ./install node remove host3\n  ./install node remove host3 --dry-run\n  ./install node remove host3 --yes",
		Args:    output.OneArg("give the name of one node", "to list the nodes: ./install status"),
		RunE: func(cmd *cobra.Command, args []string) error {
			options.Node = args[0]
			h, unlock, err := openHost()
			if err != nil {
				return err
			}
			defer unlock()
			run, err := noderemove.New(cmd.Context(), options, h, console(cmd))
			if err != nil {
				return err
			}
			defer run.Close()
			if dryRun {
				run.DryRun()
				return nil
			}
			fmt.Fprintln(cmd.OutOrStdout(), run.Describe())
			if !yes {
				if err := confirm(cmd, "Remove "+options.Node+" from the cluster?", "answer with y, or run it with --yes"); err != nil {
					return err
				}
			}
			return recorded(cmd, h, "", func() error { return run.Run(cmd.Context()) })
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.BoolVarP(&yes, "yes", "y", false, "do not ask for confirmation")
	f.BoolVar(&options.Drain, "drain", true, "move its pods to other nodes first, if its host answers")
	f.DurationVar(&options.DrainTimeout, "drain-timeout", config.DrainTimeout, "how long a pod may stay while the node is drained")
	f.BoolVar(&options.KeepNode, "keep-node", false, "leave the Node, for a second run after its host was reset")
	_ = f.MarkHidden("keep-node")
	f.BoolVar(&dryRun, "dry-run", false, "only print what would be done")
	return cmd
}
