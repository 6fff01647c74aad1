package main

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"airlift/installer/config"
	"airlift/internal/fault"
)

// TestFlagsWithConfigFile: a flag that cannot be given together with --config has a field in the
// file, and the error names it. Flags without a field, such as the flags for this file's signature,
// are allowed.
func TestFlagsWithConfigFile(t *testing.T) {
	checked := 0
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
		if cmd.Flags().Lookup("config") == nil {
			return
		}
		check := func(f *pflag.Flag) {
			checked++
			err := config.CheckMixed([]string{"config", f.Name})
			if err != nil && !strings.Contains(fault.Hint(err), "--"+f.Name+" is ") {
				t.Errorf("%s --config FILE --%s: %v; hint: %s", cmd.CommandPath(), f.Name, err, fault.Hint(err))
			}
		}
		cmd.Flags().VisitAll(check)
		cmd.InheritedFlags().VisitAll(check)
	}
	for _, words := range []string{"init", "join", "preflight", "reset"} {
		walk(findCommand(words))
	}
	if checked < 1000 {
		t.Errorf("only %d flags of all phases", checked)
	}
}
