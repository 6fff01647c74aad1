package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"airlift/builder/sbom"
	"airlift/bundle"
	"airlift/internal/fault"
	"airlift/internal/progress"
)

func newSBOMCmd() *cobra.Command {
	var output string
	var check bool
	cmd := &cobra.Command{
		Use:   "sbom FILE",
		Short: "Print the list of the software in a bundle as SPDX or CycloneDX",
		Long: `Print the list of the software in a bundle (SBOM, software bill of materials), as SPDX
2.3 or CycloneDX 1.6:

  - every component with its binaries, and the Go modules of each binary
  - every image with its digest and layers, and in them the Go binaries with their
    modules, and the packages of Debian, Ubuntu, distroless and Alpine
  - the site's own manifests, charts and files

"bundle build" writes the lists into the file, as sbom/bundle.spdx.json and
sbom/bundle.cdx.json. This command prints them unchanged. For a file without them, it
generates the list. --check generates the lists from all other contents of the file, and
compares them. The exit code is 4 if they differ. Use the release of bundle that built
the file: another one may find more.

A list depends only on the contents: the same bundle gives the same bytes. The creation
time is 1970, or the value of SOURCE_DATE_EPOCH at the time of the build.`,
		Example: `  bundle sbom install > install.spdx.json
  bundle sbom install --output cyclonedx-json > install.cdx.json
  bundle sbom install --check`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			format, err := sbom.ParseFormat(output)
			if err != nil {
				return err
			}
			if check && cmd.Flags().Changed("output") {
				return fault.New(fault.Usage, "--check prints no list").Hint("remove --output")
			}
			created, err := sbom.Created()
			if err != nil {
				return err
			}
			f, err := bundle.OpenWhole(args[0])
			if err != nil {
				return err
			}
			defer f.Close()
			display := progress.New(cmd.ErrOrStderr())
			defer display.Close()
			if check {
				return checkSBOM(cmd, display, f)
			}
			content, err := sbom.Embedded(cmd.Context(), f, format)
			if err != nil {
				return err
			}
			if content == nil {
				c, err := listContents(cmd.Context(), display, f)
				if err != nil {
					return err
				}
				display.Close()
				printWarnings(cmd, c)
				if content, err = c.Encode(format, created); err != nil {
					return err
				}
			}
			_, err = cmd.OutOrStdout().Write(content)
			return err
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", string(sbom.SPDX), `output format: "spdx-json" or "cyclonedx-json"`)
	cmd.Flags().BoolVar(&check, "check", false, "compare the lists in the file with its other contents (see above)")
	complete(cmd, "output", sbom.Formats())
	return cmd
}

func printWarnings(cmd *cobra.Command, c *sbom.Contents) {
	for _, w := range c.Warnings {
		fmt.Fprintf(cmd.ErrOrStderr(), "warning: %s\n", w)
	}
}

// checkSBOM compares the lists in the file with its contents.
func checkSBOM(cmd *cobra.Command, display *progress.Display, f *bundle.File) error {
	c, err := listContents(cmd.Context(), display, f)
	if err != nil {
		return err
	}
	if err := c.Compare(cmd.Context(), f); err != nil {
		return err
	}
	display.Close()
	printWarnings(cmd, c)
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "the SBOM in %s matches its contents: %d packages and files\n", f.Path(), len(c.Items))
	return err
}

// listContents makes the list of the software in a bundle.
func listContents(ctx context.Context, display *progress.Display, f *bundle.File) (*sbom.Contents, error) {
	m, err := f.Manifest()
	if err != nil {
		return nil, err
	}
	item := display.Item("listing "+f.Path(), m.UnpackedSize())
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
