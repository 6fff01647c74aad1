// Command bundle builds and inspects bundles on a machine with a network, for hosts
// without one.
package main

import (
	"context"
	"os"

	"airlift/internal/fault"
	"airlift/internal/interrupt"
)

func main() {
	os.Exit(int(run()))
}

func run() fault.Code {
	ctx, cancel := interrupt.Context(context.Background())
	cmd := newRootCmd()
	cmd.SetOut(interrupt.Output{File: os.Stdout, Lost: cancel})
	cmd.SetErr(interrupt.Output{File: os.Stderr, Lost: cancel})
	called, err := cmd.ExecuteContextC(ctx)
	if err != nil && ctx.Err() != nil {
		err = fault.New(fault.Interrupted, "%w", context.Cause(ctx)).Hint(fault.Hint(err))
	}
	errorEvent(called, err)
	fault.Print(os.Stderr, err)
	return fault.ExitCode(err)
}
