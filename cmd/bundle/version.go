package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"airlift/bundle"
	"airlift/images"
)

// version is set by the linker for releases.
var version = ""

func newVersionCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version and the supported Kubernetes versions",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			known := images.Known()
			fmt.Fprintf(cmd.OutOrStdout(), "bundle %s (%s, %s/%s)\nbundle format %d\nKubernetes %s to %s\n",
				programVersion(), runtime.Version(), runtime.GOOS, runtime.GOARCH, bundle.FormatVersion, known[0], known[len(known)-1])
			return nil
		},
	}
}

// programVersion returns version, or else the version that the Go toolchain recorded.
func programVersion() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return strings.Trim(info.Main.Version, "()")
	}
	return "devel"
}
