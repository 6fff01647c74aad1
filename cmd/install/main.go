// Command install turns an isolated host into a Kubernetes node. It is the
// first bytes of every bundle file and carries what it installs behind itself.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"airlift/fault"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := newRootCmd().ExecuteContext(ctx)
	if err != nil && ctx.Err() != nil {
		err = fault.New(fault.Interrupted, "nothing is half-written; run the same command again to go on", "interrupted")
	}
	stop()
	if err != nil {
		fault.Print(os.Stderr, err)
	}
	os.Exit(int(fault.ExitCode(err)))
}
