package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"airlift/bundle/builder"
	"airlift/bundle/lock"
	"airlift/fault"
	"airlift/progress"
)

func newUpdateCmd() *cobra.Command {
	var b buildFlags
	cmd := &cobra.Command{
		Use:   "update",
		Short: "Write bundle.lock again",
		Long: `Write bundle.lock again: request the newest version of a channel, published checksums,
the digests of tags and charts, read the site's own sources, and print what changed.
No image layer and no component is downloaded.

The flags are those of "bundle build" that choose the contents of a bundle. Give update the
flags that the build gets. The default of --file is bundle.yaml, unless --lock is given.
The lock is replaced in one step; on an error it is unchanged.`,
		Example: `  bundle update
  bundle update --file site/bundle.yaml
  bundle update --version v1.29 --lock install.lock`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if b.file == "" && b.lock == "" {
				b.file = defaultFile
			}
			o, err := b.options(cmd)
			if err != nil {
				return err
			}
			before, err := lock.Read(o.LockPath)
			if err != nil && !lock.Missing(err) {
				fmt.Fprintf(cmd.ErrOrStderr(), "note: the earlier lock cannot be compared: %v\n", err)
			}
			o.Progress = progress.New(cmd.ErrOrStderr())
			after, warnings, err := builder.Resolve(cmd.Context(), *o)
			if err != nil && cmd.Context().Err() != nil {
				return fault.Wrap(err, fault.Interrupted, "run the same command again; the lock is unchanged")
			}
			if err != nil {
				return err
			}
			if err := lock.Write(o.LockPath, after); err != nil {
				return err
			}
			for _, w := range warnings {
				fmt.Fprintf(cmd.ErrOrStderr(), "warning: %s\n", w)
			}
			return printChanges(cmd.OutOrStdout(), o.LockPath, before, after)
		},
	}
	b.bind(cmd)
	return cmd
}

// printChanges prints what is different in the lock. before is nil if there was none.
func printChanges(out io.Writer, path string, before, after *lock.Lock) error {
	if before == nil {
		_, err := fmt.Fprintf(out, "%s was written: Kubernetes %s, %d components, %d images\n", path, after.KubernetesVersion, len(after.Components), len(after.Images))
		return err
	}
	list := lock.Differences(before, after)
	for _, d := range list {
		fmt.Fprintln(out, d)
	}
	result := "is up to date"
	if len(list) > 0 {
		result = "was written"
	}
	_, err := fmt.Fprintf(out, "%s %s\n", path, result)
	return err
}
