package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"airlift/cmd/install/nodecmd"
	"airlift/cmd/output"
	"airlift/installer/config"
	"airlift/installer/flow/certs"
	"airlift/installer/pki"
	"airlift/internal/fault"
)

func newKubeconfigCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "kubeconfig",
		Short: "Create kubeconfig files",
		Long: `Create kubeconfig files for other users. The administrator's is ` + adminConf + ` on each
control plane. On another machine, './install cluster kubeconfig' writes it.`,
	}
	cmd.AddCommand(newKubeconfigUserCmd())
	return cmd
}

func newKubeconfigUserCmd() *cobra.Command {
	source := &certs.Source{}
	u := pki.User{}
	cmd := &cobra.Command{
		Use:   "user",
		Short: "Print a kubeconfig for another user",
		Long: `Print a kubeconfig for another user, with a new client certificate or with the
user's token. RBAC rules for the name and the groups decide what the user may do.

The cluster's name and address come from --config, or from
` + adminConf + `. A certificate cannot be revoked before it
expires: prefer short validity periods.`,
		Example: "  ./install kubeconfig user --client-name jane --org developers --validity-period 24h > jane.conf\n  ./install kubeconfig user --client-name ci --token TOKEN",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if u.Name == "" {
				return fault.New(fault.Usage, "--client-name is missing").Hint("see '" + cmd.CommandPath() + " --help'")
			}
			if u.Validity <= 0 {
				return fault.New(fault.Usage, "--validity-period %s must be positive", u.Validity).Hint("use a duration such as 24h")
			}
			if u.Validity > config.CertificateValidity && u.Token == "" {
				output.Warner(cmd)("the certificate is valid for %s, more than the usual year, and cannot be revoked", u.Validity)
			}
			if u.Token != "" && len(u.Groups) > 0 {
				return fault.New(fault.Usage, "--org has no effect with --token").Hint("a token has its own groups")
			}
			source.Warn = output.Warner(cmd)
			cfg, err := source.Cluster(cmd.Context(), nodecmd.Environment{Bundle: openBundle}.KubernetesVersion)
			if err != nil {
				return err
			}
			data, err := pki.UserKubeconfig(cfg, source.FS(), time.Now(), u)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(output.Verbatim(cmd.OutOrStdout()), string(data))
			return err
		},
	}
	f := cmd.Flags()
	f.StringVar(&u.Name, "client-name", "", "the user's name")
	f.StringSliceVar(&u.Groups, "org", nil, "the user's groups, separated by commas")
	f.DurationVar(&u.Validity, "validity-period", config.CertificateValidity, "how long the certificate is valid")
	f.StringVar(&u.Token, "token", "", "a token to use instead of a certificate")
	f.StringVar(&source.ConfigFile, "config", "", "kubeadm's configuration `FILE` (default: the cluster of "+adminConf+")")
	f.StringVar(&source.Rootfs, "rootfs", "/", "the `DIRECTORY` to use as the host's root directory")
	return cmd
}
