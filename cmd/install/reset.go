package main

import (
	"bufio"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"airlift/fault"
	"airlift/installer"
	"airlift/installer/config"
)

func newResetCmd() *cobra.Command {
	force := false
	cmd := &cobra.Command{
		Use:   "reset",
		Short: "Put this host back to where init or join works again",
		Long: `Put this host back to where init or join works again: stops and removes pods,
mounts, the pod network's interfaces, packet filter rules and routes, and
removes certificates, etcd's data, units and programs that install put here.
A container runtime that was here before is left alone.

The node's entry in the cluster stays: kubectl delete node NAME removes it.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !force {
				if err := confirm(cmd); err != nil {
					return err
				}
			}
			h, unlock, err := openHost()
			if err != nil {
				return err
			}
			defer unlock()
			n := &installer.Node{Config: &config.Config{}, Host: h, Console: console(cmd)}
			return installer.RunReset(cmd.Context(), n.Console, n.Reset())
		},
	}
	cmd.Flags().BoolVarP(&force, "force", "f", false, "do not ask")
	return cmd
}

// confirm asks the person at the terminal.
func confirm(cmd *cobra.Command) error {
	if !term.IsTerminal(int(os.Stdin.Fd())) {
		return fault.New(fault.Usage, "run it with --force", "reset asks before it removes this node, and there is no terminal to ask on")
	}
	fmt.Fprint(cmd.OutOrStdout(), "This removes the Kubernetes node on this host, and on a control plane the cluster's data. Go on? [y/N] ")
	answer, _ := bufio.NewReader(cmd.InOrStdin()).ReadString('\n')
	if a := strings.ToLower(strings.TrimSpace(answer)); a != "y" && a != "yes" {
		return fault.New(fault.Failure, "", "not confirmed: nothing was changed")
	}
	return nil
}
