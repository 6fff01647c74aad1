package main

import (
	"cmp"
	"fmt"

	"github.com/spf13/cobra"

	"airlift/bundle"
	"airlift/bundle/signature"
	"airlift/internal/fault"
	"airlift/internal/progress"
)

func newSignCmd() *cobra.Command {
	var keyFile, output string
	var password passwordFlag
	cmd := &cobra.Command{
		Use:   "sign FILE",
		Short: "Sign a bundle",
		Long: `Sign a bundle with a minisign secret key. The signature is a separate file,
FILE.minisig; an existing one by the same key is replaced. The bundle does not change.
Before it is signed, its bytes are compared with its digests.

The signature covers the whole file and a trusted comment: the file's name, the
Kubernetes version and the size. "bundle verify --key" checks it, and so does
minisign -V on a machine without Airlift.

` + passwordHelp,
		Example: `  bundle sign install --key airlift.key
  minisign -Vm install -p airlift.pub`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			f, err := bundle.Open(args[0])
			if err != nil {
				return err
			}
			defer f.Close()
			if keyFile == "" {
				return fault.New(fault.Usage, "--key is required").Hint("bundle sign " + fault.Word(args[0]) + " --key airlift.key")
			}
			path := cmp.Or(output, signature.Path(f.Path()))
			if err := keepInputs("the signature", path, "--out", input{"the bundle", f.Path()}, input{"the secret key", keyFile}, input{"the file of --password-file", password.file}); err != nil {
				return err
			}
			if err := bundle.KeepBundle(path); err != nil {
				return err
			}
			key, err := signature.ReadSecretKey(keyFile, func() (string, error) { return password.existing(ctx, keyFile) })
			if err != nil {
				return err
			}
			if err := key.MayReplace(path); err != nil {
				return err
			}
			if err := f.Check(ctx, nil); err != nil {
				return err
			}
			display := progress.New(cmd.ErrOrStderr())
			defer display.Close()
			item := display.Item("signing "+f.Path(), f.Size())
			comment, err := signature.Sign(ctx, f, key, path, item.Add)
			if err != nil {
				item.Failed()
				return err
			}
			item.Done("signed")
			fmt.Fprintf(cmd.OutOrStdout(), "signature        %s\nkey ID           %s\ntrusted comment  %s\n", path, key.ID(), comment)
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&keyFile, "key", "", "`FILE` with the secret key (required)")
	bindOut(f, &output, "", "`PATH` of the signature (default FILE.minisig)")
	password.bind(f)
	return cmd
}
