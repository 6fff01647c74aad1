package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/spf13/cobra"

	"airlift/builder/sitefile"
	"airlift/internal/fault"
)

// defaultFile is the name that bundle init gives the description of a bundle.
const defaultFile = "bundle.yaml"

func newInitCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "init [FILE]",
		Short: "Write an example of a bundle.yaml",
		Long: `Write an example of the file that "bundle build --file" reads, with every field and
its explanation. The fields are comments; remove the # from the fields that you need. The
default FILE is bundle.yaml. An existing file is not changed.`,
		Example: `  bundle init
  bundle build --file bundle.yaml`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			path := defaultFile
			if len(args) > 0 {
				path = args[0]
			}
			if err := writeNew(path, sitefile.Example); err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s was written. Edit it, then run: bundle build --file %s\n", path, fault.Word(path))
			return nil
		},
	}
}

// writeNew writes a file that does not exist yet. If that fails, there is no file.
func writeNew(path string, content []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return fault.New(fault.Usage, "%q exists already", path).Hint("give another name: bundle init FILE")
	}
	if err != nil {
		return fault.Wrap(err, fault.Usage, "give a file in a directory that you can write to: bundle init FILE")
	}
	_, err = f.Write(content)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		os.Remove(path)
	}
	return err
}
