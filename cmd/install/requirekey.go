package main

import (
	"cmp"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"airlift/bundle/signature"
	"airlift/fault"
	"airlift/progress"
)

// A requiredKey checks the signature of the bundle file before a command runs. A forged
// file has a forged installer, which need not check anything: only a check from outside,
// by minisign or 'bundle verify --key', proves who signed a file. This flag finds a wrong,
// replaced or unsigned file in the hands of a careful user.
type requiredKey struct{ key, signature string }

func (r *requiredKey) bind(f *pflag.FlagSet) {
	f.StringVar(&r.key, "require-key", "", "fail if this file is not signed by the public key in this `FILE`; check a file that you do not trust with minisign before you run it")
	f.StringVar(&r.signature, "signature", "", "with --require-key: the `FILE` with the signature (default: this file's path with .minisig)")
}

func (r *requiredKey) check(cmd *cobra.Command) error {
	if r.key == "" {
		if r.signature != "" {
			return fault.New(fault.Usage, "add --require-key FILE", "--signature needs --require-key")
		}
		return nil
	}
	key, err := signature.ReadPublicKey(r.key)
	if err != nil {
		return err
	}
	f, err := openOwnFile()
	if err != nil {
		return err
	}
	defer f.Close()
	display := progress.New(cmd.ErrOrStderr())
	defer display.Close()
	item := display.Item("signature of "+f.Path(), f.Size())
	path := cmp.Or(r.signature, signature.Path(f.Path()))
	comment, err := signature.Verify(cmd.Context(), f.Reader(), f.Path(), path, key, item.Add)
	if err != nil {
		item.Failed()
		return err
	}
	item.Done("signed by key " + key.ID() + ": " + comment)
	return nil
}
