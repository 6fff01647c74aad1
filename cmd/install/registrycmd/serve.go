package registrycmd

import (
	"github.com/spf13/cobra"

	"airlift/installer/daemon"
	"airlift/installer/registry/service"
)

// newServe returns the command of airlift-registry.service.
func newServe() *cobra.Command {
	return &cobra.Command{
		Use:    "serve",
		Short:  "Serve the kept bundles and their images to the nodes of the cluster",
		Hidden: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return service.Run(cmd.Context(), daemon.Log(cmd.ErrOrStderr()))
		},
	}
}
