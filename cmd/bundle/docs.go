package main

import (
	"github.com/spf13/cobra"

	"airlift/bundle"
	"airlift/cmd/manual"
	"airlift/internal/atomicfile"
)

func newDocsCmd() *cobra.Command {
	return manual.Command(func(path string, data []byte) error {
		if err := bundle.KeepBundle(path); err != nil {
			return err
		}
		return atomicfile.Write(path, data, 0o644)
	})
}
