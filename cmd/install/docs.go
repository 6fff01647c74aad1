package main

import (
	"github.com/spf13/cobra"

	"airlift/cmd/manual"
	"airlift/installer/host/filesystem"
)

func newDocsCmd() *cobra.Command {
	return manual.Command(func(path string, data []byte) error { return filesystem.WriteOutput(path, data, 0o644) })
}
