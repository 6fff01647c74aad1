package clustercmd

import (
	"fmt"

	"github.com/spf13/cobra"

	"airlift/cmd/output"
	"airlift/installer/multihost/convert"
	"airlift/internal/documents/strict"
	"airlift/internal/fault"
)

func newConvert(in *site) *cobra.Command {
	const example = "./install cluster convert -f k0sctl.yaml > cluster.yaml"
	return &cobra.Command{
		Use:   "convert",
		Short: "Print a cluster.yaml from a file of k0sctl",
		Long: `Print a cluster.yaml from the file of k0sctl that --file names, with the configuration of k0s
in it. Each part of that file is converted, or is in a list: on standard error, and as
comments at the beginning of the cluster.yaml. The list also has what needs a decision, such
as the name of a host of which the file has only the address.

The cluster.yaml describes a new cluster: Airlift does not take over the nodes of k0s.`,
		Example: "  " + example,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := noEffect(cmd, "this command reads no cluster.yaml and no host", example, "skip", "parallel"); err != nil {
				return err
			}
			if !cmd.Flags().Changed("file") {
				return fault.New(fault.Usage, "--file is required: the file of k0sctl").Hint(example)
			}
			data, err := strict.Load(in.file)
			if err != nil {
				return fault.Wrap(err, fault.Usage, example)
			}
			text, left, err := convert.K0sctl(in.file, data)
			if err != nil {
				return err
			}
			if len(left) > 0 {
				fmt.Fprintf(cmd.ErrOrStderr(), "%d parts of %s have no counterpart, or need a decision:\n", len(left), in.file)
			}
			for _, l := range left {
				fmt.Fprintf(cmd.ErrOrStderr(), "  %s:%s\n", in.file, fault.Printable(l.String()))
			}
			_, err = output.Verbatim(cmd.OutOrStdout()).Write(text)
			return err
		},
	}
}
