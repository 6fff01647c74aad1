package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"airlift/bundle"
	"airlift/bundle/sbom"
	"airlift/fault"
	"airlift/progress"
)

func newSBOMCmd() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "sbom FILE",
		Short: "List the software in a bundle as SPDX or CycloneDX",
		Long: `List the software in a bundle (SBOM, software bill of materials), as SPDX 2.3 or
CycloneDX 1.6, on the standard output:

  - every component with its binaries, and the Go modules of each binary
  - every image with its digest and layers, and in them the Go binaries with their
    modules, and the packages of Debian, Ubuntu, distroless and Alpine
  - the site's own manifests, charts and files

The list is made from the file alone, without a network. The same file gives the same
bytes: the creation time is that in SOURCE_DATE_EPOCH, or 1970.`,
		Example: `  bundle sbom install > install.spdx.json
  bundle sbom install --output cyclonedx-json > install.cdx.json`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			format, err := sbom.ParseFormat(output)
			if err != nil {
				return err
			}
			created, err := sbom.Created()
			if err != nil {
				return err
			}
			f, err := bundle.Open(args[0])
			if err != nil {
				return err
			}
			defer f.Close()
			display := progress.New(cmd.ErrOrStderr())
			defer display.Close()
			c, err := listContents(cmd.Context(), display, f)
			if err != nil {
				return err
			}
			display.Close()
			for _, w := range c.Warnings {
				fmt.Fprintf(cmd.ErrOrStderr(), "warning: %s\n", w)
			}
			content, err := c.Encode(format, created)
			if err != nil {
				return err
			}
			_, err = cmd.OutOrStdout().Write(content)
			return err
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", string(sbom.SPDX), `output format: "spdx-json" or "cyclonedx-json"`)
	cobra.CheckErr(cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(sbom.Formats(), cobra.ShellCompDirectiveNoFileComp)))
	return cmd
}

// listContents reads the software in a bundle.
func listContents(ctx context.Context, display *progress.Display, f *bundle.File) (*sbom.Contents, error) {
	m, err := f.Manifest()
	if err != nil {
		return nil, err
	}
	item := display.Item("listing "+f.Path(), sbom.Size(f, m))
	c, err := sbom.Read(ctx, f, item.Add)
	if err != nil {
		item.Failed()
		if fault.ExitCode(err) == fault.Failure {
			err = fmt.Errorf("listing the software in %s: %w", f.Path(), err)
		}
		return nil, err
	}
	item.Done(fmt.Sprintf("%d packages and files", len(c.Items)))
	return c, nil
}
