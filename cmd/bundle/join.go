package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"airlift/bundle"
	"airlift/bundle/parts"
	"airlift/bundle/signature"
	"airlift/internal/fault"
	"airlift/internal/progress"
	"airlift/internal/space"
)

func newJoinCmd() *cobra.Command {
	var output string
	var key signatureFlags
	cmd := &cobra.Command{
		Use:   "join PART | LIST",
		Short: "Join the parts of a bundle on a local disk and check the result",
		Long: `Join the parts that "bundle split" wrote. Name any part, or the list FILE.sha256. The
parts and the list must be in one directory. The result is FILE in the current directory,
which should be on a local disk: what was checked there is what you run.

Each part is read once. The parts and the whole are compared with the list, and the
written file with its own digests. With --key, the written file must also be signed by
that key; the signature is FILE.minisig next to the parts, and is copied next to the
result. Only then does the file get its name. An existing file is not replaced.

Without --key, join detects damage, but not a forged file: check the signature of the
result before you run it.`,
		Example: `  bundle join /media/usb/install.sha256 --key airlift.pub
  bundle join /media/usb/install.001 --out install-v1.37.2`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := key.parse(); err != nil {
				return err
			}
			base, _, ok := parts.Parse(args[0])
			if !ok {
				return fault.New(fault.Usage, "%q is not the name of a part", args[0]).Hint("name a part that bundle split wrote, such as " + fault.Word(parts.Path(args[0], 1)))
			}
			set, err := parts.Open(base)
			if err != nil {
				return err
			}
			defer set.Close()
			display := progress.New(cmd.ErrOrStderr())
			defer display.Close()
			path, out := cmp.Or(output, filepath.Base(base)), cmd.OutOrStdout()
			if key.value != "" {
				key.path = cmp.Or(key.path, signature.Path(base))
			}
			s, err := join(cmd.Context(), display, set, path, &key)
			if err != nil {
				return err
			}
			display.Close()
			key.print(out)
			fmt.Fprintf(out, "%s is complete: %d parts, %s\nsha256: %s\n", path, len(set.Parts), progress.Bytes(s.Size), s.SHA256)
			if key.value == "" {
				fmt.Fprintf(out, "Who built it was not checked. Before you run it: bundle verify %s --key KEY --signature %s\n", fault.Word(path), fault.Word(signature.Path(base)))
			}
			return key.placeSignature(out, path)
		},
	}
	bindOut(cmd.Flags(), &output, "", "the `FILE` to write (default FILE in the current directory)")
	key.bind(cmd)
	return cmd
}

// join writes the parts to path, which gets its name when the written file was verified.
func join(ctx context.Context, display *progress.Display, set *parts.Set, path string, key *signatureFlags) (bundle.Summary, error) {
	for _, p := range []string{path, signature.Path(path)} {
		if _, err := os.Lstat(p); err == nil && (p == path || key.value != "" && !sameFile(p, key.path)) {
			return bundle.Summary{}, existsError(p)
		}
	}
	if p, ok := set.Missing(); ok {
		return bundle.Summary{}, set.Check(ctx, p, func(int64) {})
	}
	if err := space.Check(filepath.Dir(path), "the joined file", set.Size()); err != nil {
		return bundle.Summary{}, err
	}
	draft, err := bundle.CopyDraft(ctx, path, func(w io.Writer) error {
		sum := sha256.New()
		for _, p := range set.Parts {
			item := display.Item("joining "+p.Path, p.Size)
			if err := set.Copy(ctx, io.MultiWriter(w, sum), set, p, item.Add); err != nil {
				item.Failed()
				return err
			}
			item.Done("matches its sha256")
		}
		return set.CheckWhole(sum.Sum(nil))
	})
	if err != nil {
		return bundle.Summary{}, err
	}
	defer draft.Discard()
	if err := key.checkDraft(ctx, display, draft, signature.Path(set.Base)); err != nil {
		return bundle.Summary{}, err
	}
	if err := draft.PlaceNew(); errors.Is(err, fs.ErrExist) {
		return bundle.Summary{}, existsError(path)
	} else if err != nil {
		return bundle.Summary{}, err
	}
	return draft.Summary, nil
}

// checkDraft reads a written file again: its signature, if there is a key, its version and all
// digests.
func (s *signatureFlags) checkDraft(ctx context.Context, display *progress.Display, d *bundle.Draft, signaturePath string) error {
	f, err := d.Open()
	if err != nil {
		return err
	}
	defer f.Close()
	if err := s.check(ctx, display, f.Reader(), f.Path(), signaturePath); err != nil {
		return err
	}
	if err := s.checkVersion(f); err != nil {
		return err
	}
	return f.Check(ctx, nil)
}

func existsError(path string) error {
	return fault.New(fault.Usage, "%q exists: it is not replaced", path).Hint("remove it, or choose another path with --out")
}
