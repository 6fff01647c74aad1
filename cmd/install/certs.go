package main

import (
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"airlift/installer/config"
	"airlift/installer/flow/certs"
)

func newCertsCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "certs",
		Aliases: []string{"certificates"},
		Short:   "Show, renew and replace certificates and CAs",
		Args:    noArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newCertsExpirationCmd(), newCertsRenewCmd(), newCertsAutoCmd(), newRotateCACmd(), newCertificateKeyCmd(), newCSRCmd())
	return cmd
}

// warnFunc prints a warning on standard error.
type warnFunc func(format string, args ...any)

func warner(cmd *cobra.Command) warnFunc {
	return func(format string, args ...any) {
		fmt.Fprintf(cmd.ErrOrStderr(), "warning: "+format+"\n", args...)
	}
}

// certsFlags adds the flags that name the cluster and its certificates.
func certsFlags(flags *pflag.FlagSet, s *certs.Source) {
	flags.StringVar(&s.CertificatesDir, "cert-dir", "", "the `DIRECTORY` of the certificates (default: the directory in the configuration, or "+config.CertificatesDir+")")
	flags.StringVar(&s.ConfigFile, "config", "", "kubeadm's configuration `FILE` (default: the configuration stored in the cluster)")
	flags.StringVar(&s.Kubeconfig, "kubeconfig", adminConf, "the kubeconfig `FILE` for reading the configuration from the cluster")
	flags.StringVar(&s.Rootfs, "rootfs", "/", "the `DIRECTORY` to use as the host's root directory")
}

// kubernetesVersion returns the bundle's Kubernetes version, or "" without a bundle.
func kubernetesVersion() (string, error) {
	b, err := openBundle()
	if err != nil {
		return "", nil
	}
	defer b.Close()
	m, err := b.Manifest()
	if err != nil {
		return "", err
	}
	return m.KubernetesVersion, nil
}
