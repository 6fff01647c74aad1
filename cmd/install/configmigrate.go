package main

import (
	"bytes"
	"cmp"
	"fmt"

	"github.com/spf13/cobra"

	"airlift/fault"
	"airlift/installer/config"
	"airlift/installer/host/filesystem"
	"airlift/installer/pki"
)

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
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if oldPath == "" {
				return fault.New(fault.Usage, "--old-config is missing").Hint("./install config migrate --old-config old.yaml --new-config new.yaml")
			}
			data, err := migrate(cmd, oldPath, experimental)
			if err != nil {
				return err
			}
			if newPath == "" {
				_, err = verbatim(cmd).Write(data)
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

func migrate(cmd *cobra.Command, path string, experimental bool) ([]byte, error) {
	f, err := readWhole(cmd, path, thisHost)
	if err != nil {
		return nil, err
	}
	if experimental {
		f.API = config.NewerAPI(f.API, "v1beta4")
	}
	var docs [][]byte
	add := func(data []byte, e error) {
		docs, err = append(docs, data), cmp.Or(err, e)
	}
	if f.Init != nil {
		if f.Init.EncryptionAlgorithm == "" {
			f.Init.EncryptionAlgorithm = pki.DefaultAlgorithm
		}
		add(f.Init.WriteInit(f.API))
	}
	if f.Join != nil {
		add(f.Join.WriteJoin(f.API))
	}
	if f.Reset != nil {
		add(f.Reset.Write(f.API))
	}
	if f.Upgrade != nil {
		add(f.Upgrade.Write(f.API))
	}
	if err != nil {
		return nil, err
	}
	return bytes.Join(append(docs, f.Components...), []byte("---\n")), nil
}
