package output

import (
	"strings"

	"github.com/spf13/cobra"

	"airlift/internal/fault"
)

// NoArgs is for commands without arguments, also if they have commands of their own. The error is a usage error.
func NoArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fault.New(fault.Usage, "unknown command or argument %q", strings.Join(args, " ")).Hint("see '" + cmd.CommandPath() + " --help'")
	}
	return nil
}

// RefuseEmpty refuses flags that were given with an empty value, for example from an unset
// variable. Otherwise the command would silently ignore the flag.
func RefuseEmpty(cmd *cobra.Command, names ...string) error {
	for _, name := range names {
		if f := cmd.Flags().Lookup(name); f != nil && f.Changed && (f.Value.String() == "" || f.Value.String() == "[]") {
			return fault.New(fault.Usage, "--%s is empty", name).Hint("give --" + name + " a value, or remove the flag")
		}
	}
	return nil
}
