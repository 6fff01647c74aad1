package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"airlift/bundle"
	"airlift/progress"
)

func newVerifyCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "verify FILE",
		Short: "Check every byte of a bundle",
		Long: `Read the whole bundle and compare everything in it with its sha256: the launcher,
the compressed payload, the installer, the manifest and every entry. The manifests
and configs of the images must match the bundle's manifest.

The exit code is 4 if anything is missing or damaged. The error names the offset in
the file, and the entry or part.`,
		Example: "  bundle verify install",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			f, err := bundle.Open(args[0])
			if err != nil {
				return err
			}
			defer f.Close()
			m, err := f.Manifest()
			if err != nil {
				return err
			}
			start := time.Now()
			display := progress.New(cmd.ErrOrStderr())
			item := display.Item("verifying "+f.Path(), m.UnpackedSize())
			if err := f.Verify(cmd.Context(), func(_ bundle.Entry, n int64) { item.Add(n) }); err != nil {
				item.Failed()
				display.Close()
				return err
			}
			item.Done("verified")
			display.Close()
			fmt.Fprintf(cmd.OutOrStdout(), "%s is complete: its launcher, installer, manifest, %d entries (%s) and payload (%s) match their sha256, and all %d images are complete. Verified in %.1f s.\n",
				f.Path(), len(m.Entries), progress.Bytes(m.UnpackedSize()), progress.Bytes(f.PayloadSize()), len(m.Images), time.Since(start).Seconds())
			return nil
		},
	}
}
