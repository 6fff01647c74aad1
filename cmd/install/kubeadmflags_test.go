package main

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// notKubeadms are the commands and flags of kubeadm that install does not have, each with
// the reason. A row with a command alone means that command and its subcommands; a row
// without a command means the flag of every command.
var notKubeadms = []struct{ command, flag, reason string }{
	{"upgrade", "", "there is no upgrade yet"},
	{"", "--add-dir-header", "a form of klog's log; install does not log with klog"},
	{"", "--log-file", "klog's log; install prints everything"},
	{"", "--log-file-max-size", "klog's log; install prints everything"},
	{"", "--one-output", "klog's log; install prints everything"},
	{"", "--skip-headers", "a form of klog's log; install does not log with klog"},
	{"", "--skip-log-headers", "a form of klog's log; install does not log with klog"},
	{"", "--vmodule", "klog's verbosity for each of kubeadm's source files; install has -v"},
}

// kubeadmCommand is a command of kubeadm: its aliases, and its flags with their dashes. The
// value of a flag is true if it takes one.
type kubeadmCommand struct {
	aliases []string
	flags   map[string]bool
}

// TestKubeadmsCommandLine: a script for kubeadm runs with install. Every command, alias and
// flag in the shell completion of real kubeadm exists here, or has a row in notKubeadms.
func TestKubeadmsCommandLine(t *testing.T) {
	needed, walked := map[int]bool{}, 0
	missing := func(t *testing.T, command, flag, what string) {
		for i, row := range notKubeadms {
			here := row.command == "" || command == row.command || strings.HasPrefix(command, row.command+" ")
			if here && (row.flag == "" || row.flag == flag) {
				needed[i] = true
				return
			}
		}
		t.Errorf("kubeadm %s %s: %s", command, flag, what)
	}
	for _, version := range []string{"v1.29.15", "v1.37.1"} {
		t.Run(version, func(t *testing.T) {
			all := completions(t, kubeadmOutput(t, version, "completion", "bash"))
			if len(all) < 90 || !all["init"].flags["--config"] || all["init"].flags["--dry-run"] {
				t.Fatalf("the completion was not understood: %d commands, init has %v", len(all), all["init"].flags)
			}
			for _, command := range slices.Sorted(maps.Keys(all)) {
				compareCommand(t, command, all[command], missing)
			}
			walked++
		})
	}
	for i, row := range notKubeadms {
		if walked == 2 && !needed[i] {
			t.Errorf("this row is not needed any more: %v", row)
		}
	}
}

// compareCommand calls missing for what install does not have of one command.
func compareCommand(t *testing.T, command string, theirs kubeadmCommand, missing func(t *testing.T, command, flag, what string)) {
	ours := findCommand(command)
	if ours == nil {
		missing(t, command, "", "there is no such command")
		return
	}
	parent := command[:strings.LastIndex(command, " ")+1]
	for _, alias := range theirs.aliases {
		if findCommand(parent+alias) == nil {
			missing(t, command, "", "there is no alias "+alias)
		}
	}
	for _, flag := range slices.Sorted(maps.Keys(theirs.flags)) {
		f := lookupFlag(ours, flag)
		switch takesValue := theirs.flags[flag]; {
		case f == nil:
			missing(t, command, flag, "there is no such flag")
		case takesValue && f.NoOptDefVal != "":
			missing(t, command, flag, "it takes no value here")
		case !takesValue && f.NoOptDefVal == "":
			missing(t, command, flag, "it needs a value here")
		}
	}
}

// findCommand returns the command that runs for these words, or nil.
func findCommand(words string) *cobra.Command {
	root := newRootCmd()
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	cmd, rest, err := root.Find(strings.Fields(words))
	if err != nil || cmd == root && words != "" {
		return nil
	}
	for _, word := range rest { // 'certs renew admin.conf': a subcommand there, an argument here
		if !slices.Contains(cmd.ValidArgs, word) {
			return nil
		}
	}
	return cmd
}

func lookupFlag(cmd *cobra.Command, flag string) *pflag.Flag {
	cmd.InitDefaultHelpFlag()
	for _, set := range []*pflag.FlagSet{cmd.Flags(), cmd.InheritedFlags()} {
		if name, long := strings.CutPrefix(flag, "--"); long && set.Lookup(name) != nil {
			return set.Lookup(name)
		} else if !long && set.ShorthandLookup(flag[1:]) != nil {
			return set.ShorthandLookup(flag[1:])
		}
	}
	return nil
}

var completionLine = regexp.MustCompile(`^ *(last_command=|aliashash\[|flags\+=\(|two_word_flags\+=\()"([^"]+)"(?:\]="([^"]+)")?`)

// completions reads the commands from a script that cobra generates for bash. The script has
// one function for each command, with its flags and with the aliases of its subcommands.
func completions(t *testing.T, script string) map[string]kubeadmCommand {
	all, aliases := map[string]kubeadmCommand{}, map[string][]string{}
	command := ""
	for line := range strings.Lines(script) {
		m := completionLine.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		name := m[2]
		switch m[1] {
		case "last_command=":
			command = strings.TrimPrefix(strings.ReplaceAll(name, "_", " "), "kubeadm")
			command = strings.TrimSpace(command)
			all[command] = kubeadmCommand{flags: map[string]bool{}}
		case "aliashash[":
			full := strings.TrimSpace(command + " " + m[3])
			aliases[full] = append(aliases[full], name)
		case "flags+=(":
			long, value := strings.CutSuffix(name, "=")
			all[command].flags[long] = value
		case "two_word_flags+=(":
			all[command].flags[name] = true
		}
	}
	for full, names := range aliases {
		c, ok := all[full]
		if !ok {
			t.Fatalf("an alias of an unknown command %q", full)
		}
		c.aliases = names
		all[full] = c
	}
	return all
}
