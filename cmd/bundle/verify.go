package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"airlift/bundle"
	"airlift/bundle/repair"
	"airlift/bundle/signature"
	"airlift/fault"
	"airlift/progress"
)

func newVerifyCmd() *cobra.Command {
	var key signatureFlags
	cmd := &cobra.Command{
		Use:   "verify FILE | PART...",
		Short: "Check every byte of a bundle",
		Long: `Read the whole bundle and compare everything in it with its sha256: the launcher,
the compressed payload, the installer, the manifest and every entry. The manifests
and configs of the images must match the bundle's manifest.

With --key, the file's signature is checked first. It must be made with that key. Without
--key, verify detects damage, but not a forged file.

The parts of a file ("bundle split") are compared with the list next to them. Name the
parts, or the list FILE.sha256 for all of them. For a damaged part, verify lists the
damaged bytes, if the last part is in the same directory.

The exit code is 4 if anything is missing or damaged. Then verify lists all damaged
sections of the file with their offsets, and the entry at which each part of the payload
becomes unreadable. "bundle repair" repairs them with another copy.`,
		Example: `  bundle verify install
  bundle verify install --key airlift.pub
  bundle verify install.002
  bundle verify install.sha256`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			start := time.Now()
			if err := key.parse(); err != nil {
				return err
			}
			if _, ok := isPart(args[0]); ok {
				return verifyParts(cmd, args, &key)
			}
			if len(args) > 1 {
				return fault.New(fault.Usage, "run it once for each file", "verify accepts one file, and got %q too", args[1])
			}
			file, err := os.Open(args[0])
			if err != nil {
				return fault.Wrap(err, fault.Bundle, "")
			}
			display := progress.New(cmd.ErrOrStderr())
			defer display.Close()
			if err := key.checkFile(cmd.Context(), display, file); err != nil {
				file.Close()
				return err
			}
			m, f, err := verifyContent(cmd.Context(), display, file, args[0])
			if fault.ExitCode(err) == fault.Bundle && printFileDamage(cmd, display, args[0]) {
				err = fault.Wrap(err, fault.Bundle, "repair it with another copy (bundle repair "+shellQuote(args[0])+" --from COPY), or copy it again")
			}
			if err != nil {
				return err
			}
			defer f.Close()
			display.Close()
			key.print(cmd.OutOrStdout())
			fmt.Fprintf(cmd.OutOrStdout(), "%s is complete: its launcher, installer, manifest, %d entries (%s) and payload (%s) match their sha256, and all %d images are complete. Verified in %.1f s.\n",
				f.Path(), len(m.Entries), progress.Bytes(m.UnpackedSize()), progress.Bytes(f.PayloadSize()), len(m.Images), time.Since(start).Seconds())
			return nil
		},
	}
	key.bind(cmd)
	return cmd
}

// verifyContent compares everything in the file with its sha256. It closes the file on an
// error.
func verifyContent(ctx context.Context, display *progress.Display, file *os.File, path string) (*bundle.Manifest, *bundle.File, error) {
	f, err := bundle.OpenFile(file, path)
	if err != nil {
		return nil, nil, err
	}
	m, err := f.Manifest()
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	item := display.Item("verifying "+path, m.UnpackedSize())
	if err := f.Verify(ctx, func(_ bundle.Entry, n int64) { item.Add(n) }); err != nil {
		item.Failed()
		f.Close()
		return nil, nil, err
	}
	item.Done("verified")
	return m, f, nil
}

// printFileDamage lists the damage of the file at path. It returns false if there is nothing
// to list.
func printFileDamage(cmd *cobra.Command, display *progress.Display, path string) bool {
	file, err := os.Open(path)
	if err != nil {
		return false
	}
	defer file.Close()
	i, err := file.Stat()
	return err == nil && printDamage(cmd.Context(), cmd.OutOrStdout(), display, repair.Copy{Name: path, Size: i.Size(), ReaderAt: file})
}

// signatureFlags require a signature.
type signatureFlags struct {
	value, path string

	key     signature.PublicKey
	comment string // of the signature that was checked
}

func (s *signatureFlags) bind(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&s.value, "key", "", "the file must be signed by this public key: a `FILE`, or the key itself")
	f.StringVar(&s.path, "signature", "", "with --key: the `FILE` with the signature (default FILE.minisig)")
}

func (s *signatureFlags) parse() (err error) {
	if s.value == "" && s.path != "" {
		return fault.New(fault.Usage, "add --key airlift.pub", "--signature needs --key")
	}
	if s.value != "" {
		s.key, err = signature.ReadPublicKey(s.value)
	}
	return err
}

func (s *signatureFlags) checkFile(ctx context.Context, display *progress.Display, file *os.File) error {
	i, err := file.Stat()
	if err != nil {
		return fault.Wrap(err, fault.Bundle, "")
	}
	if !i.Mode().IsRegular() {
		return fault.New(fault.Bundle, "", "%s is not a regular file", file.Name())
	}
	return s.check(ctx, display, file, i.Size(), file.Name())
}

// check checks the signature of size bytes of r, which have the name path. Without --key it
// does nothing.
func (s *signatureFlags) check(ctx context.Context, display *progress.Display, r io.ReaderAt, size int64, path string) (err error) {
	if s.value == "" {
		return nil
	}
	item := display.Item("signature of "+path, size)
	s.comment, err = signature.Verify(ctx, io.NewSectionReader(r, 0, size), path, cmp.Or(s.path, signature.Path(path)), s.key, item.Add)
	if err != nil {
		item.Failed()
		return err
	}
	item.Done("signed by key " + s.key.ID())
	return nil
}

// print prints who signed the file, if that was checked.
func (s *signatureFlags) print(out io.Writer) {
	if s.value != "" {
		fmt.Fprintf(out, "signed by key %s: %s\n", s.key.ID(), s.comment)
	}
}
