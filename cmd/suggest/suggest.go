// Package suggest finds the command or the flag that a user meant: after a typing error, with a word of another tool, or at
// another command.
package suggest

import (
	"errors"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"airlift/internal/fault"
)

// most is how many commands a hint names.
const most = 3

// kubectls are commands that kubectl has.
var kubectls = []string{"annotate", "cordon", "describe", "drain", "edit", "exec", "get", "label", "logs", "scale", "taint", "top", "uncordon"}

// Command returns the hint for words that are no command of cmd.
func Command(cmd *cobra.Command, words []string) string {
	help := "see '" + cmd.CommandPath() + " --help'"
	if len(words) == 0 || !cmd.HasSubCommands() {
		return help
	}
	found := named(cmd, words)
	if len(found) == 0 && slices.Contains(kubectls, words[0]) { // which is no typing error for a command with a similar name
		return "kubectl has this command: kubectl " + words[0]
	}
	if len(found) == 0 {
		cmd.SuggestionsMinimumDistance = 2 // letters
		for _, name := range cmd.SuggestionsFor(words[0]) {
			found = append(found, child(cmd, name))
		}
	}
	if len(found) > 0 {
		return DidYouMean(paths(found)...)
	}
	var names []string
	all := visible(cmd.Root())
	for _, c := range all {
		names = append(names, c.Name())
	}
	if name := fault.Nearest(words[0], names); name != "" {
		return DidYouMean(paths(slices.DeleteFunc(all, func(c *cobra.Command) bool { return c.Name() != name }))...)
	}
	return help
}

// named returns the commands with this name in the whole tree, or with this word of another tool: those below cmd, or else all.
func named(cmd *cobra.Command, words []string) (found []*cobra.Command) {
	for _, from := range []*cobra.Command{cmd, cmd.Root()} {
		for _, c := range visible(from) {
			if c.Name() == words[0] || slices.Contains(c.SuggestFor, words[0]) {
				found = append(found, c)
			}
		}
		if len(found) > 0 {
			return found
		}
	}
	for i := range words[1:] { // 'kubeadm init', 'alpha certs renew'
		if c, _, err := cmd.Root().Find(words[i+1:]); err == nil && c != cmd.Root() {
			return []*cobra.Command{c}
		}
	}
	return nil
}

// DidYouMean asks whether the user meant one of the first alternatives.
func DidYouMean(alternatives ...string) string {
	return "did you mean " + strings.Join(quoted(alternatives[:min(len(alternatives), most)]), " or ") + "?"
}

func quoted(list []string) (words []string) {
	for _, word := range list {
		words = append(words, "'"+word+"'")
	}
	return words
}

// synonyms are flags of other tools, and of commands here, for the same purpose.
var synonyms = [][]string{
	{"yes", "force", "auto-approve", "assume-yes", "no-confirm", "skip-confirmation"},
	{"file", "config", "cluster-config"},
	{"out", "output-file", "output-path"},
	{"dry-run", "plan", "check", "what-if"},
	{"output", "format"},
	{"skip", "exclude"},
	{"v", "verbose", "debug", "log-level", "loglevel"},
}

// Flag returns the hint for an error in a flag of cmd.
func Flag(cmd *cobra.Command, err error) string {
	help := "see '" + cmd.CommandPath() + " --help'"
	missing := (*pflag.NotExistError)(nil)
	if !errors.As(err, &missing) || missing.GetSpecifiedShortnames() != "" {
		return help
	}
	name, own := missing.GetSpecifiedName(), flags(cmd)
	for _, set := range synonyms {
		if i := slices.IndexFunc(set, func(s string) bool { return slices.Contains(own, s) }); i >= 0 && slices.Contains(set, name) {
			return DidYouMean(dashed(set[i]))
		}
	}
	if slices.Contains(synonyms[3], name) && cmd.HasParent() {
		if plan := child(cmd.Parent(), "plan"); plan != nil {
			return DidYouMean(plan.CommandPath())
		}
	}
	if near := fault.Nearest(name, own); near != "" {
		return DidYouMean(dashed(near))
	}
	for _, from := range []*cobra.Command{cmd, cmd.Root()} { // apply --undo, --version
		if c := child(from, name); c != nil && !c.Hidden {
			return DidYouMean(c.CommandPath())
		}
	}
	having := slices.DeleteFunc(visible(cmd.Root()), func(c *cobra.Command) bool { return !slices.Contains(flags(c), name) })
	if len(having) > 0 && len(having) <= most {
		return "this flag is one of " + strings.Join(quoted(paths(having)), ", ")
	}
	return help
}

func dashed(flag string) string {
	if len(flag) == 1 {
		return "-" + flag
	}
	return "--" + flag
}

// flags returns the names of the flags of a command.
func flags(cmd *cobra.Command) (names []string) {
	for _, set := range []*pflag.FlagSet{cmd.LocalFlags(), cmd.InheritedFlags()} {
		set.VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	}
	return names
}

// visible returns the commands below root that help lists, in its order.
func visible(root *cobra.Command) (list []*cobra.Command) {
	for _, c := range root.Commands() {
		if !c.Hidden {
			list = append(append(list, c), visible(c)...)
		}
	}
	return list
}

func child(cmd *cobra.Command, name string) *cobra.Command {
	i := slices.IndexFunc(cmd.Commands(), func(c *cobra.Command) bool { return c.Name() == name || c.HasAlias(name) })
	if i < 0 {
		return nil
	}
	return cmd.Commands()[i]
}

func paths(list []*cobra.Command) (names []string) {
	for _, c := range list {
		if path := c.CommandPath(); !slices.Contains(names, path) {
			names = append(names, path)
		}
	}
	return names
}
