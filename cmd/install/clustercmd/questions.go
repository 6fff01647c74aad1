package clustercmd

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"airlift/cmd/output"
	"airlift/installer/multihost/live"
	"airlift/installer/multihost/remote"
	"airlift/internal/fault"
	"airlift/internal/interrupt"
	"airlift/internal/progress"
)

// terminal returns the questions of SSH, for the terminal of this process. Without one, nobody can be asked.
func terminal(display *live.Display) (o remote.Options) {
	tty, err := os.OpenFile("/dev/tty", os.O_RDWR, 0)
	if err != nil {
		return o
	}
	o.Ask = func(ctx context.Context, question string) (yes bool, err error) {
		display.Aside(func() {
			var answer string
			fmt.Fprint(tty, fault.Printable(question)+" [y/N] ")
			answer, err = output.ReadLine(ctx, tty)
			yes = isYes(answer)
		})
		return yes, err
	}
	o.Password = func(ctx context.Context, prompt string) (secret string, err error) {
		prompt = fault.Printable(strings.TrimSuffix(strings.TrimSpace(prompt), ":")) + ": " // hosts word the questions of keyboard-interactive
		display.Aside(func() { secret, _, err = interrupt.ReadPassword(ctx, tty, tty, prompt) })
		return secret, err
	}
	return o
}

func isYes(answer string) bool {
	a := strings.ToLower(strings.TrimSpace(answer))
	return a == "y" || a == "yes"
}

// confirm asks a question whose answer comes from a terminal or a pipe. A wanted text, such as the name of the cluster, must
// be typed as it is; "" is for yes or no.
func confirm(cmd *cobra.Command, question, wanted, hint string) error {
	fmt.Fprint(cmd.OutOrStdout(), question+" ")
	if _, events := cmd.OutOrStdout().(interface{ Emit(progress.Event) }); events {
		fmt.Fprintln(cmd.OutOrStdout()) // without the end of the line, it would be an event after the answer
	}
	answer, err := output.ReadLine(cmd.Context(), cmd.InOrStdin())
	if cmd.Context().Err() != nil {
		return context.Cause(cmd.Context())
	}
	if !isTerminal(cmd) {
		fmt.Fprintln(cmd.OutOrStdout()) // end the line: no user pressed return
	}
	switch {
	case err != nil && answer == "":
		return fault.New(fault.Usage, "%s needs confirmation, and standard input ended without an answer", cmd.Name()).Hint(hint)
	case wanted == "" && isYes(answer), wanted != "" && strings.TrimSpace(answer) == wanted:
		return nil
	}
	return fault.New(fault.Failure, "not confirmed: nothing was changed")
}
