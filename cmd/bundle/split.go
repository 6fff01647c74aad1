package main

import (
	"cmp"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"airlift/bundle"
	"airlift/bundle/parts"
	"airlift/bundle/signature"
	"airlift/internal/fault"
	"airlift/internal/progress"
)

func newSplitCmd() *cobra.Command {
	var size, output string
	cmd := &cobra.Command{
		Use:   "split FILE --size SIZE",
		Short: "Split a bundle into parts for small drives",
		Long: `Split a bundle into parts of at most SIZE bytes: FILE.001, FILE.002 and so on, and the
list FILE.sha256 with the checksums of all parts and of FILE. At the site, "bundle join" or cat
joins the parts. FILE does not change. It is compared with its digests first.

SIZE is a number of bytes, or has a unit: K, M, G are powers of 1024, KB, MB, GB powers of
1000. These names are sizes of media:

  fat32  4294967295, the largest file on FAT32 (one byte less than 4G)
  cd     700000000, for a CD-R of 80 minutes
  dvd    4294967295, the largest file on ISO 9660, which a DVD can hold

Existing files are not overwritten. An interrupted split removes what it has written.`,
		Example: `  bundle split install --size fat32
  bundle split install --size 650M --out /media/usb/install`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if size == "" {
				return fault.New(fault.Usage, "--size is required").Hint("for example: bundle split " + fault.Word(args[0]) + " --size fat32")
			}
			bytes, err := parts.ParseSize(size)
			if err != nil {
				return err
			}
			f, err := bundle.OpenWhole(args[0])
			if err != nil {
				return err
			}
			defer f.Close()
			if err := f.Check(cmd.Context(), nil); err != nil {
				return err
			}
			if bytes == parts.FAT32+1 {
				fmt.Fprintf(cmd.ErrOrStderr(), "warning: --size %s is one byte more than a file on FAT32 can have; for FAT32 use --size fat32\n", size)
			}
			display := progress.New(cmd.ErrOrStderr())
			defer display.Close()
			item := display.Item("splitting "+f.Path(), f.Size())
			base := cmp.Or(output, f.Path())
			paths, err := parts.Split(cmd.Context(), f.Reader(), base, bytes, item.Add)
			if err != nil {
				item.Failed()
				return err
			}
			item.Done(fmt.Sprintf("%d parts", len(paths)))
			_, err = fmt.Fprint(cmd.OutOrStdout(), splitResult(base, paths))
			return err
		},
	}
	f := cmd.Flags()
	f.StringVar(&size, "size", "", "maximum `SIZE` of a part: bytes, 650M, 4GB, fat32, cd or dvd (required)")
	bindOut(f, &output, "", "`PATH` of the parts, without .001 (default FILE)")
	cobra.CheckErr(cmd.RegisterFlagCompletionFunc("size", cobra.FixedCompletions(parts.Names(), cobra.ShellCompDirectiveNoFileComp)))
	return cmd
}

// splitResult is the list of the files written, and how to join them.
func splitResult(base string, paths []string) string {
	var b strings.Builder
	for _, p := range append(paths, parts.ListPath(base)) {
		fmt.Fprintln(&b, p)
	}
	name := fault.Word(filepath.Base(base))
	glob := name + ".0*"
	if len(paths) > 99 {
		glob = name + ".[0-9]*"
	}
	fmt.Fprintf(&b, `
Copy these files, and %s if there is one, to a local disk at the site. There:
  bundle join %s --key airlift.pub
Without the bundle command, check the joined file before you make it executable:
  cat %s > %s
  minisign -Vm %s -p airlift.pub
  chmod +x %s
`, filepath.Base(signature.Path(base)), fault.Word(filepath.Base(parts.ListPath(base))), glob, name, name, name)
	return b.String()
}
