package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"airlift/bundle"
	"airlift/cmd/output"
	"airlift/installer/configfile"
	"airlift/installer/host/filesystem"
	"airlift/internal/fault"
)

const configLong = `Print, validate and convert configuration files in kubeadm's format. These commands
do not change this host and do not need root.

They read kubeadm.k8s.io/v1beta3, v1beta4 and v1. They write the version that the
bundle's kubeadm would write: v1beta3 up to Kubernetes v1.30, v1beta4 since v1.31.
A file in a newer version keeps its version.`

func newConfigCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Print, validate and convert configuration files",
		Long:  configLong,
		Example: `  ./install config print init-defaults > kubeadm.yaml
  ./install config validate --config kubeadm.yaml
  ./install config migrate --old-config old.yaml --new-config new.yaml
  ./install config images list`,
	}
	cmd.PersistentFlags().String("kubeconfig", adminConf, "has no effect, as in kubeadm: these commands do not connect to the cluster")
	cmd.AddCommand(newConfigPrintCmd(), newConfigValidateCmd(), newConfigMigrateCmd(), newConfigImagesCmd())
	return cmd
}

// manifest returns the bundle's manifest, or nil if this installer has no
// payload.
func manifest() (*bundle.Manifest, error) {
	f, err := openBundle()
	if errors.Is(err, bundle.ErrNoPayload) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return f.Manifest()
}

func newConfigValidateCmd() *cobra.Command {
	path := ""
	cmd := &cobra.Command{
		Use:   "validate",
		Short: "Validate a configuration file",
		Long: `Validate a configuration file. The command reports all unknown, misplaced and
repeated fields and all invalid values, with their lines. Warnings are printed to
standard error.`,
		Example: "  ./install config validate --config kubeadm.yaml",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if path == "" {
				return fault.New(fault.Usage, "--config is missing").Hint("./install config validate --config kubeadm.yaml")
			}
			if err := configReader(cmd).Validate(path); err != nil {
				return err
			}
			_, err := fmt.Fprintln(cmd.OutOrStdout(), "ok")
			return err
		},
	}
	cmd.Flags().StringVar(&path, "config", "", "the `FILE` to validate; - is standard input (required)")
	cmd.Flags().Bool("allow-deprecated-api", false, "has no effect: v1beta3, v1beta4 and v1 are always accepted")
	cmd.Flags().Bool("allow-experimental-api", false, "has no effect: v1beta3, v1beta4 and v1 are always accepted")
	return cmd
}

// configReader reads configuration files for this bundle.
func configReader(cmd *cobra.Command) *configfile.Reader {
	return &configfile.Reader{Bundle: manifest, Messages: cmd.ErrOrStderr()}
}

func newConfigMigrateCmd() *cobra.Command {
	oldPath, newPath, experimental := "", "", false
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Convert a configuration file to a current version of kubeadm's format",
		Long: `Convert a configuration file to a current version of kubeadm's format. All defaults
are filled in, including this host's name and address: the result is what init, join
or reset would use on this host. Comments are lost. Documents of the kubelet and of
kube-proxy are copied unchanged.`,
		Example: "  ./install config migrate --old-config old.yaml --new-config new.yaml",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if oldPath == "" {
				return fault.New(fault.Usage, "--old-config is missing").Hint("./install config migrate --old-config old.yaml --new-config new.yaml")
			}
			data, err := configReader(cmd).Migrate(oldPath, experimental)
			if err != nil {
				return err
			}
			if newPath == "" {
				_, err = output.Verbatim(cmd.OutOrStdout()).Write(data)
				return err
			}
			// The file may contain tokens.
			if err := filesystem.WriteOutput(newPath, data, 0o600); err != nil {
				return fmt.Errorf("writing the new configuration %q: %w", newPath, err)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&oldPath, "old-config", "", "the `FILE` to convert; - is standard input (required)")
	cmd.Flags().StringVar(&newPath, "new-config", "", "the `FILE` to write (default: standard output)")
	cmd.Flags().BoolVar(&experimental, "allow-experimental-api", false, "write v1beta4 also for Kubernetes up to v1.30, where it is experimental")
	return cmd
}
