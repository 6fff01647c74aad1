package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"airlift/installer/cluster"
	"airlift/installer/serving"
	"airlift/internal/fault"
)

func newNodeAddressesCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "addresses NAME [ADDRESS...]",
		Short: "Show or record which addresses the serving certificate of a node's kubelet may have",
		Long: `Show or record which addresses the serving certificate of a node's kubelet may have, on a
cluster with the profile hardened. Run it as root on a control plane.

Without an ADDRESS, it shows what is recorded, and what the kubelet requests. With IP
addresses, and DNS names other than NAME, it records these instead. A request that waits is
then approved within half a minute. The node may also join later. What belongs to another
node, an API server or the control-plane endpoint is refused.

The first request of a node that joins is recorded by itself. So the command is for a node
whose addresses changed, and to give a node its addresses before it joins.`,
		Example: "  ./install node addresses host3\n  ./install node addresses host3 192.0.2.13",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return fault.New(fault.Usage, "give the name of a node").Hint("to list the nodes: ./install status")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := cluster.Load(adminConf, "")
			if err != nil {
				return fault.Wrap(err, fault.Failure, "run it on a control plane as root")
			}
			name, out := args[0], cmd.OutOrStdout()
			if addresses := args[1:]; len(addresses) > 0 {
				changed, err := serving.SetAddresses(cmd.Context(), c, os.DirFS("/"), name, addresses)
				if err == nil && !changed {
					fmt.Fprintln(out, "Nothing was changed.")
				}
				if err != nil {
					return err
				}
			}
			state, err := serving.Read(cmd.Context(), c, name)
			if err != nil {
				return err
			}
			fmt.Fprintf(out, "recorded   %s\n", orNothing(state.Recorded))
			for _, r := range state.Waiting {
				fmt.Fprintf(out, "requested  %s (%s, not approved)\n", orNothing(r.Wants), r.Name)
			}
			return nil
		},
	}
}

func orNothing(list []string) string {
	if len(list) == 0 {
		return "nothing"
	}
	return strings.Join(list, ", ")
}
