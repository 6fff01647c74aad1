package output

import (
	"io"
	"testing"

	"github.com/spf13/cobra"

	"airlift/internal/fault"
)

// A command without Args and RunE has no arguments and prints its help, and so do those below it. What is set stays.
func TestComplete(t *testing.T) {
	root, group := &cobra.Command{Use: "install", SilenceErrors: true, SilenceUsage: true}, &cobra.Command{Use: "group"}
	one := &cobra.Command{Use: "one", Args: OneArg("name it", ""), RunE: func(*cobra.Command, []string) error { return nil }}
	group.AddCommand(one, &cobra.Command{Use: "maybe", Args: AtMostOneArg("file"), RunE: func(*cobra.Command, []string) error { return nil }})
	root.AddCommand(group)
	Complete(root)
	root.SetOut(io.Discard)
	for _, c := range []struct {
		args []string
		code fault.Code
	}{
		{[]string{}, 0}, {[]string{"x"}, fault.Usage}, {[]string{"group"}, 0}, {[]string{"group", "x"}, fault.Usage},
		{[]string{"group", "one", "a"}, 0}, {[]string{"group", "one"}, fault.Usage}, {[]string{"group", "one", ""}, fault.Usage}, {[]string{"group", "one", "a", "b"}, fault.Usage},
		{[]string{"group", "maybe"}, 0}, {[]string{"group", "maybe", "a"}, 0}, {[]string{"group", "maybe", "a", "b"}, fault.Usage},
	} {
		root.SetArgs(c.args)
		if err := root.Execute(); fault.ExitCode(err) != c.code {
			t.Errorf("%q: %v", c.args, err)
		}
	}
}
