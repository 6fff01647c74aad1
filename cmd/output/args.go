package output

import (
	"cmp"
	"strings"

	"github.com/spf13/cobra"

	"airlift/cmd/suggest"
	"airlift/internal/fault"
)

// NoArgs is for commands without arguments, also if they have commands of their own. The error is a usage error.
func NoArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fault.New(fault.Usage, "unknown command or argument %q", strings.Join(args, " ")).Hint(suggest.Command(cmd, args))
	}
	return nil
}

// OneArg is for commands with one argument. text is the usage error without it; without a hint, the error names the help.
func OneArg(text, hint string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != 1 || args[0] == "" {
			return fault.New(fault.Usage, "%s", text).Hint(cmp.Or(hint, "see '"+cmd.CommandPath()+" --help'"))
		}
		return nil
	}
}

// AtMostOneArg is for commands with an argument that may be left out: a "file".
func AtMostOneArg(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) > 1 {
			return fault.New(fault.Usage, "%s accepts one %s, and got %d", cmd.Name(), what, len(args)).Hint("see '" + cmd.CommandPath() + " --help'")
		}
		return nil
	}
}

// Complete completes a command and those below it: without Args it has no arguments, and without RunE it
// prints its help. Completion knows the values of --output.
func Complete(cmd *cobra.Command) {
	if cmd.Args == nil {
		cmd.Args = NoArgs
	}
	if cmd.RunE == nil {
		cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	}
	if f := cmd.Flags().Lookup("output"); f != nil {
		_ = cmd.RegisterFlagCompletionFunc(f.Name, cobra.FixedCompletions([]string{"text", "json", "yaml"}, cobra.ShellCompDirectiveNoFileComp)) // fails only if there is one
	}
	for _, below := range cmd.Commands() {
		Complete(below)
	}
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
