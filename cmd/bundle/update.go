package main

import (
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"airlift/builder"
	"airlift/builder/events"
	"airlift/builder/lock"
	"airlift/internal/fault"
)

func newUpdateCmd() *cobra.Command {
	var b buildFlags
	cmd := &cobra.Command{
		Use:   "update",
		Short: "Update bundle.lock",
		Long: `Update bundle.lock: request the newest version of a channel, published checksums,
the digests of tags and charts, read the site's own sources, and print what changed.
No image layer and no component is downloaded.

Use the same flags as for "bundle build": update has all that select the contents of a
bundle. The default of --file is bundle.yaml, unless --lock is given.
The lock is replaced in one step; on an error it is unchanged.`,
		Example: `  bundle update
  bundle update --file site/bundle.yaml
  bundle update --version v1.29 --lock install.lock`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if b.file == "" && b.lock == "" {
				b.file = defaultFile
			}
			b.reporter = events.Text(cmd.ErrOrStderr())
			list, err := b.options(cmd)
			if err != nil {
				return err
			}
			if err := b.checkLock(list); err != nil {
				return err
			}
			path := list[0].LockPath
			before, err := lock.Read(path)
			if err != nil && !lock.Missing(err) {
				b.reporter.Note(fmt.Sprintf("the earlier lock cannot be compared: %v", err))
			}
			var after lock.Platforms
			var warnings []string
			for _, o := range list {
				o.Report = b.reporter
				l, more, err := builder.Resolve(cmd.Context(), o)
				if err != nil && cmd.Context().Err() != nil {
					return fault.Wrap(err, fault.Interrupted, "run the same command again; the lock is unchanged")
				}
				if err != nil {
					return err
				}
				if first := append(after, l)[0]; first.KubernetesVersion != l.KubernetesVersion {
					return fault.New(fault.Failure, "%s is %s for %s, and %s for %s",
						o.Version, first.KubernetesVersion, first.Platform, l.KubernetesVersion, l.Platform).Hint("run the same command again; the lock is unchanged")
				}
				after, warnings = append(after, l), append(warnings, more...)
			}
			if err := lock.Write(path, after...); err != nil {
				return err
			}
			slices.Sort(warnings)
			for _, w := range slices.Compact(warnings) {
				b.reporter.Warning(w)
			}
			return printChanges(cmd.OutOrStdout(), path, before, after)
		},
	}
	b.bind(cmd)
	return cmd
}

// printChanges prints the differences in the lock. before is nil if there was none.
func printChanges(out io.Writer, path string, before, after lock.Platforms) error {
	if before == nil {
		for _, l := range after {
			fmt.Fprintf(out, "%s was written: Kubernetes %s for %s, %d components, %d images\n", path, l.KubernetesVersion, l.Platform, len(l.Components), len(l.Images))
		}
		return nil
	}
	changed := false
	for _, l := range before {
		if after.Of(l.Platform) == nil && len(before)+len(after) > 2 {
			fmt.Fprintf(out, "%s: removed\n", l.Platform)
			changed = true
		}
	}
	for _, l := range after {
		platform, old := "", before.Of(l.Platform)
		if len(before)+len(after) > 2 {
			platform = l.Platform + " "
		} else {
			old = before[0]
		}
		if old == nil {
			fmt.Fprintf(out, "%s: added\n", l.Platform)
			changed = true
			continue
		}
		for _, d := range lock.Differences(old, l) {
			fmt.Fprintf(out, "%s%s\n", platform, d)
			changed = true
		}
	}
	result := "is up to date"
	if changed {
		result = "was written"
	}
	_, err := fmt.Fprintf(out, "%s %s\n", path, result)
	return err
}
