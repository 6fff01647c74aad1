package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/spf13/cobra"

	"airlift/bundle"
	"airlift/bundle/parts"
	"airlift/bundle/repair"
	"airlift/bundle/signature"
	"airlift/internal/fault"
	"airlift/internal/progress"
)

func newRepairCmd() *cobra.Command {
	var from []string
	var key signatureFlags
	cmd := &cobra.Command{
		Use:   "repair FILE --from COPY",
		Short: "Repair a damaged bundle from other copies",
		Long: `Compare the bundle with its digests, piece by piece, and rewrite what is damaged or
missing with bytes from other copies. The copies may be damaged too, in other places.
Repeat --from for several copies. A copy may be in parts ("bundle split"): name any part.

Every piece is compared with its digest before it is written, and intact pieces are not
written. An interrupted repair can be run again. Copies of another bundle are refused:
both trailers must be equal, or, if the trailer of FILE is damaged, its digests or its
manifest must match the copy's trailer.

repair proves that FILE is what was built. It does not prove who built it: check the
signature or the sha256 afterwards. With --key, it checks the signature of the whole
repaired file before it writes anything, and needs all missing sections. If FILE has a
signature next to it and its own trailer is damaged, --key is required, because then a
copy decides what FILE becomes.

The exit code is 4 if the file is still damaged.`,
		Example: `  bundle repair install --from /media/usb/install
  bundle repair install --from copy1 --from copy2
  bundle repair install --from /media/usb/install.001`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(from) == 0 {
				return fault.New(fault.Usage, "--from is required").Hint("bundle repair " + fault.Word(args[0]) + " --from COPY")
			}
			if err := key.parse(); err != nil {
				return err
			}
			return repairFile(cmd.Context(), cmd.OutOrStdout(), progress.New(cmd.ErrOrStderr()), args[0], from, &key)
		},
	}
	cmd.Flags().StringArrayVar(&from, "from", nil, "another `COPY` of the same bundle (required, repeatable)")
	key.bindKey(cmd)
	return cmd
}

func repairFile(ctx context.Context, out io.Writer, display *progress.Display, path string, from []string, key *signatureFlags) error {
	defer display.Close()
	file, err := openForRepair(path)
	if err != nil {
		return err
	}
	defer file.Close()
	copies, closers, err := openCopies(file, from)
	for _, end := range closers {
		defer end()
	}
	if err != nil {
		return err
	}
	var item *progress.Item
	stage := func(what string, size int64) func(int64) {
		item = display.Item(what, size)
		return item.Add
	}
	result, err := repair.File(ctx, file, copies, stage, func(repaired *io.SectionReader, own bool) error {
		if !own {
			if err := key.mayReplace(path); err != nil {
				return fault.Wrap(fmt.Errorf("its trailer is damaged, so a copy decides what it becomes: %w", err), fault.Usage,
					"add --key airlift.pub: then the signature is checked before anything is written")
			}
		}
		return key.check(ctx, display, repaired, path, signature.Path(path))
	})
	if item != nil {
		item.Failed()
		display.Close()
	}
	for _, r := range result.Rewritten {
		source := "computed from the trailer"
		if r.From != "" {
			source = "from " + r.From
		}
		fmt.Fprintf(out, "rewritten: %s, %s\n", r, source)
	}
	if result.Removed > 0 {
		fmt.Fprintf(out, "removed: %d bytes after the end\n", result.Removed)
	}
	for _, r := range result.Lost {
		fmt.Fprintf(out, "still damaged: %s\n", r)
	}
	if err == nil {
		err = result.Err(path)
	}
	if err == nil {
		err = checkRepaired(ctx, path)
	}
	if ctx.Err() != nil {
		return fault.Wrap(err, fault.Interrupted, "run the same command again: it repairs the rest")
	}
	if err != nil {
		return err
	}
	if len(result.Rewritten) == 0 && result.Removed == 0 {
		fmt.Fprintf(out, "%s is complete: nothing was changed.\n", path)
		return nil
	}
	fmt.Fprintf(out, "%s is complete again: %d bytes in %d section(s) were rewritten, %d bytes were removed.\n", path, result.Bytes(), len(result.Rewritten), result.Removed)
	return nil
}

// openForRepair opens the file that is repaired, for reading and writing.
func openForRepair(path string) (*os.File, error) {
	i, err := os.Stat(path)
	if err == nil && !i.Mode().IsRegular() {
		return nil, fault.New(fault.Usage, "%q is not a regular file", path).Hint("name a file that bundle build wrote")
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fault.New(fault.Bundle, "%w", err).Hint("to get a complete file, copy it: cp COPY " + fault.Word(path))
	case err != nil:
		return nil, fault.New(fault.Failure, "%w", err).Hint("repair a copy on a drive that you can write to")
	}
	return f, nil
}

// openCopies opens the copies that file is repaired from, or the parts of one.
func openCopies(file *os.File, from []string) (copies []repair.Copy, closers []func(), err error) {
	own, err := file.Stat()
	if err != nil {
		return nil, nil, err
	}
	for _, path := range from {
		if base, ok := isPart(path); ok {
			s, err := parts.Open(base)
			if err != nil {
				return nil, closers, err
			}
			closers = append(closers, s.Close)
			copies = append(copies, repair.Copy{Name: "the parts of " + base, Size: s.Size(), ReaderAt: s})
			continue
		}
		f, err := os.Open(path)
		if err != nil {
			return nil, closers, fault.New(fault.Usage, "%w", err).Hint("name another copy with --from")
		}
		closers = append(closers, func() { f.Close() })
		i, err := f.Stat()
		if err == nil && !i.Mode().IsRegular() {
			err = fault.New(fault.Usage, "%q is not a regular file", path).Hint("name another copy with --from")
		}
		if err == nil && os.SameFile(own, i) {
			err = fault.New(fault.Usage, "%q is the file that is repaired", path).Hint("name another copy with --from")
		}
		if err != nil {
			return nil, closers, err
		}
		copies = append(copies, repair.Copy{Name: path, Size: i.Size(), ReaderAt: f})
	}
	return copies, closers, nil
}

// checkRepaired compares the whole file with its digests.
func checkRepaired(ctx context.Context, path string) error {
	f, err := bundle.OpenWhole(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Check(ctx, nil)
}
