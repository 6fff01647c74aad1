package main

import (
	"github.com/spf13/cobra"

	"airlift/cmd/output"
	"airlift/installer/configfile"
)

func newConfigPrintCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "print",
		Short:   "Print the default configuration of a command",
		Long:    "Print the default configuration of a command, as a file to start from. Comments in\nit explain the values that differ from kubeadm's defaults.",
		Example: "  ./install config print init-defaults --component-configs KubeletConfiguration\n  ./install config print join-defaults",
	}
	for _, c := range []struct {
		name, short string
		defaults    configfile.Defaults
	}{
		{"init-defaults", "Print the default configuration of init", configfile.InitDefaults},
		{"join-defaults", "Print the default configuration of join", configfile.JoinDefaults},
		{"reset-defaults", "Print the default configuration of reset", configfile.ResetDefaults},
		{"upgrade-defaults", "Print the default configuration of upgrade apply and upgrade node", configfile.UpgradeDefaults},
	} {
		var components []string
		asked := ""
		sub := &cobra.Command{
			Use:     c.name,
			Short:   c.short,
			Long:    c.short + ", in kubeadm's format.\nTokens and addresses in it are examples.",
			Example: "  ./install config print " + c.name,
			RunE: func(cmd *cobra.Command, _ []string) error {
				data, err := configReader(cmd).Defaults(c.defaults, asked, components)
				if err != nil {
					return err
				}
				_, err = output.Verbatim(cmd.OutOrStdout()).Write(data)
				return err
			},
		}
		sub.Flags().StringSliceVar(&components, "component-configs", nil, "also print KubeletConfiguration, KubeProxyConfiguration or both; only init uses them")
		sub.Flags().StringVar(&asked, "kubernetes-version", "", "the Kubernetes version; with a bundle, only the bundle's is accepted")
		cmd.AddCommand(sub)
	}
	return cmd
}
