package main

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"airlift/cmd/output"
	"airlift/installer/config"
	"airlift/installer/flow/initcluster"
	"airlift/installer/flow/join"
	"airlift/installer/flow/site"
	"airlift/installer/preflight"
	"airlift/installer/workflow"
)

// complete registers shell completion for flag values, on cmd and its subcommands. The values are
// the values for init or for join.
func complete(cmd *cobra.Command, phases []string, checks preflight.Target) {
	for flag, values := range map[string][]string{
		"skip-phases":             phases,
		"ignore-preflight-errors": append(preflight.Names(checks), "all"),
		"cni":                     {"flannel", "none"},
	} {
		if cmd.Flags().Lookup(flag) != nil {
			_ = cmd.RegisterFlagCompletionFunc(flag, listed(values)) // fails only if the flag does not exist
		}
	}
	for _, sub := range cmd.Commands() {
		complete(sub, phases, checks)
	}
}

// nameCompletion gives the scripts for shell completion the name of the command as the user writes it. coreutils has an install:
// of a file with this name, only the path is completed, and airlift, as the command of a node is named.
func nameCompletion(root *cobra.Command, name output.Name) {
	root.Use = filepath.Base(strings.Trim(name.Here, "'"))
	path := name.Here
	if root.Use == "install" || strings.Contains(root.Use, " ") {
		root.Use = "airlift"
	}
	root.InitDefaultCompletionCmd()
	for shell, register := range map[string]string{"bash": "complete -o default -F __start_%[2]s %[1]s", "zsh": "compdef _%[2]s %[1]s", "fish": "", "powershell": ""} {
		cmd, _, err := root.Find([]string{"completion", shell})
		if err != nil || cmd.Name() != shell {
			continue
		}
		cmd.Long = strings.ReplaceAll(cmd.Long, root.Use+" completion", output.Written+" completion")
		if generate := cmd.RunE; register != "" && root.Use != path {
			cmd.RunE = func(cmd *cobra.Command, args []string) error {
				if err := generate(cmd, args); err != nil {
					return err
				}
				_, err := fmt.Fprintf(output.Verbatim(cmd.OutOrStdout()), register+"\n", path, root.Use)
				return err
			}
		}
	}
}

// listed completes a flag that takes a comma-separated list of values.
func listed(values []string) cobra.CompletionFunc {
	return func(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
		before := typed[:strings.LastIndex(typed, ",")+1]
		var list []string
		for _, v := range values {
			list = append(list, before+v)
		}
		return list, cobra.ShellCompDirectiveNoFileComp
	}
}

// completeAll registers completion on init, join, and the commands for a running cluster.
func completeAll(first, next, apply *cobra.Command, others ...*cobra.Command) {
	empty := &config.Config{}
	empty.LocalAPIEndpoint.BindPort = config.DefaultBindPort
	complete(first, workflow.Names(initcluster.Phases()), preflight.Target{Config: empty, Role: preflight.Init})
	complete(next, workflow.Names(join.Phases(true)), preflight.Target{Config: empty, Role: preflight.JoinControlPlane})
	complete(apply, workflow.Names(site.ApplyPhases()), preflight.Target{Config: empty, Role: preflight.Init})
	for _, cmd := range others {
		complete(cmd, nil, preflight.Target{Config: empty, Role: preflight.Init})
	}
}
