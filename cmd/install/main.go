// Command install turns an isolated host into a Kubernetes node. The launcher
// at the start of a bundle file extracts it from the file and starts it.
package main

import (
	"context"
	"os"

	"github.com/spf13/cobra"

	"airlift/cmd/output"
	"airlift/internal/fault"
	"airlift/internal/interrupt"
)

func main() {
	ctx, cancel := interrupt.Context(context.Background())
	cmd := newRootCmd()
	name, given := output.NameOf(os.Args[0], own.path), &output.Given{}
	cmd.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: output.Written}
	cmd.SetOut(output.Text{Name: name, Given: given, Out: interrupt.Output{File: os.Stdout, Lost: cancel}})
	nameCompletion(cmd, name)
	cmd.SetErr(output.Text{Name: name, Given: given, Out: interrupt.Output{File: os.Stderr, Lost: cancel}})
	err := cmd.ExecuteContext(ctx)
	if err != nil && ctx.Err() != nil {
		err = fault.New(fault.Interrupted, "%w", context.Cause(ctx)).Hint("no file is half-written; run the same command again to continue")
	}
	output.PrintError(cmd, err)
	os.Exit(int(fault.ExitCode(err)))
}
