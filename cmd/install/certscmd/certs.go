// Package certscmd has the commands for certificates and CAs.
package certscmd

import (
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"airlift/cmd/install/nodecmd"
	"airlift/installer/config"
	"airlift/installer/flow/certs"
	"airlift/installer/node"
)

// New returns the command certs.
func New(e nodecmd.Environment) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "certs",
		Aliases: []string{"certificates"},
		Short:   "Show, renew and replace certificates and CAs",
	}
	cmd.AddCommand(newExpiration(), newRenew(e), newAuto(), newRotateCA(e), newCertificateKey(), newCSR(e), newApprove())
	return cmd
}

// bind adds the flags that name the cluster and its certificates.
func bind(flags *pflag.FlagSet, s *certs.Source) {
	flags.StringVar(&s.CertificatesDir, "cert-dir", "", "the `DIRECTORY` of the certificates (default: the directory in the configuration, or "+config.CertificatesDir+")")
	flags.StringVar(&s.ConfigFile, "config", "", "kubeadm's configuration `FILE` (default: the configuration stored in the cluster)")
	flags.StringVar(&s.Kubeconfig, "kubeconfig", node.AdminConf, "the kubeconfig `FILE` for reading the configuration from the cluster")
	flags.StringVar(&s.Rootfs, "rootfs", "/", "the `DIRECTORY` to use as the host's root directory")
}
