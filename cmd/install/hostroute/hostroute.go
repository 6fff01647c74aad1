// Package hostroute has the command that airlift-service-route.service runs at boot.
package hostroute

import (
	"github.com/spf13/cobra"

	"airlift/installer/host/kernel"
)

// New returns the command host-route.
func New() *cobra.Command {
	var cidr, dev string
	cmd := &cobra.Command{
		Use:    "host-route",
		Short:  "Add a route for the Service addresses on a host without a default route",
		Hidden: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return kernel.AddRoute(cmd.Context(), cidr, dev)
		},
	}
	cmd.Flags().StringVar(&cidr, "cidr", "", "the range")
	cmd.Flags().StringVar(&dev, "dev", "", "the interface")
	return cmd
}
