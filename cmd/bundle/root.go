package main

import (
	"github.com/spf13/cobra"

	"airlift/fault"
)

func newRootCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bundle",
		Short: "Make one file that installs Kubernetes where there is no network",
		Long: `Make one file that installs Kubernetes where there is no network.

"bundle build" collects a Kubernetes version's programs and images from where
upstream publishes them, verifies each, and writes them into one executable
file. Copy that to the hosts and run it there: ./install init, ./install join.

Ctrl-C, SIGTERM, a lost session or closed output interrupt a run; downloads that
are complete are kept. A second Ctrl-C ends it at once.

Exit codes: 0 done, 1 failure, 2 wrong usage, 4 the bundle is missing,
truncated or damaged, 130 interrupted.`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.NoArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			return cmd.Help()
		},
	}
	cmd.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return fault.Wrap(err, fault.Usage, "see "+c.CommandPath()+" --help")
	})
	cmd.AddCommand(newBuildCmd(), newImagesCmd(), newInspectCmd(), newVerifyCmd(), newVersionCmd())
	usageErrors(cmd)
	return cmd
}

// usageErrors gives the errors that cobra finds in arguments the exit code of
// wrong usage.
func usageErrors(cmd *cobra.Command) {
	if check := cmd.Args; check != nil {
		cmd.Args = func(c *cobra.Command, args []string) error {
			return fault.Wrap(check(c, args), fault.Usage, "see "+c.CommandPath()+" --help")
		}
	}
	for _, sub := range cmd.Commands() {
		usageErrors(sub)
	}
}
