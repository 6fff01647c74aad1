package certscmd

import (
	"github.com/spf13/cobra"

	"airlift/installer/daemon"
	"airlift/installer/serving"
)

// newApprove returns the command of airlift-serving.service.
func newApprove() *cobra.Command {
	return &cobra.Command{
		Use:    "approve",
		Short:  "Approve a kubelet's serving certificate if its names and addresses belong to the node",
		Hidden: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return serving.Run(cmd.Context(), daemon.Log(cmd.ErrOrStderr()))
		},
	}
}
