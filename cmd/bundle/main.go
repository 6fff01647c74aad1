// Command bundle makes and inspects bundles, on a machine with a network, for
// hosts that have none.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"airlift/fault"
)

func main() {
	os.Exit(int(run()))
}

func run() fault.Code {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// A second Ctrl-C ends the program at once.
	context.AfterFunc(ctx, stop)

	err := newRootCmd().ExecuteContext(ctx)
	if err != nil && ctx.Err() != nil {
		err = fault.New(fault.Interrupted, fault.Hint(err), "interrupted")
	}
	fault.Print(os.Stderr, err)
	return fault.ExitCode(err)
}
