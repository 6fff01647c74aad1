package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"airlift/bundle"
	"airlift/images/release"
)

// version is set by the linker for releases.
var version = ""

// versionInfo is the document that version --output json prints.
type versionInfo struct {
	Version  string `json:"version"`
	Go       string `json:"go"`
	Platform string `json:"platform"` // "linux/amd64"
	Format   int    `json:"format"`   // of the bundles that this command writes
	// Oldest and Newest are the Kubernetes minor versions.
	Oldest string `json:"oldest"`
	Newest string `json:"newest"`
}

func newVersionCmd() *cobra.Command {
	var output *outputFormat
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version and the supported Kubernetes versions",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			known := release.Known()
			v := versionInfo{commandVersion(), runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH, bundle.FormatVersion, known[0], known[len(known)-1]}
			if *output == "json" {
				return printJSON(cmd.OutOrStdout(), v)
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "bundle %s (%s, %s)\nbundle format %d\nKubernetes %s to %s\n",
				v.Version, v.Go, v.Platform, v.Format, v.Oldest, v.Newest)
			return err
		},
	}
	output = addOutputFlag(cmd)
	return cmd
}

// commandVersion returns version, or else the version that the Go toolchain recorded.
func commandVersion() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return strings.Trim(info.Main.Version, "()")
	}
	return "devel"
}
