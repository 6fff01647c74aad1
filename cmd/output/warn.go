package output

import (
	"fmt"

	"github.com/spf13/cobra"
)

// Warner returns a function that prints a warning on standard error.
func Warner(cmd *cobra.Command) func(format string, args ...any) {
	return func(format string, args ...any) {
		fmt.Fprintf(cmd.ErrOrStderr(), "warning: "+format+"\n", args...)
	}
}
