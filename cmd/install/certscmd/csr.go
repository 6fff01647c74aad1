package certscmd

import (
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"airlift/cmd/install/nodecmd"
	"airlift/cmd/output"
	"airlift/installer/cluster"
	"airlift/installer/config"
	"airlift/installer/flow/certs"
)

func newCertificateKey() *cobra.Command {
	return &cobra.Command{
		Use:     "certificate-key",
		Short:   "Print a random key to encrypt uploaded certificates",
		Long:    "Print a random key for 'init --upload-certs --certificate-key KEY', which encrypts\nthe certificates with it.",
		Example: "  ./install certs certificate-key",
		RunE: func(cmd *cobra.Command, _ []string) error {
			fmt.Fprintln(cmd.OutOrStdout(), cluster.NewCertificateKey())
			return nil
		},
	}
}

func newCSR(e nodecmd.Environment) *cobra.Command {
	source := &certs.Source{}
	kubeconfigDir := config.KubernetesDir
	cmd := &cobra.Command{
		Use:   "generate-csr",
		Short: "Create keys and certificate signing requests for an external CA",
		Long: `Create a key and a certificate signing request for each certificate of a control
plane, and kubeconfigs that have a key and no certificate yet, each with a request
next to it.

Have each NAME.csr signed, and put the certificate next to it as NAME.crt. For a
kubeconfig, put it in base64 into the field client-certificate-data.

The requests contain no key usages. Sign with these:
  server authentication  apiserver, etcd/server, etcd/peer
  client authentication  all except apiserver

etcd's CA signs etcd/* and apiserver-etcd-client, the front proxy's CA signs
front-proxy-client, and the cluster's CA signs the others.`,
		Example: "  ./install certs generate-csr --cert-dir /root/pki --kubeconfig-dir /root/pki\n  ./install certs generate-csr --config kubeadm.yaml",
		RunE: func(cmd *cobra.Command, _ []string) error {
			source.Warn = output.Warner(cmd)
			cfg, err := source.Node(cmd.Context(), e.KubernetesVersion)
			if err != nil {
				return err
			}
			dir, err := filepath.Abs(kubeconfigDir)
			if err != nil {
				return fmt.Errorf("finding --kubeconfig-dir %q: %w", kubeconfigDir, err)
			}
			return source.WriteRequests(cfg, dir, cmd.OutOrStdout())
		},
	}
	f := cmd.Flags()
	f.StringVar(&source.CertificatesDir, "cert-dir", "", "the `DIRECTORY` for keys and requests (default: the directory in the configuration, or "+config.CertificatesDir+")")
	f.StringVar(&source.ConfigFile, "config", "", "kubeadm's configuration `FILE`")
	f.StringVar(&kubeconfigDir, "kubeconfig-dir", kubeconfigDir, "the `DIRECTORY` for kubeconfigs and their requests")
	f.StringVar(&source.Rootfs, "rootfs", "/", "the `DIRECTORY` to use as the host's root directory")
	return cmd
}
