// Package loadbalancer has the command that the pods of the add-on load-balancer run.
package loadbalancer

import (
	"github.com/spf13/cobra"

	"airlift/installer/daemon"
	"airlift/installer/loadbalancer/agent"
)

// New returns the command load-balancer.
func New() *cobra.Command {
	return &cobra.Command{
		Use:    "load-balancer",
		Short:  "Answer for the addresses of Services on this node, in a pod of the add-on load-balancer",
		Args:   cobra.NoArgs,
		Hidden: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return agent.RunPod(cmd.Context(), daemon.Log(cmd.ErrOrStderr()))
		},
	}
}
