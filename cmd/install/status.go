package main

import (
	"github.com/spf13/cobra"

	"airlift/installer"
	"airlift/installer/host"
)

func newStatusCmd() *cobra.Command {
	output, kubeconfig := &outputFlags{}, ""
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show this node and the site's own manifests",
		Long: `Show the state of this node, and of the site's own manifests in the cluster: whether
they are those of this bundle, and which of their objects are not ready, with the
reason. Run it on a control plane. It changes nothing, and succeeds also if
something is not ready.`,
		Example: "  ./install status\n  ./install status -o json",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			show, err := output.printer()
			if err != nil {
				return err
			}
			f, err := openBundle()
			if err != nil {
				return err
			}
			b, err := installer.OpenBundle(f)
			if err != nil {
				return err
			}
			h, err := host.Open("/")
			if err != nil {
				return err
			}
			status, err := installer.ReadStatus(cmd.Context(), b, h, kubeconfig)
			if err != nil {
				return err
			}
			if show != nil {
				return show(cmd.OutOrStdout(), status)
			}
			status.Write(cmd.OutOrStdout())
			return nil
		},
	}
	output.bind(cmd.Flags())
	cmd.Flags().StringVar(&kubeconfig, "kubeconfig", adminConf, "the kubeconfig `FILE` of the cluster")
	return cmd
}
