package main

import (
	"fmt"

	"github.com/spf13/cobra"
)

func newVersionCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the versions of this installer and of what it installs",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			out := cmd.OutOrStdout()
			fmt.Fprintf(out, "install %s\n", version)
			f, err := openBundle()
			if err != nil {
				return err
			}
			defer f.Close()
			m, err := f.Manifest()
			if err != nil {
				return err
			}
			for _, c := range m.Components {
				fmt.Fprintf(out, "%s %s\n", c.Name, c.Version)
			}
			for _, i := range m.Images {
				fmt.Fprintln(out, i.Reference)
			}
			return nil
		},
	}
}
