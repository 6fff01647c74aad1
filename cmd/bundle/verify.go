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
	"airlift/images/release"
	"airlift/internal/atomicfile"
	"airlift/internal/fault"
	"airlift/internal/progress"
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
--key, verify detects damage, but not a forged file. A file that was signed long ago stays
signed: with --require-version, one with an older Kubernetes version is an error.

Of a thin file ("install thin"), verify checks every byte that is there. A signature of a
thin file is made from the thin file itself: "bundle sign".

The parts of a file ("bundle split") are compared with the list next to them. Name the
parts, or the list FILE.sha256 for all of them. Each is read once. For a damaged part,
verify lists the damaged bytes, if the last part is in the same directory. To use parts
that you do not trust, join them to a local disk and check the result: "bundle join".

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
				return fault.New(fault.Usage, "verify accepts one file, and got %q too", args[1]).Hint("run it once for each file")
			}
			file, err := os.Open(args[0])
			if err != nil {
				return fault.Wrap(err, fault.Bundle, "")
			}
			defer file.Close()
			display := progress.New(cmd.ErrOrStderr())
			defer display.Close()
			m, f, err := key.verify(cmd.Context(), display, file)
			if fault.ExitCode(err) == fault.Bundle && printFileDamage(cmd, display, args[0]) {
				err = fault.Wrap(err, fault.Bundle, "repair it with another copy (bundle repair "+fault.Word(args[0])+" --from COPY), or copy it again")
			}
			if err != nil {
				return err
			}
			display.Close()
			key.print(cmd.OutOrStdout())
			if f.Thin() {
				fmt.Fprintf(cmd.OutOrStdout(), "%s is a complete thin file: its launcher, installer, manifest and digests match their sha256. The rest of the bundle, %s of %s, is not in it.\n",
					f.Path(), progress.Bytes(f.WholeSize()-f.Size()), progress.Bytes(f.WholeSize()))
				return nil
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s is complete: its launcher, installer, manifest, %d entries (%s) and payload (%s) match their sha256, and all %d images are complete. Verified in %.1f s.\n",
				f.Path(), len(m.Entries), progress.Bytes(m.UnpackedSize()), progress.Bytes(f.PayloadSize()), len(m.Images), time.Since(start).Seconds())
			return nil
		},
	}
	key.bind(cmd)
	return cmd
}

// verify checks the signature of the file, and compares everything in it with its sha256.
func (s *signatureFlags) verify(ctx context.Context, display *progress.Display, file *os.File) (*bundle.Manifest, *bundle.File, error) {
	path := file.Name()
	i, err := file.Stat()
	if err != nil {
		return nil, nil, fault.Wrap(err, fault.Bundle, "")
	}
	if !i.Mode().IsRegular() {
		return nil, nil, fault.New(fault.Bundle, "%s is not a regular file", path)
	}
	f, openErr := bundle.OpenAt(file, i.Size(), path)
	content := io.NewSectionReader(file, 0, i.Size())
	if openErr == nil {
		content = f.Reader() // with the trailer, on which the checks of all other parts depend
	}
	if err := s.check(ctx, display, content, path, signature.Path(path)); err != nil {
		return nil, nil, err
	}
	if openErr != nil {
		return nil, nil, openErr
	}
	m, err := f.Manifest()
	if err != nil {
		return nil, nil, err
	}
	size := m.UnpackedSize()
	if f.Thin() {
		size = f.Size()
	}
	item := display.Item("verifying "+path, size)
	if err := f.Verify(ctx, func(_ bundle.Entry, n int64) { item.Add(n) }); err != nil {
		item.Failed()
		return nil, nil, err
	}
	item.Done("verified")
	return m, f, s.checkVersion(f)
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
	value, path, version string

	key     signature.PublicKey
	comment string // of the signature that was checked
}

// bind adds all flags, and bindKey those without the version.
func (s *signatureFlags) bind(cmd *cobra.Command) {
	s.bindKey(cmd)
	cmd.Flags().StringVar(&s.version, "require-version", "", "the file must not have an older Kubernetes version than `VERSION`: an old file stays signed")
}

func (s *signatureFlags) bindKey(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&s.value, "key", "", "the file must be signed by this public key: a `FILE`, or the key itself")
	f.StringVar(&s.path, "signature", "", "with --key: the `FILE` with the signature (default FILE.minisig)")
}

func (s *signatureFlags) parse() (err error) {
	if s.value == "" && s.path != "" {
		return fault.New(fault.Usage, "--signature needs --key").Hint("add --key airlift.pub")
	}
	if s.value != "" {
		s.key, err = signature.ReadPublicKey(s.value)
	}
	return err
}

// check checks the signature of content, which has the name path. The signature file is
// --signature, or signaturePath by default. Without --key it does nothing.
func (s *signatureFlags) check(ctx context.Context, display *progress.Display, content *io.SectionReader, path, signaturePath string) (err error) {
	if s.value == "" {
		return nil
	}
	item := display.Item("signature of "+path, content.Size())
	s.comment, err = signature.Verify(ctx, content, path, cmp.Or(s.path, signaturePath), s.key, item.Add)
	if err != nil {
		item.Failed()
		return err
	}
	item.Done("signed by key " + s.key.ID())
	return nil
}

// mayReplace returns an error if the file at path is signed, and there is no key: what replaces it
// would not be checked.
func (s *signatureFlags) mayReplace(path string) error {
	if s.value != "" {
		return nil
	}
	if signed, err := signature.IsSigned(path); err != nil || !signed {
		return err
	}
	return fault.New(fault.Usage, "%q is signed: only a file that is signed too may replace it", path).
		Hint("add --key airlift.pub --signature FILE with the signature of the new file, or choose another path with --out")
}

// placeSignature copies the signature that was checked to its place next to the file at path.
func (s *signatureFlags) placeSignature(out io.Writer, path string) error {
	to := signature.Path(path)
	if s.path == "" || sameFile(s.path, to) {
		return nil
	}
	text, err := os.ReadFile(s.path)
	if err == nil {
		err = atomicfile.Write(to, text, 0o644)
	}
	if err != nil {
		return fmt.Errorf("the new file is complete, but its signature was not copied: %w", err)
	}
	fmt.Fprintf(out, "%s was copied from %s\n", to, s.path)
	return nil
}

// checkVersion compares the version of a bundle with --require-version.
func (s *signatureFlags) checkVersion(f *bundle.File) error {
	if s.version == "" {
		return nil
	}
	m, err := f.Manifest()
	if err != nil {
		return err
	}
	return release.AtLeast(f.Path(), m.KubernetesVersion, s.version)
}

// print prints who signed the file, if that was checked.
func (s *signatureFlags) print(out io.Writer) {
	if s.value != "" {
		fmt.Fprintf(out, "signed by key %s: %s\n", s.key.ID(), s.comment)
	}
}
