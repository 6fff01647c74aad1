package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"airlift/bundle"
)

func newVerifyCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "verify FILE",
		Short: "Check every byte of a bundle",
		Long: `Read a bundle from end to end and compare everything in it with its sha256: the
install program, the manifest, every entry, the compressed payload. The images'
own manifests and configs must agree with the bundle's.

The exit code is 4 if anything is missing or damaged; the message names the
first entry that is.`,
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
			progress, done := verifyProgress(cmd.ErrOrStderr(), f.Path(), m.UnpackedSize())
			err = f.Verify(cmd.Context(), progress)
			done()
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s is whole: its install program, manifest, %d entries (%s) and payload (%s) match their sha256, and its %d images are complete. Checked in %.1f s.\n",
				f.Path(), len(m.Entries), formatSize(m.UnpackedSize()), formatSize(f.PayloadSize()), len(m.Images), time.Since(start).Seconds())
			return nil
		},
	}
}

// verifyProgress shows a bar on a terminal and one line elsewhere. done takes
// the bar away.
func verifyProgress(w io.Writer, path string, total int64) (progress bundle.Progress, done func()) {
	if f, ok := w.(*os.File); !ok || !term.IsTerminal(int(f.Fd())) {
		fmt.Fprintf(w, "verifying %s (%s unpacked)\n", path, formatSize(total))
		return nil, func() {}
	}
	bar := progressbar.NewOptions64(total,
		progressbar.OptionSetWriter(w),
		progressbar.OptionSetDescription("verifying"),
		progressbar.OptionShowBytes(true),
		progressbar.OptionThrottle(100*time.Millisecond),
		progressbar.OptionClearOnFinish(),
	)
	return func(_ bundle.Entry, n int64) { bar.Add64(n) }, func() { bar.Clear() }
}
