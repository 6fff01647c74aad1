package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"airlift/bundle/compare"
	"airlift/internal/progress"
)

func newDiffCmd() *cobra.Command {
	var output *outputFormat
	cmd := &cobra.Command{
		Use:   "diff OLD NEW",
		Short: "Show the differences between two bundles",
		Long: `Show the differences between two bundles: the Kubernetes version, components, images by
reference, the Go modules of binaries, the site's own manifests, files and systemd
units, and how many bytes of layers both bundles have.

The Go modules are read from binaries that differ, also from those in image layers that
only one bundle has. Their versions show which fixes a new bundle brings; "go" is the
version of Go. Binaries without build information are not listed.

diff reads the entries that differ, and compares them with their sha256. The exit code
is 0 with and without differences; read "different" of --output json.`,
		Example: `  bundle diff install.old install
  bundle diff install.old install --output json | jq .different`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			before, after, err := openTwo(args[0], args[1])
			if err != nil {
				return err
			}
			defer func() { _ = errors.Join(before.Close(), after.Close()) }()
			r, err := compare.Files(cmd.Context(), before, after)
			if err != nil {
				return err
			}
			if *output == "json" {
				return printJSON(cmd.OutOrStdout(), r)
			}
			return diffText(cmd.OutOrStdout(), r)
		},
	}
	output = addOutputFlag(cmd)
	return cmd
}

// diffText prints a line for each difference: - for what only the old bundle has, + for what
// only the new one has, ~ for what changed.
func diffText(w io.Writer, r *compare.Report) error {
	var b strings.Builder
	line := func(indent string, c compare.Change) {
		switch {
		case c.Old == "":
			fmt.Fprintf(&b, "%s+ %s %s\n", indent, c.Name, c.New)
		case c.New == "":
			fmt.Fprintf(&b, "%s- %s %s\n", indent, c.Name, c.Old)
		default:
			fmt.Fprintf(&b, "%s~ %s %s → %s\n", indent, c.Name, c.Old, c.New)
		}
	}
	var heads []compare.Change
	for _, c := range []compare.Change{{Name: "kubernetes", Old: r.Old.KubernetesVersion, New: r.New.KubernetesVersion},
		{Name: "platform", Old: r.Old.Platform, New: r.New.Platform}, {Name: "pod network", Old: r.Old.CNI, New: r.New.CNI},
		{Name: "only", Old: r.Old.Only, New: r.New.Only}, {Name: "base", Old: r.Old.Base, New: r.New.Base},
		{Name: "installer", Old: "sha256:" + r.Old.InstallerSHA256, New: "sha256:" + r.New.InstallerSHA256}} {
		if c.Old != c.New {
			heads = append(heads, c)
		}
	}
	for _, section := range []struct {
		title string
		list  []compare.Change
	}{{"bundle", heads}, {"components", r.Components}, {"images", r.Images}, {"manifests", r.Manifests}, {"files", r.Files}, {"units", r.Units}, {"packages", r.Packages}} {
		if len(section.list) > 0 {
			fmt.Fprintf(&b, "%s:\n", section.title)
		}
		for _, c := range section.list {
			line("  ", c)
		}
	}
	if len(r.Modules) > 0 {
		fmt.Fprintf(&b, "Go modules:\n")
	}
	for _, binary := range r.Modules {
		fmt.Fprintf(&b, "  %s\n", binary.Name)
		for _, m := range binary.Modules {
			line("    ", m)
		}
	}
	if !r.Different {
		fmt.Fprintf(&b, "the contents are equal\n")
	}
	fmt.Fprintf(&b, "file: %s → %s; unpacked: %s → %s\n", progress.Bytes(r.Old.Size), progress.Bytes(r.New.Size),
		progress.Bytes(r.Old.UnpackedSize), progress.Bytes(r.New.UnpackedSize))
	share := 100 * float64(r.SharedLayers) / float64(cmp.Or(r.New.Layers, 1))
	fmt.Fprintf(&b, "layers: %s of %s are in both (%.0f%%)\n", progress.Bytes(r.SharedLayers), progress.Bytes(r.New.Layers), share)
	_, err := io.WriteString(w, b.String())
	return err
}
