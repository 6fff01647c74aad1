package docs

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// CheckCall returns an error if the command does not have the subcommand or a flag
// of the call.
func CheckCall(root *cobra.Command, c Call) error {
	cmd, rest := root, []string{}
	for i, word := range c.Args {
		if sub := child(cmd, word); sub != nil && len(rest) == 0 {
			cmd = sub
			continue
		}
		rest = c.Args[i:]
		break
	}
	for i, word := range rest {
		name, isFlag := strings.CutPrefix(word, "--")
		name, _, _ = strings.Cut(name, "=")
		switch {
		case isFlag && rest[0] == placeholder && HasFlag(cmd, name): // of a subcommand
		case isFlag && name != "help" && cmd.Flags().Lookup(name) == nil && cmd.InheritedFlags().Lookup(name) == nil:
			return fmt.Errorf("%s: %q has no flag --%s", c.Page, cmd.CommandPath(), name)
		case !isFlag && i == 0 && cmd.Args != nil && cmd.Args(cmd, nil) == nil && strings.ToLower(word) == word && !strings.HasPrefix(word, "-") && word != "…":
			if err := cmd.Args(cmd, rest[:1]); err != nil {
				return fmt.Errorf("%s: %q: %w", c.Page, cmd.CommandPath(), err)
			}
		}
	}
	return nil
}

func child(cmd *cobra.Command, name string) *cobra.Command {
	for _, c := range cmd.Commands() {
		if c.Name() == name {
			return c
		}
	}
	return nil
}

// HasFlag reports whether the command or one of its subcommands has the flag.
func HasFlag(cmd *cobra.Command, name string) bool {
	if cmd.Flags().Lookup(name) != nil || cmd.PersistentFlags().Lookup(name) != nil {
		return true
	}
	for _, c := range cmd.Commands() {
		if HasFlag(c, name) {
			return true
		}
	}
	return false
}
