package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"airlift/bundle"
	"airlift/bundle/delta"
	"airlift/bundle/signature"
	"airlift/internal/fault"
	"airlift/internal/progress"
)

// deltaSuffix is appended to the name of the new bundle.
const deltaSuffix = ".delta"

func newDeltaCmd() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "delta OLD NEW",
		Short: "Write the difference between two bundles to a small file",
		Long: `Write the difference between the bundles OLD and NEW to a small file, the delta. From OLD
and the delta, "bundle patch" creates NEW with the same bytes: the checksum and the
signature of NEW are valid for the result.

Changed binaries and layers are stored as differences to the files of OLD. Everything else of
NEW comes from OLD, and is compressed again. So NEW must be compressed by this version of
bundle: "fastest" and "default" always work, "best" only with the same version of the zstd
command.

At the end, delta checks its result: it applies the delta to OLD and compares the sha256
with NEW's. That takes about as long as the compression of NEW.`,
		Example: `  bundle delta install-v1.37.1 install-v1.37.2
  bundle delta old/install new/install --out /media/usb/install.delta`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			old, now, err := openTwo(args[0], args[1])
			if err != nil {
				return err
			}
			defer func() { _ = errors.Join(old.Close(), now.Close()) }()
			display := progress.New(cmd.ErrOrStderr())
			defer display.Close()
			path := cmp.Or(output, now.Path()+deltaSuffix)
			if err := keepInputs("the delta", path, "--out", input{"the bundle", old.Path()}, input{"the bundle", now.Path()}); err != nil {
				return err
			}
			if err := bundle.KeepBundle(path); err != nil {
				return err
			}
			h, err := delta.Create(cmd.Context(), old, now, path, delta.Options{Bundle: version, Stage: stages(display)})
			if err != nil {
				return err
			}
			display.Close()
			i, err := os.Stat(path)
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), `%s: %s, %.1f%% of %s
At a site that has %s:
    bundle patch OLD %s --out NEW
    sha256 of the result: %s
`, path, progress.Bytes(i.Size()), 100*float64(i.Size())/float64(now.Size()), now.Path(), h.Old, filepath.Base(path), h.New.SHA256)
			return nil
		},
	}
	bindOut(cmd.Flags(), &output, "", "the delta's `FILE` (default NEW"+deltaSuffix+")")
	return cmd
}

func newPatchCmd() *cobra.Command {
	var output string
	var key signatureFlags
	cmd := &cobra.Command{
		Use:   "patch OLD DELTA",
		Short: "Create the newer bundle from the older one and a delta",
		Long: `Create the newer bundle from OLD and DELTA, a file of "bundle delta". OLD must be the same
bundle as for "bundle delta". The result has the same bytes as the original, so its
signature is valid: patch compares the sha256 before it renames the file to its final name.

That sha256 is in the delta, which is not signed: only --key proves that the result is the
original, and not a file of another author. Give the signature of the new bundle with
--signature, or copy it to NEW.minisig first. patch checks it before the result gets its
name. To replace a signed file, --key is required.

patch needs as much time and memory as the compression of the bundle, and free space for
the bundle and for what it unpacks from OLD. With the default compression it takes minutes.
OLD does not change, unless --out names it. An interrupted patch leaves no files.

If the result replaces a bundle, patch removes the signature, the provenance and the SBOM
next to it that belong to the replaced bundle, and prints their names. It keeps the files that
belong to the new bundle.`,
		Example: `  bundle patch install-v1.37.1 install-v1.37.2.delta
  bundle patch install /media/usb/install.delta --out install.new
  bundle patch install new.delta --out install --key airlift.pub --signature new.minisig`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			path := output
			if path == "" {
				name, ok := strings.CutSuffix(args[1], deltaSuffix)
				if !ok {
					return fault.New(fault.Usage, "%q does not end in %s, so the result has no name", args[1], deltaSuffix).Hint("add --out NEW")
				}
				path = filepath.Base(name)
			}
			if output == "" && sameFile(path, args[0]) {
				return fault.New(fault.Usage, "the result would replace %s", args[0]).Hint("add --out NEW; --out " + fault.Word(path) + " replaces the older bundle")
			}
			if err := key.parse(); err != nil {
				return err
			}
			return patch(cmd.Context(), cmd, args[0], args[1], path, &key)
		},
	}
	bindOut(cmd.Flags(), &output, "", "the `FILE` of the new bundle (default DELTA without "+deltaSuffix+", in this directory)")
	key.bind(cmd)
	return cmd
}

func patch(ctx context.Context, cmd *cobra.Command, oldPath, deltaPath, path string, key *signatureFlags) error {
	d, err := delta.Open(ctx, deltaPath)
	if err != nil {
		return err
	}
	defer d.Close()
	old, err := bundle.OpenWhole(oldPath)
	if err != nil {
		return err
	}
	defer old.Close()
	if err := keepInputs("the result", path, "--out", input{"the delta", deltaPath}, input{"the public key", key.value}, input{"the signature", key.path}); err != nil {
		return err
	}
	if err := key.mayReplace(path); err != nil {
		return err
	}
	display := progress.New(cmd.ErrOrStderr())
	defer display.Close()
	_, err = os.Stat(path)
	replaces := err == nil
	draft, err := d.Draft(ctx, old, path, stages(display))
	if err != nil {
		return err
	}
	defer draft.Discard()
	if err := key.checkDraft(ctx, display, draft, signature.Path(path)); err != nil {
		return fault.Wrap(fmt.Errorf("checking the result of the delta: %w", err), fault.ExitCode(err),
			"nothing was replaced; name the signature of the new bundle with --signature, or get the delta again")
	}
	if err := draft.Replace(); err != nil {
		return err
	}
	display.Close()
	out := cmd.OutOrStdout()
	key.print(out)
	fmt.Fprintf(out, "%s: Kubernetes %s, %s\nsha256: %s, the one in the delta\n", path, d.New.KubernetesVersion, progress.Bytes(draft.Size), draft.SHA256)
	if key.value == "" {
		fmt.Fprintf(out, "Who built it was not checked: bundle verify %s --key KEY\n", fault.Word(path))
	}
	if replaces {
		if err := removeOfReplaced(out, path, draft.Summary); err != nil {
			return err
		}
	}
	return key.placeSignature(out, path)
}

func openTwo(oldPath, newPath string) (old, now *bundle.File, err error) {
	if old, err = bundle.OpenWhole(oldPath); err != nil {
		return nil, nil, err
	}
	if now, err = bundle.OpenWhole(newPath); err != nil {
		old.Close()
		return nil, nil, err
	}
	return old, now, nil
}

func sameFile(a, b string) bool {
	x, err := os.Stat(a)
	if err != nil {
		return false
	}
	y, err := os.Stat(b)
	return err == nil && os.SameFile(x, y)
}

// stages shows one line for each part of the work.
func stages(display *progress.Display) delta.Stage {
	var last *progress.Item
	return func(what string, size int64) func(int64) {
		if last != nil {
			last.Done("done")
		}
		last = display.Item(what, size)
		return last.Add
	}
}
