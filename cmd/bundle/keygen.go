package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"airlift/bundle/signature"
	"airlift/internal/fault"
)

func newKeygenCmd() *cobra.Command {
	var name string
	var without bool
	var password passwordFlag
	cmd := &cobra.Command{
		Use:   "keygen",
		Short: "Create a key pair for signing bundles",
		Long: `Create a key pair in minisign's format: NAME.key is the secret key, which signs
bundles, and NAME.pub is the public key, which checks signatures. Keep the secret
key on the machine that builds; take the public key to the sites. Existing files are
not overwritten.

The secret key is encrypted with a password. That needs 1 GiB of memory and some
seconds, each time it is used. --no-password writes it unencrypted, for machines that
protect it in another way. A minisign command can use both keys, and "bundle sign"
can use minisign's.

` + passwordHelp,
		Example: `  bundle keygen
  bundle keygen --out release-key
  bundle keygen --no-password`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			text := ""
			if without && password.file != "" {
				return fault.New(fault.Usage, "--no-password and --password-file exclude each other").Hint("use one of them")
			}
			if !without {
				var err error
				if text, err = password.chosen(cmd.Context()); err != nil {
					return err
				}
			}
			key, err := signature.WriteKeyPair(name+".key", name+".pub", text)
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "secret key  %s.key\npublic key  %s.pub\nkey ID      %s\nTo check a signature without the file %s.pub: --key %s\n", name, name, key.ID(), name, key)
			return nil
		},
	}
	f := cmd.Flags()
	bindOut(f, &name, "airlift", "path of the files, without .key and .pub")
	f.BoolVar(&without, "no-password", false, "do not encrypt the secret key")
	password.bind(f)
	return cmd
}
