package main

import (
	"fmt"
	"runtime"
	"strings"

	"github.com/spf13/cobra"

	"airlift/images/release"
	"airlift/internal/fault"
)

// catalogList is the document that images --output json prints.
type catalogList struct {
	Images   []string `json:"images"`
	Binaries []string `json:"binaries"` // their URLs
}

func newImagesCmd() *cobra.Command {
	var version, arch, cni string
	var given release.Versions
	var output *outputFormat
	cmd := &cobra.Command{
		Use:     "images",
		Short:   "List the components and images of a Kubernetes version",
		Example: "  bundle images --version v1.29.15",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			full, channel, err := release.Channel(version, given)
			if err != nil {
				return err
			}
			if full == "" {
				return fault.New(fault.Usage, "%q is not a full version", version).
					Hint("give a full version, for example " + release.NewestOf(version) + "; " + channel + " is the newest one")
			}
			c, err := release.For(full, arch, cni, given)
			if err != nil {
				return err
			}
			for _, a := range c.Assumptions() {
				fmt.Fprintf(cmd.ErrOrStderr(), "warning: %s\n", a)
			}
			list := catalogList{Images: []string{}, Binaries: []string{}}
			for _, i := range c.Images {
				list.Images = append(list.Images, i.Reference)
			}
			for _, b := range c.Binaries {
				list.Binaries = append(list.Binaries, b.URL)
			}
			if *output == "json" {
				return printJSON(cmd.OutOrStdout(), list)
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), strings.Join(append(list.Images, list.Binaries...), "\n"))
			return err
		},
	}
	f := cmd.Flags()
	f.StringVar(&version, "version", "", "full Kubernetes version (required)")
	f.StringVar(&arch, "arch", runtime.GOARCH, "CPU architecture of the hosts: amd64 or arm64")
	f.StringVar(&cni, "cni", release.Flannel, "pod network: flannel or none")
	componentFlags(f, &given)
	output = addOutputFlag(cmd)
	return cmd
}
