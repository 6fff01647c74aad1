package output

import (
	"strings"

	"github.com/spf13/cobra"

	"airlift/fault"
)

// NoArgs is for commands without arguments, also if they have commands of their own. The error is a usage error.
func NoArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fault.New(fault.Usage, "unknown command or argument %q", strings.Join(args, " ")).Hint("see '" + cmd.CommandPath() + " --help'")
	}
	return nil
}
