package main

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"airlift/installer/cluster"
	"airlift/installer/config"
	"airlift/installer/host"
	"airlift/installer/host/detection"
	"airlift/installer/host/filesystem"
	"airlift/installer/pki"
)

func newCertificateKeyCmd() *cobra.Command {
	return &cobra.Command{
		Use:     "certificate-key",
		Short:   "Print a random key to encrypt uploaded certificates",
		Long:    "Print a random key for 'init --upload-certs --certificate-key KEY', which encrypts\nthe certificates with it.",
		Example: "  ./install certs certificate-key",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			fmt.Fprintln(cmd.OutOrStdout(), cluster.NewCertificateKey())
			return nil
		},
	}
}

func newCSRCmd() *cobra.Command {
	in := &certsFlags{}
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
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := in.describeNode(cmd.Context(), true, warner(cmd))
			if err != nil {
				return err
			}
			dir, err := filepath.Abs(kubeconfigDir)
			if err != nil {
				return fmt.Errorf("finding --kubeconfig-dir %q: %w", kubeconfigDir, err)
			}
			made, err := pki.Requests(cfg, in.root(), dir)
			if err != nil {
				return err
			}
			for _, file := range made.Files {
				at := filepath.Join(in.rootfs, file.Path)
				if err := filesystem.OutputDir(filepath.Dir(at), 0o700); err != nil {
					return fmt.Errorf("creating a directory for the requests: %w", err)
				}
				if err := filesystem.WriteOutput(at, file.Data, file.Mode); err != nil {
					return fmt.Errorf("writing %s: %w", file.Path, err)
				}
				if exposed, err := filesystem.Exposed(at); err != nil {
					return err
				} else if exposed && file.Mode == 0o600 {
					warner(cmd)("other users of this host can read %s, because its file system has no modes", file.Path)
				}
				fmt.Fprintln(cmd.OutOrStdout(), file.Path)
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&in.certDir, "cert-dir", "", "the `DIRECTORY` for keys and requests (default: that of the configuration, or "+config.CertificatesDir+")")
	f.StringVar(&in.configFile, "config", "", "kubeadm's configuration `FILE`")
	f.StringVar(&kubeconfigDir, "kubeconfig-dir", kubeconfigDir, "the `DIRECTORY` for kubeconfigs and their requests")
	f.StringVar(&in.rootfs, "rootfs", "/", "the `DIRECTORY` to use as the host's root directory")
	return cmd
}

// describeNode returns the configuration that init would use on this host. It
// completes the configuration file with facts about the host and with the
// bundle's Kubernetes version. If whole is false, only the cluster's address
// matters, and it skips the host's facts if the file has that address.
func (f *certsFlags) describeNode(ctx context.Context, whole bool, warn warnFunc) (*config.Config, error) {
	cfg, err := f.readFile(warn)
	if err != nil {
		return nil, err
	}
	complete := cfg.LocalAPIEndpoint.AdvertiseAddress != "" && cfg.NodeRegistration.Name != ""
	if !complete && (whole || cfg.ControlPlaneEndpoint == "") {
		h, err := host.Open(f.rootfs)
		if err != nil {
			return nil, err
		}
		cfg.Facts, err = detection.Detect(ctx, h.Root, detection.Options{
			NodeIP:      cfg.LocalAPIEndpoint.AdvertiseAddress,
			AddressFlag: "localAPIEndpoint.advertiseAddress in the file of --config",
			Networking:  cfg.Networking, NewCluster: true, CNI: cfg.CNI,
		})
		if err != nil {
			return nil, err
		}
	}
	if cfg.KubernetesVersion == "" {
		// Without a bundle the defaults of the oldest supported version apply.
		if b, err := openBundle(); err == nil {
			defer b.Close()
			m, err := b.Manifest()
			if err != nil {
				return nil, err
			}
			cfg.KubernetesVersion = m.KubernetesVersion
		}
	}
	cfg.CompleteInit()
	return cfg, f.placeCerts(cfg)
}
